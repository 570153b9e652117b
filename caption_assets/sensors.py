"""Sensors: one that clears dead runs, and per dataset one that notices new data (off by default)."""

import dagster as dg

from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource


def build_sensors(datasets: list[Dataset]) -> list[dg.SensorDefinition]:
    """All sensors of the code location; none without datasets."""
    return [dead_runs(datasets)] if datasets else []


def dead_runs(datasets: list[Dataset]) -> dg.SensorDefinition:
    @dg.sensor(
        name="dead_runs",
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Marks runs failed whose process is gone or whose lease has run out, and frees their pool slots.",
    )
    def sensor(context: dg.SensorEvaluationContext, store: StoreResource) -> dg.SkipReason:
        from caption_assets.liveness import clear_dead_runs

        cleared = clear_dead_runs(context.instance, datasets, store.objects)
        return dg.SkipReason(f"marked failed: {', '.join(cleared)}" if cleared else "no dead runs")

    return sensor
