"""What failed is asked again within a budget: whole with another seed, then picture by picture, then only when asked for."""

from __future__ import annotations

import orjson
import pytest

from caption_assets.config import DatasetConfig
from caption_assets.configchecks import LARGEST_SEED
from caption_assets.core.recipes import sampling_for
from caption_assets.engines.base import ChatRequest
from caption_assets_tests.core.scripted import Scripted, good, reply
from caption_assets_tests.core.shardkit import ONE, make_shard


def nonsense(request: ChatRequest) -> str:
    return "]["


def without(*slots: str):
    """A grid's answer that lacks some cells; single pictures are answered well."""

    def answer(request: ChatRequest) -> str:
        said = good(request)
        if not request.json_keys:
            return said
        return orjson.dumps({key: text for key, text in orjson.loads(said).items() if key not in slots}).decode()

    return answer


def kinds(engine: Scripted) -> list[str]:
    return ["grid" if request.json_keys else "single" for request in engine.take()]


def test_the_whole_budget_of_a_hopeless_grid(tmp_path):
    shard, engine = make_shard(tmp_path, 4, retries={"attempts": 3}), Scripted(nonsense)
    shard.captions(engine, "run-a")
    assert kinds(engine) == ["grid"]
    engine.answer = lambda request: "" if not request.json_keys else nonsense(request)
    shard.recaptions(engine, "run-a")
    asked = engine.asked
    assert kinds(engine) == ["grid", "grid", "single", "single", "single", "single"]
    assert [request.sampling["seed"] for request in asked[:2]] == [1, 2]
    assert sorted(row["attempt"] for row in shard.replies() if row["grid_id"]) == [1, 2, 3]
    for run in ("run-a", "run-b"):
        shard.recaptions(engine, run)
        assert kinds(engine) == []


@pytest.mark.parametrize("seed", [0, -LARGEST_SEED, LARGEST_SEED])
def test_every_attempt_has_a_seed_of_its_own_that_vllm_takes(seed):
    prompt = {"text": "Describe the picture.", "sampling": {"seed": seed}}
    spec = DatasetConfig.model_validate({"name": "photos", "source": "/data/x", "prompts": [prompt]})
    seeds = {sampling_for(spec, spec.prompts[0], 1, attempt)["seed"] for attempt in range(1, 30)}
    assert len(seeds) == 29 and all(-LARGEST_SEED <= found <= LARGEST_SEED for found in seeds)


def test_only_the_bad_cells_of_a_grid_are_asked_singly(tmp_path):
    shard, engine = make_shard(tmp_path, 4), Scripted(without("2", "4"))
    shard.captions(engine, "run-a")
    engine.take()
    shard.recaptions(engine, "run-a")
    assert kinds(engine) == ["single", "single"]
    singles = [row["record_ids"][0] for row in shard.replies() if row["grid_id"] is None]
    assert sorted(singles) == ["shard-a.tar#p001.jpg", "shard-a.tar#p003.jpg"]
    shard.recaptions(engine, "run-b", extra_round=True)
    assert kinds(engine) == []  # all is well


def test_a_success_ends_the_retries(tmp_path):
    shard, engine = make_shard(tmp_path, 8, retries={"attempts": 5}), Scripted(nonsense)
    shard.captions(engine, "run-a")
    engine.take()
    engine.answer = lambda request: good(request) if request.sampling["seed"] == 2 else nonsense(request)
    shard.recaptions(engine, "run-a")
    assert kinds(engine) == ["grid"] * 4


def test_grids_are_not_split_when_that_is_switched_off(tmp_path):
    shard, engine = make_shard(tmp_path, 4, retries={"attempts": 2, "split_grids": False}), Scripted(nonsense)
    shard.captions(engine, "run-a")
    shard.recaptions(engine, "run-a")
    assert kinds(engine) == ["grid", "grid"]
    shard.recaptions(engine, "run-b", extra_round=True)
    assert kinds(engine) == ["grid"]


def test_single_pictures_and_texts_are_asked_up_to_attempts(tmp_path):
    prompts = [{"text": "Describe."}, {"name": "line", "text": "A line about {record.text}.", "image": False}]
    settings = {"grid": ONE, "prompts": prompts, "retries": {"attempts": 3}, "fields": {"text": "json.n"}}
    shard = make_shard(tmp_path, 2, {"p000": {"n": 1}, "p001": {"n": 2}}, **settings)
    engine = Scripted(lambda request: "")
    shard.captions(engine, "run-a")
    assert sorted(request.text for request in engine.take()) == ["A line about 1.", "A line about 2.", "Describe.", "Describe."]
    shard.recaptions(engine, "run-a")
    assert sorted(request.sampling["seed"] for request in engine.take()) == [1] * 4 + [2] * 4


