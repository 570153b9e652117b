"""The demo model, through real vLLM, in the demo's own requests; and that the count would notice a wrong one."""

from __future__ import annotations

import asyncio
import json

import pytest

from caption_assets.demo.evaluate import Questions, answers, demo_config, score
from caption_assets.engines.base import ChatReply


@pytest.fixture(scope="module")
def questions():
    ask = Questions(demo_config("demo"), seed=7)
    return [*ask.singles(60), *ask.grids(200), *ask.titles(20)]


def said(question, captions):
    text = json.dumps(dict(zip(question.request.json_keys, captions, strict=True))) if question.request.json_keys else captions[0]
    return ChatReply(question.request.request_id, text, "stop", None, 1, 1, 1.0, "endpoint", 0.0)


def truth(question):
    return [spec.caption for spec in question.specs]


def test_held_out_pictures_are_captioned_truly_and_in_their_own_cells(vllm_engine, questions):
    scores, mistakes = score(questions, asyncio.run(answers(vllm_engine, questions)))
    for kind, of in scores.items():
        assert of.exact >= 0.98 * of.asked, mistakes
        assert of.colours == of.asked and of.misplaced == 0, (kind, mistakes)


def test_true_answers_are_counted_as_exact(questions):
    scores, mistakes = score(questions, [said(q, truth(q)) for q in questions])
    assert {kind: (of.asked, of.exact, of.colours, of.misplaced) for kind, of in scores.items()} == {
        "single pictures": (60, 60, 60, 0), "cells": (200, 200, 200, 0), "titles": (20, 20, 20, 0),
    }  # fmt: skip
    assert not mistakes


def test_captions_in_each_others_cells_are_noticed(questions):
    turned = [said(q, truth(q)[1:] + truth(q)[:1]) for q in questions]
    cells = score(questions, turned)[0]["cells"]
    alone = sum(len(q.specs) == 1 for q in questions if q.kind == "cells")
    assert cells.exact == alone and cells.misplaced == cells.asked - alone


def test_a_failed_request_is_no_exact_answer(questions):
    failed = [
        ChatReply(q.request.request_id, None, None, "timeout: no answer", None, None, 1.0, "endpoint", 0.0) for q in questions
    ]
    scores, mistakes = score(questions, failed)
    assert all(of.exact == of.colours == of.misplaced == 0 for of in scores.values())
    assert any("timeout" in mistake for mistake in mistakes)


def test_questions_are_those_of_the_demos_config(questions):
    kinds = {q.request.request_id.split("-")[0]: q.request for q in questions}
    assert set(kinds) == {"single", "grid", "title"}
    assert all(q.request.sampling["temperature"] == 0 and q.request.sampling["repetition_penalty"] == 1 for q in questions)
    assert kinds["single"].json_keys == () and kinds["title"].image is None
    assert sum(len(q.specs) for q in questions if q.kind == "cells") == 200
    assert {len(q.specs) for q in questions if q.kind == "cells"} == {1, 2, 3, 4}
