"""From a manifest to grids and their mapping: every record in its place, every place readable."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webdataset
from PIL import Image

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import MANIFEST, MAPPING
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.pictures import gridding, gridtars
from caption_assets.core.pictures.firstseen import FirstSeen
from caption_assets.core.pictures.gridding import build_grids
from caption_assets.core.pictures.gridtars import read_grid, remove_stale
from caption_assets.core.storage.objects import ObjectError, ObjectMissing
from caption_assets.core.tables import RecordStream, TableHandle, arrow_schema, batches_of, table, write_parquet
from caption_assets_tests.pictures import save
from caption_assets_tests.servers import S3Server

COLOURS = [(220, 20, 20), (20, 160, 40), (30, 40, 210), (200, 180, 0), (0, 160, 160), (160, 0, 160), (90, 90, 90), (250, 120, 0)]
SHARD = "shard-00000"


def picture(number: int) -> bytes:
    """One colour of eight; numbers that differ give bytes that differ."""
    image = Image.new("RGB", (60, 40), COLOURS[number % 8])
    image.putpixel((59, 39), (number % 256, number // 256, 0))
    return save(image, "png")


class Shard:
    """A tar of pictures with its manifest, and what is built of it."""

    objects, store = ObjectStore(), ""

    def __init__(self, folder: Path, members: list[bytes | None], grid: dict[str, Any] | None = None, **options: Any) -> None:
        """A member that is None is a record the manifest already has a reason for."""
        self.layout = Layout(self.store or str(folder / "store"), "photos")
        self.grid = {"rows": 2, "cols": 2, "cell_size": 64, "gap": 4, "label_font_size": 12} if grid is None else grid
        prompts = [{"text": "Describe it."}]
        self.spec = DatasetConfig(name="photos", source=[str(folder / "in")], prompts=prompts, grid=self.grid, **options)
        self.tar = folder / "in" / "a.tar"
        self.tar.parent.mkdir(exist_ok=True, parents=True)
        self.members = members
        rows = []
        with tarfile.open(self.tar, "w") as tar:
            for index, data in enumerate(members, 1):
                info = tarfile.TarInfo(f"{index:06d}.png")
                info.size = len(data or b"")
                tar.addfile(info, io.BytesIO(data or b""))
                rows.append(
                    {
                        "record_id": f"a.tar#{info.name}",
                        "id": info.name,
                        "uri": f"{self.tar}#{info.name}",
                        "source_uri": str(self.tar),
                        "source_index": index,
                        "record_json": "{}",
                        "byte_offset": tar.offset - -(-info.size // 512) * 512,
                        "byte_length": info.size,
                        "reason": "link_member" if data is None else None,
                    }
                )
        self.manifest = self.write(rows)

    def write(self, rows: list[dict[str, Any]]) -> TableHandle:
        schema = arrow_schema(MANIFEST)
        return write_parquet(self.objects, self.layout.manifest(SHARD), RecordStream(schema, batches_of(iter(rows), schema)))

    def build(self) -> list[dict[str, Any]]:
        stream = build_grids(self.objects, self.layout, self.spec, SHARD, self.manifest)
        self.mapping = write_parquet(self.objects, self.layout.mapping(SHARD), stream)
        self.summary = stream.summary()
        return self.rows()

    def rows(self) -> list[dict[str, Any]]:
        handle = table(self.objects, self.layout.mapping(SHARD))
        return [row for batch in handle.batches(self.objects) for row in batch.to_pylist()]

    def tars(self) -> list[Path]:
        return sorted(Path(self.layout.grids_folder(SHARD)).glob("*.tar"))

    def cell(self, row: dict[str, Any]) -> tuple[int, int, int]:
        """The colour in the middle of the row's cell, read the way captions reads it."""
        with Image.open(io.BytesIO(read_grid(self.objects, row))) as image:
            grid = self.spec.grid
            y, x = divmod(row["slot"] - 1, grid.cols)
            pitch = grid.cell_size + grid.gap
            pixel = image.convert("RGB").getpixel(
                (grid.gap + x * pitch + grid.cell_size // 2, grid.gap + y * pitch + grid.cell_size // 2)
            )
            assert isinstance(pixel, tuple)
            return pixel[:3]


@pytest.fixture
def small_tars(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gridtars, "TAR_GRIDS", 3)
    yield


def near(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) < 40


def test_every_picture_stands_in_the_cell_its_row_says(tmp_path: Path) -> None:
    shard = Shard(tmp_path, [picture(n) for n in range(10)])
    rows = shard.build()
    assert [row["record_id"] for row in rows] == [f"a.tar#{n:06d}.png" for n in range(1, 11)]
    assert [row["slot"] for row in rows] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert len({row["grid_id"] for row in rows}) == 3
    for number, row in enumerate(rows):
        assert near(shard.cell(row), COLOURS[number % 8])
        assert row["sha256"] == hashlib.sha256(picture(number)).hexdigest()
        assert (row["width"], row["height"], row["format"]) == (60, 40, "png")
        assert row["file_bytes"] == len(picture(number)) and row["reason"] is None and row["duplicate_of"] is None
    assert set(rows[0]) == {column.name for column in MAPPING}
    assert shard.summary == {
        "records": 10,
        "grids": 3,
        "duplicates": 0,
        "faults": {},
        "bytes": sum({row["grid_id"]: row["byte_length"] for row in rows}.values()),
    }
    assert json.loads(shard.mapping.metadata["geometry"])["cell_size"] == 64


def test_faults_and_duplicates_fill_no_cell_and_later_pictures_close_up(tmp_path: Path) -> None:
    broken, empty = picture(3)[:-20], b""
    shard = Shard(
        tmp_path, [picture(0), broken, picture(1), picture(0), None, empty, picture(2), picture(1), broken, b"<html>", picture(4)]
    )
    rows = shard.build()
    names = [row["record_id"][-10:-4] for row in rows]
    assert names == ["000001", "000002", "000003", "000004", "000006", "000007", "000008", "000009", "000010", "000011"]
    assert [row["slot"] for row in rows] == [1, None, 2, None, None, 3, None, None, None, 4]
    assert [row["reason"] for row in rows] == [
        None, "decode_error", None, None, "empty_file", None, None, "decode_error", "not_an_image", None,
    ]  # fmt: skip
    assert [row["duplicate_of"] for row in rows] == [
        None, None, None, "a.tar#000001.png", None, None, "a.tar#000003.png", None, None, None,
    ]  # fmt: skip
    assert len({row["grid_id"] for row in rows} - {None}) == 1
    assert all(row["detail"] for row in rows if row["reason"]) and rows[1]["sha256"] == rows[7]["sha256"]
    assert all(row["grid_object"] is None and row["byte_offset"] is None for row in rows if row["slot"] is None)
    assert near(shard.cell(rows[9]), COLOURS[4])
    assert (shard.summary["duplicates"], shard.summary["faults"]) == (2, {"decode_error": 2, "empty_file": 1, "not_an_image": 1})


def test_without_dedup_every_copy_has_its_cell(tmp_path: Path) -> None:
    rows = Shard(tmp_path, [picture(0)] * 5, dedup="none").build()
    assert [row["slot"] for row in rows] == [1, 2, 3, 4, 1]
    assert all(row["duplicate_of"] is None for row in rows)


def test_tars_are_webdataset_tars_whose_members_name_records_and_cells(tmp_path: Path, small_tars: None) -> None:
    shard = Shard(tmp_path, [picture(n) for n in range(30)])
    rows = shard.build()
    assert [path.name for path in shard.tars()] == ["grids-00000.tar", "grids-00001.tar", "grids-00002.tar"]
    assert shard.mapping.metadata["grid_tars"] == "3"
    told = {(row["grid_id"], row["slot"]): row["record_id"] for row in rows}
    found = {}
    for path in shard.tars():
        with tarfile.open(path) as tar:
            for member in tar:
                assert member.mtime == 0
                if member.name.endswith(".webp"):
                    row = next(row for row in rows if row["grid_id"] == member.name[:-5])
                    assert (row["grid_object"], row["byte_offset"], row["byte_length"]) == (
                        str(path),
                        member.offset_data,
                        member.size,
                    )
        for sample in webdataset.WebDataset(str(path), shardshuffle=False, empty_check=False):
            description = json.loads(sample["json"])
            assert description["grid_id"] == sample["__key__"]
            assert Image.open(io.BytesIO(sample["webp"])).size == (2 * 64 + 3 * 4,) * 2
            found |= {(sample["__key__"], cell["slot"]): cell["record_id"] for cell in description["cells"]}
    assert found == told


def test_the_same_shard_gives_the_same_bytes_and_names(tmp_path: Path) -> None:
    members = [picture(n) for n in range(9)]
    first, second = Shard(tmp_path / "1", members), Shard(tmp_path / "2", members)
    assert [row["grid_id"] for row in first.build()] == [row["grid_id"] for row in second.build()]
    assert [path.read_bytes() for path in first.tars()] == [path.read_bytes() for path in second.tars()]
    other = Shard(tmp_path / "3", members, grid={**first.grid, "gap": 5})
    assert not {row["grid_id"] for row in first.rows()} & {row["grid_id"] for row in other.build()}


def test_source_faults_become_reasons_and_the_shard_goes_on(tmp_path: Path) -> None:
    shard = Shard(tmp_path, [])
    folder = tmp_path / "in"
    rows = []
    for number in range(4):
        path = folder / f"{number}.png"
        if number != 2:
            path.write_bytes(picture(number))
        rows.append({"record_id": path.name, "uri": str(path), "source_uri": str(path), "source_index": 1, "record_json": "{}"})
    shard.manifest = shard.write(rows)
    built = shard.build()
    assert [row["reason"] for row in built] == [None, None, "object_missing", None]
    assert [row["slot"] for row in built] == [1, 2, None, 3] and built[2]["sha256"] is None


def test_in_1x1_the_mapping_names_the_pictures_own_place(tmp_path: Path) -> None:
    shard = Shard(tmp_path, [picture(0), picture(0), b"<html>", picture(1)], grid={"rows": 1, "cols": 1})
    rows = shard.build()
    assert not shard.tars() and shard.mapping.metadata["grid_tars"] == "0"
    assert [row["grid_id"] for row in rows] == [None] * 4 and [row["slot"] for row in rows] == [None] * 4
    assert [row["duplicate_of"] for row in rows] == [None, "a.tar#000001.png", None, None]
    assert [row["reason"] for row in rows] == [None, None, "not_an_image", None]
    for row, data in zip(rows, shard.members, strict=True):
        assert row["grid_object"] == str(shard.tar)
        assert shard.objects.read(row["grid_object"], row["byte_offset"], row["byte_length"]) == data
        assert row["sha256"] == hashlib.sha256(data or b"").hexdigest()


def test_a_shard_without_readable_records_has_an_empty_mapping(tmp_path: Path) -> None:
    shard = Shard(tmp_path, [None, None])
    assert shard.build() == [] and not shard.tars()


def test_a_full_disk_or_store_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tars: None) -> None:
    shard = Shard(tmp_path, [picture(n) for n in range(40)])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Shard.objects, "put_file", fail)
    with pytest.raises(OSError, match="No space left"):
        list(build_grids(shard.objects, shard.layout, shard.spec, SHARD, shard.manifest).batches)


