"""The commands over a real Dagster instance, with a stub endpoint that answers truthfully and counts what it is asked."""

import os
import re
import shutil
import signal
from pathlib import Path

import dagster as dg
import pytest

from caption_assets.cli import main
from caption_assets.core.tables import table
from caption_assets_tests.project import COLOURS, Project, make_project, picture, wait_until
from caption_assets_tests.stubs.s3_server import FakeS3, Fault


@pytest.fixture
def stub(finished):
    return finished.stub


@pytest.fixture
def asked(stub):
    """Requests since the test began, canaries apart, by kind."""
    start = len(stub.log)

    def count() -> dict[str, int]:
        entries = [entry for entry in stub.log[start:] if not entry.canary]
        return {kind: sum(e.kind == kind for e in entries) for kind in ("grid", "single", "text")}

    return count


NOTHING = {"grid": 0, "single": 0, "text": 0}


@pytest.fixture
def captioned(finished):
    """A project of two shards with everything done; tests that change it work on a copy."""
    return finished.project


@pytest.fixture
def copy(finished, tmp_path):
    return finished.copy(tmp_path / "copy")


def test_run_captions_everything_and_says_so(finished, captioned):
    merged, failed = captioned.rows("merged"), captioned.rows("failed")
    assert {row["record_id"]: row["reason"] for row in failed.values()} == {"0003.png": "empty_file"}
    assert len(merged) == 7
    for row in merged.values():
        number = int(row["record_id"][:4])
        assert list(COLOURS)[number % 4] in row["caption"], row
        assert row["caption_info"]["model"] == "stub" and row["caption_info"]["run_id"]
    assert "[1/2] photos/shard-00000: 3 captioned, 1 failed" in finished.said
    assert "[2/2] photos/shard-00001: 4 captioned, 0 failed" in finished.said


def test_a_second_run_does_nothing_and_says_so(captioned, asked):
    before = captioned.files()
    assert "nothing to do" in captioned.command("run")
    assert asked() == NOTHING and captioned.files() == before


def test_losing_dagsters_records_loses_nothing(captioned, copy, asked):
    before = captioned.status()
    shutil.rmtree(copy.folder / ".dagster_home")
    said = copy.command("init")
    assert "photos/merged: 2 shards found in the store" in said
    assert "nothing to do" in copy.command("run")
    assert asked() == NOTHING
    assert copy.status() == before


def test_what_the_store_lost_is_missing_and_made_again_from_the_replies(copy, asked):
    (copy.store / "photos/merged/shard-00001.parquet").unlink()
    with dg.DagsterInstance.from_config(str(copy.folder / ".dagster_home")) as instance:
        instance.add_dynamic_partitions("photos_shards", ["by-hand"])
    said = copy.command("reconcile")
    assert "1 lost there and marked missing" in said
    assert "no plan knows the partition by-hand, added by hand" in said
    states = copy.status()
    assert states["shard-00000"]["status"] == "done" and states["shard-00001"]["status"] != "done"
    copy.command("run")
    assert asked() == NOTHING and len(copy.rows("merged")) == 7


def test_other_filters_judge_the_stored_replies_again(copy, asked):
    copy.write(filters={"min_chars": 500})
    assert {s["status"] for s in copy.status().values()} == {"out_of_date"}
    copy.command("run")
    assert asked() == NOTHING
    assert {row["reason"] for row in copy.rows("failed").values()} == {"too_short", "empty_file"}


def test_another_prompt_asks_every_grid_again_and_only_those(copy, asked):
    copy.write(prompts=[{"text": "Name the colour."}])
    dry = copy.command("run", "--dry-run")
    assert asked() == NOTHING and re.search(r"^all +2 +7 ", dry, re.MULTILINE), dry
    assert "2 requests" in copy.command("run")
    assert asked() == {"grid": 2, "single": 0, "text": 0}


