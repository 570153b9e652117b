"""Reading pictures: the right bytes in the right order, however sparsely they are wanted; faults cost their own record."""

import gzip
import random
from collections import Counter
from pathlib import Path

import pytest

from caption_assets.core.faults import Fault, PictureFault
from caption_assets.core.objectstore import ObjectError, ObjectStore
from caption_assets.core.sources.pictures import OUTAGE, PictureRef, Pictures
from caption_assets_tests.core.sources.sourcekit import OBJECTS, collect, spec, tar_bytes, write, write_parquet


def bodies(count: int, large: int = 3000) -> list[bytes]:
    chance = random.Random(7)
    return [chance.randbytes(chance.randrange(1, large)) + b"%d" % n for n in range(count)]


class Counting(ObjectStore):
    """The real store, counting what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def open(self, uri: str, offset: int = 0, length: int | None = None):
        self.asked["open"] += 1
        return super().open(uri, offset, length)

    def read_many(self, items, concurrency: int = 16):
        def counted():
            for item in items:
                self.asked["range"] += 1
                yield item

        return super().read_many(counted(), concurrency)


def refs_of(source: Path, store: Path) -> list[PictureRef]:
    return [PictureRef.of(row) for row in collect(source, store).rows.values()]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_members_in_any_order_and_density(tmp_path: Path, pack) -> None:
    data = bodies(400)
    write(tmp_path / "in", {"t.tar": pack(tar_bytes([(f"{n:04d}.jpg", body) for n, body in enumerate(data)]))})
    refs, pictures = refs_of(tmp_path / "in", tmp_path / "store"), Pictures(OBJECTS, spec(tmp_path / "in"))
    chance = random.Random(3)
    for wanted in (
        range(400),
        range(0, 400, 2),
        chance.sample(range(400), 30),
        sorted(chance.sample(range(400), 9)),
        [399, 0, 399],
        [],
    ):
        got = list(pictures.stream(refs[n] for n in wanted))
        assert [(ref.source_index - 1, data) for ref, data in got] == [(n, data[n]) for n in wanted]
    assert pictures.read(refs[123]) == data[123]


def test_a_whole_tar_is_one_stream_and_few_members_are_ranges(tmp_path: Path) -> None:
    write(tmp_path / "in", {"t.tar": tar_bytes([(f"{n:04d}.jpg", b"x" * 400_000) for n in range(60)])})
    refs = refs_of(tmp_path / "in", tmp_path / "store")
    for wanted, asked in ((refs, {"open": 1}), (refs[::7], {"range": 9}), (refs[::2], {"open": 1})):
        objects = Counting()
        assert all(len(data) == 400_000 for _, data in Pictures(objects, spec(tmp_path / "in")).stream(wanted))
        assert objects.asked == asked


def test_rows_of_parquet_in_any_order(tmp_path: Path) -> None:
    data = bodies(100)
    write_parquet(tmp_path / "in/a.parquet", [{"image": {"bytes": body, "path": None}} for body in data], 17)
    refs, pictures = refs_of(tmp_path / "in", tmp_path / "store"), Pictures(OBJECTS, spec(tmp_path / "in"))
    for wanted in (range(100), range(0, 100, 9), [99, 3, 50, 50, 0]):
        assert [found for _, found in pictures.stream(refs[n] for n in wanted)] == [data[n] for n in wanted]


def test_faults_cost_their_own_record(tmp_path: Path) -> None:
    texts = ["0.jpg", "/etc/passwd", "gone.jpg", "1.jpg", "big.jpg", "s3://x/y", "2.jpg"] * 40
    write(
        tmp_path / "in",
        {"c.jsonl": [{"uri": t} for t in texts], "big.jpg": b"x" * 2000} | {f"{n}.jpg": b"%d" % n for n in range(3)},
    )
    limit = {"images": {"max_bytes": 1500}}
    refs = [PictureRef.of(row) for row in collect(tmp_path / "in", tmp_path / "store", **limit).rows.values()]
    got = [d if isinstance(d, bytes) else d.reason for _, d in Pictures(OBJECTS, spec(tmp_path / "in", **limit)).stream(refs)]
    assert got == [b"0", "forbidden_address", "missing_image", b"1", "too_many_pixels", "forbidden_address", b"2"] * 40
    with pytest.raises(PictureFault, match="missing_image"):
        Pictures(OBJECTS, spec(tmp_path / "in")).read(refs[2])


def test_files_that_are_too_large_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "in", {"t.tar": tar_bytes([("a.jpg", b"x" * 3000), ("b.jpg", b"y")])})
    refs, objects = refs_of(tmp_path / "in", tmp_path / "store"), Counting()
    got = [data for _, data in Pictures(objects, spec(tmp_path / "in", images={"max_bytes": 1000})).stream(refs)]
    assert isinstance(got[0], Fault) and got[0].reason == "too_many_pixels" and got[1] == b"y"
    assert objects.asked["range"] == 1


def test_a_tar_that_was_cut_since_it_was_indexed(tmp_path: Path) -> None:
    write(tmp_path / "in", {"t.tar": tar_bytes([(f"{n}.jpg", bytes(3000)) for n in range(30)])})
    refs = refs_of(tmp_path / "in", tmp_path / "store")
    write(tmp_path / "in", {"t.tar": (tmp_path / "in/t.tar").read_bytes()[:40_000]})
    got = [data for _, data in Pictures(OBJECTS, spec(tmp_path / "in")).stream(refs)]
    assert [isinstance(data, bytes) for data in got] == [True] * 11 + [False] * 19
    assert {data.reason for data in got[11:]} == {"truncated_shard"}


class Down(ObjectStore):
    def read_many(self, items, concurrency: int = 16):
        for item in items:
            yield ObjectError(f"{item[0]}: connection refused")


def test_a_store_that_is_down_stops_the_shard(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{n:04d}.jpg": b"x" for n in range(OUTAGE + 5)})
    refs, pictures = refs_of(tmp_path / "in", tmp_path / "store"), Pictures(Down(), spec(tmp_path / "in"))
    with pytest.raises(ObjectError, match="connection refused"):
        list(pictures.stream(refs))
    assert {data.reason for _, data in pictures.stream(refs[:5])} == {"s3_error"}