def test_alone_it_adds_one_round_named_by_the_root_run(tmp_path):
    shard, engine = make_shard(tmp_path, 4), Scripted(lambda request: nonsense(request) if request.json_keys else "")
    shard.captions(engine, "run-a")
    shard.recaptions(engine, "run-a")
    engine.take()
    shard.recaptions(engine, "run-b", extra_round=True)
    assert kinds(engine) == ["single"] * 4
    shard.recaptions(engine, "run-b2", root_run_id="run-b", extra_round=True)  # re-executed: nothing more
    assert kinds(engine) == []
    shard.recaptions(engine, "run-c", extra_round=True)
    assert [request.sampling["seed"] for request in engine.asked] == [2] * 4
    assert kinds(engine) == ["single"] * 4


def test_an_extra_round_goes_on_where_it_was_cut_off(tmp_path):
    shard, engine = make_shard(tmp_path, 8, grid=ONE), Scripted(lambda request: "")
    shard.captions(engine, "run-a")
    shard.recaptions(engine, "run-a")
    engine.take()
    engine.concurrency, left = 1, iter(range(3))
    engine.answer = lambda request: "" if next(left, None) is not None else RuntimeError("cut off")
    with pytest.raises(RuntimeError):
        shard.recaptions(engine, "run-b", extra_round=True)
    engine.take()
    engine.answer = lambda request: ""
    shard.recaptions(engine, "run-b", extra_round=True)
    assert len(engine.take()) == 5


def test_the_budget_comes_before_the_extra_round_and_both_ask_a_record_once(tmp_path):
    """A filter that was switched on later finds captions bad of which the budget is not spent."""
    shard, engine = make_shard(tmp_path, 4), Scripted()
    shard.captions(engine, "run-a")
    shard.recaptions(engine, "run-a")
    assert kinds(engine) == ["grid"]
    shard.options["filters"] = {"min_chars": 300}
    shard.recaptions(engine, "run-b", extra_round=True)
    assert kinds(engine) == ["grid", "single", "single", "single", "single"]


def test_only_chosen_reasons_are_asked_again(tmp_path):
    def answer(request: ChatRequest) -> str:
        return (
            orjson.dumps({"1": good(request), "2": "A red cat", "3": "", "4": good(request)}).decode()
            if request.json_keys
            else "A red dog"
        )

    shard, engine = make_shard(tmp_path, 4), Scripted(answer)
    shard.captions(engine, "run-a")
    shard.recaptions(engine, "run-a")
    assert kinds(engine) == ["grid", "single", "single"]
    shard.recaptions(engine, "run-b", extra_round=True, only_reasons=frozenset({"repetition"}))
    assert kinds(engine) == []
    shard.recaptions(engine, "run-b", extra_round=True, only_reasons=frozenset({"too_short"}))
    assert kinds(engine) == ["single", "single"]


def test_passing_faults_are_tried_again_by_every_run_and_do_not_use_up_the_budget(tmp_path):
    slow = lambda request: reply(request, None, "timeout: no answer within 300 s")  # noqa: E731
    shard, engine = make_shard(tmp_path, 4, retries={"attempts": 2}), Scripted(slow)
    for run in ("run-a", "run-b"):
        shard.captions(engine, run)
        assert kinds(engine) == ["grid"]
        shard.captions(engine, run)
        assert kinds(engine) == []
        shard.recaptions(engine, run)
        assert kinds(engine) == ["grid", "single", "single", "single", "single"]
    engine.answer = nonsense
    shard.captions(engine, "run-c")
    assert kinds(engine) == ["grid"]
    engine.answer = good
    shard.recaptions(engine, "run-c")
    assert kinds(engine) == ["grid"] and shard.pending() == 0
    assert max(row["attempt"] for row in shard.replies()) == 6


def test_cells_that_had_a_passing_fault_alone_are_asked_singly(tmp_path):
    shard, engine = make_shard(tmp_path, 4), Scripted(without("3"))
    shard.captions(engine, "run-a")
    engine.answer = lambda request: reply(request, None, "model_error: 500")
    shard.recaptions(engine, "run-a")
    assert kinds(engine) == ["grid", "single"]
    engine.answer = good
    shard.captions(engine, "run-b")
    assert kinds(engine) == ["single"]


def test_duplicates_share_the_retries_of_their_first_copy(tmp_path):
    from caption_assets_tests.core.shardkit import Shard, jpeg, write_tar

    shard = Shard(tmp_path, {"grid": ONE})
    write_tar(shard.tar, [("a", jpeg(1)), ("b", jpeg(1)), ("c", jpeg(2))])
    engine = Scripted(lambda request: "")
    shard.prepare().captions(engine, "run-a")
    shard.recaptions(engine, "run-a")
    assert len(engine.take()) == 4


def test_recaptions_asks_what_captions_has_not(tmp_path):
    shard, engine = make_shard(tmp_path, 8), Scripted()
    shard.recaptions(engine, "run-a")
    assert kinds(engine) == ["grid", "grid"]
