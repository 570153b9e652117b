"""`export` and `verify`: captions out of the store into the form that the next tool opens, shard by shard."""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import duckdb

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import REASONS
from caption_assets.core.exports import csv, hf, imagefolder, jsonl, lance, parquet, sidecars, webdataset, webshart
from caption_assets.core.exports.job import Options, ShardJob, check_tars
from caption_assets.core.exports.selection import ExportError, Selection, outputs_of
from caption_assets.core.exports.target import (
    NOTES,
    SUMMARY,
    Target,
    begin,
    list_uri,
    listed,
    note,
    note_uri,
    noted,
    sum_up,
    summary_of,
)
from caption_assets.core.layout import Layout
from caption_assets.core.merging import read_pair
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.core.plan.plans import load_plan
from caption_assets.core.recipes import digest
from caption_assets.core.tables import table

WRITERS: dict[str, Callable[[ShardJob], None]] = {
    "webdataset": webdataset.write,
    "parquet": parquet.write,
    "hf": hf.write,
    "imagefolder": imagefolder.write,
    "jsonl": jsonl.write,
    "csv": csv.write,
    "txt": partial(sidecars.write, suffix="txt"),
    "json": partial(sidecars.write, suffix="json"),
    "lance": lance.write,
    "webshart": webshart.write,
}
_SHARED_STEMS = r"""
    SELECT key FROM (
        SELECT path, path AS key FROM files UNION SELECT path, regexp_replace(path, '([^/])\.[^./]*$', '\1') FROM files
    ) GROUP BY key HAVING count(*) > 1"""


@dataclass(frozen=True)
class ExportResult:
    """What the folder holds now (records, files, bytes), and what this call did: shards written, those that were there already,
    those not merged yet. left_out: records in all whose pictures could not be read, with some examples."""

    folder: str
    records: int
    files: int
    bytes: int
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    not_merged: list[str] = field(default_factory=list)
    left_out: int = 0
    left_out_examples: list[str] = field(default_factory=list)


def export(
    objects: ObjectStore,
    layout: Layout,
    spec: DatasetConfig,
    shards: Sequence[str],
    format: str,
    to: str,
    selection: Selection | None = None,
    options: Options | None = None,
    progress: Callable[[str, dict[str, Any]], None] | None = None,
) -> ExportResult:
    """Brings the export in the folder `to` (local, or s3://…) up to date with these shards; others in it are left alone, retired
    ones removed. A shard that is in it as it is now is not written again.

    progress: called with each shard and its note. Raises ExportError, ObjectError, SourceChanged.
    """
    if format not in WRITERS:
        raise ExportError(f"there is no format {format!r}; there are: {', '.join(WRITERS)}")
    selection, options = selection or Selection(), options or Options()
    if unknown := set(selection.without_reasons).difference(REASONS, "*"):
        raise ExportError(f"there is no reason {min(unknown)!r}; there are: *, {', '.join(REASONS)}")
    folder = _folder(to, spec, layout)
    head = {"format": format, "dataset": spec.name, "selection": selection.as_dict(), "options": options.as_dict()}
    begin(objects, folder, head)
    plan = load_plan(objects, layout)
    for shard in plan.retired:
        if note(objects, folder, shard):
            _drop(objects, folder, shard)
    written, kept, not_merged = [], [], []
    shared_stems = functools.cache(lambda: _shared_stems(objects, layout))
    for shard in shards:
        pair = read_pair(objects, layout, shard)
        if pair is None:
            not_merged.append(shard)
            continue
        facts = {"recipe": pair.merged.metadata["dataset_recipe"], "data_version": pair.merged.metadata["data_version"]}
        facts["fingerprint"] = digest([head, facts, pair.merged.metadata["run_id"]], 32)
        found = note(objects, folder, shard)
        if found and found["fingerprint"] == facts["fingerprint"]:
            kept.append(shard)
            continue
        check_tars(objects, plan, spec, shard)
        with Target(objects, folder, shard) as target:
            manifest = table(objects, layout.manifest(shard))
            outputs = outputs_of(pair.merged.schema, selection)
            WRITERS[format](
                ShardJob(
                    objects, spec, shard, manifest, pair.merged, outputs, selection, options, target, facts["fingerprint"],
                    shared_stems,
                )
            )  # fmt: skip
            found = target.finish(facts)
        written.append(shard)
        if progress:
            progress(shard, found)
    summary = sum_up(objects, folder, head)
    examples = [line for entry in summary["shards"].values() for line in entry["left_out_examples"]][:5]
    totals = {key: summary[key] for key in ("records", "files", "bytes", "left_out")}
    return ExportResult(folder, **totals, written=written, kept=kept, not_merged=not_merged, left_out_examples=examples)


