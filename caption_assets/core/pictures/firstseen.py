"""Which record was the first with these bytes: exact, and small in memory for any number of records."""

from __future__ import annotations

import os
import struct
from array import array
from pathlib import Path
from types import TracebackType

_ENTRY = struct.Struct("<32sQI")
_BUFFER = 1 << 18


class FirstSeen:
    """First record by sha256. Memory holds 8 bytes per slot of a hash table: 4 of the hash, 4 for the number of the entry. Whole
    hashes and record ids lie in two scratch files, looked at for likely duplicates only.

    at_most: how many different hashes will come. The files belong to whoever made `folder`.
    """

    def __init__(self, folder: Path, at_most: int) -> None:
        self._slots = array("Q", [0]) * (1 << max(10, (at_most * 3 // 2).bit_length()))
        self._entries = open(folder / "hashes", "x+b", buffering=_BUFFER)
        self._ids = open(folder / "ids", "x+b", buffering=_BUFFER)
        self._count = self._ids_end = 0

    def __enter__(self) -> FirstSeen:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._entries.close()
        self._ids.close()

    def first(self, sha256: bytes, record_id: str) -> str | None:
        """The record that came before with this hash; None when this one is the first, and then it is remembered."""
        mask = len(self._slots) - 1
        slot, mark = int.from_bytes(sha256[:8], "little") & mask, int.from_bytes(sha256[8:12], "little")
        while value := self._slots[slot]:
            if value >> 32 == mark and (known := self._known(value & 0xFFFFFFFF, sha256)) is not None:
                return known
            slot = (slot + 1) & mask
        name = record_id.encode()
        self._ids.write(name)
        self._entries.write(_ENTRY.pack(sha256, self._ids_end, len(name)))
        self._count += 1
        self._ids_end += len(name)
        self._slots[slot] = mark << 32 | self._count
        return None

    def _known(self, number: int, sha256: bytes) -> str | None:
        """The record of this entry, if its hash is this one."""
        self._entries.flush()
        known, at, length = _ENTRY.unpack(os.pread(self._entries.fileno(), _ENTRY.size, (number - 1) * _ENTRY.size))
        if known != sha256:
            return None
        self._ids.flush()
        return os.pread(self._ids.fileno(), length, at).decode()
