"""What steps print is read in the UI on another host than the run's, through the store's S3."""

import os

import pytest
import yaml
from dagster import DagsterEventType, DagsterInstance
from dagster._core.storage.compute_log_manager import ComputeIOType

from caption_assets.commands.init import init
from caption_assets.config import Config
from caption_assets.configerrors import ConfigError
from caption_assets.instance import step_logs_yaml
from caption_assets.steplogs import S3StepLogs
from caption_assets_tests.project import make_project
from caption_assets_tests.servers import free_port


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path, "http://127.0.0.1:1/v1", pictures=4)


def materialize(project):
    """A run that prints, as those of the UI do."""
    project.dagster("asset", "materialize", "-m", "caption_assets.definitions", "--select", "photos/shard_plan")


def last_log(project):
    """(run, what its steps wrote to stderr, where that lies), for a host that shares nothing but Dagster's records."""
    with DagsterInstance.from_config(str(project.folder / ".dagster_home")) as instance:
        (run,) = instance.get_runs(limit=1)
        (captured,) = instance.all_logs(run.run_id, of_type=DagsterEventType.LOGS_CAPTURED)
        key = instance.compute_log_manager.build_log_key_for_run(
            run.run_id, captured.get_dagster_event().logs_captured_data.file_key
        )
        log = instance.compute_log_manager.get_log_data(key)
        return run, (log.stderr or b"").decode(), instance.compute_log_manager.get_log_metadata(key).stderr_location


def test_logs_of_a_store_in_s3_are_read_on_another_host(project, s3_server, tmp_path_factory, monkeypatch):
    bucket = s3_server.make_bucket()
    project.config |= {"store": f"s3://{bucket}/team", "s3": {"endpoint_url": s3_server.endpoint, "region": "us-east-1"}}
    project.write()
    project.command("init")
    materialize(project)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("another_host")))
    run, log, place = last_log(project)
    assert run.is_success and "photos__shard_plan" in log and "STEP_SUCCESS" in log
    assert place.startswith(f"s3://{bucket}/team/_logs/storage/{run.run_id}/")
    keys = [found["Key"] for found in s3_server.client().list_objects_v2(Bucket=bucket, Prefix="team/_logs/")["Contents"]]
    assert keys and not [key for key in keys if key.endswith(".partial")]


def test_logs_that_cannot_be_stored_fail_no_run(project):
    project.config["s3"] = {
        "region": "us-east-1",
        "buckets": {"logs": {"endpoint_url": f"http://127.0.0.1:{free_port()}"}},
    }
    project.write()
    project.command("init", "--logs-to", "s3://logs/steps")
    materialize(project)
    with DagsterInstance.from_config(str(project.folder / ".dagster_home")) as instance:
        (run,) = instance.get_runs(limit=1)
        said = [entry.message for entry in instance.all_logs(run.run_id)]
    assert run.is_success and any("cleaning up compute log capture" in message for message in said)


def test_an_assumed_role_writes_logs(moto_server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto_server.endpoint)
    bucket, role = moto_server.make_bucket(), "arn:aws:iam::123456789012:role/logs"
    logs = S3StepLogs(bucket, "steps", endpoint_url=moto_server.endpoint, region="us-east-1", role_arn=role)
    with logs.open_log_stream(["run", "compute_logs", "step"], ComputeIOType.STDERR) as stream:
        stream.write("said by the step")
    assert logs._s3_session._request_signer._credentials.method == "assume-role"
    stored = moto_server.client().get_object(Bucket=bucket, Key="steps/storage/run/compute_logs/step.err")
    assert stored["Body"].read() == b"said by the step"


def test_only_this_user_reads_logs_that_are_still_growing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    logs = S3StepLogs("bucket", "steps", region="us-east-1")
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    logs.dispose()
    os.rename(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="local_dir"):
        S3StepLogs("bucket", "steps", region="us-east-1")


def test_where_logs_go():
    def written(store, logs_to=None, **s3):
        text = step_logs_yaml(Config.model_validate({"store": store, "s3": s3}), logs_to)
        return yaml.safe_load(text)["compute_logs"]["config"] if text else None

    assert written("/data/store") is None
    assert written("s3://b") == {"bucket": "b", "prefix": "_logs", "upload_interval": 60}
    own = {"profile": "logs", "role_arn": "arn:aws:iam::1:role/x", "requester_pays": True}
    found = written("/data/store", "s3://logs/a/b/", region="eu-west-1", buckets={"logs": own})
    assert found == {
        "bucket": "logs",
        "prefix": "a/b",
        "upload_interval": 60,
        "region": "eu-west-1",
        "profile": "logs",
        "role_arn": "arn:aws:iam::1:role/x",
    }


def test_an_instance_that_is_there_stays_as_it_is(project, monkeypatch, capsys):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    file = str(project.folder / "caption_assets.yaml")
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        init(file, False, "/tmp/logs")
    assert init(file, False, None) == 0 and "stays as it is" not in capsys.readouterr().out
    assert init(file, False, "s3://logs/steps") == 0
    said = capsys.readouterr().out
    assert "stays as it is" in said and "bucket: logs" in said
    assert "bucket" not in (project.folder / ".dagster_home" / "dagster.yaml").read_text()
