"""What the shard assets share: the shard of this run, its lease, the guard against a changed config, and a round of captions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.tags import AUTOMATION_CONDITION_TAG

from caption_assets.core.columns import CAPTIONS
from caption_assets.partitions import CONFIG_TAG, GPU_POOL, Dataset, column_schema
from caption_assets.progress import Progress
from caption_assets.resources.engine import CaptionEngine
from caption_assets.resources.store import StoreResource

if TYPE_CHECKING:
    from caption_assets.core.layout import Layout
    from caption_assets.core.objectstore import ObjectStore
    from caption_assets.core.owed.rounds import Stage
    from caption_assets.core.plan.plans import ShardEntries
    from caption_assets.core.tables import TableHandle

log = logging.getLogger(__name__)

RETRIES = 2
RETRY_AFTER_S = 15.0
"""Doubled at each retry. Not a RetryPolicy: that would retry an interrupt, too, and Ctrl-C would end nothing."""
BACKFILL_TAG = "dagster/backfill"
REASON_TAG = "caption_assets/retry_reasons"
WRONG_SETTINGS = "wrong_settings"
"""Metadata of a failure that every other shard of the dataset would have, too."""
HELD_BY = "lease_held_by"
"""Metadata of a failure that only says: another run is at work on the shard."""


class ShardRun:
    """One shard in one run."""

    def __init__(self, context: dg.AssetExecutionContext, ds: Dataset, store: StoreResource) -> None:
        self.context, self.ds, self.objects = context, ds, store.objects
        self.key = context.partition_key
        self.run = context.run
        self.run_id = self.run.run_id
        self.root_run_id = self.run.root_run_id or self.run_id

    def planned(self) -> tuple[ShardEntries, dict[str, str]]:
        """The shard's part of the plan, and tags for its manifest. Fails for a key that the plan does not know: anyone can
        add a partition in the UI."""
        from caption_assets.core.plan.plans import PlanError, load_plan

        plan = load_plan(self.objects, self.ds.layout)
        try:
            entries = plan.entries(self.key)
        except PlanError as error:
            raise dg.Failure(
                f"{self.ds.name}: {error}; `caption-assets plan {self.ds.name}` plans", allow_retries=False
            ) from None
        replaced = plan.planned[self.key].replaces
        return entries, {"shard": self.key, **({"replaces": ",".join(replaced)} if replaced else {})}

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Holds the shard against other runs, and is this run's heartbeat. Says who holds it when it is taken, and what to do
        about a source that has changed, before any traceback."""
        from caption_assets.core.loop.leases import LeaseHeld, hold
        from caption_assets.core.plan.plans import PlanError

        try:
            with hold(self.objects, self.ds.layout.lease(self.key), self.run_id, wait_s=self._patience()):
                yield
        except LeaseHeld as held:
            metadata = {HELD_BY: held.lease.run_id}
            raise dg.Failure(f"{self.ds.name}/{self.key}: {held}", metadata=metadata, allow_retries=False) from None
        except PlanError as error:
            raise dg.Failure(str(error), allow_retries=False) from None

    def _patience(self) -> float:
        """Seconds to wait for a lease in the way: none for a run at work; that of a run which has ended will run out. A cluster's
        run launcher sees within seconds that a run's process died, and retries it perhaps on another host."""
        from caption_assets.core.loop.leases import read_lease

        lease = read_lease(self.objects, self.ds.layout.lease(self.key))
        holder = self.context.instance.get_run_by_id(lease.run_id) if lease and lease.run_id != self.run_id else None
        if lease is None or holder is None or not holder.is_finished:
            return 0.0
        self.context.log.info(f"{lease.who} had this shard and has ended: its lease runs out within {lease.ttl_s:g} s")
        return 1.2 * lease.ttl_s

    def left_to_another(self) -> bool:
        """Whether nobody asked for this run (automation did) and another one has the shard, which prepares it, too."""
        from caption_assets.core.loop.leases import is_dead, read_lease

        if AUTOMATION_CONDITION_TAG not in self.run.tags:
            return False
        uri = self.ds.layout.lease(self.key)
        lease = read_lease(self.objects, uri)
        if lease is None or lease.run_id == self.run_id or is_dead(self.objects, uri, lease):
            return False
        self.context.log.info(f"run {lease.run_id} is at work on this shard: left to it")
        return True

    def check_config(self) -> None:
        """Stops before the first request when the run was launched for another recipe or geometry.

        Runs of a job carry the digest as a tag. A run without one writes it, and runs of one backfill must agree.
        """
        instance, digest = self.context.instance, self.ds.config_digest
        launched_for = self.run.tags.get(CONFIG_TAG)
        backfill = self.run.tags.get(BACKFILL_TAG)
        if launched_for is None and backfill:
            first = instance.get_runs(dg.RunsFilter(tags={BACKFILL_TAG: backfill}), limit=1, ascending=True)
            launched_for = first[0].tags.get(CONFIG_TAG) if first else None
        if launched_for is None:
            instance.add_run_tags(self.run_id, {CONFIG_TAG: digest})
        elif launched_for != digest:
            raise dg.Failure(
                f"the config changed since this run was launched (recipe and geometry {launched_for}, now {digest}): nothing was "
                "asked. Launch the shard anew.",
                allow_retries=False,
            )

    def recipes(self) -> tuple[dict[str, str], str | None]:
        """The recipes of the outputs, and the model's resolved revision, pinned in the store at first use."""
        from caption_assets.core.modelpin import pinned_revision
        from caption_assets.core.recipes import output_recipes

        revision = pinned_revision(self.objects, self.ds.layout, self.ds.engine)
        return output_recipes(self.ds.spec, self.ds.engine, revision), revision

    def selects(self, asset: str) -> bool:
        """Whether this run materializes the asset, too."""
        return self.ds.key(asset) in self.context.job_def.asset_layer.selected_asset_keys


