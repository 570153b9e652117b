"""Small collections made by script, and what planning, manifest and pictures make of them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.config import DatasetConfig
from caption_assets.core.faults import Fault
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.plans import Plan
from caption_assets.core.planning import make_plan
from caption_assets.core.sources import read_manifest
from caption_assets.core.sources.pictures import PictureRef, Pictures
from caption_assets_tests.pictures import noise, save

OBJECTS = ObjectStore()


def picture(number: int, format: str = "jpeg") -> bytes:
    """A small picture; every number has bytes of its own."""
    return save(noise(number, 24, 16), format)


PNG = picture(0, "png")


def spec(source: str | Path | list[str], **options: Any) -> DatasetConfig:
    source = source if isinstance(source, list) else str(source)
    return DatasetConfig.model_validate({"name": "d", "source": source, "prompts": [{"text": "Describe it."}], **options})


def tar_bytes(members: Iterable[tuple[str, bytes] | tarfile.TarInfo], format: int = tarfile.USTAR_FORMAT, **pax: str) -> bytes:
    """A tar of files, or of whole member infos (links, folders)."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format, pax_headers=pax or None) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return sink.getvalue()


def member(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    """A member without bytes: a folder, a link, a device."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def write(folder: Path, files: Mapping[str, bytes | str | list[Any]]) -> Path:
    """Files below `folder`: bytes, text, or a list of JSON lines."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def write_parquet(path: Path, rows: pa.Table | list[dict[str, Any]], group: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


@dataclass
class Collected:
    """All shards of a source, read: manifest rows by record_id, pictures (bytes or Fault) of those without a reason."""

    plan: Plan
    rows: dict[str, dict[str, Any]]
    pictures: dict[str, bytes | Fault]
    shards: dict[str, list[str]]
    summaries: dict[str, dict[str, Any]]
    plan_summary: dict[str, Any]

    @property
    def summary(self) -> dict[str, Any]:
        (summary,) = self.summaries.values()
        return summary

    @property
    def reasons(self) -> dict[str, str]:
        """record_id to reason, of manifest and pictures, for records that have one."""
        found = {key: row["reason"] for key, row in self.rows.items() if row["reason"]}
        return {**found, **{key: data.reason for key, data in self.pictures.items() if isinstance(data, Fault)}}

    @property
    def good(self) -> dict[str, str]:
        """record_id to sha256 of the picture, for the others."""
        return {key: sha256(data) for key, data in self.pictures.items() if isinstance(data, bytes)}

    def record(self, record_id: str) -> Any:
        return json.loads(self.rows[record_id]["record_json"])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def collect(source: str | Path | list[str], store: str | Path, objects: ObjectStore = OBJECTS, **options: Any) -> Collected:
    """Plans the source into `store` and reads every shard: each record's row, and its picture where it has one."""
    dataset = spec(source, **options)
    result = make_plan(objects, Layout(str(store), "d"), dataset)
    found = Collected(result.plan, {}, {}, {}, {}, result.summary())
    for shard in result.plan.shards:
        stream = read_manifest(objects, dataset, result.plan.entries(shard))
        rows = [row for batch in stream.batches for row in batch.to_pylist()]
        found.shards[shard] = [row["record_id"] for row in rows]
        found.summaries[shard] = stream.summary()
        assert found.summaries[shard]["records"] == len(rows)
        assert not found.rows.keys() & set(found.shards[shard]), "one record in two shards"
        assert len(set(found.shards[shard])) == len(rows), "two records with one id"
        found.rows.update((row["record_id"], row) for row in rows)
        refs = (PictureRef.of(row) for row in rows if not row["reason"])
        found.pictures.update((ref.record_id, data) for ref, data in Pictures(objects, dataset).stream(refs))
    return found
