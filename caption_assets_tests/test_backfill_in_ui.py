"""Backfills started by clicking in Dagster's UI, in a real browser, over `dagster dev` with its daemon and a stub endpoint."""

import pytest

from caption_assets_tests.browser import chromium, launch_backfill, new_page
from caption_assets_tests.project import COLOURS, make_project, picture
from caption_assets_tests.stubs.openai_server import StubServer
from caption_assets_tests.ui import dagster_dev

pytestmark = [pytest.mark.browser, pytest.mark.timeout(2400)]
JOB = "photos_caption_shard"
KEYS = [f"shard-{n:05d}" for n in range(6)]
CHOSEN, BROKEN = set(KEYS[1:4]), set(KEYS[4:])


def finished(ui, number, shards):
    """The newest of `number` backfills, once all of its runs (one per shard) have ended: run by shard."""

    def look():
        backfills = ui.backfills()
        if len(backfills) == number:
            runs = [run for run in ui.runs() if run["tags"].get("dagster/backfill") == backfills[0]["id"]]
            if len(runs) == shards and all(run["status"] in ("SUCCESS", "FAILURE", "CANCELED") for run in runs):
                assert set(backfills[0]["partitionNames"]) == {run["tags"]["dagster/partition"] for run in runs}
                return {run["tags"]["dagster/partition"]: run for run in runs}
        return None

    return ui.wait_for(look)


def states(project):
    return {key: entry["status"] for key, entry in project.status().items()}


def test_a_backfill_of_chosen_shards(tmp_path):
    with StubServer() as stub:
        project = make_project(tmp_path, stub.url, pictures=12, shard_size=4)
        project.command("plan", "photos")
        with dagster_dev(tmp_path, project.environment) as ui, chromium() as browser:
            launch_backfill(new_page(browser), ui.url, JOB, KEYS[1:3])
            runs = finished(ui, 1, 2)
            assert {shard: run["status"] for shard, run in runs.items()} == dict.fromkeys(KEYS[1:3], "SUCCESS")
            assert ui.partitions("photos", "merged")["materialized"] == set(KEYS[1:3])
        assert sorted(project.rows("merged")) == [f"{n:04d}.png" for n in range(4, 12)]


@pytest.mark.long
def test_backfills_of_chosen_missing_and_failed_shards(tmp_path):
    with StubServer() as stub:
        project = make_project(tmp_path, stub.url, pictures=24, shard_size=4)
        project.command("init")
        project.command("plan", "photos")
        for name in ("0017.png", "0021.png"):
            (tmp_path / "photos" / name).rename(tmp_path / name)
            picture(tmp_path / "photos" / name, 99, (50, 50))
        with dagster_dev(tmp_path, project.environment) as ui, chromium() as browser:
            page = new_page(browser)

            launch_backfill(page, ui.url, JOB, sorted(CHOSEN))
            runs = finished(ui, 1, 3)
            assert {shard: run["status"] for shard, run in runs.items()} == dict.fromkeys(CHOSEN, "SUCCESS")
            assert len({run["tags"]["caption_assets/config"] for run in runs.values()}) == 1
            assert [ui.partitions("photos", asset)["materialized"] for asset in ("manifest", "merged", "failed")] == [CHOSEN] * 3
            assert states(project) == {key: "done" if key in CHOSEN else "missing" for key in KEYS}
            merged = project.rows("merged")
            assert sorted(merged) == [f"{n:04d}.png" for n in range(4, 16)]
            assert all(list(COLOURS)[int(record[:4]) % 4] in row["caption"] for record, row in merged.items())

            launch_backfill(page, ui.url, JOB, preset="Missing")
            assert set(finished(ui, 2, 3)) == set(KEYS) - CHOSEN
            assert states(project) == {key: "failed" if key in BROKEN else "done" for key in KEYS}, "their source has changed"
            assert ui.partitions("photos", "concat_grids")["failed"] == BROKEN

            for name in ("0017.png", "0021.png"):
                (tmp_path / name).rename(tmp_path / "photos" / name)
            launch_backfill(page, ui.url, JOB, preset="Failed")
            assert set(finished(ui, 3, 2)) == BROKEN
            assert ui.partitions("photos", "merged")["materialized"] == set(KEYS)
            assert set(states(project).values()) == {"done"}
            assert len(project.rows("merged")) == 24
            ended = ["COMPLETED_SUCCESS", "COMPLETED_FAILED", "COMPLETED_SUCCESS"]
            ui.wait_for(lambda: [backfill["status"] for backfill in ui.backfills()] == ended)
        asked = [entry.kind for entry in stub.log if not entry.canary]
        assert asked == ["grid"] * 6, "each grid once"