def test_a_build_that_dies_leaves_no_mapping_that_names_other_tars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tars: None
) -> None:
    shard = Shard(tmp_path, [picture(n) for n in range(40)])
    shard.build()
    again, put = Shard(tmp_path, [picture(n) for n in range(1, 41)]), shard.objects.put_file

    def fail_later(uri: str, path: Path) -> None:
        if uri.endswith("00001.tar"):
            raise ObjectError("the store is gone")
        put(uri, path)

    monkeypatch.setattr(Shard.objects, "put_file", fail_later)
    with pytest.raises(ObjectError, match="gone"):
        list(build_grids(again.objects, again.layout, again.spec, SHARD, again.manifest).batches)
    with pytest.raises(ObjectMissing):
        again.rows()


def test_a_grid_that_was_replaced_or_removed_is_missed_not_misread(tmp_path: Path) -> None:
    shard = Shard(tmp_path, [picture(n) for n in range(8)])
    old = shard.build()
    Shard(tmp_path, [picture(n) for n in range(1, 9)]).build()
    with pytest.raises(ObjectMissing, match="materialize concat_grids again"):
        read_grid(shard.objects, old[0])
    for path in shard.tars():
        path.unlink()
    with pytest.raises(ObjectMissing):
        read_grid(shard.objects, old[0])


