"""Compact tables by row number, for shards of a million rows: 128-bit keys of (record, prompt text), texts in a scratch file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from caption_assets.core.objectstore import scratch_dir

Keys = npt.NDArray[np.uint64]
_BUFFER = 1 << 20


def hash_keys(texts: Iterable[str]) -> Keys:
    """A 128-bit hash of each text, shape (n, 2)."""
    raw = b"".join([blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts])
    return np.frombuffer(raw, dtype=np.uint64).reshape(-1, 2)


def cell_keys(record_ids: Iterable[str], prompt_sha256s: Iterable[str]) -> Keys:
    """The key of one record asked with one text."""
    return hash_keys(f"{record}\0{sha}" for record, sha in zip(record_ids, prompt_sha256s, strict=True))


class KeyIndex:
    """Row numbers by key: 20 bytes a row."""

    def __init__(self, keys: Keys) -> None:
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        self._high, self._low = keys[order, 0], keys[order, 1]
        self._rows = order.astype(np.int32)

    def find(self, keys: Keys) -> npt.NDArray[np.int32]:
        """The row of each key; -1 where there is none."""
        found = np.full(len(keys), -1, np.int32)
        if not len(self._rows):
            return found
        at = np.searchsorted(self._high, keys[:, 0])
        open_ = np.arange(len(keys))
        while len(open_):
            open_ = open_[at[open_] < len(self._rows)]
            open_ = open_[self._high[at[open_]] == keys[open_, 0]]
            hit = self._low[at[open_]] == keys[open_, 1]
            found[open_[hit]] = self._rows[at[open_[hit]]]
            open_ = open_[~hit]
            at[open_] += 1
        return found


class TextFile:
    """One text per row at most, in a scratch file that vanishes with it; 12 bytes of memory a row. A later put wins."""

    def __init__(self, rows: int) -> None:
        self._file = tempfile.TemporaryFile(prefix="caption-assets-", dir=scratch_dir(), buffering=0)
        self._starts = np.full(rows, -1, np.int64)
        self._lengths = np.zeros(rows, np.int32)
        self._written, self._buffer = 0, bytearray()

    def put(self, row: int, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self._starts[row], self._lengths[row] = self._written + len(self._buffer), len(data)
        self._buffer += data
        if len(self._buffer) >= _BUFFER:
            self._flush()

    def get(self, row: int) -> str | None:
        start, length = int(self._starts[row]), int(self._lengths[row])
        if start < 0:
            return None
        if start + length > self._written:
            self._flush()
        return os.pread(self._file.fileno(), length, start).decode("utf-8", "surrogatepass")

    def size(self, rows: npt.NDArray[np.bool_]) -> int:
        """Bytes of the texts of these rows."""
        return int(self._lengths[rows].sum(dtype=np.int64))

    def _flush(self) -> None:
        view = memoryview(self._buffer)
        while view:
            done = os.write(self._file.fileno(), view)
            self._written, view = self._written + done, view[done:]
        self._buffer = bytearray()
