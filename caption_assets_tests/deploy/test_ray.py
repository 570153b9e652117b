"""deploy/ray on a real Ray cluster: backfills as Ray jobs, and what happens to a shard whose job or node dies."""

import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from caption_assets.partitions import SHARD_ASSETS
from caption_assets.presence import RUNNER_TAG
from caption_assets_tests.deploy.raykit import has_host_names, host_name, ray_cluster
from caption_assets_tests.project import make_project
from caption_assets_tests.stubs.openai_server import StubServer
from caption_assets_tests.ui import dagster_dev

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "ray" / "dagster.yaml"
JOB = "photos_caption_shard"
SLOW = (2.0, 2.5)
"""Seconds per answer until a job was killed: a shard's work takes long enough to be met in the middle."""
RUNS = "{ runsOrError { ... on Runs { results { runId status startTime endTime parentRunId tags { key value } } } } }"
BACKFILL = """mutation ($params: LaunchBackfillParams!) { launched: launchPartitionBackfill(backfillParams: $params) {
    __typename ... on PythonError { message } } }"""
RUN = """mutation ($params: ExecutionParams!) { launched: launchRun(executionParams: $params) {
    __typename ... on PythonError { message } } }"""

pytestmark = pytest.mark.timeout(2400)


@contextmanager
def ray_project(folder, stub, postgres, shards, grids, at_once, **cluster):
    """A planned project, its instance that of deploy/ray on a database and a cluster of its own: project, cluster, ui."""
    secret = {"DAGSTER_POSTGRES_URL": postgres.make_database()}
    with pytest.MonkeyPatch.context() as patch, ray_cluster(environment=secret, **cluster) as nodes:
        for name, value in {**secret, **nodes.client_environment, "RAY_JOBS_ADDRESS": nodes.jobs}.items():
            patch.setenv(name, value)
        project = make_project(folder, stub.url, pictures=shards * grids * 4, shard_size=grids * 4)
        project.config["engine"]["concurrency"] = 1
        project.config["resources"] = {"concat_grids": {"cpus": 1, "memory_gb": 0.2}, "captions": {"cpus": 1}}
        project.write()
        settings = yaml.safe_load(DEPLOY.read_text())
        settings["concurrency"]["runs"]["max_concurrent_runs"] = at_once
        settings["run_launcher"]["config"]["ray"]["num_cpus"] = 100  # never met: runs bring what they ask for
        settings["run_monitoring"] |= {"poll_interval_seconds": 3, "free_slots_after_run_end_seconds": 1}
        (folder / ".dagster_home").mkdir()
        (folder / ".dagster_home" / "dagster.yaml").write_text(yaml.safe_dump(settings))
        project.command("plan", "photos")
        environment = {**project.environment, "CAPTION_ASSETS_CONFIG": str(folder / "caption_assets.yaml")}
        with dagster_dev(folder, environment) as ui:
            yield project, nodes, ui


def launch_runs(ui, shards):
    """A run of the job for each shard. (A backfill would begin up to 30 s later.)"""
    selector = {"repositoryLocationName": "caption_assets", "repositoryName": "__repository__", "jobName": JOB}
    for shard in shards:
        tags = [{"key": "dagster/partition", "value": shard}]
        launch(ui, RUN, {"selector": selector, "runConfigData": {}, "executionMetadata": {"tags": tags}}, "LaunchRunSuccess")


def launch_backfill(ui, shards):
    """As chosen in the asset graph."""
    assets = [{"path": ["photos", asset]} for asset in SHARD_ASSETS]
    launch(ui, BACKFILL, {"assetSelection": assets, "partitionNames": shards}, "LaunchBackfillSuccess")


def launch(ui, mutation, params, success):
    answer = ui.graphql(mutation, params=params)["launched"]
    assert answer["__typename"] == success, answer


def shard_runs(ui):
    """Runs of shards by id: shard, host, status, startTime, endTime, parentRunId, will_retry, begun (its process worked)."""
    found = ui.graphql(RUNS)["runsOrError"]["results"]
    tags = {run["runId"]: {tag["key"]: tag["value"] for tag in run["tags"]} for run in found}
    more = {"shard": "dagster/partition", "host": "caption_assets/host", "will_retry": "dagster/will_retry"}
    runs = {run["runId"]: {**run, **{name: tags[run["runId"]].get(tag) for name, tag in more.items()}} for run in found}
    for run_id, run in runs.items():
        run["begun"] = tags[run_id].get(RUNNER_TAG, "").startswith(run_id)
    return {run_id: run for run_id, run in runs.items() if run["shard"]}


