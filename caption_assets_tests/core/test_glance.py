"""A caption that passes at a glance is one that `judge` leaves as it is; nearly all captions pass."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caption_assets.config import FiltersConfig
from caption_assets.core.filters.glance import Bools, glance_at
from caption_assets.core.parsing import CellText
from caption_assets.core.quality import judge
from caption_assets.core.replies.text import clean_text
from caption_assets_tests.benchmarks.bigshard import PROMPT, caption

PROMPTS = [
    PROMPT,
    "List the colours. Write one sentence, use plain words and name the place.",
    "A photograph of what? Answer in English.",
    "",
]
LABELLED = [
    clean_text(json.loads(line)["text"])[0]
    for name in ("replies_tuning", "replies_sealed")
    for line in (Path(__file__).parents[1] / "data" / f"{name}.jsonl").read_text("utf-8").splitlines()
    if isinstance(json.loads(line).get("text"), str)
]
WORDS = sorted(
    {word for text in LABELLED for word in text.split()} | {"a", "the", "dog", "street", "no.", "Sure,", "(sorry)", "17"}
)


def passes(texts: list[str], filters: FiltersConfig, prompt: str) -> Bools:
    return glance_at(pa.array(texts, pa.string()), filters, prompt).passes


def left_alone(text: str, filters: FiltersConfig, prompt: str) -> bool:
    return judge({1: CellText(text, None, None)}, filters, {1: prompt})[1].reason is None


@pytest.mark.parametrize("prompt", PROMPTS)
def test_no_labelled_text_passes_that_a_filter_refuses(prompt: str) -> None:
    filters = FiltersConfig()
    found = passes(LABELLED, filters, prompt)
    assert len(LABELLED) > 3000
    assert [t for t, passed in zip(LABELLED, found, strict=True) if passed and not left_alone(t, filters, prompt)] == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40), min_size=1, max_size=20), st.sampled_from(PROMPTS))
def test_no_text_passes_that_a_filter_refuses(texts: list[list[str]], prompt: str) -> None:
    filters = FiltersConfig(min_chars=20, max_chars=200)
    joined = [" ".join(words).strip() for words in texts]
    for text, passed in zip(joined, passes(joined, filters, prompt), strict=True):
        assert not passed or left_alone(text, filters, prompt), text


def test_loops_of_every_length_are_looked_at() -> None:
    chance = random.Random(5)
    filters = FiltersConfig(max_chars=100_000)
    texts = []
    for size in range(1, 30):
        words = caption(chance).split()
        for rounds in range(2, 12):
            texts.append(" ".join(words + words[:size] * rounds))
    for text, passed in zip(texts, passes(texts, filters, PROMPT), strict=True):
        assert not passed or left_alone(text, filters, PROMPT), text


def test_long_texts_of_few_words_are_looked_at() -> None:
    """However long, a text half of whose words stood in it before may be made of the same few phrases."""
    chance = random.Random(6)
    filters = FiltersConfig(max_chars=100_000)
    bodies = [" ".join(caption(chance) for _ in range(9)) for _ in range(4)]
    texts = [f"{body} {' '.join([caption(chance)] * rounds)}" for body in bodies for rounds in range(2, 14)]
    for text, passed in zip(texts, passes(texts, filters, PROMPT), strict=True):
        assert not passed or left_alone(text, filters, PROMPT), text
    assert not all(left_alone(text, filters, PROMPT) for text in texts)


def test_nearly_all_captions_pass() -> None:
    chance = random.Random(7)
    texts = [caption(chance) for _ in range(5000)]
    assert passes(texts, FiltersConfig(), PROMPT).mean() > 0.98


def test_texts_that_the_arrays_do_not_know_never_pass() -> None:
    good = caption(random.Random(1))
    texts = [good, "", "Short.", good + " 猫", good.replace(" ", "\t"), good + " " + "x" * 25, "é" * 50]
    assert passes(texts, FiltersConfig(), PROMPT).tolist() == [True] + [False] * 6
    assert glance_at(pa.array([None, good, None]), FiltersConfig(), PROMPT).passes.tolist() == [False, True, False]
    assert not passes(texts, FiltersConfig(language="en"), PROMPT).any()
    assert passes([], FiltersConfig(), PROMPT).tolist() == []


def test_words_are_told_apart_at_the_borders_of_texts() -> None:
    """Texts lie one after the other: the last word of one without a final stop is not joined to the first of the next."""
    chance = random.Random(9)
    texts = [caption(chance).rstrip(".") for _ in range(3)]
    assert passes([*texts, ""], FiltersConfig(), PROMPT).tolist() == [True, True, True, False]
    assert passes([texts[0] + " sorry", texts[1]], FiltersConfig(), PROMPT).tolist() == [False, True]
    assert passes([texts[0], "sorry " + texts[1]], FiltersConfig(), PROMPT).tolist() == [True, False]
    some = pa.array(["x", *texts, "sorry " + texts[0]])
    assert glance_at(some.slice(1, 3), FiltersConfig(), PROMPT).passes.all()


def test_texts_alike_but_for_case_blanks_and_the_final_stop_have_one_number() -> None:
    chance = random.Random(11)
    for _ in range(200):
        text = caption(chance)
        alike = [text, text.upper(), text.rstrip("."), text + "!!", text.replace(" ", "   "), text.replace(" ", " \n")]
        assert len({*glance_at(pa.array(alike), FiltersConfig(), PROMPT).said.tolist()}) == 1
    others = glance_at(pa.array([caption(chance) for _ in range(2000)]), FiltersConfig(), PROMPT).said
    assert len(np.unique(others)) > 1990
