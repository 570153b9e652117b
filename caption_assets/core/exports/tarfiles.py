"""One tar of samples, written fast and always the same: GNU format, owner 0, time 0, so that equal samples give equal bytes."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caption_assets.core.faults import Fault

BLOCK = 512
END = bytes(2 * BLOCK)
WRITE_BYTES, PIECES = 1 << 20, 800
"""What is gathered for one write; the system takes 1,024 pieces at most."""
SMALL = 4096
"""Up to so many bytes it is cheaper to copy a member than to handle its pieces."""
_ZEROS = bytes(BLOCK)
_NAME = 100
"""Bytes of a name that stand in the header itself."""
_HEADER = b"%s0000644\x000000000\x000000000\x00%s\x0000000000000\x00%s\x00 0" + bytes(100) + b"ustar  " + bytes(BLOCK - 264)
_HEADER_SUM = sum(_HEADER % (bytes(_NAME), bytes(11), bytes(6))) + 6 * 32 + 32
"""Of the bytes of a header without name and size; its checksum counts as eight blanks."""
_LARGEST = 8**11 - 1


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes that lie in a local file, read when the tar is written."""

    path: str
    size: int
    offset: int = 0

    def __reduce__(self) -> tuple[type[FilePart], tuple[str, int, int]]:
        """Its way to a worker at half the usual cost."""
        return FilePart, (self.path, self.size, self.offset)


@dataclass(frozen=True, slots=True)
class Sample:
    """Files that belong together: contents by extension, in the order they are written. key: without dots, unique.

    Contents are bytes, or something with a `size` that the writer's `Contents` turns into bytes, such as a FilePart.
    """

    key: str
    files: Mapping[str, Any]

    def __reduce__(self) -> tuple[type[Sample], tuple[str, Mapping[str, Any]]]:
        return Sample, (self.key, self.files)

    def tar_bytes(self) -> int:
        """What the sample takes in a tar."""
        key, total = len(self.key.encode()) + 1, 0
        for extension, content in self.files.items():
            size = len(content) if isinstance(content, bytes) else content.size
            total += member_bytes(key + len(extension.encode()), size)
        return total


Contents = Callable[[Iterable[Any]], Iterator[bytes | Fault]]
"""Turns contents that are not bytes into bytes, in order; one that cannot be read is a Fault, and its sample is left out."""


@dataclass(frozen=True)
class TarReport:
    """One finished tar. records: samples in it; taken: samples meant for it, with those left out, by `key: reason: detail`."""

    name: str
    records: int
    taken: int
    bytes: int
    sha256: str
    first: str
    last: str
    left_out: list[str] = field(default_factory=list)


def member_bytes(name: int, size: int) -> int:
    """Bytes of a member with its headers and padding; name: bytes of its name, size: of its contents."""
    long_name = BLOCK + _padded(name + 1) if name >= _NAME else 0
    return long_name + BLOCK + _padded(size)


def header(name: bytes, size: int) -> bytes:
    """The header blocks of a regular file."""
    if len(name) >= _NAME or size > _LARGEST:
        info = tarfile.TarInfo(name.decode())
        info.size = size
        return info.tobuf(tarfile.GNU_FORMAT, "utf-8")
    octal = b"%011o" % size
    return _HEADER % (name.ljust(_NAME, b"\0"), octal, b"%06o" % (_HEADER_SUM + sum(name) + sum(octal)))


def write_tar(path: Path, name: str, samples: Iterable[Sample], contents: Contents) -> TarReport:
    """Writes the samples to a local file."""
    digest, written, records, taken = hashlib.sha256(), 0, 0, 0
    first = last = ""
    left_out: list[str] = []
    pieces: list[bytes] = []
    size = 0
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def flush() -> None:
        nonlocal written, size
        for piece in pieces:
            digest.update(piece)
        _write_all(file, pieces, size)
        written, size = written + size, 0
        pieces.clear()

    try:
        for sample, found in _resolved(samples, contents):
            first, last, taken = first or sample.key, sample.key, taken + 1
            fault = next((data for data in found if isinstance(data, Fault)), None)
            if fault is not None:
                left_out.append(f"{sample.key}: {fault.reason}: {fault.detail}")
                continue
            records += 1
            for extension, data in zip(sample.files, found, strict=True):
                assert isinstance(data, bytes)
                head = header(f"{sample.key}.{extension}".encode(), len(data))
                padding = _ZEROS[: -len(data) % BLOCK]
                pieces += (head, data, padding) if len(data) > SMALL else (head + data + padding,)
                size += len(head) + len(data) + len(padding)
                if size >= WRITE_BYTES or len(pieces) > PIECES:
                    flush()
        pieces.append(END)
        size += len(END)
        flush()
    finally:
        os.close(file)
    return TarReport(name, records, taken, written, digest.hexdigest(), first, last, left_out)


def _write_all(file: int, pieces: list[bytes], size: int) -> None:
    done = os.writev(file, pieces)
    if done < size:
        rest = memoryview(b"".join(pieces))[done:]
        while rest:
            rest = rest[os.write(file, rest) :]


def read_parts(parts: Iterable[FilePart]) -> Iterator[bytes | Fault]:
    """The Contents of FileParts."""
    for part in parts:
        try:
            handle = os.open(part.path, os.O_RDONLY)
            try:
                data = os.pread(handle, part.size, part.offset)
            finally:
                os.close(handle)
            yield data if len(data) == part.size else Fault("object_missing", f"{part.path}: is shorter than {part.size} bytes")
        except OSError as error:
            yield Fault("object_missing", f"{part.path}: {error.strerror}")


def _resolved(samples: Iterable[Sample], contents: Contents) -> Iterator[tuple[Sample, list[bytes | Fault]]]:
    """Each sample with the bytes of its files. `contents` may read ahead: the samples it has come to wait here."""
    source = iter(samples)
    waiting: deque[Sample] = deque()
    wanted: deque[Any] = deque()

    def pull() -> bool:
        sample = next(source, None)
        if sample is not None:
            waiting.append(sample)
            wanted.extend(content for content in sample.files.values() if not isinstance(content, bytes))
        return sample is not None

    def needed() -> Iterator[Any]:
        while wanted or pull():
            if wanted:
                yield wanted.popleft()

    found = contents(needed())
    while waiting or pull():
        sample = waiting.popleft()
        yield sample, [content if isinstance(content, bytes) else next(found) for content in sample.files.values()]


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
