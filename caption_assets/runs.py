"""Dagster runs started from the command: one per shard, in this process, as the UI would start them."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from caption_assets.core.loop.leases import NOT_BEGUN, hold, user_name
from caption_assets.liveness import bury_predecessor
from caption_assets.partitions import Dataset
from caption_assets.presence import HOST_TAG, USER_TAG, started_by

if TYPE_CHECKING:
    from caption_assets.core.objectstore import ObjectStore

LOCATION = "caption_assets"
MODULE = "caption_assets.definitions"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""The command says what happens itself; the whole log is in the UI."""


@dataclass(frozen=True)
class Ending:
    """How one task ended. run_id: None when no run was made. done_by: who had finished the shard meanwhile (user@host)."""

    run_id: str | None
    success: bool
    done_by: str | None = None


class Runner:
    """Runs of this process. Each has an origin, so that it can be re-executed in the UI."""

    def __init__(self, instance: dg.DagsterInstance, objects: ObjectStore) -> None:
        self.instance, self.objects = instance, objects
        self.repository = ReconstructableRepository.for_module(MODULE, "defs", working_directory=os.getcwd())

    def run(
        self,
        ds: Dataset,
        job: str,
        assets: Sequence[str],
        shard: str | None = None,
        tags: Mapping[str, str] | None = None,
        known: int | None = None,
    ) -> Ending:
        """Materializes `assets` of the dataset through its job `{dataset}_{job}`.

        known: storage id of the shard's latest merge when the task was made; when a later one has come and nothing is left to do,
        no run is made. Raises LeaseHeld, and makes no run, while another run holds the shard. An interrupt inside ends the run as
        failed and comes back as success=False: the caller has to look for it.
        """
        lease = hold(self.objects, ds.layout.lease(shard), f"{NOT_BEGUN}{uuid.uuid4().hex[:8]}") if shard else nullcontext()
        with lease as held:
            bury_predecessor(self.instance, held)
            if shard and known is not None and (done_by := self._done_since(ds, shard, known)):
                return Ending(None, True, done_by)
            part, run = self._make_run(ds, job, assets, shard, tags or {})
            if held:
                held.name(run.run_id)
            return Ending(run.run_id, execute_run(part, run, self.instance).success)

    def _done_since(self, ds: Dataset, shard: str, known: int) -> str | None:
        """Who has finished the shard since its merge `known`; None when it still needs something."""
        from caption_assets.shards import dataset_state

        chosen = dg.AssetRecordsFilter(asset_key=ds.key("merged"), asset_partitions=[shard])
        records = self.instance.fetch_materializations(chosen, limit=1).records
        if not records or records[0].storage_id <= known:
            return None
        if dataset_state(self.instance, ds, self.objects, [shard]).needs(shard):
            return None
        return started_by(self.instance.get_run_by_id(records[0].run_id)) or "another run"

    def _make_run(
        self, ds: Dataset, job: str, assets: Sequence[str], shard: str | None, tags: Mapping[str, str]
    ) -> tuple[ReconstructableJob, dg.DagsterRun]:
        name, keys = f"{ds.name}_{job}", frozenset(ds.key(asset) for asset in assets)
        part = self.repository.get_reconstructable_job(name).get_subset(asset_selection=keys)
        definition = part.get_definition()
        run = self.instance.create_run_for_job(
            definition,
            tags={
                **definition.run_tags,
                **(definition.get_tags_for_partition_key(shard, selected_asset_keys=keys) if shard else {}),
                USER_TAG: user_name(),
                HOST_TAG: socket.gethostname(),
                **tags,
            },
            run_config=QUIET,
            asset_selection=keys,
            job_code_origin=part.get_python_origin(),
            remote_job_origin=_remote_origin(name),
            repository_load_data=self.repository.get_definition().repository_load_data,
        )
        return part, run


def _remote_origin(job: str) -> RemoteJobOrigin:
    target = LoadableTargetOrigin(
        executable_path=sys.executable, module_name=MODULE, attribute="defs", working_directory=os.getcwd()
    )
    return RemoteRepositoryOrigin(ManagedGrpcPythonEnvCodeLocationOrigin(target, LOCATION), "__repository__").get_job_origin(job)
