"""What Dagster loads: quick, with and without a config, and refused where the config is wrong."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

from caption_assets.config import Config
from caption_assets.definitions import build
from caption_assets_tests.project import Project, make_project

ROOT = Path(__file__).parent.parent
HEAVY = ("vllm", "torch", "pyarrow", "duckdb", "boto3", "PIL", "numpy", "jinja2", "matplotlib", "dagster_aws", "alembic")
DATASET = {"source": "/data/x", "prompts": [{"text": "Describe the picture."}]}


@pytest.fixture(scope="module")
def two() -> dg.Definitions:
    return build(
        Config.model_validate({"datasets": [{"name": "photos", **DATASET}, {"name": "scans", **DATASET, "exports": ["jsonl"]}]})
    )


def test_loading_the_definitions_imports_nothing_heavy(tmp_path):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", pictures=0)
    code = f"import sys, caption_assets.definitions; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project.folder, env=project.environment, text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_each_dataset_has_its_own_assets_group_and_partitions(two):
    graph = two.resolve_asset_graph()
    for dataset in ("photos", "scans"):
        keys = {key.path[1] for key in graph.get_all_asset_keys() if key.path[0] == dataset}
        assert keys >= {"shard_plan", "manifest", "concat_grids", "captions", "recaptions", "merged", "failed", "caption_index"}
        assert graph.get(dg.AssetKey([dataset, "manifest"])).group_name == dataset
        assert graph.get(dg.AssetKey([dataset, "manifest"])).partitions_def.name == f"{dataset}_shards"
    assert dg.AssetKey(["scans", "export_jsonl"]) in graph.get_all_asset_keys()
    names = {job.name for job in two.get_repository_def().get_all_jobs()}
    for dataset in ("photos", "scans"):
        wanted = ("plan", "prepare_shard", "caption_shard", "recaption_out_of_date")
        assert names >= {f"{dataset}_{job}" for job in wanted}


def test_asking_a_model_waits_in_the_gpu_pool_and_nothing_else_does(two):
    graph = two.resolve_asset_graph()
    pools = {key.path[1]: graph.get(key).pools for key in graph.get_all_asset_keys() if key.path[0] == "photos"}
    assert {asset for asset, found in pools.items() if found} == {"captions", "recaptions"}
    assert pools["captions"] == {"gpu"}


def test_a_run_that_waits_for_a_slot_sleeps():
    """Else it takes a core from the runs that it waits for."""
    with dg.instance_for_test() as instance:
        instance.event_log_storage.set_concurrency_slots("gpu", 0)
        with InstanceConcurrencyContext(instance, dg.DagsterRun("photos_caption_shard")) as waiting:
            assert not waiting.claim("gpu", "captions")
            assert 0 < waiting.interval_to_next_pending_claim_check() <= 0.5


def test_tables_say_what_a_row_is_and_which_columns_they_have(two):
    graph = two.resolve_asset_graph()
    for asset in ("shard_plan", "manifest", "concat_grids", "captions", "merged", "failed"):
        node = graph.get(dg.AssetKey(["photos", asset]))
        assert "row" in node.description, asset
        assert node.metadata["dagster/column_schema"].columns, asset


def test_workspace_loads_without_a_config_and_with_one(tmp_path):
    empty = Project(tmp_path / "empty", {})
    empty.folder.mkdir()
    arguments = ("definitions", "validate", "-w", str(ROOT / "workspace.yaml"))
    assert "caption-assets init" in empty.dagster(*arguments)
    project = make_project(tmp_path / "one", "http://127.0.0.1:9/v1", pictures=1)
    assert "Validation successful" in project.dagster(*arguments)


def test_a_wrong_config_is_one_message_where_dagster_loads_it(tmp_path):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", pictures=1, shard_size=0)
    output = project.dagster("definitions", "validate", "-w", str(ROOT / "workspace.yaml"), code=1)
    assert "datasets.0.shard_size" in output and "greater than or equal to 1" in output
