"""The loop, leases and cleaning over a store in S3."""

from __future__ import annotations

import pytest

from caption_assets.core.cleaning import clean
from caption_assets.core.loop.leases import LeaseHeld, hold, read_lease
from caption_assets.core.objectstore import ObjectError
from caption_assets.core.replies.chunks import CAPTIONS_SCHEMA, list_chunks, read_chunks
from caption_assets_tests.core.scripted import Scripted
from caption_assets_tests.core.shardkit import Shard, jpeg, write_tar


@pytest.fixture
def shard(tmp_path, s3_server):
    made = Shard(tmp_path, store=f"s3://{s3_server.make_bucket()}/some/prefix", objects=s3_server.store())
    write_tar(made.tar, ((f"p{n:03d}", jpeg(n)) for n in range(10)))
    return made.prepare()


def stored(shard: Shard) -> int:
    files = list_chunks(shard.objects, shard.layout.chunks_folder(shard.key, "caption", shard.recipes["caption"]), [])
    return sum(rows.num_rows for _, rows in read_chunks(shard.objects, files, CAPTIONS_SCHEMA, ["request_id"], []))


def test_a_shard_is_captioned_once(shard):
    engine = Scripted()
    assert shard.captions(engine).warnings == []
    assert len(engine.take()) == stored(shard) == 3
    shard.captions(engine)
    assert engine.take() == [] and shard.pending() == 0


def test_one_run_holds_the_lease(shard):
    uri = shard.layout.lease(shard.key)
    with hold(shard.objects, uri, "run-1"), pytest.raises(LeaseHeld, match="run-1"), hold(shard.objects, uri, "run-2"):
        pass
    assert read_lease(shard.objects, uri) is None


def test_superseded_replies_are_cleaned(shard):
    engine = Scripted()
    shard.captions(engine)
    shard.options["prompts"] = [{"text": "Another."}]
    shard.captions(engine)
    gone = clean(shard.objects, shard.layout, shard.spec, shard.recipes)
    assert gone and clean(shard.objects, shard.layout, shard.spec, shard.recipes) == [] and stored(shard) == 3


def test_a_store_that_is_away_stops_the_run_and_it_resumes(shard, monkeypatch):
    engine = Scripted()
    with monkeypatch.context() as patch:
        patch.setattr("caption_assets.core.storage.s3store.S3Objects.put", _away)
        with pytest.raises(ObjectError, match=r"cannot be stored: .*connection refused"):
            shard.captions(engine)
    engine.take()
    shard.captions(engine)
    assert len(engine.take()) == 3 and stored(shard) == 3


def _away(*_: object) -> None:
    raise ObjectError("s3://bucket/key: connection refused")
