"""What is read and judged many at a time is what `parse_reply` and `judge` give one by one, and the usual replies are such."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caption_assets.config import FiltersConfig
from caption_assets.core.merge.judging import Judging, Places
from caption_assets.core.parsing import numbers_several, parse_reply
from caption_assets.core.quality import judge
from caption_assets.core.replies.chunks import CAPTIONS_SCHEMA
from caption_assets.core.replies.plain import plain_texts
from caption_assets_tests.benchmarks.bigshard import PROMPT, caption

SETTINGS = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
SCHEMA = pa.schema(
    [
        ("request", pa.int64()),
        *((n, CAPTIONS_SCHEMA.field(n).type) for n in ("reply", "finish_reason", "error", "slots", "grid_id")),
    ]
)
Reply = dict[str, Any]


def batch(replies: list[Reply]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**reply, "request": 70 + n} for n, reply in enumerate(replies)], SCHEMA)


def reply(said: str | None, slots: list[int], grid: bool = True, finish: str | None = "stop", error: str | None = None) -> Reply:
    return {"reply": said, "finish_reason": finish, "error": error, "slots": slots, "grid_id": "g" if grid else None}


def read_plainly(replies: list[Reply]) -> list[list[str] | None]:
    """Of each reply the texts of its slots; None where it is not plain."""
    rows = batch(replies)
    for start in (0, 1):  # a slice lies elsewhere in its buffers
        plain = plain_texts(rows.slice(start))
        found = []
        for number, one in enumerate(replies[start:]):
            count = len(one["slots"] or [])
            texts = plain.take(np.full(count, number), np.arange(count)).to_pylist()
            assert all(text is None for text in texts) or None not in texts
            found.append(None if plain.first[number] < 0 else texts)
        if start == 0:
            whole = found
    assert found == whole[1:]
    return whole


PIECES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "\\",
    "&",
    "<",
    "`",
    "~",
    " ",
    "\n",
    "\t",
    "1",
    "0",
    "é",
    "\x7f",
    "\x01",
    "&amp;",
    "\\n",
    "```",
    "()",
]
ODD = ["", " x", "x ", 'a "b"', "a\\b", "é", "x\n", "{", "a & b", "a &amp; b", "<b>", "```", "[x]", "~~~", "a\x01"]
TEXTS = st.one_of(st.sampled_from(["a cat", "A dog."]), st.sampled_from(["a cat", "A dog.", *ODD]))
KEYS = st.one_of(
    st.just(str), st.sampled_from([str, "0{}".format, " {}".format, "{}0".format, "{} ".format, lambda n: chr(48 + n)])
)


@st.composite
def a_reply(draw: st.DrawFn) -> Reply:
    """What was asked for, or nearly so, or anything."""
    slots = draw(st.lists(st.integers(0, 12), min_size=1, max_size=3, unique=True))
    slots = draw(st.sampled_from([sorted(slots), sorted(slots), slots, [*slots, slots[0]], [1]]))
    key = draw(KEYS)
    comma, colon, ascii_only = (
        draw(st.sampled_from([", ", ",", ",\n  ", " ,"])),
        draw(st.sampled_from([": ", ":", " : "])),
        draw(st.booleans()),
    )
    members = [f'"{key(slot)}"{colon}{json.dumps(draw(TEXTS), ensure_ascii=ascii_only)}' for slot in slots]
    said = draw(st.sampled_from(["{%s}", "{\n%s\n}", " {%s} ", "{ %s }"])) % comma.join(members)
    if draw(st.booleans()):  # one sign more, less or other
        at = draw(st.integers(0, len(said)))
        said = said[:at] + draw(st.sampled_from(["", *PIECES])) + said[at + draw(st.integers(0, 1)) :]
    grid = draw(st.booleans())
    if not grid:
        said = draw(st.one_of(TEXTS, TEXTS, st.just(said)))
    finish, error = draw(st.sampled_from(("stop", "stop", None, "Length", "content_filter"))), None
    if draw(st.integers(0, 9)) == 9:
        said, error = (
            draw(st.one_of(st.none(), st.lists(st.sampled_from(PIECES)).map("".join))),
            draw(st.sampled_from((None, "timeout: late"))),
        )
    return reply(said, slots if grid else slots[:1], grid, finish, error)


@SETTINGS
@given(st.lists(a_reply(), min_size=1, max_size=12))
def test_what_is_read_plainly_is_what_the_parser_reads(replies: list[Reply]) -> None:
    for one, texts in zip(replies, read_plainly(replies), strict=True):
        if texts is not None:
            cells = parse_reply(one["reply"], one["finish_reason"], one["error"], one["slots"], one["grid_id"] is not None)
            assert [(text, None, None) for text in texts] == [tuple(cells[slot]) for slot in one["slots"]], one


@pytest.mark.parametrize("style", [{}, {"indent": 2}, {"separators": (",", ":")}, {"indent": 0}])
def test_the_usual_replies_are_plain(style: dict[str, Any]) -> None:
    chance = random.Random(3)
    texts = [[caption(chance) for _ in range(count)] for count in (4, 16, 1, 9, 12)]
    grids = [
        reply(json.dumps({str(n): text for n, text in enumerate(row, 1)}, **style), list(range(1, len(row) + 1))) for row in texts
    ]
    single = reply(caption(chance), [1], grid=False)
    failed = reply(None, [1, 2], finish=None, error="model_error: broken")
    assert read_plainly([*grids, failed, single]) == [*texts, None, [single["reply"]]]
    assert read_plainly([reply(None, [1], error="timeout: late")]) == [None]


def row_by_row(replies: list[Reply], filters: FiltersConfig, pictures: list[str], kept: list[list[int]]) -> list[tuple[Any, ...]]:
    """What Judging.judge is to give: by place the request, text, reason and detail."""
    rows: list[tuple[Any, ...]] = []
    for number, (one, positions) in enumerate(zip(replies, kept, strict=True)):
        if not positions:
            continue
        slots, grid = [one["slots"][position] for position in positions], one["grid_id"] is not None
        shown = dict(zip(slots, pictures[len(rows) :], strict=False))
        cells = parse_reply(one["reply"], one["finish_reason"], one["error"], one["slots"], grid)
        judged = judge(cells, filters, dict.fromkeys(slots, PROMPT), shown if grid else None)
        rows += [(70 + number, cells[slot].text, judged[slot].reason, judged[slot].detail) for slot in slots]
    return rows


@pytest.mark.parametrize("seed", range(12))
def test_judging_many_at_a_time_is_judging_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    said = [caption(chance) for _ in range(6)]
    odd = [
        "I'm sorry, I cannot help with that.",
        "Sure! Here is a caption: a dog on a bench by the sea.",
        "dog " * 40,
        "A cat.",
        "",
        PROMPT,
    ]
    noise = [lambda t: t.upper(), lambda t: t.rstrip("."), lambda t: t.replace(" ", "  "), lambda t: f" {t}", lambda t: f'"{t}"']
    replies: list[Reply] = []
    for _ in range(300):
        pool = said if chance.random() < 0.2 else [caption(chance) for _ in range(5)]
        count = chance.choice([1, 2, 3, 4, 5])
        texts = [chance.choice(odd if chance.random() < 0.05 else pool) for _ in range(count)]
        texts = [chance.choice(noise)(text) if chance.random() < 0.1 else text for text in texts]
        slots = sorted(chance.sample(range(1, 15), count))
        grid = count > 1 or chance.random() < 0.5
        body = json.dumps(dict(zip(map(str, slots), texts, strict=True)))
        if chance.random() < 0.1:
            body = chance.choice([body[:-9], f"```json\n{body}\n```", "", "Nothing to be seen."])
        replies.append(reply(body if grid or chance.random() < 0.1 else texts[0], slots, grid))
    kept = [[p for p in range(len(one["slots"])) if seed % 3 or chance.random() < 0.8] for one in replies]
    places = [(number, position) for number, positions in enumerate(kept) for position in positions]
    pictures = [str(chance.randint(0, 3)) for _ in places]
    filters = FiltersConfig(min_chars=12, duplicate_captions=seed % 4 != 3)
    numbers = np.arange(len(places))
    judging = Judging(PROMPT, filters, None, SimpleNamespace(pictures=pa.array(pictures)))  # type: ignore[arg-type]
    where = Places.of(np.array([reply for reply, _ in places]), np.array([position for _, position in places]), numbers)
    rows, several = judging.judge(batch(replies), where)
    assert list(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == row_by_row(
        replies, filters, pictures, kept
    )
    assert {row[2] for row in row_by_row(replies, filters, pictures, kept)} > {None, "refusal", "repetition", "too_short"}
    forms = [
        one["grid_id"] is None and bool(positions) and numbers_several(one["reply"])
        for one, positions in zip(replies, kept, strict=True)
    ]
    assert several.tolist() == forms
