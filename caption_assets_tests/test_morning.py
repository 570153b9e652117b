"""The morning after: some shards failed, one run was killed, the rest is done. `status`, Dagster's UI and the store say the same
of every shard, and the standing check names those that somebody has to look at."""

import json
import os
import signal

import dagster as dg
import pyarrow.parquet as pq
import pytest

from caption_assets.configfile import load_config
from caption_assets.definitions import build
from caption_assets.presence import RUNNER_TAG
from caption_assets_tests.core.shardkit import jpeg, write_tar
from caption_assets_tests.project import Project, wait_until
from caption_assets_tests.stubs.openai_server import StubServer
from caption_assets_tests.ui import dagster_dev

PICTURES = 2
STUCK = "the one that never comes back"
CHECK = """query ($path: [String!]!) { assetCheckExecutions(assetKey: {path: $path}, checkName: "failed_shards", limit: 1) {
    status evaluation { success metadataEntries { label ... on IntMetadataEntry { intValue }
        ... on TableMetadataEntry { table { records } } } } } }"""


def key(number: int) -> str:
    return f"night-{number:03d}"


@pytest.fixture
def night(tmp_path):
    """A project of tars, one a shard, planned; the pictures of one of them are never answered."""

    def make(stub: StubServer, shards: int, stuck: str) -> Project:
        grid = {"rows": 1, "cols": 2, "cell_size": 32, "gap": 2, "label_font_size": 0}
        entry = {"name": "photos", "source": "./night/", "grid": grid, "filters": {"min_chars": 1, "duplicate_captions": False}}
        prompts = [{"text": "Describe the picture, its title is {record.title}."}]
        engine = {"kind": "openai", "model": "stub", "endpoints": [stub.url]}
        project = Project(tmp_path, {"store": "./store", "engine": engine, "datasets": [{**entry, "prompts": prompts}]})
        project.write()
        for number in range(shards):
            write(project, key(number), number * PICTURES, STUCK if key(number) == stuck else f"night {number}")
        assert f"{shards} shards" in project.command("plan", "photos")
        return project

    return make


def write(project: Project, shard: str, first: int, title: str = "", pictures: int = PICTURES) -> None:
    names = [f"p{first + n:05d}" for n in range(pictures)]
    members = ((name, jpeg(first + n)) for n, name in enumerate(names))
    write_tar(project.folder / "night" / f"{shard}.tar", members, {name: {"title": title} for name in names})


def kill_worker_of(project: Project, shard: str) -> None:
    """SIGKILL for the process that executes the shard's run."""
    with dg.DagsterInstance.from_config(str(project.folder / ".dagster_home")) as instance:
        runs = instance.get_runs(dg.RunsFilter(tags={"dagster/partition": shard}))
        (run,) = [run for run in runs if run.status == dg.DagsterRunStatus.STARTED]
        os.kill(int(run.tags[RUNNER_TAG].split(":")[-2]), signal.SIGKILL)


def in_store(project: Project) -> dict[str, tuple[int, int]]:
    """(captioned, failed) of each shard whose merge is whole."""
    found = {}
    for file in (project.store / "photos" / "merged").glob("*.parquet"):
        pair = [pq.read_metadata(project.store / "photos" / table / file.name) for table in ("merged", "failed")]
        assert len({footer.metadata[b"data_version"] for footer in pair}) == 1
        found[file.stem] = (pair[0].num_rows, pair[1].num_rows)
    return found


def run_checks(project: Project) -> None:
    defs = build(load_config(project.folder / "caption_assets.yaml"))
    with dg.DagsterInstance.from_config(str(project.folder / ".dagster_home")) as instance:
        assert defs.resolve_job_def("photos_checks").execute_in_process(instance=instance).success


def named_by_check(ui) -> set[str]:
    (last,) = ui.graphql(CHECK, path=["photos", "merged"])["assetCheckExecutions"]
    entries = {entry["label"]: entry for entry in last["evaluation"]["metadataEntries"]}
    named = {json.loads(record)["shard"] for record in entries["shards"]["table"]["records"]} if "shards" in entries else set()
    assert entries["failed_shards"]["intValue"] == len(named) and last["evaluation"]["success"] == (not named)
    return named


def states(project: Project) -> dict[str, str]:
    return {shard: entry["status"] for shard, entry in project.status().items()}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shards", [8, pytest.param(50, marks=pytest.mark.long)])
def test_everybody_agrees_in_the_morning(night, shards):
    every = {key(n) for n in range(shards)}
    broken, stuck = {key(1), key(shards // 2), key(shards - 1)}, key(3)
    with StubServer(rows=1, cols=2, hang_on=STUCK) as stub:
        project = night(stub, shards, stuck)
        for shard in broken:  # replaced after they were planned
            write(project, shard, 9000, pictures=PICTURES + 1)
        run = project.start("run")
        wait_until(lambda: any(STUCK in entry.text for entry in list(stub.log)), 600)
        kill_worker_of(project, stuck)
        said, _ = run.communicate(timeout=3000)
        assert run.returncode == 1, said
        for shard in broken:
            assert f"photos/{shard}: failed" in said and "accept-changed" in said
        assert f"photos/{stuck}: failed" in said and "its process has ended; run again" in said

        expected = {shard: "failed" if shard in broken | {stuck} else "done" for shard in every}
        done = {shard for shard, status in expected.items() if status == "done"}
        status = project.status()
        assert {shard: entry["status"] for shard, entry in status.items()} == expected
        stored = in_store(project)
        assert stored == dict.fromkeys(done, (PICTURES, 0))
        assert {shard: (entry["captioned"], entry["failed"]) for shard, entry in status.items() if shard in done} == stored

        with dagster_dev(project.folder, project.environment) as ui:

            def agree(failed: set[str]) -> None:
                merged, grids = ui.partitions("photos", "merged"), ui.partitions("photos", "concat_grids")
                assert merged["materialized"] == ui.partitions("photos", "failed")["materialized"] == every - failed
                assert not merged["materializing"]
                somewhere = [ui.partitions("photos", asset)["failed"] for asset in ("manifest", "captions", "merged")]
                assert set().union(grids["failed"], *somewhere) == failed
                run_checks(project)
                assert named_by_check(ui) == failed

            agree(broken | {stuck})
            asked = len([entry for entry in stub.log if not entry.canary])
            stub.hang_on = None
            project.command("run", "--shards", stuck)
            assert len([entry for entry in stub.log if not entry.canary]) == asked + 1, "only what was not answered is asked"
            assert states(project) == {**expected, stuck: "done"}
            agree(broken)
