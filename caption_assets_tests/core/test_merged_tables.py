"""merged and failed as tables: whole, each record once, or not published at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from caption_assets.core.columns import FAILED, merged_columns
from caption_assets.core.merging import read_pair
from caption_assets.core.tables import arrow_schema, table
from caption_assets_tests.core.mergekit import ONE, Collection, one_shard, words
from caption_assets_tests.core.shardkit import jpeg, write_tar

SHORT = "A cat."


def test_every_record_has_its_caption_and_how_it_was_made(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    collection.caption_all(shard)
    outcome = collection.merge(shard)
    assert outcome.result.problems == []
    assert outcome.texts() == {f"p{n}.jpg": words(f"p{n}.jpg") for n in range(4)}
    assert outcome.failed == []
    row = outcome.merged[0]
    assert (row["width"], row["height"], row["format"], row["file_bytes"]) == (24, 24, "jpeg", len(jpeg(0)))
    assert row["source_uri"] == f"{tmp_path}/source/p0.jpg"
    info = row["caption_info"]
    assert info["recipe"] == collection.recipes["caption"] and info["model"] == "stub" and info["attempt"] == 1
    assert info["completion_tokens"] == 40 and info["captioned_at"].timestamp() >= 1_800_000_000
    assert outcome.result.counts == {
        "records": 4, "captioned": 4, "failed": 0, "coverage": 1.0, "duplicates": 0, "transient": 0,
    }  # fmt: skip


def test_columns_metadata_and_order_are_the_contract(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    collection.say(shard, [collection.reply([f"p{n}.jpg"], words(str(n)) if n != 2 else SHORT) for n in (3, 1, 0, 2)])
    outcome = collection.merge(shard)
    for uri, schema in (
        (collection.layout.merged(shard), arrow_schema(merged_columns(["caption"]))),
        (collection.layout.failed(shard), arrow_schema(FAILED)),
    ):
        handle = table(collection.objects, uri)
        assert handle.schema.equals(schema)
        metadata = handle.metadata
        assert metadata["run_id"] == "run-2" and metadata["shard"] == shard
        assert metadata["data_version"] == outcome.result.data_version
        assert metadata["data_version"].startswith(metadata["dataset_recipe"] + ".")
        assert handle.summary["captioned"] == 3 and handle.summary["reasons"] == {"too_short": 1}
    assert [row["record_id"] for row in outcome.merged] == ["p0.jpg", "p1.jpg", "p3.jpg"]


def test_a_mapping_of_another_manifest_is_told(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    collection.caption_all(shard)
    rows = pq.read_table(collection.layout.mapping(shard))
    pq.write_table(rows.slice(1), collection.layout.mapping(shard))
    (problem,) = collection.merge(shard).result.problems
    assert "is not the mapping of" in problem and "concat_grids" in problem


def test_a_manifest_with_an_id_twice_is_told(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    for uri in (collection.layout.manifest(shard), collection.layout.mapping(shard)):
        rows = pq.read_table(uri).to_pylist()
        rows[2]["record_id"] = "p0.jpg"
        pq.write_table(pq.read_table(uri).from_pylist(rows, pq.read_schema(uri)), uri)
    assert collection.merge(shard).result.problems == ["record_id 'p0.jpg' stands in the manifest more than once"]


def test_foreign_and_torn_files_among_the_replies_are_named(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    collection.caption_all(shard)
    chunks = Path(collection.layout.chunks_folder(shard, "caption", collection.recipes["caption"]))
    (chunk,) = chunks.iterdir()
    (chunks / "notes.txt").write_text("hello")
    (chunks / "run-9-0123abcd-00000.parquet").write_bytes(chunk.read_bytes()[:100])
    outcome = collection.merge(shard)
    assert len(outcome.merged) == 4 and outcome.result.problems == []
    assert len(outcome.result.warnings) == 2


def test_surrogates_and_nul_never_reach_the_tables(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path, grid={"rows": 2, "cols": 2, "cell_size": 32, "gap": 2, "label_font_size": 8})
    said = json.dumps(
        {
            "1": words("1") + "\x00\x07",
            "2": words("2") + " \ud83d",
            "3": words("3") + "\x1b[31m",
            "4": words("4") + " 🎈 naïve 漢字",
        }
    )
    collection.say(shard, [collection.reply([f"p{n}.jpg" for n in range(4)], said)])
    outcome = collection.merge(shard)
    assert len(outcome.merged) + len(outcome.failed) == 4
    assert outcome.texts()["p3.jpg"] == words("4") + " 🎈 naïve 漢字"
    assert not any(c < " " or "\ud800" <= c <= "\udfff" for text in outcome.texts().values() for c in text or "")


def test_read_pair_takes_two_tables_of_one_merge_only(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    collection.caption_all(shard)
    first = collection.merge(shard)
    pair = read_pair(collection.objects, collection.layout, shard)
    assert pair is not None and pair.merged.rows == 4 and pair.failed.rows == 0
    failed = Path(collection.layout.failed(shard)).read_bytes()
    collection.merge(shard)
    Path(collection.layout.failed(shard)).write_bytes(failed)
    assert read_pair(collection.objects, collection.layout, shard) is None
    assert first.result.data_version == collection.merge(shard).result.data_version


def test_samples_show_records_and_where_their_pictures_are(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path, count=9)
    collection.caption_all(shard)
    samples = collection.merge(shard).result.samples
    assert [sample["record_id"] for sample in samples] == ["p0.jpg", "p2.jpg", "p4.jpg", "p6.jpg"]
    assert samples[0]["text"] == words("p0.jpg") and samples[0]["reason"] is None
    assert {"uri", "source_uri", "source_index", "byte_offset", "byte_length"} <= samples[0].keys()


@pytest.mark.parametrize("count", [0, 1])
def test_shards_without_any_captioned_record_are_merged_too(tmp_path: Path, count: int) -> None:
    collection = Collection(tmp_path, {"grid": ONE})
    write_tar(collection.source / "t.tar", [("a", b"")] * count)
    (shard,) = collection.prepare()
    outcome = collection.merge(shard)
    assert outcome.result.problems == [] and outcome.merged == []
    assert len(outcome.failed) == collection.manifest(shard).rows


def test_a_row_that_got_lost_or_doubled_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from caption_assets.core.merge import assembling

    collection, shard = one_shard(tmp_path)
    collection.caption_all(shard)
    write = assembling._Writer.write
    for change in ([True, True, True, False], None):

        def wrong(self: Any, columns: Any, wanted: Any, change: Any = change) -> None:
            if change is None:
                write(self, columns, wanted)
            write(self, columns, wanted & np.array(change or [True] * 4))

        monkeypatch.setattr(assembling._Writer, "write", wrong)
        assert collection.merge(shard).result.problems == [
            "merged and failed together do not hold the records of the manifest, each once"
        ]
    assert read_pair(collection.objects, collection.layout, shard) is None
