"""The simulation of 100,000 shards in a small form: what it finds is right. How long it takes is for the benchmark to say."""

from pathlib import Path

from caption_assets_tests.benchmarks.plan_billion import CATALOG_SHARDS, SHARD_SIZE, steps

SHARDS, LOST = 2000, 20


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
