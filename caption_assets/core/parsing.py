"""From a model's raw reply to each cell's caption, or the reason why there is none. Pure functions of what was stored.

A caption belongs to a cell by its key, never by its position. What can be read in two ways, or was cut, is a reason: a caption
lost costs one more request, a wrong one is in the data set for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from caption_assets.core.columns import REASONS
from caption_assets.core.filters.phrases import find_refusal
from caption_assets.core.filters.sentences import spoken_sentences
from caption_assets.core.replies.cells import Value, cell_number, gather, named_cells, plain_key
from caption_assets.core.replies.jsontext import Cut, Ending, Found, Mark, Members, ends_well, read
from caption_assets.core.replies.text import clean_text


class CellText(NamedTuple):
    """What the model said for one cell. Exactly one of text and reason is set; detail says the reason in words."""

    text: str | None
    reason: str | None
    detail: str | None


_new = tuple.__new__
_KEYS = tuple(map(str, range(100)))
CUT_SHORT = frozenset(("length", "max_tokens", "model_length", "abort", "error", "content_filter"))
_THINK = r"think|thinking|thought|thoughts|reasoning"
_THOUGHT_OPENS = rf"<(?:{_THINK})>|◁think▷|\[THINK\]|<\|channel\|?>(?:thought|analysis)"
_THOUGHT_CLOSES = rf"</(?:{_THINK})>|◁/think▷|\[/THINK\]|<channel\|>|<\|channel\|>final<\|message\|>"
_THOUGHT = re.compile(rf"(?:{_THOUGHT_OPENS}).*?(?:{_THOUGHT_CLOSES})", re.IGNORECASE | re.DOTALL)
_THOUGHT_BEGIN = re.compile(_THOUGHT_OPENS, re.IGNORECASE)
_THOUGHT_END = re.compile(_THOUGHT_CLOSES, re.IGNORECASE)
_MAY_HOLD_MARKUP = re.compile(r"[<◁\[]")
_END_OF_TURN = re.compile(
    r"<\|(?:im_end|im_user|endoftext|eot_id|end|end_of_text|eom_id|return)\|>|<end_of_turn>|<end_of_utterance>|<\|end_of_box\|>|<eos>\s*$|</s>\s*$"
)
_START_OF_TURN = re.compile(r"\s*(?:<s>|<bos>|<\|im_start\|>(?:assistant)?|<\|(?:im_)?assistant\|>|<\|begin_of_box\|>)\s*")
_WRAPPED = re.compile(r"<(answer|caption|output)>(?P<inside>.*)</\1>", re.IGNORECASE | re.DOTALL)
_FENCED = re.compile(r"(`{3,}|~{3,})[^\n`]*\n(?P<inside>(?:(?!\1).)*?)\n?[ \t]*\1", re.DOTALL)


def parse_reply(
    reply: str | None, finish_reason: str | None, error: str | None, slots: Sequence[int], grid: bool
) -> dict[int, CellText]:
    """The caption or the reason of every slot that was asked. grid=False: `slots` has one entry, and the reply is its caption.

    reply, finish_reason and error are as stored: error is `timeout: …` or `model_error: …` where there was no answer.
    """
    if error is not None:
        reason = error.partition(":")[0].strip()
        return _all(slots, reason if reason in REASONS else "model_error", error)
    if grid and reply and (cells := _strict(reply, slots)) is not None:
        return cells
    cut = finish_reason is not None and finish_reason.lower() in CUT_SHORT
    if finish_reason == "content_filter":
        return _all(slots, "refusal", "the endpoint's content filter stopped the reply")
    if not reply or not reply.strip():
        return _all(slots, "truncated_output" if cut else "empty_output", f"no text (finish_reason {finish_reason})")
    said, thinking = _without_thoughts(reply)
    if thinking:
        return _all(slots, "truncated_output" if cut else "parse_error", "the reply ends within its thoughts")
    if not said:
        return _all(slots, "truncated_output" if cut else "empty_output", "nothing but thoughts")
    if not grid:
        return {slots[0]: _single(said, cut, slots[0])}
    return _grid(said, cut, slots)


def _all(slots: Iterable[int], reason: str, detail: str) -> dict[int, CellText]:
    return dict.fromkeys(slots, CellText(None, reason, detail[:300]))


def _strict(reply: str, slots: Sequence[int]) -> dict[int, CellText] | None:
    """The usual reply: one JSON object with exactly the slots as keys and strings as values. None: anything else."""
    try:
        found = orjson.loads(reply)
    except ValueError:
        return None
    if type(found) is not dict or len(found) != len(slots):
        return None
    # orjson keeps the last of two equal keys. Every quote that is not escaped is one of JSON's own, four for each member: more
    # of them mean that a member was dropped. Pairs of backslashes would spoil the count.
    plain = "\\" not in reply
    if (not plain and "\\\\" in reply) or reply.count('"') - (0 if plain else reply.count('\\"')) != 4 * len(found):
        return None
    plain = plain and reply.isascii() and "&" not in reply and "<0x" not in reply and "\x7f" not in reply
    cells = {}
    for slot in slots:
        text = found.get(_KEYS[slot] if slot < len(_KEYS) else str(slot))
        if type(text) is not str:
            return None
        cells[slot] = _new(CellText, (text, None, None)) if plain and text and text.strip() is text else _cell(text)
    return cells


def _cell(text: str) -> CellText:
    """A caption of these characters, or what is wrong with them."""
    cleaned, damage = clean_text(text)
    if damage is not None:
        return CellText(None, "bad_characters", damage)
    return CellText(cleaned, None, None) if cleaned else CellText(None, "empty_output", "an empty text")


def _without_thoughts(reply: str) -> tuple[str, bool]:
    """The reply without thoughts and special tokens; True: it ends in a thought, so that nothing in it is an answer."""
    if not _MAY_HOLD_MARKUP.search(reply):
        return reply.strip(), False
    said = _THOUGHT.sub("", reply)
    if _THOUGHT_BEGIN.search(said):
        return "", True
    if ends := list(_THOUGHT_END.finditer(said)):  # the beginning may be part of the prompt
        said = said[ends[-1].end() :]
    if start := _START_OF_TURN.match(said):
        said = said[start.end() :]
    if end := _END_OF_TURN.search(said):
        said = said[: end.start()]
    return said.strip(), False


def _single(said: str, cut: bool, slot: int) -> CellText:
    """A reply of plain text, or in a wrapper around the whole of it."""
    for wrapper in (_WRAPPED, _FENCED, _WRAPPED):
        if wrapped := wrapper.fullmatch(said):
            said, cut = wrapped["inside"].strip(), False
            if not said:
                return CellText(None, "parse_error", "nothing within its fence or tags")
    if "{" in said and (cell := _in_json(said, cut, slot)) is not None:
        return cell
    if cut:
        return CellText(None, "truncated_output", "the reply stops at max_tokens")
    return _cell(said)


def _in_json(said: str, cut: bool, slot: int) -> CellText | None:
    """The text of an object that wraps it, or what is wrong with it; None: `said` is no such object, but text."""
    found = read(said, not cut)
    cells = None if cut and found.start > 0 else _as_grid(found)
    first = found.nodes[0] if found.nodes and found.start == 0 else None
    if found.ending is Ending.BROKEN and (cells or isinstance(first, Members)):
        return CellText(None, "parse_error", "the reply begins like JSON and cannot be read")
    if cells:
        return _sole_cell(cells, slot, found.ending)
    if not isinstance(first, Members) or len(found.nodes) > 1 or (found.ending is Ending.WHOLE and said[found.end :].strip()):
        return None
    named = [v for k, v in first.pairs if plain_key(k) == "caption" or cell_number(k) in (1, slot)]
    strings = [v for v in named or (v for _, v in first.pairs) if isinstance(v, (str, Cut))]
    whole = named or found.ending is not Ending.CUT  # the caption itself may be what was cut off
    if len(strings) == 1 and (whole or isinstance(strings[0], Cut)):
        return _resolve(strings, found.ending)
    if named and all(value is None for value in named):
        return _resolve([None], found.ending)
    return CellText(None, "truncated_output", "the reply stops within its text") if found.ending is Ending.CUT else None


def _as_grid(found: Found) -> dict[int, list[Value]] | None:
    """What the first node in the form of a grid's answer names."""
    return next(filter(None, map(named_cells, found.nodes)), None)


