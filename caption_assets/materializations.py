"""What Dagster holds for made, put right where the store says otherwise: many partitions at once, which Dagster cannot do."""

from __future__ import annotations

import time
from collections.abc import Sequence

import dagster as dg
import sqlalchemy as sa
from dagster._core.events import StepMaterializationData
from dagster._core.events.log import EventLogEntry
from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import AssetEventTagsTable, SqlEventLogStorageTable

from caption_assets.shards import event_storage


def report_materializations(instance: dg.DagsterInstance, made: Sequence[dg.AssetMaterialization]) -> None:
    """What `instance.report_runless_asset_event` does for each, in one transaction; all of one asset. One by one they cost 25 ms
    each where Dagster's records are in SQLite: hours for a dataset of 100,000 shards."""
    if not made:
        return
    storage = event_storage(instance)
    entries = [_entry(materialization) for materialization in made]
    if not storage.is_run_sharded:
        storage.store_event_batch(entries)
        return
    rows = [storage._event_to_row(entry) for entry in entries]
    with storage.run_connection(RUNLESS_RUN_ID) as connection:
        connection.execute(SqlEventLogStorageTable.insert(), rows)
    insert = SqlEventLogStorageTable.insert().returning(SqlEventLogStorageTable.c.id, sort_by_parameter_order=True)
    with storage.index_transaction() as connection:
        ids = connection.execute(insert, rows).scalars().all()
        storage._store_asset_event_tags(connection, entries, ids)
        storage._store_asset_event(connection, entries[-1], ids[-1])


def forget_materializations(instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str]) -> None:
    """Makes partitions missing again whose files the store has lost. Dagster wipes whole assets only, so the rows are taken out
    of its event log here (materializations and what was planned; runs and their logs stay)."""
    storage = event_storage(instance)
    events = SqlEventLogStorageTable.c
    kinds = [dg.DagsterEventType.ASSET_MATERIALIZATION.value, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED.value]
    for start in range(0, len(partitions), 500):
        where = sa.and_(
            events.asset_key == key.to_string(),
            events.partition.in_(list(partitions[start : start + 500])),
            events.dagster_event_type.in_(kinds),
        )
        with storage.index_connection() as connection:
            ids = sa.select(events.id).where(where)
            connection.execute(AssetEventTagsTable.delete().where(AssetEventTagsTable.c.event_id.in_(ids)))
            connection.execute(SqlEventLogStorageTable.delete().where(where))
    instance.wipe_asset_cached_status([key])


def _entry(materialization: dg.AssetMaterialization) -> EventLogEntry:
    event = dg.DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
        event_specific_data=StepMaterializationData(materialization),
        job_name=RUNLESS_JOB_NAME,
    )
    return EventLogEntry(
        user_message="",
        level=20,
        job_name=RUNLESS_JOB_NAME,
        run_id=RUNLESS_RUN_ID,
        error_info=None,
        timestamp=time.time(),
        step_key=None,
        dagster_event=event,
    )
