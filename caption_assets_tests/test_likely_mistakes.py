"""The likeliest mistakes: each is one message that names the thing and the way out, with the right exit code and no traceback."""

import json
import os
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from caption_assets_tests.project import Project, make_project
from caption_assets_tests.servers import free_port
from caption_assets_tests.stubs.openai_server import StubServer
from caption_assets_tests.stubs.s3_server import FakeS3, Fault

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def stub():
    with StubServer() as server:
        yield server


@pytest.fixture
def project(stub, tmp_path):
    return make_project(tmp_path, stub.url, pictures=4)


def refused(project: Project, *words: str, command=("run",), code: int = 1) -> str:
    """What the command says; all the words are in it, and no traceback is."""
    said = project.command(*command, code=code)
    assert "Traceback" not in said, said
    for word in words:
        assert word in said, said
    return said


def diagnosed(project: Project, check: str) -> dict[str, str]:
    """The first finding of doctor on this matter that is a problem."""
    said = json.loads(project.command("doctor", "--json", code=1))
    return next(f for f in said["findings"] if f["check"] == check and f["state"] == "problem")


def test_no_config(tmp_path):
    project = Project(tmp_path, {})
    refused(project, f"{tmp_path}/caption_assets.yaml", "no such config file", "caption-assets init", code=2)
    assert list(tmp_path.iterdir()) == []
    said = json.loads(project.command("doctor", "--json", code=2))
    assert said["state"] == "problem" and "caption-assets init" in said["findings"][0]["said"]


def test_a_source_that_is_not_there(project, tmp_path):
    project.write(source="./fotos/")
    refused(project, f"photos: {tmp_path}/fotos/: there is no such file or folder", "source", "caption-assets doctor")


def test_an_empty_source(project, tmp_path):
    (tmp_path / "empty").mkdir()
    project.write(source="./empty/")
    refused(project, f"photos: {tmp_path}/empty/: the folder is empty")
    (tmp_path / "empty" / "notes.md").write_text("hello")
    refused(project, f"photos: {tmp_path}/empty/: holds no tar, JSONL, parquet or picture among its 1 files")


def test_wrong_credentials(project, s3_keys):
    faults = [Fault(op=op, status=403, code="InvalidAccessKeyId") for op in ("LIST", "HEAD")]
    with FakeS3({"set/a.png": b"x"}, faults=faults) as s3:
        project.config["s3"] = {"endpoint_url": s3.endpoint, "region": s3.region}
        project.write(source="s3://cases/set/")
        said = refused(project, "s3://cases/set/: access is refused: 403 InvalidAccessKeyId: the access key is not known there")
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in said


@pytest.mark.long
def test_an_engine_that_is_down(project):
    url = f"http://127.0.0.1:{free_port()}/v1"
    project.config["engine"]["endpoints"] = [url]
    project.write()
    said = refused(project, "no endpoint has answered", url, "trying again in", "caption-assets doctor")
    assert not (project.store / "photos/failed").exists(), said


def test_doctor_finds_an_engine_that_is_down_at_once(project):
    url = f"http://127.0.0.1:{free_port()}/v1"
    project.config["engine"]["endpoints"] = [url]
    project.write()
    found = diagnosed(project, "engine")
    assert found["of"] == url and "Cannot connect" in found["said"] and "start the server there" in found["remedy"]


def test_a_model_name_that_the_endpoint_does_not_have(project):
    project.config["engine"]["model"] = "stubb"
    project.write(shard_size=1)
    said = refused(project, "has no model 'stubb'; it has: stub", "engine.model", "more shards would fail alike")
    assert "trying again" not in said, "asking again would change nothing"


def test_a_model_folder_that_is_not_there(project, tmp_path):
    project.config["engine"] = {"kind": "vllm", "model": "./models/tiny"}
    project.write()
    refused(project, f"engine.model: there is no folder {tmp_path}/models/tiny", "hub name")


