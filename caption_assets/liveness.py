"""Finds runs whose process is gone, marks them failed and frees what they held: pool slots and leases.

SIGKILL leaves a run STARTED and its slot claimed for ever: Dagster's run monitoring does not notice, and a later run waits on the
slot. On this machine the process itself is looked at; on another the lease in the store, which a live run renews (presence.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES

from caption_assets.partitions import Dataset
from caption_assets.presence import RUNNER_TAG, dataset_of, lease_of

if TYPE_CHECKING:
    from caption_assets.core.loop.leases import Held
    from caption_assets.core.objectstore import ObjectStore

SILENT_S, SILENT_WITHOUT_SHARD_S = 3600.0, 86400.0
"""A run on another host that holds no lease is given up when it has written no event for so long; a plan or an index of a large
dataset writes none for hours. Far more than hosts' clocks may be apart."""


def clear_dead_runs(instance: dg.DagsterInstance, datasets: Iterable[Dataset], objects: ObjectStore) -> list[str]:
    """Marks dead runs failed and frees their slots and leases; their ids."""
    by_name = {ds.name: ds for ds in datasets}
    cleared = []
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS_RUN_STATUSES)):
        why = _death(instance, run, by_name, objects) or _never_began(instance, run)
        if why:
            _bury(instance, run, why)
            _remove_lease(run, by_name, objects)
            cleared.append(run.run_id)
    free_slots_of_ended_runs(instance)
    return cleared


def bury_predecessor(instance: dg.DagsterInstance, held: Held | None) -> None:
    """Where a dead lease was taken over: the run that held it is marked failed, and its slots are free."""
    dead = instance.get_run_by_id(held.taken_from) if held and held.taken_from else None
    if dead is not None and not dead.is_finished:
        _bury(instance, dead, "its lease had run out")
        instance.event_log_storage.free_concurrency_slots_for_run(dead.run_id)


def _bury(instance: dg.DagsterInstance, run: dg.DagsterRun, why: str) -> None:
    instance.report_run_failed(run, message=f"{why}; found by caption-assets")


def _remove_lease(run: dg.DagsterRun, datasets: dict[str, Dataset], objects: ObjectStore) -> None:
    """Only tidies up: nobody has to wait for a dead lease."""
    from caption_assets.core.loop.leases import read_lease
    from caption_assets.core.objectstore import ObjectError

    ds = datasets.get(dataset_of(run) or "")
    uri = lease_of(run, ds.config.store) if ds else None
    try:
        lease = read_lease(objects, uri) if uri else None
        if uri and lease is not None and lease.run_id == run.run_id:
            objects.delete(uri)
    except (ObjectError, OSError) as error:
        dg.get_dagster_logger().warning(f"the lease {uri} of a dead run stays: {error}")


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
    from caption_assets.core.loop.leases import is_dead, read_lease, runs_here

    run_id, _, token = run.tags.get(RUNNER_TAG, "").partition("@")
    if run_id == run.run_id and (alive := runs_here(token)) is not None:
        return None if alive else "its process is gone"
    ds = datasets.get(dataset_of(run) or "")
    if ds is None:
        return None
    uri = lease_of(run, ds.config.store)
    lease = read_lease(objects, uri) if uri else None
    if uri and lease is not None and lease.run_id == run.run_id:
        return "its lease has run out" if is_dead(objects, uri, lease) else None
    patience = SILENT_S if uri else SILENT_WITHOUT_SHARD_S
    return "it holds no lease and is silent" if _silent_for(instance, run) > patience else None


def _never_began(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """Why a run that was launched will not begin: its worker went down with a node of the cluster before. Run monitoring asks the
    launcher only for runs that have begun, and would let such a run hold its place in the queue until the start timeout."""
    if run.status != dg.DagsterRunStatus.STARTING:
        return None
    try:
        launcher = instance.run_launcher
        health = launcher.check_run_worker_health(run) if launcher.supports_check_run_worker_health else None
    except Exception as error:  # whatever a launcher raises: its cluster does not answer, or is not set up here
        dg.get_dagster_logger().debug(f"run {run.run_id}: {error}")
        return None
    return f"it never began: {health.msg}" if health and health.status == WorkerStatus.FAILED else None


def _silent_for(instance: dg.DagsterInstance, run: dg.DagsterRun) -> float:
    """Seconds since the run's last event; 0 for one that has none yet."""
    records = instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
    return time.time() - records[0].event_log_entry.timestamp if records else 0.0
