"""What runs ask a cluster for, by where they were launched."""

import json

import dagster as dg
import pytest
from dagster._core.run_coordinator import SubmitRunContext

from caption_assets.cluster import K8S_TAG, RAY_TAG
from caption_assets.config import Config
from caption_assets.definitions import build
from caption_assets.runs import _remote_origin

COORDINATOR = {"run_coordinator": {"module": "caption_assets.coordinator", "class": "ResourcesRunCoordinator"}}
ENDPOINTS = {"kind": "openai", "model": "m", "endpoints": ["http://127.0.0.1:9/v1"]}
OWN_SERVERS = {"kind": "vllm", "model": "m", "replicas": 2, "server_args": {"tensor-parallel-size": 4}}
GB = 2**30


def submitted(engine, job, assets):
    """The tags of a queued run of these assets."""
    dataset = {"name": "photos", "source": "./photos/", "prompts": [{"text": "Describe it."}]}
    config = Config.model_validate({"store": "./store", "engine": engine, "datasets": [dataset]})
    definitions = build(config)
    with dg.instance_for_test(overrides=COORDINATOR) as instance:
        keys = frozenset(dg.AssetKey(["photos", asset]) for asset in assets)
        part = definitions.resolve_job_def(job).get_subset(asset_selection=keys)
        run = instance.create_run_for_job(part, tags=part.run_tags, remote_job_origin=_remote_origin(job))
        queued = instance.run_coordinator.submit_run(SubmitRunContext(run, None))
        assert queued.status == dg.DagsterRunStatus.QUEUED
        return queued.tags


@pytest.mark.parametrize(
    ("engine", "assets", "asked"),
    [
        (ENDPOINTS, ["concat_grids"], {"num_cpus": 8, "memory": 20 * GB}),
        (ENDPOINTS, ["captions", "recaptions"], {"num_cpus": 1}),
        (OWN_SERVERS, ["concat_grids", "captions"], {"num_cpus": 8, "memory": 20 * GB, "num_gpus": 8}),
    ],
)
def test_runs_of_assets_chosen_in_the_graph_ask_for_what_these_assets_need(engine, assets, asked):
    tags = submitted(engine, "__ASSET_JOB", assets)
    assert json.loads(tags[RAY_TAG]) == asked
    kubernetes = json.loads(tags[K8S_TAG])
    limits = kubernetes["container_config"]["resources"].get("limits", {})
    assert limits.get("nvidia.com/gpu") == (str(asked["num_gpus"]) if "num_gpus" in asked else None)
    assert ("pod_spec_config" in kubernetes) == ("num_gpus" in asked)


def test_runs_of_jobs_keep_what_their_job_asks_for_and_assets_without_resources_ask_for_nothing():
    assert json.loads(submitted(ENDPOINTS, "photos_caption_shard", ["captions"])[RAY_TAG])["num_cpus"] == 8
    assert RAY_TAG not in submitted(ENDPOINTS, "__ASSET_JOB", ["manifest"])
