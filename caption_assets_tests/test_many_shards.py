"""The simulation of 100,000 shards in a small form: what it finds is right. How long it takes is for the benchmark to say."""

from pathlib import Path

import pytest

from caption_assets.core.plan import generations
from caption_assets_tests.benchmarks.plan_billion import CATALOG_SHARDS, SHARD_SIZE, STEPS, steps

SHARDS, LOST = 2000, 20


def test_planning_that_was_killed_goes_on_and_counts_every_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "GENERATION_S", generations.GENERATION_S)  # what the steps change is set back
    killed = STEPS["catalogs planned, killed at 99 %"](tmp_path, 300)
    assert killed["shards"] < 300 and killed["records"] == killed["shards"] * SHARD_SIZE
    whole = STEPS["catalogs planned to the end"](tmp_path, 300)
    assert (whole["shards"], whole["records"]) == (300, 300 * SHARD_SIZE)


@pytest.mark.long
def test_two_thousand_shards_are_planned_resumed_counted_and_reconciled(tmp_path: Path) -> None:
    found = dict(steps(tmp_path, SHARDS))
    killed, whole = found["catalogs planned, killed at 99 %"], found["catalogs planned to the end"]
    assert killed["shards"] <= SHARDS - CATALOG_SHARDS and killed["records"] == killed["shards"] * SHARD_SIZE
    assert (whole["shards"], whole["records"]) == (SHARDS, SHARDS * SHARD_SIZE)
    assert found["keys registered"]["keys"] == SHARDS
    for name in ("status --json", "status --json again"):
        status = found[name]
        assert (status["done"], status["missing"], status["records"]) == (SHARDS - LOST, LOST, 4 * (SHARDS - LOST))
    assert found["run --dry-run: what is left"]["to do"] == LOST
    assert found["sensor's tick"]["asks"] == 0
    assert found["reconcile, all agrees"]["says"] == "photos: Dagster and the store agree"
    assert found["reconcile, a hundredth lost"]["says"].startswith(f"photos/failed: {LOST} shards found in the store, 0 lost")
    assert found["plan, a hundredth new"]["says"].startswith(f"photos: {SHARDS + LOST} shards")
