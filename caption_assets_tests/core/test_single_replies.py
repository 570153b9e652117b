"""The caption in the reply for a single picture, whatever a model puts around it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from caption_assets.core.parsing import numbers_several
from caption_assets_tests.core.replykit import BARE, A, B, C, single


@pytest.mark.parametrize(
    "reply",
    [
        "A red circle.",
        "  A red circle.\n",
        "```\nA red circle.\n```",
        "```text\nA red circle.\n```",
        '{"caption": "A red circle."}',
        '```json\n{"1": "A red circle."}\n```',
        '{"description": "A red circle."}',
        '{"reasoning": "round", "caption": "A red circle."}',
        "<think>round?</think>A red circle.",
        "round?</think>\n\nA red circle.",
        "◁think▷round◁/think▷A red circle.",
        "<|channel>thought\nround<channel|>A red circle.",
        "<|channel|>analysis<|message|>round<|end|><|start|>assistant<|channel|>final<|message|>A red circle.<|return|>",
        "<answer>A red circle.</answer>",
        "A red circle.</s>",
        "A red circle.<|im_end|>",
        "<|begin_of_box|>A red circle.<|end_of_box|>",
    ],
)
def test_the_reply_for_a_single_picture_is_its_caption(reply: str) -> None:
    assert single(reply) == "A red circle."


def test_a_single_caption_that_looks_like_something_else_stays() -> None:
    for text in (
        "```a``` and ```b```",
        "{curly} braces on a wall",
        '{"objects": ["cat"], "colors": ["red"]}',
        '[{"id": 1, "label": "cat"}, {"id": 2, "label": "dog"}]',
        '{"boxes": [{"id": 1, "text": "cat"}, {"id": 2, "text": "dog"}]}',
        '["red", "round"]',
        "1. A cat\n2. A dog",
        "[1] a cat",
        '"A cat."',
    ):
        assert single(text) == text


@pytest.mark.parametrize(
    "form",
    [
        lambda texts: json.dumps(texts),
        lambda texts: json.dumps({"captions": texts}),
        lambda texts: json.dumps({f"cell {slot}": {"caption": text} for slot, text in texts.items()}),
        lambda texts: json.dumps({"captions": [{"slot": slot, "caption": text} for slot, text in texts.items()]}),
        lambda texts: json.dumps([{slot: text} for slot, text in texts.items()]),
        lambda texts: f"Here you are:\n```json\n{json.dumps(texts)}\n```\nAnything else?",
        lambda texts: json.dumps(texts)[:-1],
    ],
)
def test_the_reply_for_a_single_picture_in_the_form_of_a_grids(form: Callable[[dict[str, str]], str]) -> None:
    """It is read like that of a grid of this one cell."""
    assert single(form({"1": A})) == single(form({"1": A, "2": B, "4": C})) == A
    assert single(form({"2": B, "3": C})) == "MISSING_SLOT"
    assert single(form({"2": B, "1": A}).partition("red cir")[0], "length") == "TRUNCATED_OUTPUT"


def test_which_replies_number_several_texts() -> None:
    assert numbers_several(BARE) and numbers_several(BARE[:-60]) and numbers_several(f"```json\n{BARE}\n```")
    for reply in (None, "", A, '{"1": "A red circle."}', '{"caption": "A red circle.", "2": "?"}', "1. A cat\n2. A dog"):
        assert not numbers_several(reply)


def test_an_empty_fence_is_no_caption() -> None:
    assert single("```json\n```") == single("```\n\n```") == single("<answer></answer>") == "PARSE_ERROR"


def test_a_single_caption_that_was_cut() -> None:
    assert single("A red circle on a", "length") == "TRUNCATED_OUTPUT"
    assert single('{"caption": "A red circle on a', "length") == "TRUNCATED_OUTPUT"
    assert single('{"caption": "A red circle on a') == "TRUNCATED_OUTPUT"
    assert single('{"caption": "A red circle."}', "length") == "A red circle."
    assert single('{"title": "Four shapes of colour", "capt', "length") == "TRUNCATED_OUTPUT"


def test_a_caption_that_is_null_is_no_text() -> None:
    assert single('{"caption": null}') == single('{"1": null}') == single('```json\n{"caption": null}\n```') == "EMPTY_OUTPUT"