def test_stale_tars_go_once_the_mapping_is_published(tmp_path: Path, small_tars: None) -> None:
    shard = Shard(tmp_path, [picture(n) for n in range(30)])
    shard.build()
    smaller = Shard(tmp_path, [picture(n) for n in range(12)])
    rows = smaller.build()
    assert len(smaller.tars()) == 3
    assert [uri[-15:] for uri in remove_stale(smaller.objects, smaller.layout, SHARD)] == ["grids-00001.tar", "grids-00002.tar"]
    assert len(smaller.tars()) == 1 and all(near(smaller.cell(row), COLOURS[n % 8]) for n, row in enumerate(rows))
    Path(smaller.layout.mapping(SHARD)).unlink()
    assert remove_stale(smaller.objects, smaller.layout, SHARD) == [] and len(smaller.tars()) == 1


def test_grids_in_s3_are_read_by_range(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, small_tars: None
) -> None:
    monkeypatch.setattr(Shard, "objects", s3_server.store())
    monkeypatch.setattr(Shard, "store", f"s3://{s3_server.make_bucket()}/a store")
    shard = Shard(tmp_path, [picture(n) for n in range(30)])
    rows = shard.build()
    assert rows[-1]["grid_object"] == f"{Shard.store}/photos/concat_grids/{SHARD}/grids-00002.tar"
    assert all(near(shard.cell(row), COLOURS[n % 8]) for n, row in enumerate(rows))
    assert len(list(tmp_path.rglob("*.tar"))) == 1
    Shard(tmp_path, [picture(0)]).build()
    assert len(remove_stale(shard.objects, shard.layout, SHARD)) == 2


