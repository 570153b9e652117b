"""Finds runs whose process is gone, marks them failed and frees what they held: pool slots and leases.

SIGKILL leaves a run STARTED and its slot claimed for ever: Dagster's run monitoring does not notice, and a later run waits on the
slot. On this machine the process itself is looked at; on another the lease in the store, which a live run renews.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES
from dagster._core.storage.tags import PARTITION_NAME_TAG

from caption_assets.partitions import Dataset
from caption_assets.runs import RUNNER_TAG, process_token

if TYPE_CHECKING:
    from caption_assets.core.objectstore import ObjectStore

SILENT_S = 900.0
"""A run on another host that holds no lease is given up when it has written no event for so long."""


def clear_dead_runs(instance: dg.DagsterInstance, datasets: Iterable[Dataset], objects: ObjectStore) -> list[str]:
    """Marks dead runs failed and frees their slots and leases; their ids."""
    by_name = {ds.name: ds for ds in datasets}
    cleared = []
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS_RUN_STATUSES)):
        why = _death(instance, run, by_name, objects)
        if why:
            instance.report_run_failed(run, message=f"{why}; found by caption-assets")
            cleared.append(run.run_id)
    free_slots_of_ended_runs(instance)
    return cleared


def free_slots_of_ended_runs(instance: dg.DagsterInstance) -> None:
    """Slots that are claimed or waited for by runs that have ended."""
    storage = instance.event_log_storage
    for pool in storage.get_concurrency_keys():
        info = storage.get_concurrency_info(pool)
        holders = {slot.run_id for slot in info.claimed_slots} | {step.run_id for step in info.pending_steps}
        for run_id in holders:
            run = instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                storage.free_concurrency_slots_for_run(run_id)


def _death(instance: dg.DagsterInstance, run: dg.DagsterRun, datasets: dict[str, Dataset], objects: ObjectStore) -> str | None:
    """Why the run is known to be dead, else None. A run of which nothing is known is left alone."""
    token = run.tags.get(RUNNER_TAG) or _token_from_events(instance, run)
    if token:
        host, boot, pid, _ = token.split(":")
        here, here_boot = (process_token() or ":::").split(":")[:2]
        if host == here:
            return None if boot == here_boot and process_token(int(pid)) == token else "its process is gone"
    ds, shard = _dataset_of(run, datasets), run.tags.get(PARTITION_NAME_TAG)
    if ds is None or shard is None:
        return None
    from caption_assets.core.loop.leases import is_dead, read_lease

    lease = read_lease(objects, ds.layout.lease(shard))
    if lease is not None and lease.run_id == run.run_id:
        return "its lease has run out" if is_dead(objects, ds.layout.lease(shard), lease) else None
    return "it holds no lease and is silent" if _silent_for(instance, run) > SILENT_S else None


def _dataset_of(run: dg.DagsterRun, datasets: dict[str, Dataset]) -> Dataset | None:
    if run.asset_selection:
        return datasets.get(next(iter(run.asset_selection)).path[0])
    return datasets.get(run.tags.get("dataset", ""))


def _token_from_events(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """`dagster asset materialize` and the run launcher leave no tag, but an engine event says the pid. Only a process that began
    before the event is the run's own; else another one has got its pid since."""
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        event = entry.dagster_event
        metadata = event.engine_event_data.metadata if event else {}
        if "pid" in metadata:
            pid = int(str(metadata["pid"].value))
            alive = process_token(pid)
            if alive and _began(alive) <= entry.timestamp + 2:
                return alive
            host, boot, *_ = (process_token() or ":").split(":")
            return f"{host}:{boot}:{pid}:gone"
    return None


def _began(token: str) -> float:
    """When the process of a token began, in seconds since 1970."""
    with open("/proc/uptime") as file:
        booted = time.time() - float(file.read().split()[0])
    return booted + float(token.split(":")[3]) / os.sysconf("SC_CLK_TCK")


def _silent_for(instance: dg.DagsterInstance, run: dg.DagsterRun) -> float:
    """Seconds since the run's last event; 0 for one that has none yet."""
    records = instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
    return time.time() - records[0].event_log_entry.timestamp if records else 0.0
