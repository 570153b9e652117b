"""Every asset, job, check and sensor of caption_assets, built from caption_assets.yaml."""

from __future__ import annotations

import warnings

import dagster as dg

from caption_assets.assets import dataset_assets
from caption_assets.checks import standing_checks
from caption_assets.config import Config
from caption_assets.configfile import load_config
from caption_assets.instance import throwaway_warning
from caption_assets.io_managers.duckdb import DuckDBIOManager
from caption_assets.io_managers.parquet import ParquetIOManager
from caption_assets.jobs import dataset_jobs
from caption_assets.partitions import Dataset
from caption_assets.poolwaits import sleep_for_slots
from caption_assets.resources.engine import CaptionEngine
from caption_assets.resources.store import StoreResource
from caption_assets.schedules import build_schedules
from caption_assets.sensors import build_sensors
from caption_assets.sqlitelocks import wait_for_locks

for category in (dg.PreviewWarning, dg.BetaWarning):
    warnings.filterwarnings("ignore", category=category)


def build(config: Config) -> dg.Definitions:
    """The definitions of a config; without datasets an empty code location that says so when it is loaded."""
    datasets = [Dataset(config, spec) for spec in config.datasets]
    store = StoreResource(s3_settings=config.s3.model_dump_json(), root=config.store)
    return dg.Definitions(
        assets=dg.with_source_code_references([asset for ds in datasets for asset in dataset_assets(ds)]),
        asset_checks=[check for ds in datasets for check in standing_checks(ds)],
        sensors=build_sensors(datasets),
        schedules=build_schedules(datasets),
        jobs=[job for ds in datasets for job in dataset_jobs(ds)],
        resources={
            "store": store,
            "engine": CaptionEngine(),
            "parquet": ParquetIOManager(store=config.store, objects=store),
            "duckdb": DuckDBIOManager(store=config.store, objects=store),
        },
        executor=dg.in_process_executor,
    )


wait_for_locks()
sleep_for_slots()
config = load_config()
if not config.datasets:
    dg.get_dagster_logger("caption_assets").warning(
        "no datasets: `caption-assets init` writes a caption_assets.yaml to begin with"
    )
elif warning := throwaway_warning():
    dg.get_dagster_logger("caption_assets").warning(warning)
defs = build(config)
