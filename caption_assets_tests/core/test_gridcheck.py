"""Damaged grids are noticed, whole ones are not complained of, and looking at a large shard costs a bounded number of reads."""

import re
from pathlib import Path

import pytest

from caption_assets.core.objectstore import ObjectError, ObjectStore
from caption_assets.core.pictures.gridcheck import DECODED, GridFindings, check_grids
from caption_assets.core.tables import table
from caption_assets_tests.core.shardkit import ONE, SMALL_GRID, Shard, jpeg, make_shard, write_tar


def look(shard: Shard, seed: str = "a", objects: ObjectStore | None = None) -> GridFindings:
    return check_grids(objects or shard.objects, shard.layout, shard.spec, shard.key, seed)


@pytest.fixture
def small_tars(monkeypatch):
    """Two grids a tar, so that ten pictures make two tars."""
    monkeypatch.setattr("caption_assets.core.pictures.gridtars.TAR_GRIDS", 2)


@pytest.fixture
def shard(tmp_path, small_tars):
    return make_shard(tmp_path, 10)


def tar(shard: Shard, number: int = 0) -> Path:
    return Path(shard.layout.grid_tar(shard.key, number))


def grids(shard: Shard) -> dict[str, dict]:
    """grid_id → a mapping row of it."""
    rows = shard.handle(shard.layout.mapping(shard.key)).batches(shard.objects)
    return {row["grid_id"]: row for batch in rows for row in batch.to_pylist() if row["grid_id"]}


def overwrite(shard: Shard, at: int, data: bytes, number: int = 0) -> None:
    with open(tar(shard, number), "r+b") as file:
        file.seek(at)
        file.write(data)


def test_whole_grids_pass_and_it_is_said_what_was_looked_at(shard):
    found = look(shard)
    assert found.problems == [] and found.problem_count == 0 and found.note is None
    expected = {"records": 10, "geometry_of_the_config": True, "grids": 3, "tars": 2, "grids_opened": 3, "grids_decoded": 3}
    assert found.figures == expected


def test_one_picture_a_request_has_nothing_to_open(tmp_path):
    found = look(make_shard(tmp_path, 3, grid=ONE))
    assert not found.problem_count and "1x1" in found.note


def test_a_shard_without_any_readable_picture_passes(tmp_path):
    made = Shard(tmp_path)
    write_tar(made.tar, [("a", b"no picture"), ("b", b"")])
    found = look(made.prepare())
    assert not found.problem_count and found.figures["grids"] == 0


def test_duplicates_and_unreadable_pictures_fill_no_cell(tmp_path):
    made = Shard(tmp_path, {"grid": SMALL_GRID})
    pictures = [("a", jpeg(1)), ("b", b"no picture"), ("c", jpeg(1)), *((f"d{n}", jpeg(n + 2)) for n in range(5))]
    write_tar(made.tar, pictures)
    found = look(made.prepare())
    assert not found.problem_count and (found.figures["records"], found.figures["grids"]) == (8, 2)


@pytest.mark.parametrize("keep", [0, 511, 700, 3000, -512, -10_240])
def test_a_tar_that_is_cut_off(shard, keep):
    data = tar(shard).read_bytes()
    tar(shard).write_bytes(data[:keep])
    found = look(shard)
    assert found.problem_count and "grids-00000.tar" in found.problems[0]


def test_a_tar_that_is_missing(shard):
    tar(shard, 1).unlink()
    (problem,) = look(shard).problems
    assert re.search(r"grids-00001\.tar is missing: materialize", problem)


def test_a_tar_too_many(shard):
    tar(shard, 7).write_bytes(tar(shard).read_bytes())
    (problem,) = look(shard).problems
    assert "grids-00007.tar is there, and no record is in it" in problem


def test_tars_that_changed_places(shard):
    first, second = tar(shard, 0).read_bytes(), tar(shard, 1).read_bytes()
    tar(shard, 0).write_bytes(second)
    tar(shard, 1).write_bytes(first)
    assert look(shard).problem_count >= 2


