"""Parquet sources: every picture with its own row, whatever the row groups; every value of a row kept."""

import datetime
import decimal
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caption_assets.core.sources.rowjson import plain_rows
from caption_assets_tests.core.sources.sourcekit import PNG, collect, picture, sha256, write, write_parquet

PICTURES = {f"images/p{n}.jpg": picture(n) for n in range(8)}


def struct_rows(count: int) -> list[dict]:
    return [{"id": f"r{n}", "n": n, "image": {"bytes": picture(n), "path": f"x{n}.jpg"}} for n in range(count)]


def test_hugging_face_structs_with_nulls(tmp_path: Path) -> None:
    rows = [
        {"id": "both", "image": {"bytes": picture(2), "path": "images/p0.jpg"}},
        {"id": "bytes", "image": {"bytes": picture(3), "path": None}},
        {"id": "path", "image": {"bytes": None, "path": "images/p4.jpg"}},
        {"id": "neither", "image": {"bytes": None, "path": None}},
        {"id": "null", "image": None},
        {"id": "empty", "image": {"bytes": b"", "path": None}},
    ]
    write(tmp_path / "in", PICTURES)
    write_parquet(tmp_path / "in/data/train.parquet", rows)
    got = collect(tmp_path / "in", tmp_path / "store", fields={"uri": "image"})
    assert got.good == {f"data/train.parquet#{n + 1}": sha256(picture(n + 2)) for n in range(3)} | {
        "data/train.parquet#6": sha256(b"")
    }
    assert got.reasons == {"data/train.parquet#4": "missing_uri", "data/train.parquet#5": "missing_uri"}
    assert got.rows["data/train.parquet#1"]["uri"] == f"{tmp_path}/in/data/train.parquet#1"
    assert got.record("data/train.parquet#1") == {"id": "both", "image": {"path": "images/p0.jpg"}}
    assert got.rows["data/train.parquet#3"]["uri"] == "images/p4.jpg"


@pytest.mark.parametrize("group", [1, 3, 7, 10, 100])
@pytest.mark.parametrize("size", [1, 4, 10, 23, 50])
def test_ranges_that_cross_row_groups(tmp_path: Path, group: int, size: int) -> None:
    write_parquet(tmp_path / "in/a.parquet", struct_rows(23), group)
    got = collect(tmp_path / "in", tmp_path / "store", shard_size=size)
    assert got.good == {f"a.parquet#{n + 1}": sha256(picture(n)) for n in range(23)}
    assert [json.loads(row["record_json"])["n"] for row in got.rows.values()] == list(range(23))
    assert [row["id"] for row in got.rows.values()] == [f"r{n}" for n in range(23)]
    assert all(len(ids) <= size for ids in got.shards.values()) and sum(map(len, got.shards.values())) == 23


def test_small_files_share_a_shard_and_large_ones_are_cut(tmp_path: Path) -> None:
    for name, rows in (("a", 3), ("b", 4), ("c", 12), ("d", 1)):
        write_parquet(tmp_path / f"in/{name}.parquet", struct_rows(rows), 5)
    got = collect(tmp_path / "in", tmp_path / "store", shard_size=10)
    assert [len(ids) for ids in got.shards.values()] == [7, 10, 3]
    assert list(got.rows)[:8] == [
        "a.parquet#1",
        "a.parquet#2",
        "a.parquet#3",
        *(f"b.parquet#{n}" for n in range(1, 5)),
        "c.parquet#1",
    ]


@pytest.mark.parametrize("column", ["image", "jpg", "some_bytes", "uri"])
def test_plain_bytes_under_any_name(tmp_path: Path, column: str) -> None:
    rows = [{"id": n, column: picture(n) if n != 2 else None, "text": "t"} for n in range(4)]
    write_parquet(tmp_path / "in/a.parquet", rows, 2)
    got = collect(tmp_path / "in", tmp_path / "store")
    assert got.good == {f"a.parquet#{n + 1}": sha256(picture(n)) for n in (0, 1, 3)}
    assert got.reasons == {"a.parquet#3": "missing_uri"} and got.record("a.parquet#1") == {"id": 0, "text": "t"}


def test_addresses_and_dotted_fields(tmp_path: Path) -> None:
    write(tmp_path / "in", PICTURES)
    rows = [{"meta": {"key": 2**63 - 1 - n, "where": f"images/p{n}.jpg"}} for n in range(3)]
    write_parquet(tmp_path / "in/a.parquet", rows)
    got = collect(tmp_path / "in", tmp_path / "store", fields={"id": "meta.key", "uri": "meta.where"})
    assert len(got.good) == 3 and [row["id"] for row in got.rows.values()] == [str(2**63 - 1 - n) for n in range(3)]


