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


def finished(ui, count):
    """The newest of `count` backfills, when it has ended."""

    def look():
        found = ui.backfills()
        return found[0] if len(found) == count and found[0]["status"].startswith(("COMPLETED", "FAILED")) else None

    return ui.wait_for(look)


def states(project):
    return {key: entry["status"] for key, entry in project.status().items()}


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
            chosen = finished(ui, 1)
            assert chosen["status"] == "COMPLETED_SUCCESS" and set(chosen["partitionNames"]) == CHOSEN, chosen
            assert [ui.partitions("photos", asset)["materialized"] for asset in ("manifest", "merged", "failed")] == [CHOSEN] * 3
            runs = [run for run in ui.runs() if run["tags"].get("dagster/backfill") == chosen["id"]]
            assert sorted(run["tags"]["dagster/partition"] for run in runs) == sorted(CHOSEN), "one run per shard"
            assert len({run["tags"]["caption_assets/config"] for run in runs}) == 1
            assert states(project) == {key: "done" if key in CHOSEN else "missing" for key in KEYS}
            merged = project.rows("merged")
            assert sorted(merged) == [f"{n:04d}.png" for n in range(4, 16)]
            assert all(list(COLOURS)[int(record[:4]) % 4] in row["caption"] for record, row in merged.items())

            launch_backfill(page, ui.url, JOB, preset="Missing")
            missing = finished(ui, 2)
            assert set(missing["partitionNames"]) == set(KEYS) - CHOSEN
            assert states(project) == {key: "failed" if key in BROKEN else "done" for key in KEYS}, "their source has changed"
            assert ui.partitions("photos", "concat_grids")["failed"] == BROKEN

            for name in ("0017.png", "0021.png"):
                (tmp_path / name).rename(tmp_path / "photos" / name)
            launch_backfill(page, ui.url, JOB, preset="Failed")
            failed = finished(ui, 3)
            assert failed["status"] == "COMPLETED_SUCCESS" and set(failed["partitionNames"]) == BROKEN
            assert ui.partitions("photos", "merged")["materialized"] == set(KEYS)
            assert set(states(project).values()) == {"done"}
            assert len(project.rows("merged")) == 24
        asked = [entry.kind for entry in stub.log if not entry.canary]
        assert asked == ["grid"] * 6, "each grid once"
