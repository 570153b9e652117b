"""Manifest rows on their way into record batches, and what is counted on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from caption_assets.core.columns import MANIFEST
from caption_assets.core.hiding import hidden
from caption_assets.core.tables import arrow_schema

SCHEMA = arrow_schema(MANIFEST)
BATCH_ROWS = 2048
BATCH_CHARS = 16 << 20


@dataclass
class Tally:
    """What the manifest's metadata says. ignored: what is no record; equal_ids: records whose id another one had before;
    bad_sidecars: texts that were not UTF-8 or JSON, kept as far as they could be read."""

    records: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ignored: int = 0
    equal_ids: int = 0
    bad_sidecars: int = 0

    def summary(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "faults": dict(self.faults),
            "ignored": self.ignored,
            "equal_ids": self.equal_ids,
            "bad_sidecars": self.bad_sidecars,
        }


def fault_place(path: str, start: int) -> tuple[str, int]:
    """record_id and source_index of the fault of a whole file, or of a part of one that begins after `start` lines or rows."""
    return (f"{path}#", 0) if start == 0 else (f"{path}#{start + 1}", start + 1)


class Rows:
    """Gathers rows by column. The caller takes a batch whenever `full`, and at the end."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._start()

    def _start(self) -> None:
        self._columns: tuple[list[Any], ...] = tuple([] for _ in MANIFEST)
        self._chars = 0

    @property
    def full(self) -> bool:
        return len(self._columns[0]) >= BATCH_ROWS or self._chars >= BATCH_CHARS

    def add(
        self,
        record_id: str,
        id: str | None,
        uri: str | None,
        source_uri: str,
        source_index: int,
        record_json: str | None = None,
        byte_offset: int | None = None,
        byte_length: int | None = None,
        reason: str | None = None,
        detail: str | None = None,
    ) -> None:
        """One row of core.columns.MANIFEST; every text must be valid UTF-8 (names.safe_text)."""
        shown = detail and hidden(detail)
        row = (record_id, id, uri, source_uri, source_index, record_json, byte_offset, byte_length, reason, shown)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._chars += len(record_json or "")
        self._tally.records += 1
        if reason:
            self._tally.faults[reason] += 1

    def take(self) -> pa.RecordBatch:
        """The rows so far; the next ones begin a new batch."""
        arrays = [pa.array(values, column.type) for values, column in zip(self._columns, SCHEMA, strict=True)]
        self._start()
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class Seen:
    """Which of millions of texts came before, at 8 bytes a text: by hashes, so that one in some 10^7 shards may be wrong once."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def before(self, texts: list[str]) -> np.ndarray:
        """For each text whether an equal one came before, in earlier calls or in this one. All are remembered."""
        hashes = np.fromiter(map(hash, texts), np.int64, len(texts))
        known = self._known(hashes)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        known[order[1:][ordered[1:] == ordered[:-1]]] = True
        run = ordered
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate((self._runs.pop(), run))
            run.sort(kind="stable")
        self._runs.append(run)
        return known

    def has(self, text: str) -> bool:
        """Whether an equal text came before; it is not remembered."""
        return bool(self._known(np.array([hash(text)], np.int64))[0])

    def _known(self, hashes: np.ndarray) -> np.ndarray:
        known = np.zeros(len(hashes), bool)
        for run in self._runs:
            if len(run):
                places = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
                known |= run[places] == hashes
        return known