def numbers_several(reply: str | None) -> bool:
    """Whether a reply has the form of a grid's answer with several cells."""
    return reply is not None and "{" in reply and len(_as_grid(read(reply, False)) or ()) > 1


def _sole_cell(cells: dict[int, list[Value]], slot: int, ending: Ending) -> CellText:
    """The answer for one picture in the form of a grid's: read like that of a grid of this one cell."""
    numbers = [number for number in (1, slot) if number in cells]
    if not numbers:
        return CellText(None, "missing_slot", f"one picture was asked, the reply numbers its texts {sorted(cells)}")
    return _resolve(cells[numbers[0]], ending)


def _grid(said: str, cut: bool, slots: Sequence[int]) -> dict[int, CellText]:
    first, last = said.find("{"), said.rfind("}") + 1
    if 0 <= first < last and ends_well(said, last, not cut) and (cells := _strict(said[first:last], slots)) is not None:
        return cells
    found = read(said, not cut)
    values: dict[int, list[Value]] = {}
    for node in found.nodes:
        gather(node, values)
    if not values:
        return _all(slots, *_why_nothing(said, cut, bool(found.nodes)))
    missing = [slot for slot in slots if slot not in values]
    if missing and (strangers := sorted(values.keys() - set(slots))):
        return _all(
            slots, "parse_error", f"keys {strangers} were not asked for and {missing} are missing: the numbering is in doubt"
        )
    cells = {}
    for slot in slots:
        if slot in values:
            cells[slot] = _resolve(values[slot], found.ending)
        elif cut:
            cells[slot] = CellText(None, "truncated_output", "the reply stops before this cell")
        elif found.ending is Ending.BROKEN:
            cells[slot] = CellText(None, "parse_error", "the reply cannot be read up to this cell")
        else:
            cells[slot] = CellText(None, "missing_slot", f"the reply has keys {sorted(values)}")
    return cells


