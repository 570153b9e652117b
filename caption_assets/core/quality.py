"""The filters: whether what a model said for a cell is a caption worth keeping. Pure functions of parsed replies.

A filter refuses a caption with a reason or leaves it as it is; none edits. Filters belong to no recipe, so switching one costs no
request.
"""

from __future__ import annotations

from collections.abc import Mapping

from caption_assets.config import FiltersConfig
from caption_assets.core.filters.boilerplate import find_boilerplate
from caption_assets.core.filters.echo import find_echo, may_echo
from caption_assets.core.filters.language import find_wrong_language
from caption_assets.core.filters.phrases import find_refusal
from caption_assets.core.filters.repetition import find_loop, may_loop
from caption_assets.core.filters.sentences import may_be_foreign, may_speak, spoken_sentences, words_of
from caption_assets.core.parsing import CellText

DUPLICATE_MIN_CHARS = 40
DUPLICATE_MIN_CELLS = 3


def judge(
    cells: Mapping[int, CellText],
    filters: FiltersConfig,
    prompt_texts: Mapping[int, str],
    pictures: Mapping[int, str] | None = None,
) -> dict[int, CellText]:
    """The cells of one reply, those that a filter refuses with its reason in place of their text.

    cells: as parsed; what has a reason keeps it. prompt_texts: the rendered prompt of each slot. pictures: sha256 of each slot's
    picture; None: all differ. Raises ConfigError if filters.language cannot be applied.
    """
    copies = _copies(cells, pictures) if filters.duplicate_captions and len(cells) >= DUPLICATE_MIN_CELLS else ()
    judged = {}
    for slot, cell in cells.items():
        if cell.text is not None and (fault := _fault(cell.text, filters, prompt_texts.get(slot, ""), slot in copies)):
            cell = CellText(None, *fault)
        judged[slot] = cell
    return judged


def _fault(text: str, filters: FiltersConfig, prompt: str, copy: bool) -> tuple[str, str] | None:
    """The first reason against a text, in the order of the documentation. Cheap looks come before thorough ones."""
    words = words_of(text)
    speaks = (filters.refusals or filters.boilerplate) and may_speak(words)
    sentences = spoken_sentences(words.low) if speaks else []
    foreign = speaks and may_be_foreign(words)
    if filters.refusals and (found := find_refusal(sentences, foreign)):
        return "refusal", found
    if filters.prompt_echo and may_echo(words, prompt) and (found := find_echo(text, prompt)):
        return "prompt_echo", found
    if filters.boilerplate and (found := find_boilerplate(words, sentences, foreign)):
        return "boilerplate", found
    if copy:
        return "duplicate_caption", f"the same text in {DUPLICATE_MIN_CELLS} or more cells: {text[:80]}"
    if filters.repetition and may_loop(words) and (found := find_loop(text)):
        return "repetition", found
    if len(text) < filters.min_chars:
        return "too_short", f"{len(text)} of at least {filters.min_chars} characters: {text[:80]}"
    if len(text) > filters.max_chars:
        return "too_long", f"{len(text)} of at most {filters.max_chars} characters"
    if filters.language and (found := find_wrong_language(text, filters.language)):
        return "wrong_language", f"{found}: {text[:80]}"
    return None


def _copies(cells: Mapping[int, CellText], pictures: Mapping[int, str] | None) -> frozenset[int]:
    """Slots whose text stands in three or more cells with different pictures, but for case, spaces and the final stop."""
    texts = {slot: cell.text for slot, cell in cells.items() if cell.text is not None and len(cell.text) >= DUPLICATE_MIN_CHARS}
    beginnings = {text.replace(" ", "")[:16].lower() for text in texts.values()}
    if len(beginnings) > len(texts) - DUPLICATE_MIN_CELLS + 1:  # three equal texts would leave fewer
        return frozenset()
    same: dict[str, list[int]] = {}
    for slot, text in texts.items():
        same.setdefault(" ".join(text.lower().split()).rstrip(".!"), []).append(slot)
    return frozenset(
        slot
        for slots in same.values()
        if len({pictures.get(slot, slot) for slot in slots} if pictures else slots) >= DUPLICATE_MIN_CELLS
        for slot in slots
    )