def test_other_bytes_are_never_planned_again_unasked_and_a_new_file_becomes_a_new_shard(stub, asked, tmp_path):
    project = make_project(tmp_path, stub.url, pictures=2)
    assert "changed" not in project.command("plan", "photos")
    picture(tmp_path / "photos" / "0001.png", 7)
    message = f"accept-changed {tmp_path}/photos/0001.png"
    assert message in project.command("plan", "photos")
    picture(tmp_path / "photos" / "0002.png", 2)
    assert message in (said := project.command("plan", "photos")) and "2 shards" in said
    assert "changed" not in project.command("plan", "photos", *f"--{message}".split())
    dry = project.command("run", "--dry-run")
    assert "photos: 2 shards to do" in dry and "photos_prepare_shard" in dry
    assert re.search(r"^shard-00001 +manifest +\? ", dry, re.MULTILINE), dry
    assert " 0 s" not in dry, "nothing is promised of what was not counted"
    project.command("run", "--shards", "shard-00001")
    assert asked() == {"grid": 1, "single": 0, "text": 0}
    states = {shard: found["status"] for shard, found in project.status().items()}
    assert list(states.items()) == [("shard-00001", "done"), ("shard-00000-g2", "missing")]


def test_a_picture_that_could_not_be_read_is_read_and_asked_by_the_next_run(stub, asked, tmp_path, s3_keys):
    project = make_project(tmp_path, stub.url)
    pictures = {f"set/{file.name}": file.read_bytes() for file in sorted((tmp_path / "photos").iterdir())}
    denied = Fault(key="set/0005.png", status=403, code="AccessDenied")
    with FakeS3(pictures, faults=[denied]) as s3:
        project.config["s3"] = {"endpoint_url": s3.endpoint, "region": s3.region}
        project.write(source="s3://cases/set/", shard_size=100)
        project.command("run")
        assert {row["record_id"]: row["reason"] for row in project.rows("failed").values()} == {"0005.png": "s3_error"}
        assert asked() == {"grid": 2, "single": 0, "text": 0}
        s3.faults = []
        project.command("run")
        assert asked() == {"grid": 2, "single": 1, "text": 0}
        assert len(project.rows("merged")) == 8 and not project.rows("failed")
        assert "nothing to do" in project.command("run")


def test_plain_dagster_does_the_same(copy, asked):
    for made in ("manifest", "concat_grids", "captions", "merged", "failed"):
        shutil.rmtree(copy.store / "photos" / made)
    copy.write(prompts=[{"text": "Name the colour."}])
    common = ("asset", "materialize", "-m", "caption_assets.definitions")
    copy.dagster(*common, "--select", "+photos/merged", "--partition", "shard-00001")
    assert {shard: found["status"] for shard, found in copy.status().items()} == {
        "shard-00000": "out_of_date",
        "shard-00001": "done",
    }
    copy.dagster(*common, "--select", "photos/failed", "--partition", "shard-00001")
    assert copy.status()["shard-00001"]["status"] == "done"
    assert asked() == {"grid": 1, "single": 0, "text": 0}
    assert len(copy.rows("merged")) == 4
    refused = copy.dagster(*common, "--select", "photos/manifest", "--partition", "made-up", code=1)
    assert "made-up" in refused and not (copy.store / "photos/manifest/made-up.parquet").exists()


def test_a_killed_run_goes_on_where_it_was(stub, tmp_path, asked):
    project = make_project(tmp_path, stub.url, pictures=24, shard_size=24)
    stub.latency = (0.4, 0.4)
    project.config["engine"]["concurrency"] = 1
    project.write()
    try:
        process = project.start("run")
        wait_until(lambda: asked()["grid"] >= 3)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    finally:
        stub.latency = (0.0, 0.0)
    assert re.search(r"^photos/shard-00000: its last run failed \(run \w{8}\)$", project.command("status"), re.MULTILINE)
    assert not [name for name in project.files() if "/leases/" in name], "the lease went with the dead run"
    said = project.command("run")
    assert "24 captioned, 0 failed" in said
    assert asked()["grid"] <= 6 + 1 + 3, "what was stored is not asked again"
    assert len(project.rows("merged")) == 24


def test_nobody_waits_for_the_slots_of_workers_that_are_killed(stub, tmp_path, asked):
    project = make_project(tmp_path, stub.url, pictures=16, shard_size=4)
    stub.latency = (3.0, 3.0)
    try:
        process = project.start("run")
        for _ in range(2):  # as many as there are pool slots
            before = asked()["grid"]
            wait_until(lambda before=before: asked()["grid"] > before)
            for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                if b"commands.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
        stub.latency = (0.0, 0.0)
        output, _ = process.communicate(timeout=60)
    finally:
        stub.latency = (0.0, 0.0)
    assert process.returncode == 1 and output.count("its process has ended; run again") >= 2, output
    assert "done" in {shard["status"] for shard in project.status().values()}


