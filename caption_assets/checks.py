"""Asset checks: what is decided about a shard when it is made, and the standing ones over all shards. A result says in its
description how many; what records or models say of themselves is in its metadata, as text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from caption_assets.core.report.text import plural
from caption_assets.display import plain, short
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


def look_at_grids(ds: Dataset, store: StoreResource, shard: str, seed: str) -> tuple[bool, str, dict[str, Any]]:
    """Whether the shard's grids are whole as they lie in the store now, and what was seen. seed: chooses the sample."""
    from caption_assets.core.pictures.gridcheck import check_grids

    found = check_grids(store.objects, ds.layout, ds.spec, shard, seed)
    opened = plural(found.figures.get("grids_opened", 0), "grid")
    said = plural(found.problem_count, "problem") if found.problem_count else found.note or f"{opened} opened, all whole"
    problems = {"problems": dg.MetadataValue.text(plain("\n".join(found.problems)))} if found.problems else {}
    return not found.problem_count, said, {**found.figures, "problem_count": found.problem_count, **problems}


def grid_result(ds: Dataset, context: dg.AssetExecutionContext, store: StoreResource) -> dg.AssetCheckResult:
    passed, said, metadata = look_at_grids(ds, store, context.partition_key, context.run.run_id)
    return dg.AssetCheckResult(
        check_name=GRID_CHECK, asset_key=ds.key("concat_grids"), passed=passed, description=said, metadata=metadata
    )


def accounted_result(ds: Dataset, counts: Mapping[str, Any], problems: Sequence[str]) -> dg.AssetCheckResult:
    shown = {"problems": dg.MetadataValue.text(plain("\n".join(problems)))} if problems else {}
    accounted = f"{counts['captioned']:,} in merged, {counts['failed']:,} in failed"
    return dg.AssetCheckResult(
        check_name="records_accounted",
        asset_key=ds.key("merged"),
        passed=not problems,
        description=plural(len(problems), "problem") if problems else f"{plural(counts['records'], 'record')}: {accounted}",
        metadata={**short(counts), **shown},
    )


def coverage_result(ds: Dataset, counts: Mapping[str, Any]) -> dg.AssetCheckResult:
    limits = ds.spec.checks
    severity = dg.AssetCheckSeverity.ERROR if counts["coverage"] < limits.coverage_error else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        check_name="caption_coverage",
        asset_key=ds.key("merged"),
        passed=counts["coverage"] >= limits.coverage_warn,
        severity=severity,
        description=f"{counts['captioned']:,} of {plural(counts['records'], 'record')} have a caption",
        metadata=short({"coverage": counts["coverage"]}),
    )


def sanity_result(ds: Dataset, sanity: "Sanity") -> dg.AssetCheckResult:
    said = {"warnings": dg.MetadataValue.text("\n".join(sanity.warnings))} if sanity.warnings else {}
    return dg.AssetCheckResult(
        check_name="caption_sanity",
        asset_key=ds.key("merged"),
        passed=not sanity.warnings,
        severity=dg.AssetCheckSeverity.WARN,
        description=plural(len(sanity.warnings), "warning") if sanity.warnings else "nothing strange",
        metadata={**short(sanity.figures), **said},
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
        said = f"the last run of {plural(len(failed), 'shard')} failed" if failed else "no shard's last run failed"
        return dg.AssetCheckResult(passed=not failed, description=said, metadata={"failed_shards": len(failed), **shown})

    @dg.asset_check(
        asset=ds.key("merged"),
        name="shards_up_to_date",
        description="No captioned shard has another recipe or other filters than the config's.",
    )
    def shards_up_to_date(context: dg.AssetCheckExecutionContext, store: StoreResource) -> dg.AssetCheckResult:
        from caption_assets.shards import dataset_state

        state = dataset_state(context.instance, ds, store.objects)
        stale = [shard for shard in state.versions("merged") if state.state(shard).status == "out_of_date"]
        job = f"{ds.name}_recaption_out_of_date"
        said = f"{plural(len(stale), 'shard')} out of date" + (f": the job `{job}` asks for their runs" if stale else "")
        return dg.AssetCheckResult(
            passed=not stale,
            severity=dg.AssetCheckSeverity.WARN,
            description=said,
            metadata={"out_of_date_shards": len(stale), "job": job},
        )

    return [failed_shards, shards_up_to_date]
