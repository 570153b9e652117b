"""Dagster runs started from the command: one per shard, in this process, as the UI would start them."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from caption_assets.partitions import Dataset

LOCATION = "caption_assets"
MODULE = "caption_assets.definitions"
RUNNER_TAG = "caption_assets/runner"
"""host:boot:pid:start of the process that executes the run: names one process for good, since a pid alone is used again."""

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""The command says what happens itself; the whole log is in the UI."""


def process_token(pid: int | None = None) -> str | None:
    """The token of a process of this machine; None when there is none of that pid."""
    from caption_assets.core.loop.leases import process_token as token

    return token(os.getpid() if pid is None else pid)


class Runner:
    """Runs of this process. Each has an origin, so that it can be re-executed in the UI."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.repository = ReconstructableRepository.for_module(MODULE, "defs", working_directory=os.getcwd())

    def run(
        self,
        ds: Dataset,
        job: str,
        assets: Sequence[str],
        shard: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> tuple[str, bool]:
        """Materializes `assets` of the dataset through its job `{dataset}_{job}`; the run's id and whether it succeeded.

        An interrupt inside ends the run as failed and comes back as success=False: the caller has to look for it.
        """
        name = f"{ds.name}_{job}"
        keys = frozenset(ds.key(asset) for asset in assets)
        whole = self.repository.get_reconstructable_job(name)
        part = whole.get_subset(asset_selection=keys)
        definition = part.get_definition()
        run = self.instance.create_run_for_job(
            definition,
            tags={
                **definition.run_tags,
                **(definition.get_tags_for_partition_key(shard, selected_asset_keys=keys) if shard else {}),
                RUNNER_TAG: process_token() or "",
                "user": os.environ.get("USER") or socket.gethostname(),
                **(tags or {}),
            },
            run_config=QUIET,
            asset_selection=keys,
            job_code_origin=part.get_python_origin(),
            remote_job_origin=_remote_origin(name),
            repository_load_data=self.repository.get_definition().repository_load_data,
        )
        result = execute_run(part, run, self.instance)
        return run.run_id, result.success


def _remote_origin(job: str) -> RemoteJobOrigin:
    target = LoadableTargetOrigin(
        executable_path=sys.executable, module_name=MODULE, attribute="defs", working_directory=os.getcwd()
    )
    return RemoteRepositoryOrigin(ManagedGrpcPythonEnvCodeLocationOrigin(target, LOCATION), "__repository__").get_job_origin(job)
