"""The prompt said back: as the caption, in it, or before it. Pure functions.

A prompt may carry a title, a note or an earlier caption of its record, and a caption may well say that again. So what counts is
the instruction: its sentences, known by their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from caption_assets.core.prompts import grid_text
from caption_assets.core.sentences import Words, word_set, words_of

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_CLAUSE = re.compile(r"(?<=[.!?。！？])[\"')\]]*\s+|(?<=[。！？])|\n+|(?<=[^\d\s][:：])\s+|[:：](?=[\u3040-\u9fff])|[：]")

# What an instruction about a caption begins with, and the words it is made of.
_ORDERS = (
    "describe|write|caption|name|mention|list|give|provide|generate|create|produce|compose|explain|identify|transcribe|extract"
    "|translate|summari[sz]e|"
    "shorten|rewrite|improve|correct|fix|expand|count|state|say|tell|answer|reply|respond|return|use|using|keep|avoid|ignore"
    "|include|exclude|focus|start|begin|"
    "end|do not|don't|never|always|be|act|look|read|see|imagine|pretend|you are|you will|your task|please|separate|limit"
    "|leave out|make sure|ensure|"
    "only|judge|rate|compare|pick|choose|select|merge|combine|continue|tag|label|classify|output|format|show|if there|for each"
    "|what|who|where|which|how|why|"
    "is there|are there|do you|otherwise|if so|in (?:\\d+|a single|one|two|three|at most|no more|fewer|less|short|detail)"
    "|the following|as an?|this is|context|title|"
    "alt text|text|metadata|notes|at most|no more|maximum|can you|could you|riassumi|non \\w+re\\b"
)
_ORDERS_ELSEWHERE = (
    "beschreib\\w*|nenne|erwähne|gib|schreib\\w*|erkläre|übersetze|fasse|verwende|antworte|décri\\w*|indiqu\\w*|donne\\w*"
    "|écri\\w*|expliqu\\w*|réponds|répondez|"
    "mentionne\\w*|describa|menciona|incluye|escribe|responde|indica|explica|usa|no incluyas|máximo|descreva|escreva|mencione"
    "|cite|responda|descrivi|scrivi|"
    "elenca|rispondi|опиш\\w*|назови\\w*|укажи\\w*|указав|напиш\\w*|перечисл\\w*|не \\w+й(?:те)?|beschrijf|noem|schrijf|opisz"
    "|wymień|napisz|tanımla|açıkla|"
    "jelaskan|sebutkan|mô tả|hãy|указ\\w*"
)
_ORDER = re.compile(
    rf"(?:{_ORDERS}|{_ORDERS_ELSEWHERE})\b|[请用描说写列不]|.*(?:ください|なさい|せよ|하세요|해주세요|하시오|주세요|십시오|描述"
    rf"|说明|列出|输出|不要|回答)"
    r"|.*\b(?:describe|explain|answer|reply|respond|summari[sz]e|transcribe|you|you're|your|yourself)\b|.*\?$",
    re.IGNORECASE,
)
_GENERIC = re.compile(
    r"(?:please )?(?:describe|caption|look at|examine) (?:each|every|all) (?:of )?(?:the |these |those )?(?:\w+ )?(?:cells?"
    r"|images?|pictures?|photos?|panels?)\b"
    r"|(?:please )?(?:describe|caption|summari[sz]e) (?:the|this|that|each|these) (?:given |following |provided )?(?:image"
    r"|picture|photo|photograph|cell)s?\b.{0,60}?"
    r"(?:sentences?|words?|json|detail|caption|\.|$)"
    r"|(?:please )?(?:answer|respond|reply|return)\b.{0,30}\b(?:json|one sentence|object)\b"
    r"|(?:please )?(?:write|provide|generate|give|create) (?:an? |one |the )?(?:\w+,? ){0,3}(?:caption|description)s? (?:for"
    r"|of) (?:each|the|this|every)\b",
    re.IGNORECASE,
)
_FIRST_OF_ORDERS = word_set(
    """
    describe write caption name mention list give provide generate create produce compose explain identify transcribe extract
    translate summarize summarise shorten rewrite improve correct fix expand count state say tell answer reply respond return
    use keep avoid ignore include exclude focus start do don't never act look please separate limit leave make ensure judge rate
    compare pick choose select merge combine tag classify format you your user system assistant prompt instruction
    """
)
_ANY_TASK = word_set(
    "describe caption look examine summarize summarise answer respond reply return write provide generate give create user system"
)
_GRID_WORDS = word_set("cell cells cell's numbered")
_MARKS = " \"'*_`“«[("
_ROLE = re.compile(r"[\W_]*(?:(?:user|system|assistant|human|prompt|instruction|question|task)\s*:|<image>)[\W_]*", re.IGNORECASE)
_TASK_WORDS = re.compile(
    r" (?:images?|pictures?|photos?|photographs?|cells?|captions?|descriptions?|list|tags|sentences?|words|example|json"
    r"|following|answer|format|style) "
)
_ADDRESSED = re.compile(r"\b(?:please|do not|don't|your (?:answer|task|caption|response|reply|description))\b", re.IGNORECASE)


class _Clause(NamedTuple):
    said: str
    """Its words, with a space before and after each."""
    weight: float
    """Its words; signs of scripts without spaces count as half a word."""
    order: bool
    """Whether it tells the model what to do, rather than bring data."""
    label: bool
    """Whether it names what follows: `Alt text:`."""


def may_echo(words: Words, prompt: str) -> bool:
    """Whether a look is due: the text has the beginning of the prompt, begins like a part of it, or has its orders early on."""
    asked, beginning, orders = _prepared(prompt)
    low = words.low
    return (
        low.lstrip(_MARKS)[:12] in asked
        or (beginning != "" and beginning in low)
        or (not orders.isdisjoint(words.stock) and not orders.isdisjoint((*words.plain[:8], *words.first())))
        or not _ANY_TASK.isdisjoint(words.plain[:2])
        or not _GRID_WORDS.isdisjoint(words.stock)
    )


@lru_cache(maxsize=64)
def _prepared(prompt: str) -> tuple[str, str, frozenset[str]]:
    """The prompt in lower case, its beginning, and its words that may give orders."""
    asked = prompt.lower()
    return asked, asked.lstrip(_MARKS)[:16], _FIRST_OF_ORDERS.intersection(words_of(prompt).plain)


def find_echo(text: str, prompt: str) -> str | None:
    """The instruction that is said back; None: none is. prompt: the text rendered for this record."""
    said = text[role.end() :] if (role := _ROLE.match(text)) else text
    if match := _GENERIC.match(said.lstrip(_MARKS)):
        return match[0][:120]
    spoken = _clauses(said)
    if not spoken:
        return None
    whole = _joined(clause.said for clause in spoken)
    return _echo_of_clauses(spoken, whole, _clauses_of_prompt(prompt)) or _echo_of_grid(whole)


def _echo_of_clauses(spoken: tuple[_Clause, ...], whole: str, asked: tuple[_Clause, ...]) -> str | None:
    everything = _joined(clause.said for clause in asked)
    if sum(clause.weight for clause in asked) >= 2 and everything in whole:
        return everything.strip()
    weight = sum(clause.weight for clause in spoken)
    for clause, following in zip_longest(asked, asked[1:]):
        if clause.label and following and whole.startswith(clause.said.rstrip() + following.said):
            return (clause.said + following.said).strip()
        if not clause.order or clause.weight < 2:
            continue
        if any(part.said == clause.said for part in spoken) or (clause.weight >= 4 and whole.startswith(clause.said)):
            return clause.said.strip()
        if clause.weight >= 6 and clause.said in whole:
            return clause.said.strip()
        if clause.said.startswith(spoken[0].said) and spoken[0].weight >= (3 if len(spoken) == 1 else 4):
            return spoken[0].said.strip()
        if weight >= 6 and whole in clause.said and _TASK_WORDS.search(whole):
            return whole.strip()
        if weight >= 6 and _TASK_WORDS.search(spoken[0].said) and spoken[0].said in clause.said and spoken[0].weight >= 6:
            return spoken[0].said.strip()
    return None


def _echo_of_grid(whole: str) -> str | None:
    return next(
        (clause.said.strip() for clause in _clauses_of_prompt(_GRID_WORDING) if clause.weight >= 6 and clause.said in whole), None
    )


@lru_cache(maxsize=64)
def _clauses_of_prompt(prompt: str) -> tuple[_Clause, ...]:
    return _clauses(prompt)


def _clauses(text: str) -> tuple[_Clause, ...]:
    """The sentences of a text and the parts of them that a colon divides."""
    clauses = []
    for part in _CLAUSE.split(text):
        words = _words(part)
        if words:
            weight = sum(0.5 if len(word) == 1 and _UNSPACED.match(word) else 1.0 for word in words)
            bare = part.lstrip(" \"'*_`“«[({<>-•").rstrip()
            order = _ORDER.match(bare) is not None or _ADDRESSED.search(bare) is not None
            clauses.append(_Clause(f" {' '.join(words)} ", weight, order, bare.endswith((":", "：")) and weight <= 3))
    return tuple(clauses)


def _joined(parts: Iterable[str]) -> str:
    return f" {' '.join(part.strip() for part in parts)} "


def _words(text: str) -> list[str]:
    text = text.lower().replace("’", "'")
    if _UNSPACED.search(text):
        text = _UNSPACED.sub(r" \g<0> ", text)
    return _WORD.findall(text)


_GRID_WORDING = grid_text([1], [""]).partition("<cell")[0]
