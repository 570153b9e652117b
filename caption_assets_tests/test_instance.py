"""Dagster's instance where it is damaged, of odd settings or in an odd place: one message that names it and the way out."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from caption_assets.commands.faults import in_words, told
from caption_assets.configerrors import ConfigError
from caption_assets.configfile import CONFIG_ENV
from caption_assets.instance import dagster_home, open_instance
from caption_assets_tests.project import make_project


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(home))
        with open_instance(home) as instance:
            instance.add_dynamic_partitions("d_shards", ["s1"])
    return home


def look(home, monkeypatch):
    """What a command sees of the instance; raises what it would raise."""
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with open_instance(home) as instance:
        return instance.telemetry_enabled, instance.get_dynamic_partitions("d_shards"), instance.get_runs(limit=1)


@pytest.mark.parametrize("name", ["a b", "quo'te\"s", "🐍 ü", "100%", "ha#sh", "semi;colon&co", "{braces}", "-dash"])
def test_a_home_of_any_usual_name_is_used_with_its_settings(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", f"{tmp_path}/{name}")
    home, _ = dagster_home(tmp_path / "caption_assets.yaml")
    assert look(home, monkeypatch) == (False, [], [])
    assert (home / "schedules").is_dir()


@pytest.mark.parametrize("name", ["what?", "all*", "[a]", "per%20cent"])
def test_a_home_that_dagster_does_not_find_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", f"{tmp_path}/{name}")
    with pytest.raises(ConfigError, match="set DAGSTER_HOME to another"):
        dagster_home(tmp_path / "caption_assets.yaml")
    monkeypatch.delenv("DAGSTER_HOME")
    with pytest.raises(ConfigError, match="set DAGSTER_HOME to another"):
        dagster_home(tmp_path / name / "caption_assets.yaml")


@pytest.mark.parametrize("lost", ["the folder", "the databases"])
def test_records_that_are_lost_while_a_command_works_are_told(prepared, lost, tmp_path, monkeypatch):
    home = shutil.copytree(prepared, tmp_path / "home")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with open_instance(home) as instance:
        if lost == "the folder":
            shutil.rmtree(home)
        else:
            for file in home.rglob("*.db"):
                file.unlink()
        for ask in (lambda: instance.get_run_by_id("r"), lambda: instance.get_runs(limit=1)):
            with pytest.raises(Exception) as error:
                ask()
            assert str(told(error.value)).startswith(f"{home}: Dagster's records ")


@pytest.mark.parametrize("damage", ["garbage", "a hole"])
def test_damaged_records_are_named_with_the_way_out(prepared, damage, tmp_path, monkeypatch):
    home = shutil.copytree(prepared, tmp_path / "home")
    for file in home.rglob("*.db"):
        right = file.read_bytes()
        third = len(right) // 3
        file.write_bytes(
            os.urandom(len(right)) if damage == "garbage" else right[:third] + os.urandom(third) + right[2 * third :]
        )
    with pytest.raises(Exception) as error:
        look(home, monkeypatch)
    said = told(error.value)
    assert said and str(home) in said and "caption-assets reconcile" in said


@pytest.mark.parametrize(
    "text", ["storage: [", "\tx", "storage: 3", "words", "foo: 1", "retention: {sensor: {purge_after_days: x}}"]
)
def test_a_dagster_yaml_that_says_nothing_is_named(text, tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").write_text(text)
    with pytest.raises(ConfigError, match=f"^{tmp_path}/dagster.yaml: "):
        look(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["", ".lock", ".prepared", "dagster.yaml"])
def test_something_else_in_the_way_is_named(name, tmp_path, monkeypatch):
    place = tmp_path / "home" / name
    place.parent.mkdir(exist_ok=True)
    if name:
        place.mkdir()
    else:
        place.touch()
    with pytest.raises(OSError) as error:
        look(tmp_path / "home", monkeypatch)
    assert str(told(error.value)).startswith(f"{place}: ") and "move it away" in str(told(error.value))


def test_a_dataset_that_left_the_config_while_the_command_ran_is_named(prepared, tmp_path):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", pictures=1)
    home = shutil.copytree(prepared, tmp_path / "home")
    task = {"dataset": "gone", "job": "caption_shard", "assets": ["manifest"], "shard": "s1", "tags": {}, "known": 0}
    worker = subprocess.run(
        [sys.executable, "-m", "caption_assets.commands.worker"],
        cwd=tmp_path,
        env={**project.environment, "DAGSTER_HOME": str(home), CONFIG_ENV: f"{tmp_path}/caption_assets.yaml"},
        input=json.dumps(task) + "\n",
        text=True,
        capture_output=True,
    )
    assert worker.returncode == 1 and "Traceback" not in worker.stderr
    assert "the config was changed while the command ran: no dataset is called 'gone'" in worker.stderr


def test_an_interrupted_run_is_told_so():
    said = in_words("dagster._core.errors.DagsterExecutionInterruptedError\n")
    assert said == "it was interrupted: what was answered is stored; run again"