def test_a_file_that_holds_nothing_but_pictures(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in/a.parquet", [{"image": picture(n)} for n in range(5)], 2)
    got = collect(tmp_path / "in", tmp_path / "store")
    assert len(got.good) == 5 and got.record("a.parquet#1") == {}


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"x" * 5000 + b"PAR1", b"<html>"])
def test_what_is_no_parquet_is_one_record(tmp_path: Path, data: bytes) -> None:
    write(tmp_path / "in", {"a.parquet": data})
    write_parquet(tmp_path / "in/b.parquet", struct_rows(2))
    got = collect(tmp_path / "in", tmp_path / "store")
    assert got.reasons == {"a.parquet#": "truncated_shard"} and len(got.good) == 2


def test_values_of_every_type_are_kept() -> None:
    when = datetime.datetime(2020, 1, 2, 3, 4, 5, 123456)
    table = pa.table(
        {
            "u64": pa.array([2**64 - 1, None], pa.uint64()),
            "f": pa.array([float("nan"), 0.1], pa.float64()),
            "d": pa.array([decimal.Decimal("12345678901234567890.10"), None]),
            "ns": pa.array([1577934245123456789, None], pa.timestamp("ns")),
            "ts": pa.array([when, None], pa.timestamp("us", tz="UTC")),
            "far": pa.array([2**62, None], pa.timestamp("s")),
            "day": pa.array([when.date(), None]),
            "took": pa.array([datetime.timedelta(seconds=1), None]),
            "raw": pa.array([b"\0\xff", None]),
            "list": pa.array([[1.5, None], None], pa.list_(pa.float32())),
            "fixed": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            "nested": pa.array([{"a": [{"when": when}]}, None]),
            "word": pa.array(["x", None]).dictionary_encode(),
            "none": pa.nulls(2),
        }
    )
    (batch,) = table.to_batches()
    (row, text), (second, _) = plain_rows(batch)
    assert json.loads(text, parse_constant=str) == {**row, "f": "NaN"} and row["u64"] == 2**64 - 1
    assert (row["d"], row["ns"][-9:], row["raw"]) == ("12345678901234567890.10", "123456789", "AP8=")
    assert (row["list"], row["fixed"], row["map"], row["word"]) == ([1.5, None], [1, 2], [["k", 1]], "x")
    assert row["nested"]["a"][0]["when"].startswith("2020-01-02 03:04:05")
    assert {name for name, value in second.items() if value is not None} == {"f"}
    (_, sliced) = next(plain_rows(batch.slice(1)))
    assert json.loads(sliced)["f"] == 0.1


def test_texts_that_are_no_utf8_stay_apart(tmp_path: Path) -> None:
    raw = pa.array([b"caf\xe9", b"caf\xe8"])
    ids = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    table = pa.table({"id": ids, "image": [picture(0), picture(1)], "tags": pa.ListArray.from_arrays([0, 1, 2], ids)})
    write(tmp_path / "in", {})
    write_parquet(tmp_path / "in/a.parquet", table)
    got = collect(tmp_path / "in", tmp_path / "store")
    assert [row["id"] for row in got.rows.values()] == ["caf\\udce9", "caf\\udce8"] and len(got.good) == 2


def test_damage_costs_the_rows_of_its_group_in_every_shard(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "in/a.parquet", [{"id": n, "text": "word " * 50 + str(n), "image": picture(n)} for n in range(40)], 10
    )
    column = pq.ParquetFile(path).metadata.row_group(2).column(1)
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 40] = bytes(40)
    path.write_bytes(data)
    got = collect(tmp_path / "in", tmp_path / "store", shard_size=25)
    assert len(got.shards) == 2
    assert got.reasons == {f"a.parquet#{n}": "truncated_shard" for n in range(21, 31)} and len(got.good) == 30


@pytest.mark.parametrize("name", ["image", "uri"])
def test_pictures_that_stand_once_in_a_dictionary(tmp_path, name):
    column = pa.array([PNG, picture(1), PNG, None]).dictionary_encode()
    write_parquet(tmp_path / "s/x.parquet", pa.table({"id": pa.array([1, 2, 3, 4]), name: column}))
    found = collect(f"{tmp_path}/s/", tmp_path / "store")
    assert found.good == {"x.parquet#1": sha256(PNG), "x.parquet#2": sha256(picture(1)), "x.parquet#3": sha256(PNG)}
    assert found.reasons == {"x.parquet#4": "missing_uri"} and found.record("x.parquet#1") == {"id": 1}