def asking_asset(ds: Dataset, name: str, **kwargs: Any) -> Callable[..., dg.AssetsDefinition]:
    """The decorator of the two assets that ask a model. Nothing is yielded while a remote batch is open."""
    return ds.shard_asset(
        name=name,
        ins={"manifest": dg.AssetIn(ds.key("manifest")), "mapping": dg.AssetIn(ds.key("concat_grids"))},
        output_required=False,
        pool=GPU_POOL,
        kinds={"vllm", "parquet"},
        code_version=ds.code_version,
        metadata=column_schema(CAPTIONS),
        op_tags=ds.resource_tags("captions"),
        **kwargs,
    )


@contextmanager
def _retried(context: dg.AssetExecutionContext) -> Iterator[None]:
    """An outage of the engine or of a store fails the step and is retried by Dagster; what was answered until then is stored."""
    from caption_assets.core.captioning import EngineDown, SourceDown
    from caption_assets.core.objectstore import ObjectError
    from caption_assets.engines.base import WrongSettings

    try:
        yield
    except WrongSettings as error:
        raise dg.Failure(str(error), metadata={WRONG_SETTINGS: True}, allow_retries=False) from None
    except (EngineDown, SourceDown, ObjectError) as error:
        if context.retry_number >= RETRIES:
            raise
        after_s = RETRY_AFTER_S * 2**context.retry_number
        said = f"{error}; trying again in {after_s:g} s ({context.retry_number + 1} of {RETRIES})"
        context.log.warning(said)
        log.warning("%s: %s", context.partition_key, said)
        raise dg.RetryRequested(RETRIES, after_s) from error


def reusable(objects: ObjectStore, uri: str, version: str) -> TableHandle | None:
    """The table that lies there, when it was made from the same things; so that a run does no more than it must.

    A damaged one is made again.
    """
    from caption_assets.core import tables
    from caption_assets.core.objectstore import ObjectMissing

    try:
        handle = tables.table(objects, uri)
    except ObjectMissing:
        return None
    except tables.DamagedTable as error:
        log.warning("%s", error)
        return None
    return handle if handle.metadata.get("version") == version else None


def grids_complete(objects: ObjectStore, layout: Layout, shard: str, mapping: TableHandle) -> bool:
    """Whether every grid tar that the mapping names is there (`keep: until_merged` takes them away)."""
    there = {info.uri.rsplit("/", 1)[1] for info in objects.list(layout.grids_folder(shard)) if info.uri.endswith(".tar")}
    return len(there) >= int(mapping.metadata.get("grid_tars", 0))


def caption_round(
    shard: ShardRun, engine: CaptionEngine, manifest: TableHandle, mapping: TableHandle, stage: Stage
) -> Iterator[dg.MaterializeResult]:
    """Asks what the stage still owes and yields its materialization; yields nothing while a remote batch is open."""
    from caption_assets.core.captioning import ShardJob, caption_shard
    from caption_assets.core.modelpin import as_pinned

    ds, context = shard.ds, shard.context
    shard.check_config()
    recipes, revision = shard.recipes()
    reasons = context.run.tags.get(REASON_TAG)
    alone = stage == "recaptions" and not shard.selects("captions")
    job = ShardJob(
        objects=shard.objects,
        layout=ds.layout,
        spec=ds.spec,
        engine=ds.engine,
        shard=shard.key,
        recipes=recipes,
        revision=revision,
        run_id=shard.run_id,
        root_run_id=shard.root_run_id,
        manifest=manifest,
        mapping=mapping,
    )
    with shard.lease(), _retried(context):
        summary = caption_shard(
            job,
            engine.open(as_pinned(ds.engine, revision)),
            stage=stage,
            extra_round=alone,
            only_reasons=frozenset(reasons.split(",")) if reasons else None,
            on_progress=Progress(context),
        )
    if summary.open_batches:
        context.log.info(f"{summary.open_batches} batches are open at the endpoint; run this shard again to collect them")
        return
    for warning in summary.warnings:
        context.log.warning(warning)
    yield dg.MaterializeResult(metadata=summary.metadata(), data_version=dg.DataVersion(summary.data_version))
