"""What was answered so far for one output of a shard, by row number, in compact arrays.

Only replies count that were asked with the text that is rendered now, under the current recipe, and were not revoked. The newest
reply is the one sent last; of two that were sent in the same microsecond, the one in the later chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from caption_assets.config import FiltersConfig
from caption_assets.core.columns import REASONS, TRANSIENT_REASONS
from caption_assets.core.owed.cellkeys import KeyIndex, TextFile, cell_keys
from caption_assets.core.owed.shardjob import JobRows
from caption_assets.core.parsing import CellText, numbers_several, parse_reply
from caption_assets.core.quality import judge
from caption_assets.core.replies.chunks import CAPTIONS_SCHEMA, ROOT_RUN, ChunkFile, Revoked, list_chunks, read_chunks

Bools = npt.NDArray[np.bool_]
NONE, ANSWER, TRANSIENT, TRANSIENT_NOW = range(4)
"""Kinds of the newest reply: none yet; an answer, good or bad; a passing fault of an earlier run; one of this run."""
VALID = 255
UNJUDGED = 254
STATE_COLUMNS = ("request_id", "grid_id", "record_ids", "prompt_sha256s", "recipe", "attempt", "error", "sent_at", "run_id")
TEXT_COLUMNS = ("slots", "reply", "finish_reason")


def is_transient(error: str | None) -> bool:
    return error is not None and error.partition(":")[0] in TRANSIENT_REASONS


@dataclass(frozen=True)
class Judging:
    """How replies are looked into: filters; the rendered text of a row; a name of a row's picture, equal for equal pictures."""

    filters: FiltersConfig
    prompt_text: Callable[[int], str]
    picture: Callable[[int], str]


class Replies:
    """State of one output. `judging`: whether validity and reasons are wanted; `keep_texts`: whether `{output.NAME}` uses it."""

    def __init__(self, rows: JobRows, output: str, index: KeyIndex, judging: Judging | None, keep_texts: bool) -> None:
        self._rows, self._output, self._index, self._judging = rows, output, index, judging
        self._keep_texts = keep_texts
        self.looks_into = bool(judging) or keep_texts
        self.warnings: list[str] = []
        self.unproven: dict[ChunkFile, set[str]] = {}
        """Chunks after which their endpoints were not proven honest (their step did not end well), and these endpoints."""
        self._revoked, self._shards = Revoked(), [rows.job.shard, *rows.job.replaced]
        self.submitted = np.zeros(rows.count, bool)
        self._same = {shard: rows.same_pictures(shard) for shard in rows.job.replaced}
        self._clear()

    def _clear(self) -> None:
        count = self._rows.count
        self._read: set[str] = set()
        self.unproven.clear()
        self.kind = np.zeros(count, np.uint8)
        self.newest_at = np.full(count, -1, np.int64)
        self.grid_attempt, self.single_attempt = np.zeros(count, np.uint16), np.zeros(count, np.uint16)
        self.grid_spent, self.single_spent = np.zeros(count, np.uint16), np.zeros(count, np.uint16)
        """Attempts that count against the budget: all but the passing faults of earlier runs."""
        self.of_root = np.zeros(count, bool)
        """Whether a reply was asked for by this root run."""
        self.reason = np.full(count, UNJUDGED, np.uint8)
        """VALID where any reply is valid; else the number in REASONS of the reason that stands at the merge: of the newest text
        that a filter refused, or of the newest reply where there is none or that was a passing fault; UNJUDGED without one."""
        self._newest_reason, self._refused_reason = np.full(count, UNJUDGED, np.uint8), np.full(count, UNJUDGED, np.uint8)
        self._judged_at, self._refused_at = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        self._grid_said = np.zeros(count, np.int64)
        """Hash of the reply that the record's grid got last."""
        self._texts = TextFile(count) if self._keep_texts else None
        self._text_at = np.full(count, -1, np.int64) if self._keep_texts else None

    def submit(self, cells: Collection[tuple[str, str]]) -> None:
        """Notes that these (record_id, prompt_sha256) are in a batch whose answers are still to come."""
        rows = self._index.find(cell_keys((record for record, _ in cells), (sha for _, sha in cells)))
        self.submitted[rows[rows >= 0]] = True

    def refresh(self) -> bool:
        """Reads what was stored since the last call; whether something was revoked."""
        job = self._rows.job
        self.warnings.clear()
        more = [self._revoked.refresh(job.objects, job.layout.revoked_folder(shard), self.warnings) for shard in self._shards]
        if any(more):
            self._clear()
        for shard in reversed(self._shards):
            folder = job.layout.chunks_folder(shard, self._output, job.recipes[self._output])
            files = [file for file in list_chunks(job.objects, folder, self.warnings) if file.uri not in self._read]
            columns = [*STATE_COLUMNS, "endpoint", *(TEXT_COLUMNS if self.looks_into else ())]
            for file, table in read_chunks(job.objects, files, CAPTIONS_SCHEMA, columns, self.warnings):
                self._absorb(shard, file, table)
                self._read.add(file.uri)
        return any(more)

    def _absorb(self, shard: str, file: ChunkFile, table: pa.Table) -> None:
        job = self._rows.job
        keep = [request not in self._revoked.requests for request in table["request_id"].to_pylist()]
        wanted = [k and recipe == job.recipes[self._output] for k, recipe in zip(keep, table["recipe"].to_pylist(), strict=True)]
        if not all(wanted):
            table = table.filter(pa.array(wanted))
        if not table.num_rows:
            return
        if not self._revoked.proves(file):
            self.unproven[file] = {endpoint for endpoint in table["endpoint"].to_pylist() if endpoint}
        cells = _Cells(table, self._index, self._same.get(shard))
        errors = table["error"].to_pylist()
        passing = np.array([is_transient(error) for error in errors])
        ours = np.array([run == job.run_id for run in table["run_id"].to_pylist()])
        grids = np.array([grid is not None for grid in table["grid_id"].to_pylist()])
        kinds = np.where(passing, np.where(ours, TRANSIENT_NOW, TRANSIENT), ANSWER).astype(np.uint8)
        attempts = table["attempt"].to_numpy().astype(np.uint16)
        root = (table.schema.metadata or {}).get(ROOT_RUN, b"").decode()
        at, row, request = cells.sent_at, cells.row, cells.request
        grid, counted = grids[request], kinds[request] != TRANSIENT
        np.maximum.at(self.grid_attempt, row[grid], attempts[request[grid]])
        np.maximum.at(self.single_attempt, row[~grid], attempts[request[~grid]])
        np.add.at(self.grid_spent, row[grid & counted], 1)
        np.add.at(self.single_spent, row[~grid & counted], 1)
        if root == job.root_run_id:
            self.of_root[row] = True
        newest = at >= self.newest_at[row]
        self.newest_at[row[newest]], self.kind[row[newest]] = at[newest], kinds[request[newest]]
        if self.looks_into:
            for number, said in enumerate(cells.requests(table)):
                self._look_into(said, bool(grids[number]))

    def _look_into(self, said: _Said, grid: bool) -> None:
        if grid:
            self._grid_said[list(said.rows.values())] = hash(said.reply)
        elif self._is_echo(said):
            return
        parsed = parse_reply(said.reply, said.finish_reason, said.error, said.slots, grid)
        if self._texts is not None and self._text_at is not None:
            for slot, row in said.rows.items():
                text = parsed[slot].text
                if text is not None and parsed[slot].reason is None and said.sent_at >= self._text_at[row]:
                    self._texts.put(row, text)
                    self._text_at[row] = said.sent_at
        if self._judging:
            self._judge(said, parsed)

    def _is_echo(self, said: _Said) -> bool:
        """Whether the answer for one picture is, to the letter, what its whole grid was answered: then it says nothing of it."""
        return any(self._grid_said[row] == hash(said.reply) for row in said.rows.values()) and numbers_several(said.reply)

    def _judge(self, said: _Said, parsed: dict[int, CellText]) -> None:
        judging = self._judging
        assert judging is not None
        texts = {slot: judging.prompt_text(said.rows[slot]) if slot in said.rows else "" for slot in parsed}
        pictures = {slot: judging.picture(row) for slot, row in said.rows.items()}
        judged = judge(parsed, judging.filters, texts, pictures)
        for slot, row in said.rows.items():
            reason = judged[slot].reason
            if reason is None:
                self.reason[row] = VALID
            elif self.reason[row] != VALID:
                self._stand(row, REASONS.index(reason), said.sent_at, refused=parsed[slot].text is not None)

    def _stand(self, row: int, reason: int, sent_at: int, refused: bool) -> None:
        """Takes in a bad answer. refused: it held a text, which a filter refused."""
        if sent_at >= self._judged_at[row]:
            self._judged_at[row], self._newest_reason[row] = sent_at, reason
        if refused and sent_at >= self._refused_at[row]:
            self._refused_at[row], self._refused_reason[row] = sent_at, reason
        newest = self.kind[row] != ANSWER or self._refused_at[row] < 0
        self.reason[row] = self._newest_reason[row] if newest else self._refused_reason[row]

    def text(self, row: int) -> str | None:
        """The newest parsable text of a row, filters not applied."""
        return self._texts.get(row) if self._texts is not None else None


