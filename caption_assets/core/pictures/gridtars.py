"""Grid tars of a shard: written in order, published whole, read by byte range."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectError, ObjectMissing, ObjectStore
from caption_assets.core.tables import table

TAR_BYTES = 1 << 30
TAR_GRIDS = 10_000


class GridTars:
    """Appends grids to `grids-00000.tar`, … (WebDataset: `{grid_id}.webp` and `{grid_id}.json`). A tar is published when it has
    TAR_BYTES or TAR_GRIDS, in the background, one at a time. Errors of the store are raised by a later call.

    The shard's mapping is deleted before its first tar is replaced, so that it never names places in other tars.
    """

    def __init__(self, objects: ObjectStore, layout: Layout, shard: str, extension: str, folder: Path) -> None:
        self._objects, self._layout, self._shard = objects, layout, shard
        self._extension, self._folder = extension, folder
        self._number = -1
        self._grids = 0
        self._tar: tarfile.TarFile | None = None
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="publish")
        self._publishing: Future[None] | None = None

    def append(self, grid_id: str, picture: bytes, description: bytes) -> tuple[int, int, int]:
        """Adds one grid; returns the tar's number and the picture's first byte and length in it."""
        if self._tar is None or self._grids >= TAR_GRIDS or self._tar.offset >= TAR_BYTES:
            self._publish()
            self._number, self._grids = self._number + 1, 0
            self._tar = tarfile.open(self._path(), "x", format=tarfile.USTAR_FORMAT)
        self._grids += 1
        self._add(self._tar, f"{grid_id}.{self._extension}", picture)
        begin = self._tar.offset - padded(len(picture))
        self._add(self._tar, f"{grid_id}.json", description)
        return self._number, begin, len(picture)

    def finish(self) -> int:
        """Publishes the last tar, waits until all are in the store, and returns how many there are."""
        self._publish()
        if self._publishing:
            self._publishing.result()
        return self._number + 1

    def close(self) -> None:
        """Ends the background work; what was not finished is left out."""
        self._publisher.shutdown(cancel_futures=True)

    def _path(self) -> Path:
        return self._folder / f"grids-{self._number:05d}.tar"

    def _add(self, tar: tarfile.TarFile, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o644
        tar.addfile(member, io.BytesIO(data))

    def _publish(self) -> None:
        if self._publishing:
            self._publishing.result()
        if self._tar:
            self._tar.close()
            self._tar = None
            self._publishing = self._publisher.submit(self._put, self._number, self._path())

    def _put(self, number: int, path: Path) -> None:
        if number == 0:
            self._objects.delete(self._layout.mapping(self._shard))
        self._objects.put_file(self._layout.grid_tar(self._shard, number), path)


def padded(length: int) -> int:
    """Bytes that a member of so many takes in a tar, besides its header."""
    return -(-length // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def read_grid(objects: ObjectStore, row: Mapping[str, Any]) -> bytes:
    """A grid's picture, by a mapping row's grid_id, grid_object, byte_offset and byte_length.

    The name before it in the tar is read and compared too. ObjectMissing: the tar is not there or is another one by now.
    """
    start = row["byte_offset"] - tarfile.BLOCKSIZE
    data = objects.read(row["grid_object"], start, tarfile.BLOCKSIZE + row["byte_length"])
    name = data[:100].rstrip(b"\0").decode("ascii", "replace").partition(".")[0]
    if name != row["grid_id"] or len(data) != tarfile.BLOCKSIZE + row["byte_length"]:
        raise ObjectMissing(f"{row['grid_object']}: grid {row['grid_id']} is not at byte {start}; materialize concat_grids again")
    return data[tarfile.BLOCKSIZE :]


def remove_stale(objects: ObjectStore, layout: Layout, shard: str) -> list[str]:
    """Deletes the tars that the published mapping does not name, left by an earlier run with more of them; returns their uris.

    To be called after the mapping is published. Without a mapping nothing is deleted.
    """
    try:
        count = int(table(objects, layout.mapping(shard)).metadata["grid_tars"])
    except (ObjectError, KeyError):
        return []
    named = {layout.grid_tar(shard, number) for number in range(count)}
    stale = [info.uri for info in objects.list(layout.grids_folder(shard)) if info.uri.endswith(".tar") and info.uri not in named]
    for uri in stale:
        objects.delete(uri)
    return stale
