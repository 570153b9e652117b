"""Thumbnails of the sampled records, read from the source once more."""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.config import DatasetConfig
from caption_assets.core.faults import Fault, PictureFault
from caption_assets.core.images import thumbnail
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.plans import SourceChanged
from caption_assets.core.sources.pictures import REF_COLUMNS, PictureRef, Pictures
from caption_assets.core.tables import TableHandle

SIDE = 176
"""Pixels of a thumbnail's longer side."""
THREADS = 4


@dataclass(frozen=True)
class Place:
    """A sampled record as the manifest has it; ref: where its picture lies, if it has one."""

    record_id: str
    ref: PictureRef | None


@dataclass(frozen=True)
class Thumbnail:
    """data: a data URI, or None where there is no picture to show; why: what is said instead."""

    data: str | None
    why: str = ""


def places(objects: ObjectStore, manifest: TableHandle, record_ids: set[str]) -> list[Place]:
    """The records with these ids, in the order of the manifest."""
    wanted, found = pa.array(sorted(record_ids), pa.string()), []
    for batch in manifest.batches(objects, [*REF_COLUMNS, "reason"]):
        rows = pa.Table.from_batches([batch])
        for row in rows.filter(pc.is_in(rows["record_id"], wanted)).to_pylist():
            readable = row["uri"] is not None and row["reason"] is None
            found.append(Place(row["record_id"], PictureRef.of(row) if readable else None))
    return found


def thumbnails(
    objects: ObjectStore, spec: DatasetConfig, found: list[Place], sha256s: Mapping[str, str | None]
) -> dict[str, Thumbnail]:
    """By record_id, for those that have a picture. sha256s: of the bytes that were captioned, where known; a picture that has
    changed since is not shown beside a caption of another one. Raises ObjectError when the source is down."""
    done: dict[str, Thumbnail] = {}
    with ThreadPoolExecutor(THREADS, thread_name_prefix="thumbnails") as pool:
        waiting: deque[tuple[str, Future[Thumbnail]]] = deque()
        for ref, data in _read(Pictures(objects, spec), [place.ref for place in found if place.ref]):
            waiting.append((ref.record_id, pool.submit(_small, data, spec, sha256s.get(ref.record_id))))
            if len(waiting) > THREADS:
                record_id, future = waiting.popleft()
                done[record_id] = future.result()
        done.update({record_id: future.result() for record_id, future in waiting})
    return done


def _read(pictures: Pictures, refs: list[PictureRef]) -> Iterator[tuple[PictureRef, bytes | Fault]]:
    """As Pictures.stream, but a file that has changed since it was planned is a fault of its pictures."""
    done = 0
    while done < len(refs):
        try:
            for ref, data in pictures.stream(islice(refs, done, None)):
                done += 1
                yield ref, data
        except SourceChanged as error:
            yield refs[done], Fault("object_missing", str(error))
            done += 1


def _small(data: bytes | Fault, spec: DatasetConfig, sha256: str | None) -> Thumbnail:
    if isinstance(data, Fault):
        return Thumbnail(None, f"{data.reason}: {data.detail}")
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        return Thumbnail(None, "the picture has changed since it was captioned")
    try:
        return Thumbnail("data:image/jpeg;base64," + base64.b64encode(thumbnail(data, spec.images, SIDE)).decode())
    except PictureFault as error:
        return Thumbnail(None, f"{error.fault.reason}: {error.fault.detail}")