def test_an_interrupt_ends_the_loop_and_the_next_run_goes_on(stub, tmp_path, asked):
    project = make_project(tmp_path, stub.url, pictures=24, shard_size=12)
    stub.latency = (0.4, 0.4)
    project.config["engine"]["concurrency"] = 1
    project.write()
    try:
        process = project.start("run")
        wait_until(lambda: asked()["grid"] >= 2)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        stub.latency = (0.0, 0.0)
    assert process.returncode == 130, output
    assert "goes on where this stopped" in output
    project.command("run")
    assert asked()["grid"] <= 6 + 1 and len(project.rows("merged")) == 24


@pytest.fixture
def here(monkeypatch, capsys):
    """What a command says that ends before any work: in this process, since one of its own would take most of the time. An error
    that the command does not tell in words comes out as itself."""

    def run(project, *arguments, code):
        monkeypatch.chdir(project.folder)
        for name in ("DAGSTER_HOME", "CAPTION_ASSETS_CONFIG"):
            monkeypatch.setenv(name, "")  # put back at the end, whatever the command made of it
            monkeypatch.delenv(name)
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert ended.value.code == code
        return "".join(capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "fotos"), ["no dataset is called 'fotos'", "photos"]),
        (("run", "--shards", "nope"), ["--shards nope", "not in the plan"]),
        (("run", "--shards", "shard-00001..shard-00000"), ["comes after"]),
        (("retry", "photos", "--reason", "bad_luck"), ["bad_luck", "refusal"]),
        (("frobnicate",), ["frobnicate"]),
    ],
)
def test_misuse_is_one_message_and_exit_code_2(captioned, here, arguments, words):
    output = here(captioned, *arguments, code=2)
    for word in words:
        assert word in output


def test_without_a_config_every_command_says_what_makes_one(tmp_path, here):
    project = Project(tmp_path, {})
    for arguments in (("run",), ("status",), ("plan", "photos")):
        assert "caption-assets init" in here(project, *arguments, code=2)
    assert "wrote" in project.command("init")
    assert (tmp_path / "caption_assets.yaml").exists() and (tmp_path / "caption_assets.schema.json").exists()


def test_source_and_store_in_s3(s3_server, stub, tmp_path, asked):
    """The same with nothing on disk but the config and Dagster's records; also captions.duckdb, an export, a lost instance."""
    bucket, client = s3_server.make_bucket(), s3_server.client()
    project = make_project(tmp_path, stub.url, pictures=8, source=f"s3://{bucket}/set/")
    project.config |= {"store": f"s3://{bucket}/captions", "s3": {"endpoint_url": s3_server.endpoint, "region": "us-east-1"}}
    project.write()
    for file in sorted((tmp_path / "photos").iterdir()):
        client.put_object(Bucket=bucket, Key=f"set/a b+{file.name}", Body=file.read_bytes())
    shutil.rmtree(tmp_path / "photos")
    said = project.command("run")
    assert "[2/2]" in said
    assert asked() == {"grid": 2, "single": 0, "text": 0}
    objects, rows = s3_server.store(), []
    for shard in ("shard-00000", "shard-00001"):
        handle = table(objects, f"s3://{bucket}/captions/photos/merged/{shard}.parquet")
        rows += [row for batch in handle.batches(objects) for row in batch.to_pylist()]
    assert {row["record_id"] for row in rows} == {f"a b+{number:04d}.png" for number in range(8)}
    assert all(list(COLOURS)[int(row["record_id"][4:8]) % 4] in row["caption"] for row in rows)
    assert objects.exists(f"s3://{bucket}/captions/photos/captions.duckdb")
    shutil.rmtree(tmp_path / ".dagster_home")
    assert "photos/merged: 2 shards found in the store" in project.command("init")
    assert "nothing to do" in project.command("run")
    assert asked()["grid"] == 2
    assert "8 records" in project.command("export", "photos", "--format", "jsonl", "--to", str(tmp_path / "out"))
    assert not (tmp_path / "store").exists()
