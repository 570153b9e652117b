"""Whatever stops a run, what was paid for stays, and the next run asks for the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.replies.chunks import StoreError
from caption_assets.engines.base import ChatRequest, EngineDown, Revocation
from caption_assets_tests.core.scripted import Scripted, good, reply
from caption_assets_tests.core.shardkit import ONE, make_shard


def test_when_the_engine_is_down_what_was_answered_is_stored_and_nothing_becomes_a_failed_record(tmp_path):
    shard, engine, left = make_shard(tmp_path, 40, grid=ONE), Scripted(concurrency=4), iter(range(25))
    engine.answer = lambda request: good(request) if next(left, None) is not None else EngineDown("all endpoints are away")
    with pytest.raises(EngineDown, match="all endpoints are away"):
        shard.captions(engine)
    assert len(shard.replies()) == 25 and not any(row["error"] for row in shard.replies())
    engine.take()
    engine.answer = good
    shard.captions(engine)
    assert len(engine.asked) == 15


class _Full(ObjectStore):
    """A disk that is full after some chunks."""

    left = 3

    def put(self, uri: str, data: bytes) -> None:
        if "/captions/" in uri:
            self.left -= 1
            if self.left < 0:
                raise OSError(28, "No space left on device")
        super().put(uri, data)


def test_a_full_disk_stops_the_run_with_a_clear_error_and_it_resumes(tmp_path):
    shard = make_shard(tmp_path, 350, grid=ONE)
    shard.objects, engine = _Full(), Scripted(concurrency=8)
    with pytest.raises(StoreError, match=r"No space left on device.*the next run asks only for the rest"):
        shard.captions(engine)
    paid, stored = len(engine.take()), len(shard.replies())
    assert 3 <= stored <= paid <= stored + 100 + 8
    shard.objects = ObjectStore()
    shard.captions(engine)
    assert len(engine.asked) == 350 - stored and shard.pending() == 0


def test_a_disk_that_is_really_full(tmp_path):
    """Writes beyond a file size limit fail as on a full disk; no half chunk is left under its name."""
    program = """
import resource, sys
from pathlib import Path
from caption_assets.core.replies.chunks import StoreError
from caption_assets_tests.core.scripted import Scripted
from caption_assets_tests.core.shardkit import ONE, Shard
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    Shard(Path(sys.argv[1]), {"grid": ONE}).captions(Scripted(), "run-x")
except StoreError as error:
    print(error)
"""
    shard = make_shard(tmp_path, 30, grid=ONE)
    said = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert "File too large" in said.stdout, said
    assert shard.replies() == []
    left = [path.name for path in Path(shard.layout.captions_folder(shard.key)).rglob("*") if path.is_file()]
    assert left == []
    engine = Scripted()
    shard.captions(engine)
    assert len(engine.asked) == 30


def test_an_interrupt_stores_what_was_answered_and_ends(tmp_path):
    shard, engine = make_shard(tmp_path, 60, grid=ONE), Scripted(concurrency=2, delay_s=0.05)
    engine.answer = lambda request: interrupted() if len(engine.asked) == 20 else good(request)

    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        return good(engine.asked[-1])

    with pytest.raises(KeyboardInterrupt):
        shard.captions(engine)
    stored = len(shard.replies())
    assert 0 < stored < 60 and engine.in_flight == 0
    engine.delay_s, engine.answer = 0, good
    engine.take()
    shard.captions(engine)
    assert len(engine.asked) == 60 - stored


def liar(request: ChatRequest):
    return reply(request, "lies " * 5, endpoint="liar")


def test_replies_of_a_liar_are_revoked_and_asked_elsewhere_before_the_shard_ends(tmp_path):
    shard, engine = make_shard(tmp_path, 8, grid=ONE), Scripted(concurrency=1)
    engine.answer = lambda request: liar(request) if len(engine.asked) <= 3 else good(request)
    ids: list[str] = []

    class Settling(list):
        def pop(self, _):
            super().pop(0)
            ids.extend(request.request_id for request in engine.asked[:3])
            return [Revocation("liar", tuple(ids))]

    engine.settling = Settling([1])
    summary = shard.captions(engine)
    assert sorted(shard.revoked()) == sorted(ids) and len(engine.asked) == 11 and engine.settled >= 2
    assert summary.metadata()["revoked_requests"] == 3
    engine.take()
    shard.captions(engine)
    assert engine.asked == []


def test_a_liar_found_out_in_the_middle_is_revoked_at_once(tmp_path):
    shard, engine = make_shard(tmp_path, 40, grid=ONE), Scripted(concurrency=1, delay_s=0.02)

    def answer(request: ChatRequest):
        if len(engine.asked) == 4:
            engine.found = [Revocation("liar", tuple(r.request_id for r in engine.asked[:3]))]
        if len(engine.asked) == 30:
            assert len(shard.revoked()) == 3
        return liar(request) if len(engine.asked) <= 3 else good(request)

    engine.answer = answer
    shard.captions(engine)
    assert len(engine.asked) == 43 and shard.pending() == 0


def test_an_output_that_was_built_on_lies_is_redone(tmp_path):
    prompts = [{"text": "Describe."}, {"name": "line", "text": "About: {output.caption}", "image": False}]
    shard, engine = make_shard(tmp_path, 2, grid=ONE, prompts=prompts), Scripted(concurrency=1)
    engine.answer = lambda request: liar(request) if len(engine.asked) == 1 else good(request, "A true text")
    engine.settling = [[], []]  # found out only after the line was asked, too

    async def settle():
        engine.settled += 1
        return [Revocation("liar", (engine.asked[0].request_id,))] if engine.settled == 2 else []

    engine.settle = settle
    shard.captions(engine)
    lies = [request for request in engine.asked if "lies" in request.text]
    assert len(lies) == 1 and len(engine.asked) == 6 and shard.pending() == 0


def test_what_a_step_left_unproven_is_doubted_and_taken_back_when_its_endpoint_lies(tmp_path):
    shard, engine = make_shard(tmp_path, 6, grid=ONE), Scripted(concurrency=1)
    answers = [liar, liar, good, lambda _: EngineDown("gone")]
    engine.answer = lambda request: answers[len(engine.asked) - 1](request)
    with pytest.raises(EngineDown):
        shard.captions(engine, "run-a")
    unproven = {row["request_id"] for row in shard.replies() if row["endpoint"] == "liar"}
    engine.take()
    engine.answer, engine.settling = good, [[Revocation("liar", ())]]
    shard.captions(engine, "run-b")
    assert engine.doubted == {"liar", "e1"}
    assert set(shard.revoked()) == unproven and len(engine.asked) == 3 + 2
    engine.doubted.clear()
    engine.take()
    shard.captions(engine, "run-c")  # all that lies there is proven now
    assert engine.doubted == set() and engine.sessions == 2 and engine.asked == []


def test_nothing_to_ask_but_an_unproven_step_is_settled_first(tmp_path):
    shard, engine = make_shard(tmp_path, 3, grid=ONE), Scripted(concurrency=1)

    async def broken():
        raise EngineDown("gone at the very end")

    settle, engine.settle = engine.settle, broken
    with pytest.raises(EngineDown):
        shard.captions(engine, "run-a")
    assert shard.pending() == 0
    engine.settle = settle
    engine.take()
    shard.captions(engine, "run-b")
    assert engine.asked == [] and engine.settled == 1 and engine.doubted == {"e1"}