def verify(objects: ObjectStore, to: str, dataset: str) -> tuple[dict[str, Any], list[str]]:
    """Reads an export back: its export.json, and what is wrong with its files (missing, other size, other bytes, other sums).
    Raises ExportError where `to` holds none of this dataset."""
    folder = _absolute(to)
    summary = summary_of(objects, folder)
    if summary is None:
        raise ExportError(f"{folder} holds no export: there is no {SUMMARY}")
    if summary["dataset"] != dataset:
        raise ExportError(f"{folder} holds an export of {summary['dataset']}, not of {dataset}")
    left = [shard for shard in noted(objects, folder) if shard not in summary["shards"]]
    problems = [f"{folder}: the export of {shard} was broken off: export again" for shard in left]
    if not summary["shards"] and not left:
        problems.append(f"{folder}: nothing was exported into it")
    for shard, entry in summary["shards"].items():
        sums: Counter[str] = Counter()
        if _sha256(objects, list_uri(folder, shard)) != entry["list_sha256"]:
            problems.append(f"{list_uri(folder, shard)}: is not the list that was written")
            continue
        for line in listed(objects, folder, shard):
            sums.update(records=line["records"], files=1, bytes=line["bytes"])
            found = _sha256(objects, folder + line["name"])
            if found != line["sha256"]:
                problems.append(f"{folder}{line['name']}: {'has other bytes' if found else 'is missing'}")
            elif summary["format"] == "webdataset" and (samples := _samples(objects, folder + line["name"])) != line["records"]:
                problems.append(f"{folder}{line['name']}: WebDataset reads {samples} samples, not {line['records']}")
        if summary["format"] == "lance" and (fault := lance.fault(folder, shard, entry["records"])):
            problems.append(fault)
        problems += [f"{shard}: {sums[k]} {k}, not {entry[k]}" for k in ("records", "files", "bytes") if sums[k] != entry[k]]
    for key in ("records", "files", "bytes"):
        if summary[key] != sum(entry[key] for entry in summary["shards"].values()):
            problems.append(f"{folder}{SUMMARY}: {key} is not the sum of its shards")
    return summary, problems


def _samples(objects: ObjectStore, uri: str) -> int:
    """How many samples the WebDataset library itself makes of a tar: what a trainer will see."""
    from webdataset.tariterators import group_by_keys, tar_file_expander

    with objects.open(uri) as stream:
        return sum(1 for _ in group_by_keys(tar_file_expander([{"url": uri, "stream": stream}])))


def _folder(to: str, spec: DatasetConfig, layout: Layout) -> str:
    folder = _absolute(to)
    for source in spec.source:
        root = source.split("*")[0].rstrip("/")
        if f"{folder}".startswith(f"{root}/"):
            raise ExportError(f"{folder} is inside the source {source}, which is never written to: choose another folder")
    if layout.root.startswith(folder) or (folder.startswith(f"{layout.root}/") and not folder.startswith(layout.exports_folder)):
        raise ExportError(f"{folder} belongs to the store: choose {layout.exports_folder} or a folder elsewhere")
    return folder


def _absolute(to: str) -> str:
    return (to if "://" in to else os.path.abspath(os.path.expanduser(to))).rstrip("/") + "/"


def _drop(objects: ObjectStore, folder: str, shard: str) -> None:
    """Takes a retired shard out."""
    names = [line["name"] for line in listed(objects, folder, shard)]
    for uri in (note_uri(folder, shard), *(folder + name for name in names), list_uri(folder, shard)):
        objects.delete(uri)
    for name in names:
        if name.endswith(".tar"):
            objects.delete(f"{folder}{NOTES}{name}.json")


def _sha256(objects: ObjectStore, uri: str) -> str | None:
    """Of an object's bytes; None where it is missing."""
    found = hashlib.sha256()
    try:
        with objects.open(uri) as file:
            while block := file.read(1 << 20):
                found.update(block)
    except ObjectMissing:
        return None
    return found.hexdigest()


def _shared_stems(objects: ObjectStore, layout: Layout) -> frozenset[str]:
    """Stems of files of folder sources that several of them share, or that are a file themselves."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE files (path VARCHAR)")
        for info in objects.list(layout.plan_folder):
            for batch in table(objects, info.uri).batches(objects, ["source_uri", "kind"], 65_536):
                connection.register("batch", batch)
                connection.execute("INSERT INTO files SELECT DISTINCT source_uri FROM batch WHERE kind = 'images'")
        found = connection.execute(_SHARED_STEMS).fetchall()
    return frozenset(key for (key,) in found)