def _why_nothing(said: str, cut: bool, has_json: bool) -> tuple[str, str]:
    if not has_json and (refusal := find_refusal(spoken_sentences(said.lower()))):
        return "refusal", f"no JSON, but: {refusal}"
    if cut:
        return "truncated_output", "the reply stops before its first whole caption"
    return "parse_error", "no JSON object that names the cells" if has_json else f"no JSON: {said[:80]!r}"


def _resolve(found: Sequence[Value], ending: Ending) -> CellText:
    """One cell's value out of all that bear its number: equal ones are one, a cut one may repeat a whole one."""
    given = [v for v in found if v is not Mark.ABSENT]
    if not given:
        if ending is Ending.CUT:
            return CellText(None, "truncated_output", "the reply stops before this cell's text")
        return CellText(None, "missing_slot", "the reply names this cell without a text")
    whole = [v for v in given if not isinstance(v, Cut)]
    value = whole[0] if whole else given[0]
    if any(v != value for v in whole) or any(isinstance(v, Cut) and not _begins(value, v) for v in given):
        return CellText(None, "parse_error", "the reply names this cell twice, with different texts")
    if isinstance(value, Cut):
        return CellText(None, "truncated_output", "the reply stops within this caption")
    if value is Mark.DOUBT:
        return CellText(None, "parse_error", "this cell's value can be read in more than one way")
    return CellText(None, "empty_output", "null") if value is None else _cell(str(value))


def _begins(value: Value, cut: Cut) -> bool:
    return value == cut or (isinstance(value, str) and value.startswith(cut.text))
