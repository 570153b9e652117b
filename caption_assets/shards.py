"""What Dagster knows of a dataset's shards, and what each still needs. Read in a few queries, whatever their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import dagster as dg
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES
from dagster._core.storage.partition_status_cache import AssetPartitionStatus
from dagster._core.storage.tags import PARTITION_NAME_TAG

from caption_assets.core import recipes
from caption_assets.partitions import SHARD_ASSETS, Dataset

DATA_VERSION_TAG = "dagster/data_version"
WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
COUNTS = ("records", "captioned", "failed", "transient")


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
    def at_work(self) -> dict[str, tuple[str, str]]:
        """(status, run_id) of shards that a run holds or waits for."""
        found: dict[str, tuple[str, str]] = {}
        for run in self.instance.get_runs(dg.RunsFilter(statuses=[*IN_PROGRESS_RUN_STATUSES, dg.DagsterRunStatus.QUEUED])):
            shard = run.tags.get(PARTITION_NAME_TAG)
            if shard and run.asset_selection is None and not run.job_name.startswith(f"{self.ds.name}_"):
                continue
            if shard and run.asset_selection and not any(key.path[0] == self.ds.name for key in run.asset_selection):
                continue
            if shard:
                found[shard] = ("waiting" if run.status in WAITING else "running", run.run_id)
        return found

    @cached_property
    def failed_shards(self) -> set[str]:
        """Shards whose last run failed before it had materialized all it was to."""
        found: set[str] = set()
        for asset in ("manifest", "concat_grids", "captions", "recaptions", "merged"):
            states = self.instance.get_status_by_partition(self.ds.key(asset), self.shards, self.ds.shards) or {}
            found.update(shard for shard, state in states.items() if state == AssetPartitionStatus.FAILED)
        return found

    @cached_property
    def counts(self) -> dict[str, dict[str, Any]]:
        """Figures of merged's latest materialization by shard, and its run_id."""
        ids, found = list(self.event_ids("merged").values()), {}
        for start in range(0, len(ids), 500):
            chosen = dg.AssetRecordsFilter(asset_key=self.ds.key("merged"), storage_ids=ids[start : start + 500])
            for record in self.instance.fetch_materializations(chosen, limit=500).records:
                event = record.asset_materialization
                if event is not None and event.partition is not None:
                    figures = {k: event.metadata[k].value for k in COUNTS if k in event.metadata}
                    found[event.partition] = {**figures, "run_id": _run_of(event, record.run_id)}
        return found

    def needs(self, shard: str) -> tuple[str, ...]:
        """Assets to materialize, from the first that is missing or out of date."""
        spec, have = self.ds.spec, {asset: self.all_versions[asset].get(shard) for asset in SHARD_ASSETS}
        manifest, mapping, merged = have["manifest"], have["concat_grids"], have["merged"]
        if manifest is None or not manifest.endswith(f".{recipes.fields_digest(spec)}"):
            return SHARD_ASSETS
        if mapping is None or mapping != recipes.mapping_version(spec, manifest):
            return SHARD_ASSETS[1:]
        ask = SHARD_ASSETS[1:] if spec.grid.keep == "until_merged" else SHARD_ASSETS[2:]
        for asset in ("captions", "recaptions"):
            if (have[asset] or "").partition(".")[0] != self.recipe:
                return ask
        if self.counts.get(shard, {}).get("transient"):
            return SHARD_ASSETS[1:]  # pictures that could not be read are read again there
        return () if self._merge_is_current(shard, merged) and have["failed"] == merged else ("merged", "failed")

    def _merge_is_current(self, shard: str, merged: str | None) -> bool:
        if merged is None or not merged.startswith(f"{self.recipe}.{recipes.filter_digest(self.ds.spec)}."):
            return False
        latest = max(("captions", "recaptions"), key=lambda asset: self.event_ids(asset).get(shard, 0))
        newer = self.event_ids(latest).get(shard, 0) > self.event_ids("merged").get(shard, 0)
        return not newer or self.all_versions[latest][shard].rpartition(".")[2] == merged.rpartition(".")[2]

    def state(self, shard: str) -> ShardState:
        needs, figures = self.needs(shard), self.counts.get(shard, {})
        status, run_id = self.at_work.get(shard, (None, None))
        if status is None:
            if shard in self.failed_shards:
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


def _run_of(event: dg.AssetMaterialization, run_id: str) -> str:
    """The run that made it; what `reconcile` reported says so in its metadata."""
    made_by = event.metadata.get("run_id")
    return str(made_by.value) if made_by is not None else run_id


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
