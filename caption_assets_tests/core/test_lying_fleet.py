"""The loop with a real fleet: what an endpoint lied about is never in the output, even when the run that asked it was cut off."""

from __future__ import annotations

from contextlib import ExitStack

import orjson
import pytest

from caption_assets.engines import EngineDown, open_engine
from caption_assets_tests.core.shardkit import Shard, make_shard
from caption_assets_tests.stubs.answers import shade_in
from caption_assets_tests.stubs.openai_server import StubServer

COUNT = 48


def wrong_cells(shard: Shard) -> list[str]:
    """Records whose standing reply names another picture's colour."""
    revoked, wrong = set(shard.revoked()), []
    for row in shard.replies():
        if row["request_id"] in revoked or row["error"]:
            continue
        said = orjson.loads(row["reply"])
        for slot, record in zip(row["slots"], row["record_ids"], strict=True):
            number = int(record.partition("#p")[2][:3])
            colour, shade = (number * 53 % 256, number * 101 % 256, number * 7 % 256), shade_in(said[str(slot)])
            if shade is None or any(abs(a - b) > 24 for a, b in zip(colour, shade, strict=True)):
                wrong.append(record)
    return wrong


@pytest.fixture
def fleet():
    with ExitStack() as stack:
        yield [stack.enter_context(StubServer(latency=(0.01, 0.03))) for _ in range(3)]


def shard_over(tmp_path, fleet: list[StubServer]) -> Shard:
    shard = make_shard(tmp_path, COUNT)
    shard.engine = {"kind": "openai", "model": "stub", "endpoints": [stub.url for stub in fleet], "concurrency": 1}
    return shard


def test_a_liar_in_the_fleet_is_found_before_the_shard_ends(tmp_path, fleet):
    fleet[1].behaviour, fleet[1].lie_after = "swap", 3
    shard = shard_over(tmp_path, fleet)
    engine = open_engine(shard.engine_config)
    figures = shard.captions(engine).metadata()
    assert wrong_cells(shard) == [] and shard.pending() == 0
    assert figures["revoked_requests"] == len(shard.revoked()) > 0
    assert fleet[1].url in figures["quarantined"]
    assert {row["endpoint"] for row in shard.replies()} >= {stub.url for stub in fleet}


def test_what_a_liar_said_to_a_run_that_was_cut_off_does_not_stand(tmp_path, fleet):
    shard = shard_over(tmp_path, fleet)
    shard.engine["request_timeout_s"] = 2
    fleet[1].behaviour, fleet[1].lie_after = "swap", 3
    engine = open_engine(shard.engine_config)

    class CutOff:
        """Ends as an outage of all endpoints would, before the last canaries."""

        kind = "openai"

        def session(self):
            session = engine.session()

            async def settle():
                raise EngineDown("cut off")

            session.settle = settle
            session.revoked = lambda: []
            return session

    with pytest.raises(EngineDown):
        shard.captions(CutOff())
    lies = set(wrong_cells(shard))
    assert lies
    shard.captions(engine)
    assert wrong_cells(shard) == [] and shard.pending() == 0
    assert {record for row in shard.replies() for record in row["record_ids"]} >= lies
