"""The members of a tar and where their bytes lie, read from the headers in one pass.

A header is trusted only when its checksum is right. Checksums are verified for many headers at once, before any
is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from caption_assets.core.sources.decompression import BrokenStream, Stream
from caption_assets.core.sources.sniffing import is_tar_header

CHUNK = 4 << 20
HEADERS = 1024
EXTENSION_LIMIT = 1 << 20
JUMP = 64 << 10
"""Members longer than this are jumped over rather than read, where the store can do that."""

_ZEROS = bytes(512)
_KINDS = {ord("1"): "link", ord("2"): "symlink", ord("5"): "folder", ord("S"): "sparse"}
_NO_DATA = frozenset(b"123456")
_NOT_FILES = frozenset(b"346VMDN")


class Member(NamedTuple):
    """One member. kind: file, link, symlink, folder, sparse or other. offset, size: its bytes in the (unpacked) tar.
    content: the first of them, as many as were wanted. In names, bytes that are no UTF-8 are lone surrogates."""

    name: str
    kind: str
    offset: int
    size: int
    link: str
    content: bytes


@dataclass(frozen=True)
class Damage:
    """Why there is no more to be read. at: byte in the (unpacked) tar."""

    at: int
    detail: str


class _Pending:
    """What extension headers say of the next member."""

    def __init__(self) -> None:
        self.name: bytes | None = None
        self.link: bytes | None = None
        self.pax: dict[str, bytes] = {}

    @property
    def used(self) -> bool:
        return self.name is not None or self.link is not None or bool(self.pax)

    def over(self, general: dict[str, bytes], name: bytes, link: bytes, size: int) -> tuple[bytes, bytes, int, bool]:
        """Name, link and size as these records have them, and whether the member is sparse."""
        pax = {**general, **self.pax}
        name = pax.get("GNU.sparse.name") or pax.get("path") or self.name or name
        link = pax.get("linkpath") or self.link or link
        if "size" in pax:
            size = int(pax["size"])
            if size < 0:
                raise ValueError("a negative size")
        return name, link, size, any(keyword.startswith("GNU.sparse.") for keyword in pax)


class TarIndex:
    """Walks one tar, once. `damage` tells after the walk why members may be missing; None for a tar with its end marker.

    size: of the object, in bytes. wanted: how many first bytes of a member to keep as its content, by its name and size.
    """

    def __init__(self, stream: Stream, size: int, wanted: Callable[[str, int], int] | None = None) -> None:
        self.damage: Damage | None = None
        self._stream, self._wanted = stream, wanted
        self._buffer, self._base, self._chunk = b"", 0, CHUNK
        self._end = size if stream.plain else None
        self._fault = ""
        self._kept = 0
        self._globals: dict[str, bytes] = {}
        self._pending = _Pending()

    def batches(self) -> Iterator[list[Member]]:
        """Members in order, about a thousand at a time: whole ones with right headers only."""
        headers: list[bytes] = []
        starts: list[int] = []
        found: list[Member | None] = []
        at = 0
        while self.damage is None:
            header = self._bytes(at, 512)
            if len(header) < 512:
                self.damage = self._cut(found)
            elif header == _ZEROS:
                self.damage = self._behind(at + 512)
                break
            else:
                if len(headers) >= HEADERS or self._kept > CHUNK:
                    yield self._verified(headers, starts, found)
                    headers, starts, found, self._kept = [], [], [], 0
                headers.append(header)
                starts.append(at)
                try:
                    member, at = self._member(at, header)
                    found.append(member)
                except ValueError:
                    self.damage = _bad_header(at)
        yield self._verified(headers, starts, found)

    def _verified(self, headers: list[bytes], starts: list[int], found: list[Member | None]) -> list[Member]:
        """The members whose own and earlier headers are right; a wrong one is the end of the walk."""
        wrong = _first_wrong(headers)
        if wrong is not None:
            self.damage = _bad_header(starts[wrong])
        return [member for member in found[:wrong] if member is not None]

    def _member(self, at: int, header: bytes) -> tuple[Member | None, int]:
        """What the header at `at` says, and where the next one is. ValueError for one that cannot be right."""
        size = _number(header[124:136])
        flag, data = header[156], at + 512
        if flag in b"xXgLK":
            self._extension(flag, data, size)
            return None, data + -(-size // 512) * 512
        pending, kind = self._pending, "file"
        raw, link = header[: header.index(0) if 0 in header[:100] else 100], b""
        if header[345] and header[257:263] == b"ustar\0":
            raw = header[345:500].split(b"\0", 1)[0] + b"/" + raw
        if flag not in b"0\0" or pending.used or self._globals:
            kind = "other" if flag in _NOT_FILES else _KINDS.get(flag, "file")
            link = header[157:257].split(b"\0", 1)[0]
            raw, link, size, sparse = pending.over(self._globals, raw, link, size)
            kind = "sparse" if sparse else kind
            self._pending = _Pending()
            if flag == ord("S"):
                data = self._behind_sparse_map(header, data)
            elif flag in _NO_DATA:
                size = 0
        name = raw.decode("utf-8", "surrogateescape")
        if kind == "file" and name.endswith("/"):
            kind = "folder"
        content = b""
        if self._wanted is not None and kind == "file" and (keep := self._wanted(name, size)):
            content = self._bytes(data, keep)
            self._kept += len(content)
        return Member(name, kind, data, size, link.decode("utf-8", "surrogateescape"), content), data + -(-size // 512) * 512

    def _extension(self, flag: int, data: int, size: int) -> None:
        """Takes in a long name, or pax records for the next member or for all that follow."""
        if size > EXTENSION_LIMIT:
            raise ValueError("an extension header of this size is none")
        body = self._bytes(data, size)
        if flag == ord("L"):
            self._pending.name = body.rstrip(b"\0")
        elif flag == ord("K"):
            self._pending.link = body.rstrip(b"\0")
        else:
            (self._globals if flag == ord("g") else self._pending.pax).update(_pax_records(body))

    def _behind_sparse_map(self, header: bytes, data: int) -> int:
        """Where the data of an old GNU sparse member begins: behind the blocks that continue its map."""
        more = header[482]
        while more:
            block = self._bytes(data, 512)
            if len(block) < 512:
                raise ValueError("its sparse map is cut")
            more, data = block[504], data + 512
        return data

    def _cut(self, found: list[Member | None]) -> Damage:
        """The bytes ended where a header was to come. The newest member goes if its own bytes did not come whole."""
        end = self._end or 0
        last = found[-1] if found else None
        if last is not None and last.offset + last.size > end:
            found.pop()
            return Damage(end, f"it is cut within {last.name!r}" + self._fault)
        if end == 0:
            return Damage(0, "it is empty" + self._fault)
        return Damage(end, f"it ends at byte {end} without the end-of-archive marker: members may be missing" + self._fault)

    def _behind(self, at: int) -> Damage | None:
        """None at a proper end; members behind the end marker (tars written one after the other) are not read, as in tar."""
        rest = self._bytes(at, EXTENSION_LIMIT)
        block = (len(rest) - len(rest.lstrip(b"\0"))) // 512 * 512
        if is_tar_header(rest[block : block + 512]):
            return Damage(at + block, f"more members follow the end-of-archive marker, at byte {at + block}; they are not read")
        return None

    def _bytes(self, at: int, count: int) -> bytes:
        """Bytes `at` to `at + count`, fewer at the end; `at` never goes back."""
        start = at - self._base
        if start + count > len(self._buffer):
            self._load(at, count)
            start = at - self._base
        return self._buffer[start : start + count]

    def _load(self, at: int, count: int) -> None:
        """Moves the window on so that it begins at `at`, or at the end of the bytes."""
        have = self._base + len(self._buffer)
        if at - have > JUMP and self._stream.can_skip:
            self._stream.skip_to(min(at, self._end or at))  # a header may say more than files can hold
            self._buffer, self._base, self._chunk = b"", at, 8 << 10
        else:
            self._buffer = self._buffer[at - self._base :]
            self._base = min(at, have)
        pieces, have = [self._buffer], self._base + len(self._buffer)
        while have < at + count:
            try:
                data = self._stream.read(self._chunk)
            except BrokenStream as error:
                data, self._fault = b"", f"; {error}"
            if not data:
                self._end = have if self._end is None else min(self._end, have)
                break
            pieces.append(data)
            have += len(data)
            self._chunk = min(2 * self._chunk, CHUNK)
            while len(pieces) > 1 and self._base + len(pieces[0]) <= at:
                self._base += len(pieces.pop(0))
        self._buffer = b"".join(pieces)


def _bad_header(at: int) -> Damage:
    detail = "it is not a tar" if at == 0 else f"the header at byte {at} is damaged: what follows cannot be read"
    return Damage(at, detail)


def _number(field: bytes) -> int:
    """A number of a header: octal digits, or base 256 when the first bit is set. ValueError for what is neither."""
    if field[0] & 0x80:
        value = int.from_bytes(bytes((field[0] & 0x7F,)) + field[1:], "big")
        if field[0] == 0xFF or value >= 1 << 62:
            raise ValueError("negative, or too large for any file")
        return value
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not digits.isdigit():
        digits = digits.split(b"\0", 1)[0].strip()
    if not digits.isdigit():
        raise ValueError("no octal number")
    return int(digits, 8)


def _pax_records(body: bytes) -> dict[str, bytes]:
    """`length keyword=value\n` records. ValueError for what are none."""
    records, at = {}, 0
    while at < len(body) and body[at]:
        space = body.index(b" ", at, at + 20)
        end = at + int(body[at:space])
        if end <= space or end > len(body) or body[end - 1 : end] != b"\n":
            raise ValueError("a pax record of another length than it says")
        keyword, equals, value = body[space + 1 : end - 1].partition(b"=")
        if not equals:
            raise ValueError("a pax record without a value")
        records[keyword.decode("utf-8", "replace")] = value
        at = end
    return records


def _first_wrong(headers: list[bytes]) -> int | None:
    """Index of the first header whose checksum is wrong. Both the unsigned and the signed sum are right, as in tar."""
    if not headers:
        return None
    blocks = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, 512)
    field = blocks[:, 148:156]
    sums = blocks.sum(axis=1, dtype=np.int64) - field.sum(axis=1, dtype=np.int64) + 8 * 32
    digits = field[:, :6].astype(np.int64) - 48
    stored = digits @ (8 ** np.arange(5, -1, -1, dtype=np.int64))
    usual = ((digits >= 0) & (digits < 8)).all(axis=1) & (field[:, 6] == 0)
    for index in np.flatnonzero(~(usual & (stored == sums))):
        if not _checksum_is_right(headers[index], int(sums[index])):
            return int(index)
    return None


def _checksum_is_right(header: bytes, unsigned: int) -> bool:
    try:
        stored = _number(header[148:156])
    except ValueError:
        return False
    high = sum(byte >= 128 for byte in (*header[:148], *header[156:]))
    return stored in (unsigned, unsigned - 256 * high)
