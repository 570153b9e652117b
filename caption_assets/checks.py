"""Asset checks: what is decided about a shard when it is made, and the standing one over all shards."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from caption_assets.display import plain
from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource

if TYPE_CHECKING:
    from caption_assets.core.sanity import Sanity

GRID_CHECK = "grid_integrity"
STANDING_CHECKS = ("failed_shards", "shards_up_to_date")


def shard_check(ds: Dataset, name: str, asset: str, description: str, blocking: bool = False) -> dg.AssetCheckSpec:
    """A check of every shard, evaluated in the step that makes the asset: it costs no step of its own."""
    return dg.AssetCheckSpec(name, asset=ds.key(asset), blocking=blocking, partitions_def=ds.shards, description=description)


def merged_checks(ds: Dataset) -> list[dg.AssetCheckSpec]:
    return [
        shard_check(
            ds,
            "records_accounted",
            "merged",
            "Every planned record is in merged or in failed, and in one of them only.",
            blocking=True,
        ),
        shard_check(
            ds,
            "caption_coverage",
            "merged",
            f"The share of records with a caption: a warning below {ds.spec.checks.coverage_warn:g}, an error below "
            f"{ds.spec.checks.coverage_error:g}.",
        ),
        shard_check(
            ds, "caption_sanity", "merged", "Texts have letters, differ between pictures, and are of like length and script."
        ),
    ]


def grid_check(ds: Dataset) -> dg.AssetCheckSpec:
    return shard_check(
        ds,
        GRID_CHECK,
        "concat_grids",
        "Every tar of grids opens and agrees with the mapping; of many grids some are looked at, others each time.",
    )


def look_at_grids(ds: Dataset, store: StoreResource, shard: str, seed: str) -> tuple[bool, dict[str, Any]]:
    """Whether the shard's grids are whole as they lie in the store now, and what was seen. seed: chooses the sample."""
    from caption_assets.core.pictures.gridcheck import check_grids

    found = check_grids(store.objects, ds.layout, ds.spec, shard, seed)
    said = {"problems": dg.MetadataValue.text(plain("\n".join(found.problems)))} if found.problems else {}
    note = {"note": found.note} if found.note else {}
    return not found.problem_count, {**found.figures, "problem_count": found.problem_count, **note, **said}


def grid_result(ds: Dataset, context: dg.AssetExecutionContext, store: StoreResource) -> dg.AssetCheckResult:
    passed, metadata = look_at_grids(ds, store, context.partition_key, context.run.run_id)
    return dg.AssetCheckResult(check_name=GRID_CHECK, asset_key=ds.key("concat_grids"), passed=passed, metadata=metadata)


def coverage_result(ds: Dataset, counts: Mapping[str, Any]) -> dg.AssetCheckResult:
    coverage, limits = float(counts.get("coverage", 1.0)), ds.spec.checks
    severity = dg.AssetCheckSeverity.ERROR if coverage < limits.coverage_error else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        check_name="caption_coverage",
        asset_key=ds.key("merged"),
        passed=coverage >= limits.coverage_warn,
        severity=severity,
        metadata={"coverage": coverage, "warn_below": limits.coverage_warn, "error_below": limits.coverage_error},
    )


def sanity_result(ds: Dataset, sanity: "Sanity") -> dg.AssetCheckResult:
    said = {"warnings": dg.MetadataValue.text("\n".join(sanity.warnings))} if sanity.warnings else {}
    return dg.AssetCheckResult(
        check_name="caption_sanity",
        asset_key=ds.key("merged"),
        passed=not sanity.warnings,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={**sanity.figures, **said},
    )


def standing_checks(ds: Dataset) -> list[dg.AssetChecksDefinition]:
    """Checks over all shards at once; they run when asked, by the nightly schedule, and read Dagster's records only."""

    @dg.asset_check(
        asset=ds.key("merged"),
        name="failed_shards",
        description="No shard's last run failed: bounded retries never become silent gaps.",
    )
    def failed_shards(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        from caption_assets.shards import DatasetState

        state = DatasetState(context.instance, ds, "", context.instance.get_dynamic_partitions(ds.partitions_name))
        failed = sorted(state.failed_shards)
        rows = [dg.TableRecord({"shard": shard}) for shard in failed[:1000]]
        schema = dg.TableSchema([dg.TableColumn("shard", "string")])
        shown = {"shards": dg.MetadataValue.table(rows, schema)} if failed else {}
        return dg.AssetCheckResult(passed=not failed, metadata={"failed_shards": len(failed), **shown})

    @dg.asset_check(
        asset=ds.key("merged"),
        name="shards_up_to_date",
        description="No captioned shard has another recipe or other filters than the config's.",
    )
    def shards_up_to_date(context: dg.AssetCheckExecutionContext, store: StoreResource) -> dg.AssetCheckResult:
        from caption_assets.shards import dataset_state

        state = dataset_state(context.instance, ds, store.objects)
        stale = [shard for shard in state.versions("merged") if state.state(shard).status == "out_of_date"]
        return dg.AssetCheckResult(
            passed=not stale,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"out_of_date_shards": len(stale), "job": f"{ds.name}_recaption_out_of_date"},
        )

    return [failed_shards, shards_up_to_date]
