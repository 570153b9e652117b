"""What Dagster knows of a dataset's shards, and what each still needs. Read in a few queries, whatever their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import dagster as dg
import orjson
import sqlalchemy as sa
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.tags import PARTITION_NAME_TAG

from caption_assets.core import recipes
from caption_assets.partitions import SHARD_ASSETS, Dataset

WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
COUNTS = ("records", "captioned", "failed", "transient", "engine_spans")
PAGE = 1000
KEYS_AT_ONCE = 20_000
"""Dagster names all keys of a call in one query; SQLite takes 32,766 values."""


@dataclass(frozen=True)
class ShardState:
    """One shard as people see it. needs: assets to materialize so that it is done, in order; () for a finished one."""

    shard: str
    status: str
    needs: tuple[str, ...]
    records: int | None = None
    captioned: int | None = None
    failed: int | None = None
    run_id: str | None = None


def event_storage(instance: dg.DagsterInstance) -> Any:
    """The SQL event log, with the queries over partitions that the instance itself does not offer."""
    return instance.event_log_storage


@dataclass
class DatasetState:
    """A snapshot of one dataset in Dagster. `recipe`: the current dataset recipe with the resolved revision, where known."""

    instance: dg.DagsterInstance
    ds: Dataset
    recipe: str
    shards: Sequence[str]
    _ids: dict[str, dict[str, int]] = field(default_factory=dict)

    def versions(self, asset: str) -> dict[str, str]:
        """data_version by shard, of materialized shards."""
        tags = event_storage(self.instance).get_latest_tags_by_partition(
            self.ds.key(asset), dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
        )
        return {shard: found[DATA_VERSION_TAG] for shard, found in tags.items()}

    def event_ids(self, asset: str) -> dict[str, int]:
        """Storage id of the latest materialization by shard: greater is later."""
        if asset not in self._ids:
            self._ids[asset] = dict(
                self.instance.get_latest_storage_id_by_partition(self.ds.key(asset), dg.DagsterEventType.ASSET_MATERIALIZATION)
            )
        return self._ids[asset]

    @cached_property
    def all_versions(self) -> dict[str, dict[str, str]]:
        return {asset: self.versions(asset) for asset in SHARD_ASSETS}

    @cached_property
    def runs_at_work(self) -> dict[str, dg.DagsterRun]:
        """The latest run of each shard that has not ended."""
        found: dict[str, dg.DagsterRun] = {}
        for run in self.instance.get_runs(dg.RunsFilter(statuses=[*IN_PROGRESS_RUN_STATUSES, dg.DagsterRunStatus.QUEUED])):
            shard = run.tags.get(PARTITION_NAME_TAG)
            if shard and run.asset_selection is None and not run.job_name.startswith(f"{self.ds.name}_"):
                continue
            if shard and run.asset_selection and not any(key.path[0] == self.ds.name for key in run.asset_selection):
                continue
            if shard:
                found.setdefault(shard, run)
        return found

    @cached_property
    def at_work(self) -> dict[str, tuple[str, str]]:
        """(status, run_id) of shards that a run holds or waits for."""
        runs = self.runs_at_work.items()
        return {shard: ("waiting" if run.status in WAITING else "running", run.run_id) for shard, run in runs}

    @cached_property
    def failed_shards(self) -> dict[str, str]:
        """Shards whose last run failed before it had materialized all it was to, and that run. From ids alone, of which the
        databases have an index: Dagster's own answer joins the events, which are tens of KB each where they carry pictures."""
        planned: dict[int, str] = {}
        for asset in ("manifest", "concat_grids", "captions", "recaptions", "merged"):
            made, kind = self.event_ids(asset), dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
            latest = self.instance.event_log_storage.get_latest_storage_id_by_partition(self.ds.key(asset), kind)
            planned.update({event: shard for shard, event in latest.items() if event > made.get(shard, 0)})
        columns = SqlEventLogStorageTable.c
        run_of = dict(_read(self.instance, planned, columns.id, columns.run_id))
        runs, ended_badly = list(set(run_of.values())), set[str]()
        for start in range(0, len(runs), PAGE):
            chosen = dg.RunsFilter(run_ids=runs[start : start + PAGE], statuses=[dg.DagsterRunStatus.FAILURE])
            ended_badly.update(run.run_id for run in self.instance.get_runs(chosen))
        known = set(self.shards)
        return {planned[event]: run for event, run in run_of.items() if run in ended_badly and planned[event] in known}

    @cached_property
    def counts(self) -> dict[str, dict[str, Any]]:
        """Figures of merged's latest materialization by shard, and its run_id. Read from failed's event where the two agree: it
        has the same figures and no pictures."""
        merged, failed = self.all_versions["merged"], self.all_versions["failed"]
        own, small = self.event_ids("merged"), self.event_ids("failed")
        ids = [small.get(s, own[s]) if failed.get(s) == version else own[s] for s, version in merged.items() if s in own]
        columns, found = SqlEventLogStorageTable.c, {}
        for shard, run_id, event in _read(self.instance, ids, columns.partition, columns.run_id, columns.event):
            found[shard] = _figures(event, run_id)
        return found

    @cached_property
    def _current(self) -> tuple[str, list[Any], str]:
        """What the versions of current shards end or begin with, computed once for all of them."""
        spec = self.ds.spec
        merge = f"{self.recipe}.{recipes.filter_digest(spec)}."
        return f".{recipes.fields_digest(spec)}", recipes.mapping_settings(spec), merge

    def needs(self, shard: str) -> tuple[str, ...]:
        """Assets to materialize, from the first that is missing or out of date."""
        spec, have = self.ds.spec, {asset: self.all_versions[asset].get(shard) for asset in SHARD_ASSETS}
        manifest, mapping, merged = have["manifest"], have["concat_grids"], have["merged"]
        fields, grids, _ = self._current
        if manifest is None or not manifest.endswith(fields):
            return SHARD_ASSETS
        if mapping is None or mapping != recipes.mapping_version_of(grids, manifest):
            return SHARD_ASSETS[1:]
        ask = SHARD_ASSETS[1:] if spec.grid.keep == "until_merged" else SHARD_ASSETS[2:]
        for asset in ("captions", "recaptions"):
            if (have[asset] or "").partition(".")[0] != self.recipe:
                return ask
        if self.counts.get(shard, {}).get("transient"):
            return SHARD_ASSETS[1:]  # pictures that could not be read are read again there
        return () if self._merge_is_current(shard, merged) and have["failed"] == merged else ("merged", "failed")

    def _merge_is_current(self, shard: str, merged: str | None) -> bool:
        if merged is None or not merged.startswith(self._current[2]):
            return False
        latest = max(("captions", "recaptions"), key=lambda asset: self.event_ids(asset).get(shard, 0))
        newer = self.event_ids(latest).get(shard, 0) > self.event_ids("merged").get(shard, 0)
        return not newer or self.all_versions[latest][shard].rpartition(".")[2] == merged.rpartition(".")[2]

    def state(self, shard: str) -> ShardState:
        needs, figures = self.needs(shard), self.counts.get(shard, {})
        status, run_id = self.at_work.get(shard, (None, None))
        if status is None:
            if run_id := self.failed_shards.get(shard):
                status = "failed"
            elif not needs:
                status = "done"
            else:
                status = "out_of_date" if shard in self.all_versions["merged"] else "missing"
        return ShardState(
            shard,
            status,
            needs,
            figures.get("records"),
            figures.get("captioned"),
            figures.get("failed"),
            run_id or figures.get("run_id"),
        )


