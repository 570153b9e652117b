"""Loop and merge agree: whatever runs, faults, retries and edits came before, after captions and recaptions every record is
accounted for, nothing is owed any more, and no request was made twice."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from caption_assets.core.columns import REASONS
from caption_assets.core.merging import merge_shard
from caption_assets.core.owed.answered import VALID
from caption_assets.core.owed.shardjob import JobRows
from caption_assets.core.owed.survey import Survey
from caption_assets.engines.base import ChatRequest, EngineDown
from caption_assets_tests.core.scripted import Scripted, good, reply
from caption_assets_tests.core.shardkit import ONE, SMALL_GRID, Shard, jpeg, write_tar

TEXTS = ["Describe the picture.", "What is in {record.json.title}?", "Say more."]
LINES = ["On {output.caption}", "{record.json.title}: {output.caption}", "A word."]


class Moody:
    """Answers well, badly, not at all, or goes away, by chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.away = chance, 0.0

    def __call__(self, request: ChatRequest):
        mood = self.chance.random()
        if mood < self.away:
            return EngineDown("gone")
        if mood < 0.6:
            return good(request, f"A text that was said at {self.chance.random():.9f}")
        if mood < 0.7:
            return reply(request, None, f"{self.chance.choice(['timeout', 'model_error'])}: as it goes")
        if mood < 0.75:
            return reply(request, None)
        if mood < 0.8:
            return '{"1": "Two pictures, said alike of all.", "2": "Short"}'
        if mood < 0.9 and request.json_keys:
            said = orjson.loads(good(request))
            return orjson.dumps({key: said[key] for key in said if self.chance.random() < 0.5}).decode()
        return self.chance.choice(["", "Short", "][", "I cannot help with that."])


def make(root: Path, chance: random.Random) -> Shard:
    """A shard with duplicates, unreadable pictures and titles of few kinds."""
    count = chance.randint(5, 14)
    shard = Shard(root, {"grid": chance.choice([ONE, SMALL_GRID]), "retries": {"attempts": chance.randint(1, 3)}})
    pictures = [(f"p{n:03d}", b"broken" if chance.random() < 0.1 else jpeg(chance.randint(0, count))) for n in range(count)]
    write_tar(shard.tar, pictures, {name: {"title": f"title {chance.randint(0, 1)}"} for name, _ in pictures})
    edit(shard, chance)
    return shard.prepare()


def edit(shard: Shard, chance: random.Random) -> None:
    prompts = [{"text": chance.choice(TEXTS)}, {"name": "line", "text": chance.choice(LINES), "image": chance.random() < 0.3}]
    shard.options["prompts"] = prompts[: chance.randint(1, 2)]


def standing(shard: Shard) -> dict[str, str | None]:
    """What the loop knows of the first output: the reason that stands for each record that is asked, None for a good caption."""
    rows = JobRows(shard.job("look"))
    survey = Survey(rows, shard.spec.prompts[0], {}, judged=True)
    survey.replies.refresh()
    ids = [name for _, part, _ in rows.batches() for name in part["record_id"].to_pylist()]
    reasons = survey.replies.reason.tolist()
    return {ids[n]: None if reasons[n] == VALID else REASONS[reasons[n]] for n in survey.own.nonzero()[0].tolist()}


def merged(shard: Shard) -> tuple[int, list[str]]:
    """How many records come out of the merge, and what is wrong: there, or with what the loop thinks of them."""
    job = shard.job("merge")
    with tempfile.TemporaryDirectory() as scratch:
        made = merge_shard(
            shard.objects, shard.layout, shard.spec, shard.key, shard.recipes, job.manifest, job.mapping, Path(scratch), "merge"
        )
        if made.problems:
            return 0, made.problems
        good, bad = (pq.read_table(path).to_pylist() for path in (made.merged_path, made.failed_path))
    told = [(row["record_id"], row["caption_reason"]) for row in good] + [(row["record_id"], row["reason"]) for row in bad]
    reasons = dict(told)
    thought = [f"{name}: {reason} for the loop" for name, reason in standing(shard).items() if reason != reasons[name]]
    return len(reasons), thought if len(told) == len(reasons) else ["a record twice"]


@pytest.mark.parametrize("seed", range(8))
def test_every_history_ends_well(tmp_path, seed):
    chance = random.Random(seed)
    shard = make(tmp_path, chance)
    moody, records = Moody(chance), shard.job("look").manifest.rows
    engine = Scripted(moody, concurrency=3)
    for number in range(4):
        run = f"run-{number}"
        moody.away = 0.15
        for _ in range(20):
            try:
                shard.captions(engine, run)
                shard.recaptions(engine, run)
                break
            except EngineDown:
                moody.away /= 2
        moody.away = 0.0
        assert merged(shard) == (records, []), shard.options
        engine.take()
        shard.captions(engine, run)
        shard.recaptions(engine, run)
        assert engine.take() == []  # the same run owes nothing more
        if chance.random() < 0.5:
            shard.recaptions(engine, f"retry-{number}", extra_round=True)
            assert merged(shard) == (records, [])
        edit(shard, chance)
    said = Counter(row["request_id"] for output in shard.recipes for row in shard.replies(output))
    assert set(said.values()) <= {1}
