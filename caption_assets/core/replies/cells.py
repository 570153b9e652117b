"""What a reply's JSON says for each cell, in the forms that models choose. Pure functions.

Only a key or a number field that names the cell counts: {"1": …}, {"captions": {"cell 1": …}}, [{"slot": 1, "caption": …}]. A
list of texts says nothing, since a place in it is no name.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from caption_assets.core.filters.sentences import word_set
from caption_assets.core.replies.jsontext import Cut, Mark, Members, Node

Value: TypeAlias = str | Cut | Mark | None
"""What the reply gives a cell; None: null."""

_CELL_WORDS = word_set(
    """
    cell slot grid image img picture pic photo caption panel tile frame number no nr item key position description text figure
    fig box part square bild zelle imagen celda foto immagine cella cellule célula imagem afbeelding cel obraz gambar sel hình ô
    изображение ячейка картинка фото 图 图片 图像 单元格 格 格子 第 画像 セル 写真 셀 이미지 사진 그림
    """
)
_CELL_WORD = "|".join(sorted(_CELL_WORDS, key=len, reverse=True))
_CELL_KEY = re.compile(
    rf"\s*(?:(?:{_CELL_WORD})[\s_\-:#.]*){{0,2}}[#(\[<]?\s*(\d{{1,3}})\s*[\])>.:]?\s*[格张個个]?\s*", re.IGNORECASE
)
_NUMBER_FIELDS = (
    frozenset(("slot", "cell", "key", "number", "cellnumber", "slotnumber", "cellid", "slotid", "no", "nr", "n")),
    frozenset(
        ("image", "picture", "photo", "imagenumber", "picturenumber", "imageid", "position", "panel", "tile", "grid", "gridcell")
    ),
    frozenset(("id", "index", "idx", "i")),
)
_ALL_NUMBER_FIELDS = frozenset(name for names in _NUMBER_FIELDS for name in names)
_TEXT_FIELDS = frozenset(
    (
        "caption",
        "text",
        "description",
        "desc",
        "answer",
        "value",
        "content",
        "output",
        "response",
        "result",
        "label",
        "captiontext",
    )
)
_CELL_LISTS = frozenset(("captions", "cells", "descriptions", "pictures", "images", "slots", "answers", "results", "grid"))
_NOT_ANSWERS = frozenset(
    (
        "reasoning",
        "reason",
        "thought",
        "thoughts",
        "thinking",
        "analysis",
        "steps",
        "plan",
        "notes",
        "example",
        "examples",
        "explanation",
        "draft",
    )
)


def gather(node: Node, values: dict[int, list[Value]]) -> None:
    """Adds what the members name by cell number: {"1": …}, {"captions": {"1": …}}, [{"slot": 1, "caption": …}], …"""
    if isinstance(node, list):
        for item in node:
            gather(item, values)
    if not isinstance(node, Members):
        return
    numbered = [(number, value) for key, value in node.pairs if (number := cell_number(key)) is not None]
    if not numbered and (number := _number_field(node)) is not None:
        values.setdefault(number, []).append(_text_of(node, number))
    for number, value in numbered:
        values.setdefault(number, []).append(_text_of(value, number))
    if not numbered and _number_field(node) is None:
        for key, value in node.pairs:
            if plain_key(key) not in _NOT_ANSWERS:
                gather(value, values)


def named_cells(node: Node) -> dict[int, list[Value]]:
    """What a reply names that has the form of a grid's answer and nothing besides: {"1": …, "2": …}, {"captions": {"1": …}},
    [{"slot": 1, "caption": …}]. Empty for any other object or list, whatever numbers it holds."""
    if isinstance(node, Members) and len(node.pairs) == 1 and plain_key(node.pairs[0][0]) in _CELL_LISTS:
        node = node.pairs[0][1]
    values: dict[int, list[Value]] = {}
    if _all_named(node):
        gather(node, values)
    return values


def _all_named(node: Node) -> bool:
    """Whether every member is named by its key, or every item by its one key or a field such as "slot"."""
    if isinstance(node, Members):
        return all(cell_number(key) is not None for key, _ in node.pairs)
    return isinstance(node, list) and all(isinstance(i, Members) and (_all_named(i) or _names_its_cell(i)) for i in node)


def _names_its_cell(item: Members) -> bool:
    names = {plain_key(key) for key, _ in item.pairs}
    return not names.isdisjoint(_NUMBER_FIELDS[0]) and not names.isdisjoint(_TEXT_FIELDS)


def _text_of(value: Node, number: int) -> Value:
    """The one text that a cell's value holds."""
    if value == []:
        return Mark.ABSENT
    if isinstance(value, list):
        return _text_of(value[0], number) if len(value) == 1 and isinstance(value[0], (str, Cut)) else Mark.DOUBT
    if not isinstance(value, Members):
        return value
    if _number_field(value) not in (None, number):
        return Mark.DOUBT
    known = [v for k, v in value.pairs if plain_key(k) in _TEXT_FIELDS]
    others = [(k, v) for k, v in value.pairs if plain_key(k) not in _ALL_NUMBER_FIELDS]
    if not others:
        return Mark.ABSENT
    texts = known or [v for _, v in others if isinstance(v, (str, Cut, Mark))]
    return texts[0] if len(texts) == 1 and isinstance(texts[0], (str, Cut, Mark, type(None))) else Mark.DOUBT


def plain_key(key: str) -> str:
    return re.sub(r"[\s_\-]", "", key).lower()


def cell_number(key: str) -> int | None:
    """The number of the cell that a key names: `1`, `cell 1`, `Cell_1`, `image-1:`, `图1`, …"""
    match = _CELL_KEY.fullmatch(key)
    return int(match[1]) if match else None


def _number_field(node: Members) -> int | None:
    """The cell number in a member such as "slot": 1; a more telling name goes before a vaguer one."""
    for names in _NUMBER_FIELDS:
        numbers = {cell_number(v) for k, v in node.pairs if plain_key(k) in names and isinstance(v, str)} - {None}
        if numbers:
            return numbers.pop() if len(numbers) == 1 else -1
    return None
