"""Dagster's run queue for clusters: a run asks for what its assets ask for, wherever it was launched.

Ray's and Kubernetes' run launchers read a run's tags only. Runs of jobs have them; runs of assets chosen in the asset graph have
none, and would all get the launcher's defaults.
"""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext

from caption_assets.cluster import RAY_TAG, largest, resource_tags
from caption_assets.config import ResourcesConfig


class ResourcesRunCoordinator(QueuedRunCoordinator):
    """QueuedRunCoordinator that gives a run without resources the largest of what its steps ask for. Same settings."""

    def submit_run(self, context: SubmitRunContext) -> dg.DagsterRun:
        run = context.dagster_run
        if RAY_TAG not in run.tags and (tags := self._asked(run)):
            self._instance.add_run_tags(run.run_id, tags)
        return super().submit_run(context)

    def _asked(self, run: dg.DagsterRun) -> dict[str, Any]:
        if run.execution_plan_snapshot_id is None:
            return {}
        plan = self._instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
        chosen = set(plan.step_keys_to_execute)
        tags = [step.tags or {} for step in plan.steps if step.key in chosen]
        return resource_tags(largest([_resources(step[RAY_TAG]) for step in tags if RAY_TAG in step]))


def _resources(tag: str) -> ResourcesConfig:
    said = json.loads(tag)
    memory = said["memory"] / 2**30 if "memory" in said else None
    return ResourcesConfig(cpus=said["num_cpus"], memory_gb=memory, gpus=said.get("num_gpus"))
