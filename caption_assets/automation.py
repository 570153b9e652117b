"""CPU assets that follow new shards by themselves, where `automation.prepare` of the dataset says so. Nothing else ever does: no
asset that asks a model has a condition, and the sensor cannot request one."""

import dagster as dg

from caption_assets.partitions import PREPARE_ASSETS, Dataset

TICK_S = 30


def prepare_condition(ds: Dataset) -> dg.AutomationCondition | None:
    """Of manifest and concat_grids: a shard that is missing is asked for once, whether it was there before this was switched on
    or not. One whose run failed waits for a person, and so does one that somebody works on."""
    if not ds.spec.automation.prepare:
        return None
    condition = dg.AutomationCondition
    handled = condition.newly_requested() | condition.newly_updated()
    return (
        condition.missing().newly_true().since(handled)
        & condition.missing()
        & ~condition.in_progress()
        & ~condition.execution_failed()
        & ~condition.any_deps_missing()
    ).with_label("missing and not asked for yet")


def automation_sensors(datasets: list[Dataset]) -> list[dg.AutomationConditionSensorDefinition]:
    """One for each dataset that is prepared by itself; it runs as soon as the daemon does, and can be stopped in the UI."""
    return [_prepare(ds) for ds in datasets if ds.spec.automation.prepare]


def _prepare(ds: Dataset) -> dg.AutomationConditionSensorDefinition:
    return dg.AutomationConditionSensorDefinition(
        f"{ds.name}_prepare_new",
        target=dg.AssetSelection.assets(*(ds.key(asset) for asset in PREPARE_ASSETS)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=TICK_S,
        run_tags={"dataset": ds.name},
        description="Makes manifest and grids of shards that have none (`automation.prepare`); asks no model.",
    )
