"""Every format with source and store in S3, on a real server: the same records and pictures as from disk."""

import io
from pathlib import Path

import pytest

from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.planning import PlanError, make_plan
from caption_assets_tests.core.sources.sourcekit import collect, picture, sha256, spec, tar_bytes, write_parquet
from caption_assets_tests.servers import S3Server

J = [picture(n) for n in range(10)]


@pytest.fixture
def objects(s3_server: S3Server) -> ObjectStore:
    return s3_server.store()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return f"s3://{s3_server.make_bucket()}"


def put(objects: ObjectStore, root: str, files: dict[str, bytes]) -> None:
    for key, data in files.items():
        objects.put(f"{root}/{key}", data)


def test_tars(objects: ObjectStore, bucket: str) -> None:
    def tar(t: int) -> bytes:
        return tar_bytes([(f"{n}.{e}", c) for n in range(5) for e, c in (("jpg", J[n + 5 * t]), ("txt", b"t"))])

    tars = {f"in/{t}.tar": tar(t) for t in range(2)}
    put(objects, bucket, {**tars, "elsewhere.tar": tars["in/0.tar"]})
    got = collect(f"{bucket}/in", f"{bucket}/store", objects)
    assert got.good == {f"{t}.tar#{n}.jpg": sha256(J[n + 5 * t]) for t in range(2) for n in range(5)}
    assert list(got.shards) == ["0", "1"] and got.record("0.tar#3.jpg")["txt"] == "t"
    assert set(collect(f"{bucket}/in/1.tar", f"{bucket}/other", objects).good) == {f"1.tar#{n}.jpg" for n in range(5)}
    assert set(collect(f"{bucket}/in/[1-9]*.tar", f"{bucket}/third", objects).shards) == {"1"}


def test_catalogs_with_relative_and_other_addresses(objects: ObjectStore, bucket: str, s3_server: S3Server) -> None:
    other, third = (f"s3://{s3_server.make_bucket()}" for _ in range(2))
    put(objects, bucket, {"in/images/a b+%20.jpg": J[0], "in/top.jpg": J[1]})
    put(objects, other, {"k.jpg": J[2]})
    put(objects, third, {"k.jpg": J[3]})
    texts = ["images/a b+%20.jpg", "../top.jpg", f"{other}/k.jpg", f"{third}/k.jpg", "gone.jpg", "/etc/passwd", "top.jpg"] * 3
    put(objects, bucket, {"in/cat/c.jsonl": "\n".join(f'{{"uri": "{text}"}}' for text in texts).encode()})
    options = {"images": {"s3_buckets": [other[5:]]}, "shard_size": 4}
    got = collect(f"{bucket}/in/", f"{bucket}/store", objects, **options)
    assert len(got.shards) == 6
    found = [got.reasons.get(key) or J.index(next(d for d in J if sha256(d) == got.good[key])) for key in got.rows]
    assert found == [0, 1, 2, "forbidden_address", "object_missing", "forbidden_address", 1] * 3


def test_parquet(objects: ObjectStore, bucket: str, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [{"id": n, "image": {"bytes": J[n], "path": None}} for n in range(10)], 3)
    put(objects, bucket, {"in/a.parquet": path.read_bytes()})
    got = collect(f"{bucket}/in/", f"{bucket}/store", objects, shard_size=4)
    assert got.good == {f"a.parquet#{n + 1}": sha256(J[n]) for n in range(10)}


def test_folders_with_markers_and_literal_names(objects: ObjectStore, bucket: str, s3_server: S3Server) -> None:
    names = ["a b.jpg", "a+b.jpg", "a%20b.jpg", "seg#1.jpg", "q?v=1&w=2.jpg", "写真 é.jpg", "100%.jpg", "x/y.jpg"]
    put(objects, bucket, {f"set/{name}": J[n] for n, name in enumerate(names)} | {"set/x/y.txt": b"of y", "set/x/z.json": b"{}"})
    s3_server.client().put_object(Bucket=bucket[5:], Key="set/x/", Body=b"")
    got = collect(f"{bucket}/set/", f"{bucket}/store", objects, shard_size=3)
    assert got.good == {name: sha256(J[n]) for n, name in enumerate(names)} and got.record("x/y.jpg")["txt"] == "of y"
    assert got.rows["seg#1.jpg"]["uri"] == f"{bucket}/set/seg#1.jpg"


def test_a_source_that_is_not_there_is_named(objects: ObjectStore, bucket: str) -> None:
    with pytest.raises(PlanError, match=f"{bucket}/nothing/"):
        make_plan(objects, Layout(f"{bucket}/store", "d"), spec(f"{bucket}/nothing/"))


def test_generations_are_write_once_where_the_server_can(moto_server: S3Server) -> None:
    objects, root = moto_server.store(), f"s3://{moto_server.make_bucket()}"
    put(objects, root, {"in/a.tar": tar_bytes([("a.jpg", J[0])])})
    layout, dataset = Layout(f"{root}/store", "d"), spec(f"{root}/in/")
    first = make_plan(objects, layout, dataset)
    assert not objects.put_new(layout.plan(0), b"other")
    objects.put(f"{root}/in/b.tar", tar_bytes([("a.jpg", J[1])]))
    objects.put(f"{root}/in/a.tar", tar_bytes([("a.jpg", J[2])]))
    second = make_plan(objects, layout, dataset)
    assert (first.plan.shards, second.plan.shards) == (("a",), ("a", "b")) and second.changed_count == 1
    assert make_plan(objects, layout, dataset, accept_changed="a.tar").plan.shards == ("b", "a-g2")
    assert io.BytesIO(objects.read(layout.plan(2))).read(4) == b"PAR1"
