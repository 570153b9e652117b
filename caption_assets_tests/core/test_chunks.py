"""Replies lie in small whole files that are never overwritten; what is torn or foreign among them is never taken for results."""

from __future__ import annotations

import time

import pyarrow.parquet as pq
import pytest

from caption_assets.core.columns import CAPTIONS, MANIFEST, REVOKED
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.replies.chunks import (
    CAPTIONS_SCHEMA,
    ChunkWriter,
    ReplyRow,
    StoreError,
    list_chunks,
    read_chunks,
    read_revoked,
    replaced_shards,
)
from caption_assets.core.tables import RecordStream, arrow_schema, write_parquet


def row(number: int, **changes) -> ReplyRow:
    values = ReplyRow(
        request_id=f"r{number}", grid_id=f"g{number}", slots=[1, 2], record_ids=[f"a#{number}", f"b#{number}"],
        prompt_sha256s=["x", "y"], output="caption", recipe="rec", attempt=1, reply="said", finish_reason="stop", error=None,
        prompt_tokens=10, completion_tokens=5, latency_ms=1.5, endpoint="http://e/v1", model="m", revision=None,
        sent_at=1_700_000_000.25, run_id="run-1",
    )  # fmt: skip
    return values._replace(**changes)


@pytest.fixture
def layout(tmp_path):
    return Layout(str(tmp_path), "photos")


def writer(layout: Layout, run_id: str = "run-1") -> ChunkWriter:
    return ChunkWriter(ObjectStore(), layout, "s1", run_id, run_id)


def test_a_chunk_has_the_columns_of_the_contract_and_a_name_of_its_own(layout):
    first, second = writer(layout), writer(layout)
    for one in (first, second):
        one.write("caption", "rec", [row(1), row(2)])
        one.write("caption", "rec", [row(3)])
    warnings: list[str] = []
    files = list_chunks(ObjectStore(), layout.chunks_folder("s1", "caption", "rec"), warnings)
    assert len({f.name for f in files}) == 4 and not warnings
    assert {f.step for f in files} == {first.step, second.step} and {f.seq for f in files} == {0, 1}
    table = pq.read_table(files[0].uri)
    assert table.schema.names == [c.name for c in CAPTIONS]
    assert table.to_pylist()[0]["slots"] == [1, 2] and table["sent_at"].to_pylist()[0].timestamp() == 1_700_000_000.25


def test_lone_surrogates_are_kept_as_their_escape(layout):
    writer(layout).write("caption", "rec", [row(1, reply="a \ud83d b")])
    files = list_chunks(ObjectStore(), layout.chunks_folder("s1", "caption", "rec"), [])
    ((_, table),) = read_chunks(ObjectStore(), files, CAPTIONS_SCHEMA, ["reply"], [])
    assert table["reply"].to_pylist() == ["a \\ud83d b"]


def test_torn_and_foreign_files_are_named_and_never_read(layout):
    objects, folder = ObjectStore(), layout.chunks_folder("s1", "caption", "rec")
    one = writer(layout)
    one.write("caption", "rec", [row(1)])
    good = list_chunks(objects, folder, [])[0]
    whole = objects.read(good.uri)
    objects.put(folder + "part.parquet", whole)
    objects.put(folder + ".part.parquet.tmp", b"half")
    objects.put(folder + "part.tar", b"x" * 600)
    objects.put(f"{folder}{one.step}-00007.parquet", whole[: len(whole) // 2])
    objects.put(f"{folder}{one.step}-00008.parquet", b"")
    foreign = write_parquet(objects, f"{folder}{one.step}-00009.parquet", RecordStream(arrow_schema(REVOKED), iter([])))
    warnings: list[str] = []
    files = list_chunks(objects, folder, warnings)
    read = [(f.uri, t.num_rows) for f, t in read_chunks(objects, files, CAPTIONS_SCHEMA, ["request_id", "reply"], warnings)]
    assert read == [(good.uri, 1)]
    for name in ("part.parquet", ".part.parquet.tmp", "part.tar", "-00007", "-00008", "-00009"):
        assert any(name in warning for warning in warnings), name
    assert foreign.uri in " ".join(warnings)


def test_revoked_requests_and_proven_steps_are_read_back(layout):
    one = writer(layout)
    one.write("caption", "rec", [row(1)])
    one.revoke([("r1", "http://liar/v1"), ("r2", "http://liar/v1")])
    one.write("caption", "rec", [row(3)])
    one.settle({one.step: 0})
    revoked = read_revoked(ObjectStore(), layout, ["s1"], [])
    assert revoked.requests == {"r1", "r2"}
    files = list_chunks(ObjectStore(), layout.chunks_folder("s1", "caption", "rec"), [])
    assert [revoked.proves(file) for file in files] == [True, False]
    table = pq.read_table(list_chunks(ObjectStore(), layout.revoked_folder("s1"), [])[0].uri)
    assert table.schema.names == [c.name for c in REVOKED] and abs(table["revoked_at"][0].as_py().timestamp() - time.time()) < 60


def test_a_full_disk_is_said_clearly(layout, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ObjectStore, "put", full)
    with pytest.raises(StoreError, match=r"captions/s1/caption/rec/.*: cannot be stored: No space left on device.*next run"):
        writer(layout).write("caption", "rec", [row(1)])


def test_the_shards_that_one_replaces_are_found_through_their_manifests(layout):
    for shard, replaces in (("a", None), ("a-g1", "a"), ("a-g2", "a-g1")):
        stream = RecordStream(arrow_schema(MANIFEST), iter([]), lambda r=replaces: {"replaces": r} if r else {})
        write_parquet(ObjectStore(), layout.manifest(shard), stream)
    assert replaced_shards(ObjectStore(), layout, {"replaces": "a-g1"}) == ["a-g1", "a"]
    assert replaced_shards(ObjectStore(), layout, {"replaces": "a-g2,b"}) == ["a-g2", "b", "a-g1", "a"]
    assert replaced_shards(ObjectStore(), layout, {}) == []
    assert replaced_shards(ObjectStore(), layout, {"replaces": "gone"}) == ["gone"]
