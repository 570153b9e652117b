"""A picture that could not be read for a passing reason is read again; what was done with the others stays."""

from __future__ import annotations

from typing import Any

import pytest

from caption_assets.core.pictures.rereading import read_again, unread
from caption_assets.core.tables import write_parquet
from caption_assets_tests.core.mergekit import ONE, SMALL_GRID, Collection, words
from caption_assets_tests.core.shardkit import jpeg
from caption_assets_tests.stubs.s3_server import FakeS3, Fault

pytestmark = pytest.mark.usefixtures("s3_keys")
PICTURES = {f"p{n}.jpg": jpeg(n) for n in range(7)}


def away(*names: str) -> list[Fault]:
    return [Fault(key=f"photos/source/{name}", status=403, code="AccessDenied") for name in names]


def prepared(s3: FakeS3, tmp_path: Any, grid: dict[str, int], pictures: dict[str, bytes]) -> tuple[Collection, str]:
    s3.objects.update({f"photos/source/{name}": data for name, data in pictures.items()})
    collection = Collection(tmp_path, {"grid": grid}, s3.store(), "s3://cases/photos")
    (shard,) = collection.prepare()
    return collection, shard


def again(collection: Collection, shard: str) -> dict[str, dict[str, Any]]:
    stream = read_again(collection.objects, collection.spec, collection.manifest(shard), collection.mapping(shard))
    write_parquet(collection.objects, collection.layout.mapping(shard), stream)
    return mapping(collection, shard)


def mapping(collection: Collection, shard: str) -> dict[str, dict[str, Any]]:
    return {row["record_id"]: row for row in collection.rows(collection.layout.mapping(shard))}


@pytest.mark.parametrize("grid", [SMALL_GRID, ONE])
def test_only_what_was_unread_is_read_again_and_all_else_stays(grid, tmp_path):
    with FakeS3(faults=away("p1.jpg", "p5.jpg")) as s3:
        collection, shard = prepared(s3, tmp_path, grid, PICTURES)
        before, handle = mapping(collection, shard), collection.mapping(shard)
        assert unread(handle) == 2 and before["p1.jpg"]["reason"] == "s3_error"
        s3.faults, s3.log = away("p5.jpg"), []
        after = again(collection, shard)
        assert {a.key for a in s3.asked("GET") if "/source/" in a.key} == {"photos/source/p1.jpg", "photos/source/p5.jpg"}
    new = after.pop("p1.jpg")
    assert (new["reason"], new["grid_id"], new["duplicate_of"]) == (None, None, None)
    assert new["sha256"] and (new["width"], new["format"]) == (before["p0.jpg"]["width"], "jpeg")
    assert after == {name: row for name, row in before.items() if name != "p1.jpg"}


def test_the_mapping_keeps_its_version_and_counts_anew(tmp_path):
    with FakeS3(faults=away("p1.jpg")) as s3:
        collection, shard = prepared(s3, tmp_path, SMALL_GRID, {**PICTURES, "bad.jpg": b"no picture"})
        before, s3.faults = collection.mapping(shard), []
        again(collection, shard)
        after = collection.mapping(shard)
    same = {name: text for name, text in before.metadata.items() if name != "summary"}
    assert same == {name: text for name, text in after.metadata.items() if name != "summary"}
    assert before.summary["faults"] == {"s3_error": 1, "not_an_image": 1}
    assert after.summary == {**before.summary, "faults": {"not_an_image": 1}} and not unread(after)


def test_a_copy_of_an_earlier_picture_shares_its_answer(tmp_path):
    """One of a later picture does not: that one has been asked already, and stays the first of its copies."""
    pictures = {"p0.jpg": jpeg(1), "p1.jpg": jpeg(2), "p2.jpg": jpeg(1), "p3.jpg": jpeg(2), "p4.jpg": jpeg(2), "p5.jpg": jpeg(3)}
    with FakeS3(faults=away("p1.jpg", "p2.jpg", "p5.jpg")) as s3:
        collection, shard = prepared(s3, tmp_path, SMALL_GRID, {**pictures, "p6.jpg": jpeg(3)})
        s3.faults = []
        copies = {name: row["duplicate_of"] for name, row in again(collection, shard).items() if row["duplicate_of"]}
    assert copies == {"p2.jpg": "p0.jpg", "p4.jpg": "p3.jpg"}


def test_a_picture_read_again_is_captioned_beside_the_others(tmp_path):
    with FakeS3(faults=away("p1.jpg")) as s3:
        collection, shard = prepared(s3, tmp_path, SMALL_GRID, PICTURES)
        collection.caption_all(shard)
        collection.merge(shard)
        assert [row["record_id"] for row in collection.rows(collection.layout.failed(shard))] == ["p1.jpg"]
        s3.faults = []
        again(collection, shard)
        collection.say(shard, [collection.reply(["p1.jpg"], words("p1.jpg"))])
        collection.merge(shard)
        rows = {row["record_id"]: row for row in collection.rows(collection.layout.merged(shard))}
    assert sorted(rows) == sorted(PICTURES) and rows["p1.jpg"]["sha256"] and rows["p1.jpg"]["grid_id"] is None
