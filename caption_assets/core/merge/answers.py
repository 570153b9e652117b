"""What each record of a shard was answered for one output: stored replies, parsed and judged, and the best of them.

A pure function of the store. A reply counts while it is not revoked, its recipe is the current one, and the text it was asked
with is the one rendered now. A valid caption is preferred, of several the one sent last. Where none is valid, the reason of the
last text that a filter refused tells more than that of a later answer which could not be read; a passing fault at the end stands.
An answer for one picture that is, to the letter, what its whole grid was answered before says nothing of it: it is passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.config import FiltersConfig, PromptConfig
from caption_assets.core import quality
from caption_assets.core.columns import TRANSIENT_REASONS
from caption_assets.core.filters.glance import passes
from caption_assets.core.merge.rows import BATCH_ROWS, MergeRows
from caption_assets.core.merge.spill import Ints, Spill
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.parsing import CellText, numbers_several, parse_reply
from caption_assets.core.prompts import prompt_sha256, record_fields, render, sendable, uses_record
from caption_assets.core.replies.chunks import CAPTIONS_SCHEMA, list_chunks, read_chunks
from caption_assets.core.tables import TableHandle

_COLUMNS = (
    "grid_id", "slots", "record_ids", "prompt_sha256s", "attempt", "reply", "finish_reason", "error", "recipe", "model",
    "revision", "prompt_tokens", "completion_tokens", "latency_ms", "endpoint", "sent_at", "run_id",
)  # fmt: skip
_REPLIES = pa.schema([("request", pa.int64()), ("source", pa.int32()), *((c, CAPTIONS_SCHEMA.field(c).type) for c in _COLUMNS)])
_CELLS = pa.schema({"request": pa.int64(), "said": pa.string(), "reason": pa.string(), "detail": pa.string()})
_TEXTS = pa.schema({"sha256": pa.string(), "text": pa.string()})
_OUTRANKS = 1 << 40
"""More than the requests of a shard."""
_PLACES = """
    SELECT c.request, c.position, k.n
    FROM (
        SELECT request, source, unnest(record_ids) AS record_id, unnest(prompt_sha256s) AS asked,
               unnest(range(len(record_ids))) AS position
        FROM replies
    ) c JOIN known k ON k.record_id = c.record_id AND k.source = c.source
    """
_ECHOES = """
    SELECT single.cell FROM (SELECT n, time_rank, reply, cell FROM judged WHERE several) single
    ASOF JOIN (SELECT n, time_rank, reply FROM judged WHERE grid) said ON single.n = said.n AND single.time_rank >= said.time_rank
    WHERE single.reply = said.reply"""
_BEST = """
    SELECT n, count(*) AS attempts,
           CASE WHEN NOT bool_or(valid) AND arg_max(passing, time_rank) THEN arg_max(cell, time_rank)
                ELSE arg_max(cell, time_rank + ?::BIGINT * weight) END AS best,
           coalesce(arg_max(cell, time_rank) FILTER (WHERE parsable), -1) AS newest
    FROM judged GROUP BY n"""


@dataclass(frozen=True)
class Answers:
    """One output of a shard. By manifest row: `best` and `newest`, rows of `cells` (-1: none), and `attempts`, the replies that
    count. best: the caption or the reason that stands; newest: the newest parsable reply, filters not applied.

    cells: request (row of `replies`), said, reason (null: valid), detail. replies: one row per request, columns as in the chunks.
    """

    replies: Spill
    cells: Spill
    best: Ints
    newest: Ints
    attempts: Ints


@dataclass(frozen=True)
class AnswerReader:
    """Reads the answers of a shard, one output after the other. revoked: request ids; warnings: what could not be read."""

    objects: ObjectStore
    rows: MergeRows
    manifest: TableHandle
    scratch: Path
    revoked: set[str]
    warnings: list[str]

    def read(self, prompt: PromptConfig, filters: FiltersConfig, folders: Sequence[str], used: Mapping[str, Answers]) -> Answers:
        """folders: of the output's chunks, of the shard and of those it replaces; used: the answers of outputs its text names."""
        replies, sent_at = self._replies(prompt.name, folders)
        texts = self._texts(prompt, used) if uses_record(prompt.text) else None
        judging = Judging(prompt.text, filters, texts, self.rows)
        cells = Spill(self.scratch / f"{prompt.name}.cells.arrow", _CELLS)
        judged: list[pa.Table] = []
        places = self._places(replies, prompt.text, texts)
        start = 0
        for batch in replies.batches():
            end = int(np.searchsorted(places["request"], batch["request"][-1].as_py(), side="right"))
            here = {name: column[start:end] for name, column in places.items()}
            rows = judging.judge(batch, here)
            judged.append(_narrow(batch, rows, here, cells.rows, sent_at))
            cells.append(rows)
            start = end
        return self._best(replies, cells.seal(), judged, texts)

    def _replies(self, output: str, folders: Sequence[str]) -> tuple[Spill, Ints]:
        """The replies that were not revoked in one scratch file, in the order of chunks; and by reply its place in time."""
        replies = Spill(self.scratch / f"{output}.replies.arrow", _REPLIES)
        sent = [np.empty(0, np.int64)]
        for source, folder in enumerate(folders):
            files = list_chunks(self.objects, folder, self.warnings)
            for _, chunk in read_chunks(self.objects, files, CAPTIONS_SCHEMA, ["request_id", *_COLUMNS], self.warnings):
                if self.revoked:
                    chunk = chunk.filter(pa.array([r not in self.revoked for r in chunk["request_id"].to_pylist()], pa.bool_()))
                numbers = pa.array(np.arange(replies.rows, replies.rows + chunk.num_rows))
                sources = pa.array(np.full(chunk.num_rows, source, np.int32))
                replies.append(pa.Table.from_arrays([numbers, sources, *(chunk[c] for c in _COLUMNS)], schema=_REPLIES))
                sent.append(chunk["sent_at"].cast(pa.int64()).to_numpy())
        order = np.argsort(np.concatenate(sent), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return replies.seal(), rank

    def _texts(self, prompt: PromptConfig, used: Mapping[str, Answers]) -> Spill:
        """The prompt as rendered now for each manifest row, and its hash; nulls where an output that it uses has no text."""
        texts = Spill(self.scratch / f"{prompt.name}.texts.arrow", _TEXTS)
        for batch in self.manifest.batches(self.objects, ["record_json"], BATCH_ROWS):
            start, end = texts.rows, texts.rows + batch.num_rows
            said = {name: answers.cells.take(answers.newest[start:end])["said"].to_pylist() for name, answers in used.items()}
            rendered: list[tuple[str | None, str | None]] = []
            for row, record_json in enumerate(batch["record_json"].to_pylist()):
                outputs = {name: column[row] for name, column in said.items()}
                if None in outputs.values():
                    rendered.append((None, None))
                else:
                    text, _ = render(prompt.text, record_fields(record_json), outputs)
                    rendered.append((prompt_sha256(text), sendable(text)))
            texts.append(pa.table([pa.array(c, pa.string()) for c in zip(*rendered, strict=True)], schema=_TEXTS))
        return texts.seal()

    def _places(self, replies: Spill, text: str, texts: Spill | None) -> dict[str, Any]:
        """The cells that count, in order: request, position in it, n of its record. Columns as arrays."""
        connection = self.rows.connection
        connection.register("replies", replies.table())
        if texts is None:
            query, parameters = f"{_PLACES} WHERE c.asked = ?", [prompt_sha256(text)]
        else:
            numbered = texts.table().select(["sha256"]).append_column("n", pa.array(np.arange(texts.rows)))
            connection.register("texts", numbered)
            query, parameters = f"{_PLACES} JOIN texts t ON t.n = k.n WHERE c.asked = t.sha256", []
        return connection.sql(f"{query} ORDER BY c.request, c.position", params=parameters).fetchnumpy()

    def _best(self, replies: Spill, cells: Spill, judged: list[pa.Table], texts: Spill | None) -> Answers:
        """Picks for each record, and gives duplicates what their first copy got where they were asked the same."""
        best, newest = np.full(self.rows.count, -1, np.int64), np.full(self.rows.count, -1, np.int64)
        attempts = np.zeros(self.rows.count, np.int64)
        if judged:
            table = pa.concat_tables(judged)
            self.rows.connection.register("judged", table)
            if pc.any(table["several"]).as_py():
                self.rows.connection.register("judged", _without(table, self.rows.connection.sql(_ECHOES).fetchnumpy()["cell"]))
            found = self.rows.connection.sql(_BEST, params=[_OUTRANKS]).fetchnumpy()
            for column, name in ((best, "best"), (newest, "newest"), (attempts, "attempts")):
                column[found["n"]] = found[name]
        copies, firsts = self.rows.copies, self.rows.firsts
        if texts is not None:
            same = pc.equal(texts.take(copies)["sha256"], texts.take(firsts)["sha256"])
            alike = same.fill_null(True).to_numpy()
            copies, firsts = copies[alike], firsts[alike]
        for column in (best, newest, attempts):
            column[copies] = column[firsts]
        return Answers(replies, cells, best, newest, attempts)


def _narrow(replies: pa.RecordBatch, rows: pa.Table, places: Mapping[str, Any], first: int, time_rank: Ints) -> pa.Table:
    """What the choice among the cells needs of them: numbers only."""
    said, grids = replies["reply"].to_pylist(), replies["grid_id"].is_valid().to_numpy(zero_copy_only=False)
    several = np.array([not grid and numbers_several(reply) for reply, grid in zip(said, grids, strict=True)], bool)
    request = places["request"] - replies["request"][0].as_py()
    valid, parsable = pc.is_null(rows["reason"]), pc.is_valid(rows["said"])
    return pa.table(
        {
            "n": places["n"],
            "cell": np.arange(first, first + rows.num_rows),
            "time_rank": time_rank[places["request"]],
            "valid": valid,
            "parsable": parsable,
            "weight": pc.add(valid.cast(pa.int8()), parsable.cast(pa.int8())),
            "passing": pc.is_in(rows["reason"], value_set=pa.array(TRANSIENT_REASONS)),
            "grid": grids[request],
            "several": several[request],
            "reply": np.array([hash(reply) for reply in said], np.int64)[request],
        }
    )


def _without(judged: pa.Table, echoes: Ints) -> pa.Table:
    """The same, in which these cells weigh less than any other, and hold no text."""
    echo = pc.is_in(judged["cell"], value_set=pa.array(echoes))
    for name, value in (("valid", False), ("parsable", False), ("weight", -1)):
        place = judged.schema.get_field_index(name)
        judged = judged.set_column(place, name, pc.if_else(echo, value, judged[name]))
    return judged


class Shown(Mapping[int, str]):
    """The sha256 of the pictures in some slots, looked up when asked for: few replies need them."""

    def __init__(self, rows: MergeRows, numbers: dict[int, int]) -> None:
        self._rows, self._numbers = rows, numbers

    def __getitem__(self, slot: int) -> str:
        return str(self._rows.pictures[self._numbers[slot]].as_py())

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class _Reply(NamedTuple):
    """A parsed reply. start: of its places; slots: theirs; cells: all that were asked."""

    start: int
    slots: list[int]
    cells: dict[int, CellText]
    grid: bool


@dataclass(frozen=True)
class Judging:
    """Parses and judges the replies of one output. texts: rendered prompts by n, None where all records have `text`."""

    text: str
    filters: FiltersConfig
    texts: Spill | None
    rows: MergeRows

    def judge(self, replies: pa.RecordBatch, places: Mapping[str, Any]) -> pa.Table:
        """One row per place, in their order, as in Answers.cells."""
        asked, cells = self._parsed(replies, places)
        texts = [cell.text for cell in cells]
        prompts = self.texts.take(places["n"])["text"].to_pylist() if self.texts else None
        fine = np.array([text is None for text in texts], bool)
        if prompts is None:
            fine |= passes([text or "" for text in texts], self.filters, self.text)
        reasons, details = [cell.reason for cell in cells], [cell.detail for cell in cells]
        whole = np.logical_and.reduceat(fine, [reply.start for reply in asked]).tolist() if asked else []
        fewest = quality.DUPLICATE_MIN_CELLS if self.filters.duplicate_captions else sys.maxsize
        for reply, good in zip(asked, whole, strict=True):
            if good and (len(reply.cells) < fewest or not quality._copies(reply.cells, None)):
                continue
            here = slice(reply.start, reply.start + len(reply.slots))
            own = dict.fromkeys(reply.slots, self.text) if prompts is None else dict(zip(reply.slots, prompts[here], strict=True))
            shown = Shown(self.rows, dict(zip(reply.slots, places["n"][here].tolist(), strict=True)))
            judged = quality.judge(reply.cells, self.filters, own, shown if reply.grid else None)
            reasons[here] = [judged[slot].reason for slot in reply.slots]
            details[here] = [judged[slot].detail for slot in reply.slots]
        columns = (pa.array(column, pa.string()) for column in (texts, reasons, details))
        return pa.table([pa.array(places["request"]), *columns], schema=_CELLS)

    @staticmethod
    def _parsed(replies: pa.RecordBatch, places: Mapping[str, Any]) -> tuple[list[_Reply], list[CellText]]:
        """The replies that have a place, and one cell for each place."""
        positions = places["position"].tolist()
        first = replies["request"][0].as_py()
        ends = np.searchsorted(places["request"], np.arange(first, first + replies.num_rows), side="right").tolist()
        columns = [replies[name].to_pylist() for name in ("reply", "finish_reason", "error", "slots")]
        grids = replies["grid_id"].is_valid().to_pylist()
        asked: list[_Reply] = []
        cells: list[CellText] = []
        for reply, finish, error, slots, grid, end in zip(*columns, grids, ends, strict=True):
            start = len(cells)
            if start == end:
                continue
            mine = slots if end - start == len(slots) else [slots[position] for position in positions[start:end]]
            parsed = parse_reply(reply, finish, error, slots, grid)
            asked.append(_Reply(start, mine, parsed, grid))
            cells += [parsed[slot] for slot in mine]
        return asked, cells