def test_many_records_cross_batches_and_windows(tmp_path: Path, small_tars: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 records with runs of faults and duplicates longer than any batch."""
    monkeypatch.setattr(gridding, "MEMORY", 1 << 20)
    members: list[bytes | None] = (
        [picture(0), picture(1)] + [picture(0)] * 2500 + [b"x"] * 2490 + [picture(n) for n in range(2, 8)]
    )
    shard = Shard(tmp_path, members)
    rows = shard.build()
    assert len(rows) == 4998 and sum(row["duplicate_of"] == "a.tar#000001.png" for row in rows) == 2500
    shown = [(n, row) for n, row in enumerate(rows) if row["slot"]]
    assert [row["slot"] for _, row in shown] == [1, 2, 3, 4, 1, 2, 3, 4]
    assert all(near(shard.cell(row), COLOURS[n % 8]) for n, (_, row) in enumerate(shown))


def test_first_seen_is_exact_also_when_hashes_begin_alike(tmp_path: Path) -> None:
    with FirstSeen(tmp_path, 200) as seen:
        hashes = [bytes(12) + hashlib.sha256(str(n).encode()).digest()[:20] for n in range(200)]
        assert [seen.first(sha, f"é{n}") for n, sha in enumerate(hashes)] == [None] * 200
        assert [seen.first(sha, "later") for sha in hashes] == [f"é{n}" for n in range(200)]
