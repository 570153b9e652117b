"""merged and failed of one shard: every record of the manifest in exactly one of them, proven before anything is published."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caption_assets.config import DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.merge.answers import AnswerReader, Answers
from caption_assets.core.merge.assembling import Assembly
from caption_assets.core.merge.rows import load_rows
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.core.recipes import dataset_recipe
from caption_assets.core.replies.chunks import data_version, read_revoked, replaced_shards
from caption_assets.core.shardrows import Mismatch
from caption_assets.core.tables import DamagedTable, TableHandle, table

log = logging.getLogger(__name__)


@dataclass
class Merged:
    """The two local parquet files and what is told about them. With problems there are no files to publish.

    counts: records, captioned, failed, coverage, duplicates, transient (records that failed in passing), {output}_captioned.
    reasons: in failed and in every output, how many records and one example. samples: some records with the first output's
    `text` or `reason`, and where their pictures lie. warnings: what lies in the store and could not be read.
    """

    merged_path: Path
    failed_path: Path
    data_version: str
    counts: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, tuple[int, str]] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def merge_shard(
    objects: ObjectStore,
    layout: Layout,
    spec: DatasetConfig,
    shard: str,
    recipes: Mapping[str, str],
    manifest: TableHandle,
    mapping: TableHandle,
    scratch: Path,
    run_id: str,
) -> Merged:
    """Joins manifest, mapping and stored replies into two parquet files in `scratch`; recipes: the current one of each output.

    Raises ObjectError when the store cannot be read. What is wrong with the shard itself stands in `problems`.
    """
    replaced = replaced_shards(objects, layout, manifest.metadata)
    version = data_version(objects, layout, spec, shard, recipes, replaced)
    merged = Merged(scratch / "merged.parquet", scratch / "failed.parquet", version)
    try:
        rows = load_rows(objects, manifest, mapping, [table(objects, layout.mapping(key)) for key in replaced], scratch)
    except Mismatch as error:
        merged.problems.append(str(error))
        return merged
    with rows.connection:
        merged.problems += [f"record_id {record_id!r} stands in the manifest more than once" for record_id in rows.repeated_ids()]
        if merged.problems:
            return merged
        keys = [shard, *replaced]
        revoked = read_revoked(objects, layout, keys, merged.warnings).requests
        reader = AnswerReader(objects, rows, manifest, scratch, spec.fields.text, revoked, merged.warnings)
        answers: dict[str, Answers] = {}
        for prompt in spec.prompts:
            folders = [layout.chunks_folder(key, prompt.name, recipes[prompt.name]) for key in keys]
            used = {name: answers[name] for name in prompt.uses}
            answers[prompt.name] = reader.read(prompt, spec.filters_of(prompt), folders, used)
        metadata = {"run_id": run_id, "dataset_recipe": dataset_recipe(dict(recipes)), "data_version": version, "shard": shard}
        tally = Assembly(objects, spec.prompts, manifest, mapping, answers).write(
            merged.merged_path, merged.failed_path, metadata
        )
        merged.counts, merged.reasons, merged.samples = tally.counts(), tally.reasons, tally.samples
        merged.problems += [
            f"{count} records have no reply for {name}: materialize captions again"
            for name, count in tally.unanswered.items()
            if count
        ]
        if rows.fingerprint_of([merged.merged_path, merged.failed_path]) != rows.fingerprint():
            merged.problems.append("merged and failed together do not hold the records of the manifest, each once")
    return merged


@dataclass(frozen=True)
class Pair:
    """merged and failed of one shard, made by one merge."""

    merged: TableHandle
    failed: TableHandle


def read_pair(objects: ObjectStore, layout: Layout, shard: str) -> Pair | None:
    """Both tables of a shard; None where one is missing or damaged, or they come from different merges."""
    try:
        pair = Pair(table(objects, layout.merged(shard)), table(objects, layout.failed(shard)))
    except ObjectMissing:
        return None
    except DamagedTable as error:
        log.warning("%s", error)
        return None
    ours, theirs = pair.merged.metadata, pair.failed.metadata
    same = all(ours.get(key) and ours.get(key) == theirs.get(key) for key in ("run_id", "dataset_recipe", "data_version"))
    return pair if same else None
