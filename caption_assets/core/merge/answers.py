"""What each record of a shard was answered for one output: stored replies, parsed and judged, and the best of them.

A pure function of the store. A reply counts while it is not revoked, its recipe is the current one, and the text it was asked
with is the one rendered now. A valid caption is preferred, of several the one sent last. Where none is valid, the reason of the
last text that a filter refused tells more than that of a later answer which could not be read; a passing fault at the end stands.
An answer for one picture that is, to the letter, what its whole grid was answered before says nothing of it: it is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.config import FiltersConfig, PromptConfig
from caption_assets.core.columns import TRANSIENT_REASONS
from caption_assets.core.filters.glance import Bools
from caption_assets.core.merge.judging import CELLS, Judging, Places
from caption_assets.core.merge.rows import MergeRows
from caption_assets.core.merge.spill import Ints, Spill
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.prompts import prompt_sha256, record_fields, render, sendable, uses_record
from caption_assets.core.replies.chunks import CAPTIONS_SCHEMA, list_chunks, read_chunks
from caption_assets.core.shardrows import BATCH_ROWS
from caption_assets.core.tables import TableHandle

_COLUMNS = (
    "grid_id", "slots", "attempt", "reply", "finish_reason", "error", "recipe", "model",
    "revision", "prompt_tokens", "completion_tokens", "latency_ms", "endpoint", "sent_at", "run_id",
)  # fmt: skip
_LISTS = ("slots", "record_ids", "prompt_sha256s")
_REPLIES = pa.schema([("request", pa.int64()), *((c, CAPTIONS_SCHEMA.field(c).type) for c in _COLUMNS)])
_ASKED = pa.schema(
    {"request": pa.int64(), "position": pa.int64(), "source": pa.int32(), "record_id": pa.string(), "sha256": pa.string()}
)
"""The cells of the replies; sha256: of the prompt each was asked with, null where that is known to be the one of now."""
_TEXTS = pa.schema({"sha256": pa.string(), "text": pa.string()})
REPLIES_AT_A_TIME = 2048
_OUTRANKS = 1 << 40
"""More than the requests of a shard."""
_PLACES = """
    SELECT a.request, a.position, k.n FROM asked a JOIN known k ON k.record_id = a.record_id AND k.source = a.source {texts}
    ORDER BY a.request, a.position"""
_OF_NOW = "JOIN texts t ON t.n = k.n AND t.sha256 = a.sha256"
_ECHOES = """
    SELECT single.cell FROM (SELECT n, time_rank, request, cell FROM judged WHERE several) single
    ASOF JOIN (SELECT n, time_rank, request FROM judged WHERE grid) said
        ON single.n = said.n AND single.time_rank >= said.time_rank
    JOIN replies r ON r.request = single.request JOIN replies s ON s.request = said.request
    WHERE r.reply = s.reply"""
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
    """Reads the answers of a shard, one output after the other. text_field: `fields.text`; revoked: request ids; warnings: what
    could not be read."""

    objects: ObjectStore
    rows: MergeRows
    manifest: TableHandle
    scratch: Path
    text_field: str
    revoked: set[str]
    warnings: list[str]

    def read(self, prompt: PromptConfig, filters: FiltersConfig, folders: Sequence[str], used: Mapping[str, Answers]) -> Answers:
        """folders: of the output's chunks, of the shard and of those it replaces; used: the answers of outputs its text names."""
        texts = self._texts(prompt, used) if uses_record(prompt.text) else None
        replies, asked, sent_at = self._replies(prompt, folders)
        judging = Judging(prompt.text, filters, texts, self.rows)
        cells = Spill(self.scratch / f"{prompt.name}.cells.arrow", CELLS)
        judged: list[pa.Table] = []
        request, position, n = self._places(asked, texts)
        for batch in replies.batches(REPLIES_AT_A_TIME):
            first = batch["request"][0].as_py()
            here = slice(*np.searchsorted(request, [first, first + batch.num_rows]))
            places = Places.of(request[here] - first, position[here], n[here])
            rows, several = judging.judge(batch, places)
            judged.append(_narrow(batch, rows, several, places, cells.rows, sent_at))
            cells.append(rows)
        return self._best(replies, cells.seal(), judged, texts)

    def _replies(self, prompt: PromptConfig, folders: Sequence[str]) -> tuple[Spill, Spill, Ints]:
        """The replies that were not revoked, in the order of chunks; their cells; and by reply its place in time."""
        replies = Spill(self.scratch / f"{prompt.name}.replies.arrow", _REPLIES)
        asked = Spill(self.scratch / f"{prompt.name}.asked.arrow", _ASKED)
        of_now = None if uses_record(prompt.text) else prompt_sha256(prompt.text)
        sent = [np.empty(0, np.int64)]
        for source, folder in enumerate(folders):
            files = list_chunks(self.objects, folder, self.warnings)
            columns = [*_COLUMNS, *_LISTS[1:], *(["request_id"] if self.revoked else [])]
            chunks = (rows for _, rows in read_chunks(self.objects, files, CAPTIONS_SCHEMA, columns, self.warnings))
            for chunk in _gathered(chunks, columns):
                if self.revoked:
                    chunk = chunk.filter(pa.array([r not in self.revoked for r in chunk["request_id"].to_pylist()], pa.bool_()))
                chunk = _in_step(chunk)
                asked.append(_asked(chunk, replies.rows, source, of_now))
                numbers = pa.array(np.arange(replies.rows, replies.rows + chunk.num_rows))
                replies.append(pa.Table.from_arrays([numbers, *(chunk[c] for c in _COLUMNS)], schema=_REPLIES))
                sent.append(chunk["sent_at"].cast(pa.int64()).to_numpy())
        order = np.argsort(np.concatenate(sent), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return replies.seal(), asked.seal(), rank

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
                    text, _ = render(prompt.text, record_fields(record_json, self.text_field), outputs)
                    rendered.append((prompt_sha256(text), sendable(text)))
            texts.append(pa.table([pa.array(c, pa.string()) for c in zip(*rendered, strict=True)], schema=_TEXTS))
        return texts.seal()

    def _places(self, asked: Spill, texts: Spill | None) -> tuple[Ints, Ints, Ints]:
        """The cells that count, in order: request, position in it, n of its record."""
        connection = self.rows.connection
        connection.register("asked", asked.table())
        if texts is not None:
            numbered = texts.table().select(["sha256"]).append_column("n", pa.array(np.arange(texts.rows)))
            connection.register("texts", numbered)
        found = connection.sql(_PLACES.format(texts=_OF_NOW if texts else "")).fetchnumpy()
        return found["request"], found["position"], found["n"]

    def _best(self, replies: Spill, cells: Spill, judged: list[pa.Table], texts: Spill | None) -> Answers:
        """Picks for each record, and gives duplicates what their first copy got where they were asked the same."""
        best, newest = np.full(self.rows.count, -1, np.int64), np.full(self.rows.count, -1, np.int64)
        attempts = np.zeros(self.rows.count, np.int64)
        if judged:
            table = pa.concat_tables(judged)
            n = table["n"].to_numpy()
            again = np.bincount(n, minlength=self.rows.count)[n] > 1
            # most records were answered once, and need no choice
            sole = table.filter(pa.array(~again))
            n, cell = sole["n"].to_numpy(), sole["cell"].to_numpy()
            best[n], attempts[n] = cell, 1
            newest[n] = np.where(sole["parsable"].to_numpy(), cell, -1)
            table = table.filter(pa.array(again))
            self.rows.connection.register("judged", table)
            if pc.any(table["several"]).as_py():
                self.rows.connection.register("replies", replies.table())
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


def _gathered(chunks: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[pa.Table]:
    """These columns of the chunks, many chunks at a time: they are small, and each step costs more than the rows in it."""
    waiting: list[pa.Table] = []
    rows = 0
    for chunk in chunks:
        waiting.append(chunk.select(columns).replace_schema_metadata())
        rows += chunk.num_rows
        if rows >= BATCH_ROWS:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _asked(chunk: pa.Table, first: int, source: int, of_now: str | None) -> pa.Table:
    """The cells of a chunk whose first reply is this request, as _ASKED; of_now: the hash of the prompt that all should have,
    None where it is each record's own."""
    slots, records, prompts = (chunk[name].combine_chunks() for name in _LISTS)
    counts = pc.list_value_length(slots).to_numpy()
    reply = np.repeat(np.arange(len(counts)), counts)
    positions = np.arange(len(reply)) - np.repeat(np.cumsum(counts) - counts, counts)
    cells = [reply + first, positions, np.full(len(reply), source, np.int32), records.flatten(), prompts.flatten()]
    found = pa.Table.from_arrays([pa.array(column) for column in cells], schema=_ASKED)
    if of_now is None:
        return found
    found = found.filter(pc.equal(found["sha256"], of_now))
    return found.set_column(4, "sha256", pa.nulls(found.num_rows, pa.string()))


def _in_step(chunk: pa.Table) -> pa.Table:
    """Without replies that have not as many records and prompts as slots."""
    slots, records, prompts = (pc.list_value_length(chunk[name]) for name in _LISTS)
    agree = pc.fill_null(pc.and_(pc.equal(slots, records), pc.equal(slots, prompts)), False)
    return chunk if pc.all(agree, min_count=0).as_py() else chunk.filter(agree)


def _narrow(replies: pa.RecordBatch, rows: pa.Table, several: Bools, places: Places, first: int, time_rank: Ints) -> pa.Table:
    """What the choice among the cells needs of them: numbers only."""
    request = rows["request"].to_numpy()
    valid, parsable = pc.is_null(rows["reason"]), pc.is_valid(rows["said"])
    return pa.table(
        {
            "n": places.n,
            "cell": np.arange(first, first + rows.num_rows),
            "request": request,
            "time_rank": time_rank[request],
            "valid": valid,
            "parsable": parsable,
            "weight": pc.add(valid.cast(pa.int8()), parsable.cast(pa.int8())),
            "passing": pc.is_in(rows["reason"], value_set=pa.array(TRANSIENT_REASONS)),
            "grid": replies["grid_id"].is_valid().to_numpy(zero_copy_only=False)[places.reply],
            "several": several[places.reply],
        }
    )


def _without(judged: pa.Table, echoes: Ints) -> pa.Table:
    """The same, in which these cells weigh less than any other, and hold no text."""
    echo = pc.is_in(judged["cell"], value_set=pa.array(echoes))
    for name, value in (("valid", False), ("parsable", False), ("weight", -1)):
        place = judged.schema.get_field_index(name)
        judged = judged.set_column(place, name, pc.if_else(echo, value, judged[name]))
    return judged
