"""Sensors and the guard against a changed config, on a Dagster instance of their own."""

import os
import subprocess
import sys
import time

import dagster as dg
import pytest

from caption_assets.configfile import load_config
from caption_assets.core.loop.leases import process_token
from caption_assets.definitions import build
from caption_assets.partitions import CONFIG_TAG, Dataset
from caption_assets.presence import RUNNER_TAG
from caption_assets.resources.store import StoreResource
from caption_assets.sensors import IF_DUE_TAG, dead_runs, new_data
from caption_assets_tests.project import make_project, picture
from caption_assets_tests.stubs.openai_server import StubServer

STORE = StoreResource(s3_settings="{}")


@pytest.fixture
def instance():
    with dg.instance_for_test() as found:
        yield found


def loaded(project):
    config = load_config(project.folder / "caption_assets.yaml")
    return build(config), Dataset(config, config.datasets[0])


def old(project, seconds=3600):
    """Makes all sources so many seconds old."""
    for file in (project.folder / "photos").iterdir():
        os.utime(file, (time.time() - seconds,) * 2)


class Ticks:
    """A sensor whose cursor is kept from tick to tick, as the daemon does."""

    def __init__(self, instance, ds):
        self.instance, self.sensor, self.cursor = instance, new_data(ds), None

    def tick(self):
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor, resources={"store": STORE}) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        for request in result.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        return result


def plan(instance, defs, ds, tags):
    job = defs.resolve_job_def(f"{ds.name}_plan")
    return job.execute_in_process(instance=instance, tags=tags)


def test_new_files_ask_for_a_plan_run_and_it_makes_their_partitions(tmp_path, instance):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", sensor={"min_new_files": 3, "settle_s": 60})
    old(project)
    defs, ds = loaded(project)
    ticks = Ticks(instance, ds)
    (request,) = ticks.tick().run_requests
    plan(instance, defs, ds, request.tags)
    assert instance.get_dynamic_partitions(ds.partitions_name) == ["shard-00000", "shard-00001"]
    assert not ticks.tick().run_requests, "nothing is new any more"


def test_a_few_files_wait_for_more_and_young_ones_are_left_alone(tmp_path, instance):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", sensor={"min_new_files": 3, "settle_s": 60, "max_wait_s": 3})
    old(project)
    defs, ds = loaded(project)
    ticks = Ticks(instance, ds)
    plan(instance, defs, ds, ticks.tick().run_requests[0].tags)
    picture(project.folder / "photos" / "new-1.png", 101)
    result = ticks.tick()
    assert not result.run_requests and "1 still settling" in result.skip_message
    old(project)
    assert "1 new files" in ticks.tick().skip_message
    time.sleep(3.1)
    (request,) = ticks.tick().run_requests
    plan(instance, defs, ds, request.tags)
    assert len(instance.get_dynamic_partitions(ds.partitions_name)) == 3


def test_a_plan_run_that_is_not_due_plans_nothing(tmp_path, instance):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", sensor={"min_new_files": 100})
    old(project)
    defs, ds = loaded(project)
    plan(instance, defs, ds, {IF_DUE_TAG: "0"})
    assert instance.get_dynamic_partitions(ds.partitions_name) == []


def test_keys_that_a_dead_plan_run_left_are_registered(tmp_path, instance):
    from caption_assets.core.planning import make_plan

    project = make_project(tmp_path, "http://127.0.0.1:9/v1")
    _, ds = loaded(project)
    make_plan(STORE.objects, ds.layout, ds.spec)
    Ticks(instance, ds).tick()
    assert instance.get_dynamic_partitions(ds.partitions_name) == ["shard-00000", "shard-00001"]


def test_a_changed_source_file_fails_the_check_and_is_not_planned_again(tmp_path, instance):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1")
    defs, ds = loaded(project)
    plan(instance, defs, ds, {})
    picture(project.folder / "photos" / "0000.png", 77, size=(50, 40))
    result = plan(instance, defs, ds, {})
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed and check.severity == dg.AssetCheckSeverity.ERROR
    assert "0000.png" in check.metadata["problems"].value and "--accept-changed" in check.metadata["problems"].value
    assert len(instance.get_dynamic_partitions(ds.partitions_name)) == 2


def test_a_run_whose_process_is_gone_is_marked_failed_and_a_live_one_is_left_alone(tmp_path, instance):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1")
    defs, ds = loaded(project)
    job = defs.resolve_job_def("photos_plan")
    gone = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    tokens = [process_token(gone.pid), process_token()]
    gone.kill()
    gone.wait()
    dead, alive = (instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED) for _ in tokens)
    for run, token in zip((dead, alive), tokens, strict=True):
        instance.add_run_tags(run.run_id, {RUNNER_TAG: f"{run.run_id}@{token}"})
    with dg.build_sensor_context(instance=instance, resources={"store": STORE}) as context:
        assert dead.run_id in dead_runs([ds]).evaluate_tick(context).skip_message
    assert instance.get_run_by_id(dead.run_id).status == dg.DagsterRunStatus.FAILURE
    assert instance.get_run_by_id(alive.run_id).status == dg.DagsterRunStatus.STARTED


def test_a_config_edited_after_the_launch_stops_the_run_before_its_first_request(tmp_path, instance):
    with StubServer() as stub:
        project = make_project(tmp_path, stub.url, pictures=4)
        defs, ds = loaded(project)
        plan(instance, defs, ds, {})
        launched = dict(defs.resolve_job_def("photos_caption_shard").run_tags)
        assert launched[CONFIG_TAG] == ds.config_digest
        project.write(prompts=[{"text": "Something else."}])
        edited, _ = loaded(project)
        job = edited.resolve_job_def("photos_caption_shard")
        result = job.execute_in_process(
            instance=instance, partition_key="shard-00000", tags={CONFIG_TAG: launched[CONFIG_TAG]}, raise_on_error=False
        )
        assert not result.success and not stub.counts() and not stub.counts(canary=True)
        (failure,) = [e for e in result.all_events if e.event_type == dg.DagsterEventType.STEP_FAILURE]
        assert "Launch the shard anew" in str(failure.step_failure_data.user_failure_data.description)
