"""Batches are submitted now and collected by a later run; nothing is submitted twice, whatever happens to the runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caption_assets.core.objectstore import ObjectStore
from caption_assets.engines.base import EngineDown
from caption_assets.engines.batch import BatchEngine, FileLimits
from caption_assets_tests.core.shardkit import ONE, Shard, make_shard
from caption_assets_tests.stubs.openai_server import StubServer


@pytest.fixture
def stub():
    with StubServer() as server:
        server.batches.open_s = 3600
        yield server


def batch_shard(root: Path, stub: StubServer, count: int = 6, **options) -> Shard:
    shard = make_shard(root, count, **options)
    shard.engine = {"kind": "batch", "model": "stub", "endpoints": [stub.url]}
    return shard


def engine(shard: Shard, rows: int = 1000) -> BatchEngine:
    return BatchEngine(shard.engine_config, FileLimits(max_rows=rows))


def notes(shard: Shard) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(Path(shard.layout.batches_folder(shard.key)).glob("*.json"))]


def test_a_batch_is_submitted_once_and_collected_when_it_has_finished(tmp_path, stub):
    shard = batch_shard(tmp_path, stub)
    assert shard.captions(engine(shard), "run-a").open_batches == 1
    assert shard.captions(engine(shard), "run-b").open_batches == 1
    assert len(stub.batches.batches) == 1 and shard.replies() == []
    (note,) = notes(shard)
    assert note["batch_id"] in stub.batches.batches and len(note["asks"]) == 2
    stub.batches.open_s = 0
    summary = shard.captions(engine(shard), "run-c")
    assert summary.open_batches == 0 and summary.metadata()["requests"] == 2
    rows = shard.replies()
    assert [len(row["record_ids"]) for row in rows] == [4, 2] and rows[0]["endpoint"] == stub.url
    shard.captions(engine(shard), "run-d")
    assert len(stub.batches.batches) == 1 and len(shard.replies()) == 2 and shard.pending() == 0


def test_several_files_and_outputs_that_use_one_another(tmp_path, stub):
    prompts = [{"text": "Describe."}, {"name": "line", "text": "On {output.caption}", "image": False}]
    shard = batch_shard(tmp_path, stub, grid=ONE, prompts=prompts)
    assert shard.captions(engine(shard, rows=4)).open_batches == 2
    assert [len(note["asks"]) for note in notes(shard)] == [3, 3]
    stub.batches.open_s = 0
    assert shard.captions(engine(shard)).open_batches == 1  # the captions are in; their lines are submitted
    assert shard.captions(engine(shard)).open_batches == 0
    assert len(shard.replies("line")) == 6


def test_a_batch_whose_submission_was_cut_off_is_found_by_its_tag(tmp_path, stub, monkeypatch):
    shard = batch_shard(tmp_path, stub)
    submit = BatchEngine.submit

    def killed_after(self, requests, tag):
        submit(self, requests, tag)
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchEngine, "submit", killed_after)
    with pytest.raises(KeyboardInterrupt):
        shard.captions(engine(shard))
    monkeypatch.undo()
    assert notes(shard)[0]["batch_id"] is None
    assert shard.captions(engine(shard)).open_batches == 1 and len(stub.batches.batches) == 1


def test_a_batch_that_was_noted_but_never_submitted_is_submitted_by_the_next_run(tmp_path, stub, monkeypatch):
    shard = batch_shard(tmp_path, stub)

    def killed_before(self, requests, tag):
        list(requests)
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchEngine, "submit", killed_before)
    with pytest.raises(KeyboardInterrupt):
        shard.captions(engine(shard))
    monkeypatch.undo()
    assert len(notes(shard)) == 1
    assert shard.captions(engine(shard)).open_batches == 1 and len(stub.batches.batches) == len(notes(shard)) == 1


class _Breaks(ObjectStore):
    """Fails at the note of a batch that was just collected."""

    def put(self, uri: str, data: bytes) -> None:
        if "/_batches/" in uri and b'"collected"' in data:
            raise OSError(28, "No space left on device")
        super().put(uri, data)


def test_a_collection_that_was_cut_off_stores_nothing_twice(tmp_path, stub):
    shard = batch_shard(tmp_path, stub)
    shard.captions(engine(shard))
    stub.batches.open_s = 0
    shard.objects = _Breaks()
    with pytest.raises(OSError, match="No space"):
        shard.captions(engine(shard))
    assert len(shard.replies()) == 2
    shard.objects = ObjectStore()
    assert shard.captions(engine(shard)).open_batches == 0
    assert len(shard.replies()) == 2 and len(stub.batches.batches) == 1


def test_a_batch_that_failed_as_a_whole_is_said_and_submitted_again(tmp_path, stub):
    shard = batch_shard(tmp_path, stub)
    stub.batches.fail_with = "the file is too large"
    shard.captions(engine(shard))
    stub.batches.fail_with, stub.batches.open_s = None, 0
    with pytest.raises(EngineDown, match=r"failed: the file is too large.*submitted again"):
        shard.captions(engine(shard))
    assert shard.captions(engine(shard)).open_batches == 0 and len(shard.replies()) == 2


def test_what_a_batch_left_unanswered_is_submitted_again(tmp_path, stub):
    shard = batch_shard(tmp_path, stub)
    shard.captions(engine(shard))
    stub.batches.open_s = 0
    (batch,) = stub.batches.batches.values()
    name = batch["output_file_id"]
    stub.batches.files[name] = stub.batches.files[name].splitlines(keepends=True)[0]
    assert shard.captions(engine(shard)).open_batches == 1
    assert shard.captions(engine(shard)).open_batches == 0
    assert sorted(len(row["record_ids"]) for row in shard.replies()) == [2, 4]


def test_retries_go_into_batches_too(tmp_path, stub):
    shard = batch_shard(tmp_path, stub, 4, filters={"min_chars": 60})
    stub.batches.open_s = 0
    shard.captions(engine(shard))
    shard.captions(engine(shard))
    kinds = []
    for _ in range(6):
        before = len(shard.replies())
        if not shard.recaptions(engine(shard)).open_batches:
            break
        kinds.append(len(notes(shard)[-1]["asks"]))
        assert len(shard.replies()) >= before
    assert max(row["attempt"] for row in shard.replies() if row["grid_id"]) <= 2
    assert shard.recaptions(engine(shard)).open_batches == 0


def test_a_local_batch_is_waited_for(tmp_path, stub, monkeypatch):
    """run_batch itself is tested with the engines; here its place is taken by the stub's answers to the same requests."""
    shard = make_shard(
        tmp_path, 6, prompts=[{"text": "Describe."}, {"name": "line", "text": "On {output.caption}", "image": False}]
    )
    shard.engine = {"kind": "batch", "model": "stub"}
    remote = BatchEngine(batch_shard(tmp_path / "other", stub, 1).engine_config)
    stub.batches.open_s = 0

    def run_local(self, requests):
        waiting = iter(requests)
        while batch_id := remote.submit(waiting, f"tag-{len(stub.batches.batches)}"):
            yield from remote.collect(batch_id)

    monkeypatch.setattr(BatchEngine, "run_local", run_local)
    summary = shard.captions(engine(shard))
    assert summary.open_batches == 0 and len(shard.replies()) == 2 and len(shard.replies("line")) == 6
    assert notes(shard) == [] and shard.pending() == 0