@dataclass(frozen=True)
class _Said:
    """One reply. rows: by slot, of the cells that count."""

    slots: Sequence[int]
    reply: str | None
    finish_reason: str | None
    error: str | None
    sent_at: int
    rows: dict[int, int]


class _Cells:
    """The cells of a chunk that count for this shard, earliest first: row, request (its place in the table), sent_at in µs."""

    def __init__(self, table: pa.Table, index: KeyIndex, same: Bools | None) -> None:
        records, shas = table["record_ids"].combine_chunks(), table["prompt_sha256s"].combine_chunks()
        rows = index.find(cell_keys(records.flatten().to_pylist(), shas.flatten().to_pylist()))
        lengths = records.value_lengths().to_numpy()
        request = np.repeat(np.arange(table.num_rows), lengths)
        self.by_request, self._ends = rows, np.cumsum(lengths)
        counts = rows >= 0
        if same is not None:
            counts &= same[np.maximum(rows, 0)]
            self.by_request = np.where(counts, rows, -1)
        sent = table["sent_at"].combine_chunks().cast(pa.int64()).to_numpy()
        order = np.argsort(sent[request[counts]], kind="stable")
        self.request = request[counts][order]
        self.row = rows[counts][order]
        self.sent_at: npt.NDArray[np.int64] = sent[self.request]

    def requests(self, table: pa.Table) -> Iterator[_Said]:
        columns: dict[str, list[Any]] = {n: table[n].to_pylist() for n in ("slots", "reply", "finish_reason", "error")}
        sent = table["sent_at"].combine_chunks().cast(pa.int64()).to_numpy()
        start = 0
        for number, end in enumerate(self._ends):
            slots = columns["slots"][number]
            rows = {slot: int(row) for slot, row in zip(slots, self.by_request[start:end], strict=True) if row >= 0}
            yield _Said(
                slots,
                columns["reply"][number],
                columns["finish_reason"][number],
                columns["error"][number],
                int(sent[number]),
                rows,
            )
            start = end
