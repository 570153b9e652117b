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

from caption_assets.core.filters.sentences import Words, word_set, words_of
from caption_assets.core.prompts import grid_text

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
    "|the following|as an?|context|title|"
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
    """A sentence, or what a colon divides of one.

    said: its words, with a space before and after each. weight: their number, where signs of scripts without spaces count half.
    """

    raw: str
    said: str
    weight: float


class _Asked(NamedTuple):
    """A prompt: all its words and their weight, its orders with their weights, its labels with what follows them."""

    everything: str
    weight: float
    orders: tuple[tuple[str, float], ...]
    labels: tuple[str, ...]


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
    whole = _joined(spoken)
    return _echo_of(spoken, whole, _asked(prompt)) or next((said.strip() for said in _GRID_SENTENCES if said in whole), None)


def _echo_of(spoken: tuple[_Clause, ...], whole: str, asked: _Asked) -> str | None:
    if asked.weight >= 2 and asked.everything in whole:
        return asked.everything.strip()
    first, parts = spoken[0], {clause.said for clause in spoken}
    weight = sum(clause.weight for clause in spoken)
    whole_may = weight >= 6 and _TASK_WORDS.search(whole) is not None
    first_may = first.weight >= 6 and _TASK_WORDS.search(first.said) is not None
    for label in asked.labels:
        if whole.startswith(label):
            return label.strip()
    for order, order_weight in asked.orders:
        if order in parts or (order_weight >= 4 and whole.startswith(order)) or (order_weight >= 6 and order in whole):
            return order.strip()
        if order.startswith(first.said) and first.weight >= (3 if len(spoken) == 1 else 4):
            return first.said.strip()
        if (whole_may and whole in order) or (first_may and first.said in order):
            return first.said.strip()
    return None


@lru_cache(maxsize=64)
def _asked(prompt: str) -> _Asked:
    clauses = _clauses(prompt)
    pairs = zip_longest(clauses, clauses[1:])
    return _Asked(
        _joined(clauses),
        sum(clause.weight for clause in clauses),
        tuple((clause.said, clause.weight) for clause in clauses if clause.weight >= 2 and _is_order(clause.raw)),
        tuple(clause.said.rstrip() + following.said for clause, following in pairs if following and _is_label(clause)),
    )


def _is_order(raw: str) -> bool:
    """Whether it tells the model what to do, rather than bring data."""
    return _ORDER.match(raw.lstrip(f"{_MARKS}{{<>-•")) is not None or _ADDRESSED.search(raw) is not None


def _is_label(clause: _Clause) -> bool:
    """Whether it names what follows: `Alt text:`."""
    return clause.weight <= 3 and clause.raw.rstrip().endswith((":", "："))


def _clauses(text: str) -> tuple[_Clause, ...]:
    clauses = []
    for part in _CLAUSE.split(text):
        words = _words(part)
        if words:
            weight = sum(0.5 if len(word) == 1 and _UNSPACED.match(word) else 1.0 for word in words)
            clauses.append(_Clause(part, f" {' '.join(words)} ", weight))
    return tuple(clauses)


def _joined(clauses: Iterable[_Clause]) -> str:
    return f" {' '.join(clause.said.strip() for clause in clauses)} "


def _words(text: str) -> list[str]:
    text = text.lower().replace("’", "'")
    if _UNSPACED.search(text):
        text = _UNSPACED.sub(r" \g<0> ", text)
    return _WORD.findall(text)


_GRID_SENTENCES = tuple(c.said for c in _clauses(grid_text([1], [""]).partition("<cell")[0]) if c.weight >= 6)