def in_the_middle(project, ui):
    """A running run of which some replies are stored, and its shard; None while there is none."""
    for run_id, run in shard_runs(ui).items():
        if run["status"] == "STARTED" and chunks(project, run["shard"], run_id):
            return run_id, run["shard"]
    return None


def chunks(project, shard, run_id=""):
    return list((project.store / "photos" / "captions" / shard / "caption").rglob(f"{run_id}*.parquet"))


def runs_when_done(ui, shards):
    """The runs, once each shard has one that succeeded and none is at work. What failed has to be retried by itself."""

    def look():
        runs = shard_runs(ui)
        for run in runs.values():
            assert run["status"] != "FAILURE" or run["will_retry"] != "false", run
        done = {run["shard"] for run in runs.values() if run["status"] == "SUCCESS"}
        return runs if done == set(shards) and all(run["status"] in ("SUCCESS", "FAILURE") for run in runs.values()) else None

    return ui.wait_for(look, 1200)


def check_whole(project, ui, nodes, runs, shards, killed):
    """Every shard was done by one Ray job, the killed one by a retry that used the first run's replies; every record once."""
    failed = {run_id for run_id, run in runs.items() if run["status"] == "FAILURE"}
    assert {run_id for run_id in failed if runs[run_id]["begun"]} == {killed[0]}, "others may have failed before they began"
    assert sorted(run["shard"] for run_id, run in runs.items() if run_id not in failed) == shards
    (retry,) = (run_id for run_id, run in runs.items() if run["parentRunId"] == killed[0])
    assert runs[retry]["shard"] == killed[1]
    jobs = nodes.wait_for(lambda: ended_jobs(nodes, runs), "the Ray jobs have ended, too")
    assert jobs == {run_id: "FAILED" if run_id in failed else "SUCCEEDED" for run_id in runs}
    assert ui.partitions("photos", "merged")["materialized"] == set(shards)
    assert chunks(project, killed[1], killed[0]) and chunks(project, killed[1], retry), "the retry asked only for the rest"
    assert sorted(project.rows("merged")) == sorted(file.name for file in (project.folder / "photos").iterdir())
    assert not project.rows("failed")


def ended_jobs(nodes, runs):
    states = {run_id: job["status"] for run_id, job in nodes.submitted().items()}
    return states if set(runs) == set(states) and set(states.values()) <= {"SUCCEEDED", "FAILED"} else None


def test_a_shard_whose_ray_job_was_killed_is_retried_and_whole(tmp_path, postgres):
    shards = ["shard-00000", "shard-00001"]
    with (
        StubServer(latency=SLOW) as stub,
        ray_project(tmp_path, stub, postgres, shards=2, grids=12, at_once=2, cpus=2) as (project, nodes, ui),
    ):
        launch_runs(ui, shards)
        killed = ui.wait_for(lambda: in_the_middle(project, ui))
        nodes.kill_job(killed[0])
        stub.latency = (0.0, 0.0)
        runs = runs_when_done(ui, shards)
        check_whole(project, ui, nodes, runs, shards, killed)


@pytest.mark.long
def test_a_backfill_runs_two_shards_at_a_time_and_survives_the_death_of_a_node(tmp_path, postgres):
    shards = [f"shard-{n:05d}" for n in range(8)]
    with (
        StubServer(latency=SLOW) as stub,
        ray_project(tmp_path, stub, postgres, shards=8, grids=8, at_once=3, workers=2) as (project, nodes, ui),
    ):
        launch_backfill(ui, shards)
        killed = ui.wait_for(lambda: in_the_middle(project, ui))
        lost, killed_at = nodes.host_of(killed[0]), time.time()
        nodes.kill_node(lost)
        stub.latency = (0.0, 0.0)
        nodes.bring_up(lost, 1)
        runs = runs_when_done(ui, shards)
        check_whole(project, ui, nodes, runs, shards, killed)

        runs[killed[0]]["endTime"] = killed_at
        assert most_at_once(runs) == 2, "the queue lets three go, each asks Ray for a CPU, and there are two"
        if has_host_names():
            assert {run["host"] for run in runs.values() if run["begun"]} == {host_name(host) for host in nodes.workers}
        first_reply = min(chunk.stat().st_mtime for shard in shards for chunk in chunks(project, shard))
        last_grids = max(file.stat().st_mtime for file in (project.store / "photos" / "concat_grids").rglob("mapping.parquet"))
        assert first_reply < last_grids, "a shard is asked as soon as its own grids are there"


def most_at_once(runs):
    begun = [run for run in runs.values() if run["begun"]]
    running, most = 0, 0
    for _, change in sorted([(run["startTime"], 1) for run in begun] + [(run["endTime"], -1) for run in begun]):
        running += change
        most = max(most, running)
    return most
