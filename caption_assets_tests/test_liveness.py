"""Runs that a launcher lost before they began."""

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, RunLauncher, WorkerStatus
from dagster._core.storage.tags import WILL_RETRY_TAG
from dagster._serdes import ConfigurableClass

from caption_assets.core.objectstore import ObjectStore
from caption_assets.liveness import clear_dead_runs


class ClusterLauncher(RunLauncher, ConfigurableClass):
    """Knows of each run what its tag `worker` says; a cluster out of reach raises."""

    supports_check_run_worker_health = True
    inst_data = None

    @classmethod
    def config_type(cls):
        return {}

    @classmethod
    def from_config_value(cls, inst_data, config_value):
        return cls()

    def check_run_worker_health(self, run):
        if run.tags["worker"] == "UNREACHABLE":
            raise ConnectionError("the cluster does not answer")
        return CheckRunHealthResult(WorkerStatus[run.tags["worker"]], "its node died")

    def launch_run(self, context):
        raise NotImplementedError

    def terminate(self, run_id):
        raise NotImplementedError


def test_a_run_whose_worker_died_before_it_began_is_failed_and_retried_and_one_that_waits_for_a_node_is_left_alone():
    @dg.job
    def job():
        pass

    launcher = {"module": "caption_assets_tests.test_liveness", "class": "ClusterLauncher"}
    settings = {"run_launcher": launcher, "run_retries": {"enabled": True, "max_retries": 1}}
    with dg.instance_for_test(overrides=settings) as instance:
        runs = {
            worker: instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTING, tags={"worker": worker})
            for worker in ("FAILED", "RUNNING", "UNKNOWN", "UNREACHABLE")
        }
        assert clear_dead_runs(instance, [], ObjectStore()) == [runs["FAILED"].run_id]
        failed = instance.get_run_by_id(runs["FAILED"].run_id)
        assert failed.status == dg.DagsterRunStatus.FAILURE
        assert failed.tags[WILL_RETRY_TAG] == "true"
