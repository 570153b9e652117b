"""Every format, read back by the tool that people use: as many records, the same ids and texts as in merged."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import orjson
import pytest

from caption_assets.core.exports.job import Options
from caption_assets.core.exports.selection import ExportError
from caption_assets_tests.core.exports.exportkit import LONG, PICTURES, SAID, merged_texts, pictures, run, tars
from caption_assets_tests.core.mergekit import ONE, Collection, words
from caption_assets_tests.core.shardkit import jpeg

Made = tuple[Collection, list[str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def made_tars(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return tars(tmp_path_factory.mktemp("tars"))


def test_the_collection_has_what_breaks_exports(made: Made) -> None:
    texts = merged_texts(*made)
    assert set(texts) == set(PICTURES) - {"broken.jpg"}
    assert {name: texts[name] for name in SAID} == SAID and len(LONG) > 3000
    assert texts["twice.jpg"] == texts["фото/кот на окне.jpg"]


def test_webdataset(made: Made, tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    result = run(*made, "webdataset", tmp_path / "out", Options(maxcount=3))
    tars = sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
    assert [Path(tar).name for tar in tars] == [f"{shard}-{n:05d}.tar" for shard in made[1] for n in range(2)]
    samples = list(webdataset.WebDataset(tars, shardshuffle=False))
    assert result.records == len(samples) == 10
    texts, bytes_of = {}, {}
    for sample in samples:
        assert set(sample) - {"__key__", "__url__", "__local_path__"} in (
            {"jpg", "txt", "json"},
            {"png", "txt", "json"},
            {"webp", "txt", "json"},
        )
        record = json.loads(sample["json"])
        assert unquote(sample["__key__"]) == record["record_id"]
        assert sample["txt"].decode() == record["caption"]
        assert record["caption_info"]["model"] == "stub" and record["width"] > 0
        texts[record["record_id"]] = record["caption"]
        (picture,) = set(sample) & {"jpg", "png", "webp"}
        bytes_of[record["record_id"]] = sample[picture]
    assert texts == merged_texts(*made)
    assert bytes_of == {name: PICTURES[name] for name in texts}


def test_webdataset_of_tars_that_use_the_same_keys(made_tars: Made, tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    run(*made_tars, "webdataset", tmp_path / "out")
    samples = list(webdataset.WebDataset(sorted(map(str, (tmp_path / "out").glob("*.tar"))), shardshuffle=False))
    assert {unquote(s["__key__"]): s["txt"].decode() for s in samples} == merged_texts(*made_tars)
    assert len(samples) == 8


def test_parquet_with_pandas_polars_and_duckdb(made: Made, tmp_path: Path) -> None:
    run(*made, "parquet", tmp_path / "out")
    folder = str(tmp_path / "out" / "data")
    rows = duckdb.sql(f"SELECT record_id, caption, caption_info.model FROM '{folder}/*.parquet'").fetchall()
    assert {record: text for record, text, _ in rows} == merged_texts(*made) and {model for _, _, model in rows} == {"stub"}
    frame = pytest.importorskip("pandas").read_parquet(folder)
    assert dict(zip(frame["record_id"], frame["caption"], strict=True)) == merged_texts(*made)
    table = pytest.importorskip("polars").read_parquet(f"{folder}/*.parquet")
    assert dict(zip(table["record_id"].to_list(), table["caption"].to_list(), strict=True)) == merged_texts(*made)


def test_jsonl_with_pandas_and_by_hand(made: Made, tmp_path: Path) -> None:
    run(*made, "jsonl", tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    assert {line["record_id"]: line["caption"] for line in lines} == merged_texts(*made)
    pandas = pytest.importorskip("pandas")
    frame = pandas.concat([pandas.read_json(file, lines=True) for file in files])
    assert dict(zip(frame["record_id"], frame["caption"], strict=True)) == merged_texts(*made)


def test_jsonl_keeps_the_original_record_digit_by_digit(tmp_path: Path) -> None:
    record = '{"id": 12345678901234567890123, "uri": "images/a.jpg", "weight": 0.1000, "e": 1e400, "nested": {"k": [1, "é"]}}'
    collection = Collection(tmp_path, {"grid": ONE})
    collection.add({"catalog.jsonl": record.encode(), "images/a.jpg": jpeg(1)})
    (shard,) = collection.prepare()
    collection.caption_all(shard, words)
    collection.merge(shard)
    run(collection, [shard], "jsonl", tmp_path / "out")
    line = (tmp_path / "out" / f"{shard}.jsonl").read_text("utf-8")
    assert "12345678901234567890123" in line and "0.1000" in line and "1e400" in line
    assert json.loads(line)["id"] == "12345678901234567890123"


@pytest.mark.parametrize(
    ("written", "exported"),
    [
        (r'"a \ud83d b"', r"a \ud83d b"),
        (r'"\ude00\ud83d\ude00\\ud800"', "\\ude00😀\\ud800"),
        (r'{"k\udfff": ["\\\ud800"]}', {r"k\udfff": ["\\\\ud800"]}),
        ("18446744073709551615", 18446744073709551615),
        ("-9223372036854775809", "-9223372036854775809"),
        ("[9007199254740993, 1.50]", [9007199254740993, 1.5]),
        ("7" * 5000, "7" * 5000),
        ("-1.5e999", "-1.5e999"),
        ('[NaN, -Infinity, "NaN 7777777777777777777777"]', [None, None, "NaN 7777777777777777777777"]),
    ],
)
def test_jsonl_of_a_catalog_that_json_readers_refuse(written: str, exported: Any, tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    collection = Collection(tmp_path, {"grid": ONE})
    record = f'{{"id": "a", "uri": "images/a.jpg", "odd": {written}}}'
    collection.add({"catalog.jsonl": record.encode(), "images/a.jpg": jpeg(1)})
    (shard,) = collection.prepare()
    collection.caption_all(shard)
    collection.merge(shard)
    run(collection, [shard], "jsonl", tmp_path / "out")
    file = tmp_path / "out" / f"{shard}.jsonl"
    (row,) = collection.rows(collection.layout.merged(shard))
    assert row["record_json"] == record
    assert json.loads(file.read_bytes())["record"] == {"id": "a", "uri": "images/a.jpg", "odd": exported}
    assert orjson.loads(file.read_bytes()) == json.loads(file.read_bytes())
    assert pandas.read_json(file, lines=True)["record"][0]["odd"] == exported
    assert polars.read_ndjson(file).height == 1
    assert duckdb.sql(f"SELECT caption FROM read_json('{file}')").fetchall() == [(row["caption"],)]


@pytest.mark.parametrize("safe", [False, True])
def test_csv(made: Made, tmp_path: Path, safe: bool) -> None:
    run(*made, "csv", tmp_path / "out", Options(csv_safe=safe))
    rows: list[dict[str, str]] = []
    for file in sorted((tmp_path / "out").glob("*.csv")):
        with open(file, encoding="utf-8", newline="") as lines:
            rows += csv.DictReader(lines)
    found = {row["record_id"]: row["caption"] for row in rows}
    formula = "rel.v1.0/22.10.png"
    assert found[formula].startswith("'=SUM" if safe else "=SUM")
    assert {**found, formula: SAID[formula]} == merged_texts(*made)
    if not safe:
        pandas = pytest.importorskip("pandas")
        frame = pandas.concat([pandas.read_csv(file) for file in (tmp_path / "out").glob("*.csv")])
        assert dict(zip(frame["record_id"], frame["caption"], strict=True)) == merged_texts(*made)


def test_hf_dataset_folder(made: Made, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    run(*made, "hf", tmp_path / "out")
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))["train"]
    assert isinstance(loaded.features["image"], datasets.Image)
    assert {row["record_id"]: row["caption"] for row in loaded.remove_columns("image")} == merged_texts(*made)
    assert [row["image"].size for row in loaded] == [(row["width"], row["height"]) for row in loaded.remove_columns("image")]
    raw = loaded.cast_column("image", datasets.Image(decode=False))
    assert all(row["image"]["bytes"] == PICTURES[row["record_id"]] for row in raw)


def test_imagefolder(made: Made, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    run(*made, "imagefolder", tmp_path / "out")
    loaded = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))["train"]
    assert isinstance(loaded.features["image"], datasets.Image)
    assert {row["record_id"]: row["caption"] for row in loaded.remove_columns("image")} == merged_texts(*made)
    assert all(row["image"].size[0] > 0 for row in loaded)


def test_txt_mirrors_the_folders_and_overwrites_nothing(made: Made, tmp_path: Path) -> None:
    run(*made, "txt", tmp_path / "out")
    found = {str(p.relative_to(tmp_path / "out")): p.read_text("utf-8") for p in (tmp_path / "out").rglob("*.txt")}
    texts = merged_texts(*made)
    assert found["cats/001.jpg.txt"] == texts["cats/001.jpg"] and found["cats/001.png.txt"] == texts["cats/001.png"]
    assert found["dogs/001.txt"] == texts["dogs/001.jpg"]
    assert found["rel.v1.0/22.05.txt"] == texts["rel.v1.0/22.05.png"]
    assert found["写真/猫[1] {x}*.txt"] == texts["写真/猫[1] {x}*.JPG"]
    assert sorted(found.values()) == sorted(texts.values())


def test_txt_beside_copies_as_trainers_read_it(made: Made, tmp_path: Path) -> None:
    run(*made, "txt", tmp_path / "out", Options(pictures=True))
    images = [p for p in (tmp_path / "out").rglob("*") if p.suffix in (".jpg", ".png", ".webp")]
    pairs = {image.read_bytes(): image.with_suffix(".txt").read_text("utf-8") for image in images}
    texts = merged_texts(*made)
    assert len(images) == len(texts) and pairs == {PICTURES[name]: text for name, text in texts.items()}


def test_json_sidecars(made: Made, made_tars: Made, tmp_path: Path) -> None:
    for number, collection in enumerate((made, made_tars)):
        out = tmp_path / str(number)
        run(*collection, "json", out)
        records = [
            json.loads(p.read_text("utf-8")) for p in out.rglob("*.json") if ".export" not in p.parts and p.name != "export.json"
        ]
        assert {r["record_id"]: r["caption"] for r in records} == merged_texts(*collection)
    assert (tmp_path / "1" / "part-1.tar" / "003.json").exists()


def test_lance(made: Made, tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    collection, shards = made
    run(collection, shards[:1], "lance", tmp_path / "out")
    run(collection, shards, "lance", tmp_path / "out")
    rows = lance.dataset(str(tmp_path / "out" / "captions.lance")).to_table().to_pylist()
    assert {row["record_id"]: row["caption"] for row in rows} == merged_texts(*made) and len(rows) == 10
    assert all(row["image"] == PICTURES[row["record_id"]] for row in rows)
    assert {row["shard"] for row in rows} == set(shards)


def test_webshart_reads_captions_beside_the_source_tars(made_tars: Made, tmp_path: Path) -> None:
    collection, shards = made_tars
    run(collection, shards, "webshart", tmp_path / "out")
    index = json.loads((tmp_path / "out" / "part-1.json").read_text())
    assert index["filesize"] == (collection.source / "part-1.tar").stat().st_size and len(index["files"]) == 4
    webshart = pytest.importorskip("webshart")
    dataset = webshart.discover_dataset(str(collection.source), metadata=str(tmp_path / "out"))
    loader = webshart.TarDataLoader(dataset)
    found: dict[str, Any] = {}
    for shard in range(dataset.num_shards):
        for number in range(len(dataset.list_samples_in_shard(shard))):
            entry = loader.load_sample(shard, number)
            found[f"part-{shard}.tar#{entry.path}"] = entry.captions
            data = (collection.source / f"part-{shard}.tar").read_bytes()
            assert bytes(entry.data) in data
    assert found == merged_texts(*made_tars)


def test_webshart_refuses_what_is_no_tar(made: Made, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is no plain tar"):
        run(*made, "webshart", tmp_path / "out")


def test_lance_says_what_to_install_and_where_it_can_be_written(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "lance", None)
        with pytest.raises(ExportError, match=r"pip install 'caption-assets\[lance\]'"):
            run(*made, "lance", tmp_path / "out")