@contextmanager
def small_disk(folder: Path, kilobytes: int):
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_store_on_a_full_disk(project):
    with small_disk(project.store, 4):
        full = "No space left on device: make room there, or set store to another disk"
        refused(project, f"{project.store}/photos/", full, "what was stored is kept")


def test_dagsters_records_on_a_full_disk(project, tmp_path):
    home = tmp_path / "home"
    with small_disk(home, 200):
        environment = {**project.environment, "DAGSTER_HOME": str(home)}
        command = [sys.executable, "-m", "caption_assets.cli", "run"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert f"{home}: Dagster's records cannot be kept there" in done.stderr and "set DAGSTER_HOME" in done.stderr


def test_dagster_home_is_not_set(project, tmp_path):
    export = f"export DAGSTER_HOME={tmp_path}/.dagster_home"
    assert export in project.command("status")
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-m", "caption_assets.definitions"]
    command += ["--select", "photos/manifest", "--partition", "shard-00000"]
    done = subprocess.run(command, cwd=tmp_path, env=project.environment, text=True, capture_output=True)
    assert done.returncode and export in done.stdout + done.stderr


@pytest.mark.parametrize("version", ["Python 2.7.18", "Python 3.10.20", "Python 3.14.0"])
def test_a_python_that_is_too_old_or_too_new(version, tmp_path):
    """An interpreter that says of itself what an old one would; make asks it and installs nothing."""
    fake = tmp_path / "python9"
    info = tuple(map(int, version.split()[1].split(".")))
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit\n'
        f"exec {sys.executable} -c \"import sys; sys.version_info = {info}; exec(sys.argv[1])\" \"$2\"\n"
    )  # fmt: skip
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(["make", "venv", f"PYTHON={fake}", f"VENV={tmp_path}/venv"], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode and f"{version}: vLLM and caption_assets need 3.11 to 3.13" in done.stderr, done.stderr
    assert "make PYTHON=python3.11" in done.stderr and not (tmp_path / "venv").exists()


def test_a_python_that_is_not_there(tmp_path):
    done = subprocess.run(["make", "venv", "PYTHON=python9", f"VENV={tmp_path}/venv"], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode and "python9: there is no such Python here" in done.stderr


def test_a_port_that_is_in_use(project):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = project.command("doctor", "--port", str(port))
    assert f"127.0.0.1:{port}" in said and "not free for Dagster's web server" in said and f"dagster dev -p {port + 1}" in said


def test_doctor_changes_nothing_and_asks_one_small_thing(project, stub, tmp_path):
    project.command("plan", "photos")
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    asked = len(stub.log)
    said = json.loads(project.command("doctor", "--json", "--port", str(free_port())))
    assert said["state"] == "warning"
    assert [f["check"] for f in said["findings"] if f["state"] != "ok"] == ["DAGSTER_HOME"]
    assert {"config", "instance", "source", "first file", "store", "engine", "port", "store disk", "scratch disk"} <= {
        finding["check"] for finding in said["findings"]
    }
    assert [entry.canary for entry in stub.log[asked:]] == [True]
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


COMMANDS = ("init", "doctor", "plan", "run", "retry", "status", "reconcile", "clean", "export", "engine")


@pytest.mark.parametrize("arguments", [(), *((name,) for name in COMMANDS), ("engine", "status"), ("engine", "stop")])
def test_every_help_has_examples_and_exit_codes(arguments):
    from click.testing import CliRunner

    from caption_assets.cli import cli

    said = CliRunner().invoke(cli, [*arguments, "--help"], prog_name="caption-assets")
    assert said.exit_code == 0
    assert f"caption-assets {' '.join(arguments)}".strip() in said.output.split("Examples:")[1]
    assert "Exit codes:" in said.output and "config or usage" in said.output
    listed = set(cli.commands)
    assert listed == set(COMMANDS), "a command without this test"
