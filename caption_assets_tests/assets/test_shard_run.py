"""What a run of a shard meets: the lease of another one, a source that has changed."""

import json

import dagster as dg

from caption_assets.configfile import load_config
from caption_assets.core.loop.leases import read_lease
from caption_assets.core.objectstore import ObjectStore
from caption_assets.definitions import build
from caption_assets.partitions import Dataset
from caption_assets_tests.core.shardkit import jpeg, write_tar
from caption_assets_tests.project import make_project

SHARD = "shard-00000"


def leave_lease(ds, run_id, ttl_s):
    """As a run on another host wrote it a moment ago."""
    lease = {"run_id": run_id, "expires": 0, "holder": "far/1:boot:1:1", "user": "ann", "ttl_s": ttl_s}
    ObjectStore().put(ds.layout.lease(SHARD), json.dumps(lease).encode())


def test_the_retry_of_a_run_that_died_on_another_host_waits_for_its_lease_and_others_are_told(tmp_path):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", pictures=4)
    config = load_config(project.folder / "caption_assets.yaml")
    defs, ds = build(config), Dataset(config, config.datasets[0])
    with dg.instance_for_test() as instance:
        assert defs.resolve_job_def("photos_plan").execute_in_process(instance=instance).success
        prepare = defs.resolve_job_def("photos_prepare_shard")
        at_work = instance.create_run_for_job(prepare, status=dg.DagsterRunStatus.STARTED)

        leave_lease(ds, at_work.run_id, 600.0)
        refused = prepare.execute_in_process(instance=instance, partition_key=SHARD, raise_on_error=False)
        assert not refused.success
        (failure,) = [event for event in refused.all_events if event.is_step_failure]
        assert "ann on far" in failure.event_specific_data.error_display_string

        instance.report_run_failed(at_work, message="its Ray job is gone")
        leave_lease(ds, at_work.run_id, 3.0)
        assert prepare.execute_in_process(instance=instance, partition_key=SHARD).success
    assert read_lease(ObjectStore(), ds.layout.lease(SHARD)) is None
    assert ObjectStore().exists(ds.layout.mapping(SHARD))


def test_no_grids_are_made_of_a_file_that_changed_after_its_manifest(tmp_path):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", pictures=0, source="./tars/", shard_size=100)
    tar = tmp_path / "tars" / "a.tar"
    write_tar(tar, [("one", jpeg(1)), ("two", jpeg(2))])
    config = load_config(project.folder / "caption_assets.yaml")
    defs, ds = build(config), Dataset(config, config.datasets[0])
    with dg.instance_for_test() as instance:
        assert defs.resolve_job_def("photos_plan").execute_in_process(instance=instance).success
        prepare = defs.resolve_job_def("photos_prepare_shard")
        selected = {"instance": instance, "partition_key": "a", "raise_on_error": False}

        def refused() -> tuple[str, str]:
            """The step that failed, and what the UI shows above any traceback."""
            (failure,) = [e for e in prepare.execute_in_process(**selected).all_events if e.is_step_failure]
            return failure.step_key, failure.event_specific_data.user_failure_data.description

        assert prepare.execute_in_process(asset_selection=[ds.key("manifest")], **selected).success
        write_tar(tar, [("one", jpeg(2)), ("two", jpeg(3))])
        step, said = refused()
        assert step == "photos__concat_grids" and said.startswith(str(tar)) and f"--accept-changed {tar}" in said
        ObjectStore().delete(ds.layout.manifest("a"))
        assert refused() == ("photos__manifest", said)
    assert not ObjectStore().exists(ds.layout.mapping("a"))
