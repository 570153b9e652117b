"""Batch files and a batch endpoint: submitted now, collected later, every row by itself."""

from __future__ import annotations

import dataclasses
import json

import pytest

from caption_assets.config import EngineConfig
from caption_assets.engines import open_engine
from caption_assets.engines.base import EngineDown
from caption_assets.engines.batch import BatchEngine, FileLimits, read_row
from caption_assets_tests.engines.asking import Shard, grid_request, single_request
from caption_assets_tests.stubs.openai_server import StubServer


@pytest.fixture
def stub():
    with StubServer() as server:
        yield server


def engine(stub: StubServer, limits: FileLimits | None = None, **settings: object) -> BatchEngine:
    wanted = {"kind": "batch", "model": "stub", "endpoints": [stub.url], **settings}
    return BatchEngine(EngineConfig.model_validate(wanted), limits)


def test_what_was_submitted_is_collected_by_another_process(stub):
    shard = Shard(12, grid=True)
    batch_id = engine(stub).submit(iter(shard.requests.values()), "tag-1")
    replies = engine(stub).collect(batch_id)
    shard.replies = {reply.request_id: reply for reply in replies}
    assert not shard.wrong
    assert {(r.endpoint, r.finish_reason, r.prompt_tokens) for r in shard.replies.values()} == {(stub.url, "stop", 100)}


def test_it_is_none_while_it_is_open(stub):
    stub.batches.open_s = 3600
    one = engine(stub)
    batch_id = one.submit(iter(Shard(2).requests.values()), "t")
    assert one.collect(batch_id) is None
    stub.batches.open_s = 0
    assert len(list(one.collect(batch_id))) == 2


def test_files_are_bounded_and_nothing_is_left_behind(stub):
    requests = iter(Shard(10).requests.values())
    one = engine(stub, FileLimits(max_rows=4))
    ids = []
    while batch_id := one.submit(requests, f"tag-{len(ids)}"):
        ids.append(batch_id)
    assert [len(list(one.collect(batch_id))) for batch_id in ids] == [4, 4, 2]
    small = engine(stub, FileLimits(max_bytes=1))
    assert len(list(small.collect(small.submit(iter(Shard(3).requests.values()), "small")))) == 1


def test_nothing_to_ask_makes_no_batch(stub):
    assert engine(stub).submit(iter(()), "t") is None and not stub.batches.batches and not stub.log


def test_a_bad_row_is_its_own_error(stub):
    bad = dataclasses.replace(single_request("bad"), image=b"no picture")
    one = engine(stub)
    replies = {r.request_id: r for r in one.collect(one.submit(iter([bad, single_request("good")]), "t"))}
    assert replies["bad"].error.startswith("model_error: 400: cannot identify image") and replies["bad"].reply is None
    assert replies["good"].error is None


def test_a_batch_whose_id_was_lost_is_found_and_not_made_twice(stub):
    stub.batches.lose_create = 1
    one = engine(stub)
    for number in range(5):
        one.submit(iter(Shard(1).requests.values()), f"tag-{number}")
    assert len(stub.batches.batches) == 5
    assert {engine(stub).find(f"tag-{n}") for n in range(5)} == set(stub.batches.batches) and engine(stub).find("no such") is None


def test_what_the_endpoint_does_not_take_is_found_out_before_a_batch_is_lost(stub):
    stub.takes_extras = stub.takes_schema = False
    one = engine(stub)
    requests = [grid_request("g", [(200, 30, 30)] * 4, repetition_penalty=1.05)]
    (reply,) = one.collect(one.submit(iter(requests), "t"))
    assert reply.error is None
    (row,) = stub.batches.files["file-1"].splitlines()
    assert not json.loads(row)["body"].keys() & {"response_format", "repetition_penalty"}


def test_a_batch_that_failed_as_a_whole_says_why(stub):
    stub.batches.fail_with = "the file is too large"
    one = engine(stub)
    with pytest.raises(EngineDown, match="the file is too large"):
        one.collect(one.submit(iter(Shard(1).requests.values()), "t"))


def test_an_endpoint_of_no_batches_or_another_model_is_said(stub):
    with pytest.raises(EngineDown, match="no such batch"):
        engine(stub).collect("batch-unknown")
    with pytest.raises(EngineDown, match="has no model 'other'; it has: stub"):
        engine(stub, model="other").submit(iter(Shard(1).requests.values()), "t")


def row(**parts: object) -> bytes:
    return json.dumps({"id": "x", "custom_id": "r", "response": None, "error": None, **parts}).encode()


def test_every_row_has_a_status_of_its_own():
    body = {"choices": [{"message": {"content": "said"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    good = read_row(row(response={"status_code": 200, "body": body}), "e", 5.0)
    assert good and (good.reply, good.error, good.sent_at, good.completion_tokens) == ("said", None, 5.0, None)
    vllms = read_row(row(response={"status_code": 400, "body": None}, error={"error": {"message": "too long"}}), "e", 5.0)
    assert vllms and vllms.error == "model_error: 400: too long"
    openais = read_row(row(response={"status_code": 429, "body": {"error": {"message": "busy"}}}), "e", 5.0)
    assert openais and openais.error == "model_error: 429: busy"
    empty = read_row(row(response={"status_code": 200, "body": {}}), "e", 5.0)
    assert empty and (empty.error or "").startswith("model_error: ")
    assert read_row(row(error={"code": "batch_expired", "message": "expired"}), "e", 5.0) is None


def test_the_engine_of_kind_batch_is_this_one():
    one = open_engine(EngineConfig(kind="batch", model="demo"))
    assert isinstance(one, BatchEngine) and one.kind == "batch" and not one.remote
    with pytest.raises(EngineDown):
        one.session()