def _read(instance: dg.DagsterInstance, ids: Iterable[int], *columns: Any) -> Iterator[Any]:
    """Columns of the event log, of the events of these ids, a page at a time."""
    wanted = sorted(ids)
    for start in range(0, len(wanted), PAGE):
        query = sa.select(*columns).where(SqlEventLogStorageTable.c.id.in_(wanted[start : start + PAGE]))
        with event_storage(instance).index_connection() as connection:
            rows = connection.execute(query).all()
        yield from rows


def _figures(event: str, run_id: str) -> dict[str, Any]:
    """COUNTS of a stored materialization and the run that made it, which what `reconcile` reported names in its metadata. Parsed
    here: Dagster makes objects of the whole event, a millisecond each."""
    made = orjson.loads(event)["dagster_event"]["event_specific_data"]["materialization"]
    stored = {entry["label"]: entry["entry_data"] for entry in made["metadata_entries"]}
    metadata = {name: data.get("value", data.get("data")) for name, data in stored.items()}  # a number, or JSON
    known = {name: metadata[name] for name in COUNTS if metadata.get(name) is not None}
    return {**known, "run_id": stored.get("run_id", {}).get("text") or run_id}


def dataset_state(instance: dg.DagsterInstance, ds: Dataset, objects: Any, shards: Sequence[str] | None = None) -> DatasetState:
    """A snapshot over the given shards, else over all of the dataset's partitions."""
    from caption_assets.core.modelpin import pinned_revision

    revision = pinned_revision(objects, ds.layout, ds.engine)
    recipe = recipes.dataset_recipe(recipes.output_recipes(ds.spec, ds.engine, revision))
    return DatasetState(
        instance, ds, recipe, shards if shards is not None else instance.get_dynamic_partitions(ds.partitions_name)
    )


def finished_shards(instance: dg.DagsterInstance, ds: Dataset, objects: Any) -> tuple[dict[str, str], list[str]]:
    """Materialized shards of the plan with their data_version, and the keys of the others."""
    from caption_assets.core.plan.plans import load_plan

    planned = load_plan(objects, ds.layout).shards
    state = DatasetState(instance, ds, "", planned)
    versions, failed = state.versions("merged"), state.failed_shards
    done = {shard: versions[shard] for shard in planned if shard in versions and shard not in failed}
    return done, [shard for shard in planned if shard not in done]
