"""Reply chunks and revocations in the store: small parquet files of unique names, written once, never overwritten.

What lies under a chunk's name but cannot be read as one (a torn file, something foreign) is never taken for results: it is left
where it is and named in `warnings`. A revocation file without rows is no news of a liar: its metadata `settled` says up to which
chunk the endpoints of a step are proven honest, so that what an interrupted step left behind can be told from the rest.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import CAPTIONS, REVOKED
from caption_assets.core.layout import ChunkNames, Layout
from caption_assets.core.objectstore import ObjectError, ObjectMissing, ObjectStore
from caption_assets.core.recipes import dataset_recipe, digest, filter_digest
from caption_assets.core.tables import WITH_SUMS, arrow_schema, table

CHUNK_NAME = re.compile(r"^(?P<step>.+-[0-9a-f]{8})-(?P<seq>\d{5,})\.parquet$")
CAPTIONS_SCHEMA = arrow_schema(CAPTIONS)
REVOKED_SCHEMA = arrow_schema(REVOKED)
ROOT_RUN = b"root_run_id"
"""Parquet metadata of a chunk: the root run of its run; a re-executed run has a run_id of its own."""
SETTLED = b"settled"
_COMPRESSION = dict.fromkeys(("request_id", "record_ids.list.element", "reply", "error"), "zstd")
_FEW_VALUES = [
    "prompt_sha256s.list.element", "output", "recipe", "finish_reason", "error", "endpoint", "model", "revision", "run_id"
]  # fmt: skip


class StoreError(ObjectError):
    """Replies cannot be stored: the run must stop. What was stored before stays, and the next run goes on from there."""


class ReplyRow(NamedTuple):
    """One row of a chunk, in the order of columns.CAPTIONS. sent_at: seconds since 1970."""

    request_id: str
    grid_id: str | None
    slots: Sequence[int]
    record_ids: Sequence[str]
    prompt_sha256s: Sequence[str]
    output: str
    recipe: str
    attempt: int
    reply: str | None
    finish_reason: str | None
    error: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_ms: float | None
    endpoint: str | None
    model: str
    revision: str | None
    sent_at: float
    run_id: str


@dataclass
class ChunkWriter:
    """Writes the chunks and revocations of one step start. Not thread-safe: one thread writes."""

    objects: ObjectStore
    layout: Layout
    shard: str
    run_id: str
    root_run_id: str
    names: ChunkNames = field(init=False)

    def __post_init__(self) -> None:
        self.names = ChunkNames(self.run_id)
        self.last = -1
        """Number of the last chunk or revocation written."""

    @property
    def step(self) -> str:
        return self.names.step

    def write(self, output: str, recipe: str, rows: Sequence[ReplyRow]) -> None:
        """Stores the rows durably as one chunk. Raises StoreError."""
        columns: list[Any] = list(zip(*(_plain(row) for row in rows), strict=True))
        columns[-2] = [_moment(at) for at in columns[-2]]
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, CAPTIONS_SCHEMA, strict=True)]
        schema = CAPTIONS_SCHEMA.with_metadata({ROOT_RUN: self.root_run_id.encode()})
        self._put(self.layout.chunks_folder(self.shard, output, recipe), pa.Table.from_arrays(arrays, schema=schema))

    def revoke(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Takes back requests: (request_id, endpoint) each. Raises StoreError."""
        now = _moment(time.time())
        rows = [{"request_id": request, "endpoint": endpoint, "revoked_at": now} for request, endpoint in pairs]
        self._put(self.layout.revoked_folder(self.shard), pa.Table.from_pylist(rows, REVOKED_SCHEMA))

    def settle(self, upto: Mapping[str, int]) -> None:
        """Notes that the endpoints behind these steps' chunks (by step: number of the last one) were proven honest after them."""
        schema = REVOKED_SCHEMA.with_metadata({SETTLED: json.dumps(dict(upto)).encode()})
        self._put(self.layout.revoked_folder(self.shard), schema.empty_table())

    def _put(self, folder: str, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        write_chunk(rows, sink)
        uri = folder + self.names.next()
        try:
            self.objects.put(uri, sink.getvalue().to_pybytes())
        except (OSError, ObjectError) as error:
            what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise StoreError(
                f"{uri}: cannot be stored: {what}. What was stored before is kept; the next run asks only for the rest."
            ) from error
        self.last += 1


def write_chunk(rows: pa.Table, sink: Any) -> None:
    """A chunk, or a revocation, as parquet. With so few rows most of the cost is in each page: only what is long is compressed,
    and dictionaries are for what all rows have in common."""
    pq.write_table(rows, sink, compression=_COMPRESSION, use_dictionary=_FEW_VALUES, write_statistics=False, **WITH_SUMS)


def _plain(row: ReplyRow) -> ReplyRow:
    """Lone surrogates have no place in parquet: they are written as the six characters of their escape."""
    try:
        (row.reply or "").encode()
        (row.error or "").encode()
        return row
    except UnicodeEncodeError:
        return row._replace(reply=_escaped(row.reply), error=_escaped(row.error))


def _escaped(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc)


@dataclass(frozen=True)
class ChunkFile:
    """One chunk as listed: its step start and number come from its name."""

    uri: str
    step: str
    seq: int

    @property
    def name(self) -> str:
        return self.uri.rsplit("/", 1)[1]


def list_chunks(objects: ObjectStore, folder: str, warnings: list[str]) -> list[ChunkFile]:
    """The chunks of one folder (of replies or revocations); files that are none are named in `warnings`."""
    found = []
    for info in objects.list(folder):
        name = info.uri[len(folder) :]
        match = CHUNK_NAME.match(name)
        if match and "/" not in name:
            found.append(ChunkFile(info.uri, match["step"], int(match["seq"])))
        else:
            warnings.append(f"{info.uri}: is not a chunk of this program; it was not read")
    return found


def read_chunks(
    objects: ObjectStore, files: Sequence[ChunkFile], schema: pa.Schema, columns: Sequence[str], warnings: list[str]
) -> Iterator[tuple[ChunkFile, pa.Table]]:
    """The listed chunks one by one, with read-ahead. Unreadable and foreign ones go to `warnings`; an outage is raised."""
    wanted = [schema.field(name) for name in columns]
    for file, data in zip(files, objects.read_many((f.uri, 0, None) for f in files), strict=True):
        if isinstance(data, ObjectMissing):
            continue
        if isinstance(data, ObjectError):
            raise data
        try:
            parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
            found = parquet.schema_arrow
            if not found.equals(schema) and any(f not in found for f in wanted):
                raise pa.ArrowInvalid("its columns are not those of a chunk")
            rows = parquet.read(columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            warnings.append(f"{file.uri}: cannot be read as a chunk and was passed over: {str(error)[:200]}")
            continue
        yield file, rows.replace_schema_metadata(found.metadata)


@dataclass
class Revoked:
    """What `_revoked/` says: requests taken back; by step start the number of its last chunk that is proven; files read."""

    requests: set[str] = field(default_factory=set)
    settled: dict[str, int] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)

    def refresh(self, objects: ObjectStore, folder: str, warnings: list[str]) -> bool:
        """Reads what is new in the folder; whether more requests are revoked now."""
        before = len(self.requests)
        new = [file for file in list_chunks(objects, folder, warnings) if file.uri not in self.files]
        for file, rows in read_chunks(objects, new, REVOKED_SCHEMA, ["request_id"], warnings):
            self.requests.update(rows["request_id"].to_pylist())
            proven = json.loads((rows.schema.metadata or {}).get(SETTLED, b"{}"))
            for step, seq in proven.items():
                self.settled[step] = max(seq, self.settled.get(step, -1))
            self.files.add(file.uri)
        return len(self.requests) > before

    def proves(self, file: ChunkFile) -> bool:
        """Whether every endpoint in the chunk passed a canary after it."""
        return file.seq <= self.settled.get(file.step, -1)


def read_revoked(objects: ObjectStore, layout: Layout, shards: Iterable[str], warnings: list[str]) -> Revoked:
    """The revocations of a shard and of those it replaces."""
    revoked = Revoked()
    for shard in shards:
        revoked.refresh(objects, layout.revoked_folder(shard), warnings)
    return revoked


def replaced_shards(objects: ObjectStore, layout: Layout, manifest_metadata: Mapping[str, str]) -> list[str]:
    """The shards that this one replaces, newest first: a manifest names the next ones in its metadata `replaces`, with commas."""
    found: list[str] = []
    waiting = _replaced_by(manifest_metadata)
    while waiting:
        older = waiting.pop(0)
        if older not in found:
            found.append(older)
            try:
                waiting += _replaced_by(table(objects, layout.manifest(older)).metadata)
            except ObjectMissing:
                continue
    return found


def _replaced_by(metadata: Mapping[str, str]) -> list[str]:
    return [shard for shard in metadata.get("replaces", "").split(",") if shard]


def data_version(
    objects: ObjectStore,
    layout: Layout,
    spec: DatasetConfig,
    shard: str,
    recipes: Mapping[str, str],
    replaced: Sequence[str] = (),
) -> str:
    """`{dataset recipe}.{filter digest}.{digest of chunk and revocation names}` as the store is now."""
    names: list[str] = []
    for key in (shard, *replaced):
        folders = [layout.chunks_folder(key, output, recipe) for output, recipe in recipes.items()]
        for folder in (*folders, layout.revoked_folder(key)):
            names += sorted(file.uri[len(layout.root) :] for file in list_chunks(objects, folder, []))
    return f"{dataset_recipe(dict(recipes))}.{filter_digest(spec)}.{digest(names)}"