def test_bytes_that_were_overwritten_anywhere_in_a_grid(shard):
    whole = tar(shard).read_bytes()
    row = next(iter(grids(shard).values()))
    picture, length = row["byte_offset"], row["byte_length"]
    told = picture + -(-length // 512) * 512
    said = {}
    for name, at in {
        "header": picture - 500,
        "picture": picture + length // 2,
        "description": told + 520,
        "told": told + 10,
    }.items():
        overwrite(shard, at, b"\xff\x00\xfe")
        found = look(shard)
        assert found.problem_count == 1, name
        said[name] = found.problems[0]
        tar(shard).write_bytes(whole)
    assert "another sha256" in said["picture"] and "JSON" in said["description"] and "holds" in said["told"]
    assert not look(shard).problem_count


def test_a_picture_that_was_never_one_is_found_by_decoding(shard, monkeypatch):
    monkeypatch.setattr("caption_assets.core.pictures.gridding.compose", lambda *_: b"RIFF, but no picture")
    shard.prepare()
    assert any("cannot be decoded" in problem for problem in look(shard).problems)


def test_the_mapping_of_another_geometry_over_these_tars(shard):
    uri = Path(shard.layout.mapping(shard.key))
    tars = [tar(shard, 0).read_bytes(), tar(shard, 1).read_bytes()]
    shard.options["grid"] = {**SMALL_GRID, "gap": 3}
    shard.prepare()
    other = uri.read_bytes()
    for number, data in enumerate(tars):
        tar(shard, number).write_bytes(data)
    assert look(shard).problem_count
    shard.options["grid"] = SMALL_GRID
    shard.prepare()
    assert not look(shard).problem_count
    uri.write_bytes(other)
    assert look(shard).problem_count and not look(shard).figures["geometry_of_the_config"]


def test_whole_grids_of_an_earlier_config_are_whole(shard):
    shard.options["grid"] = {**SMALL_GRID, "gap": 3}
    found = look(shard)
    assert not found.problem_count and found.figures["geometry_of_the_config"] is False


def test_a_mapping_that_is_missing_or_damaged(shard):
    uri = Path(shard.layout.mapping(shard.key))
    data = uri.read_bytes()
    uri.write_bytes(data[: len(data) // 2])
    assert "cannot be read" in look(shard).problems[0]
    uri.unlink()
    assert "materialize concat_grids" in look(shard).problems[0]


def test_grids_that_were_cleaned_away_are_no_damage_but_lost_ones_are(shard):
    for number in (0, 1):
        tar(shard, number).unlink()
    assert look(shard).problem_count
    shard.options["grid"] = {**SMALL_GRID, "keep": "until_merged"}
    assert look(shard).problem_count, "it is not merged yet"
    merged = Path(shard.layout.merged(shard.key))
    merged.parent.mkdir()
    merged.touch()
    found = look(shard)
    assert not found.problem_count and "until_merged" in found.note


class Counting(ObjectStore):
    """Counts what is read of tars."""

    reads = 0

    def read_many(self, items, concurrency=16):
        items = list(items)
        self.reads += len(items)
        return super().read_many(items, concurrency)


def test_a_large_shard_costs_a_bounded_number_of_reads_and_each_time_others(tmp_path, monkeypatch):
    monkeypatch.setattr("caption_assets.core.pictures.gridtars.TAR_GRIDS", 50)
    monkeypatch.setattr("caption_assets.core.pictures.gridcheck.OPENED", 12)
    shard = make_shard(tmp_path, 200, grid={**SMALL_GRID, "rows": 1, "cols": 2, "cell_size": 16})
    objects = Counting()
    found = look(shard, objects=objects)
    assert not found.problem_count and (found.figures["grids"], found.figures["tars"]) == (100, 2)
    assert objects.reads == found.figures["grids_opened"] <= 12 + 2 * 2 and found.figures["grids_decoded"] == DECODED
    for row in grids(shard).values():  # every third grid: some looks find it, and none finds more than it opened
        if row["byte_offset"] % 3 == 0:
            overwrite(shard, row["byte_offset"] + 20, b"\0" * 20, int(row["grid_object"][-9:-4]))
    assert len({look(shard, seed).problem_count for seed in "abcdef"}) > 1


def test_in_s3(tmp_path, s3_server, small_tars):
    store = f"s3://{s3_server.make_bucket()}/some/prefix"
    shard = Shard(tmp_path, store=store, objects=s3_server.store())
    write_tar(shard.tar, ((f"p{n:03d}", jpeg(n)) for n in range(10)))
    shard.prepare()
    assert look(shard).figures["grids_opened"] == 3 and not look(shard).problem_count
    uri = shard.layout.grid_tar(shard.key, 0)
    whole = shard.objects.read(uri)
    shard.objects.put(uri, whole[:5000])
    assert look(shard).problem_count
    shard.objects.put(uri, whole)
    shard.objects.delete(shard.layout.grid_tar(shard.key, 1))
    assert "is missing" in look(shard).problems[0]


def test_a_store_that_is_away_is_no_finding(shard, monkeypatch):
    def away(*_: object) -> bytes:
        raise ObjectError("the store is away")

    monkeypatch.setattr("caption_assets.core.storage.localstore.LocalObjects.read", away)
    with pytest.raises(ObjectError, match="away"):
        look(shard)


def test_rows_of_the_mapping_that_disagree(shard):
    """The mapping itself is damaged: a cell is in the wrong place, a row of another grid is among them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    uri = shard.layout.mapping(shard.key)
    whole = pq.read_table(uri).replace_schema_metadata(table(shard.objects, uri).schema.metadata)

    def written(change) -> GridFindings:
        rows = whole.to_pylist()
        change(rows)
        with pq.ParquetWriter(uri, whole.schema) as writer:
            writer.write_table(pa.Table.from_pylist(rows, whole.schema))
        return look(shard)

    assert not written(lambda rows: None).problem_count
    assert "cell" in written(lambda rows: rows[1].update(slot=3)).problems[0]
    assert "begins" in written(lambda rows: rows.reverse()).problems[0]
    assert written(lambda rows: [row.update(byte_offset=row["byte_offset"] + 512) for row in rows]).problem_count
    assert written(lambda rows: rows[0].update(record_id="another")).problem_count == 1
    assert written(lambda rows: rows.pop()).problem_count
    assert written(lambda rows: rows.pop(2)).problem_count
