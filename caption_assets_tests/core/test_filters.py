"""Every filter on the labelled replies: 98 of 100 refused texts are bad, 98 of 100 bad ones are refused, in both halves."""

from __future__ import annotations

import pytest

from caption_assets.core.filters.sentences import may_speak, words_of
from caption_assets_tests.benchmarks.filters import HALVES, REASON_OF, kept_by_default, labelled, scores

LEAST = 0.98


@pytest.mark.parametrize("half", HALVES)
def test_precision_and_recall(half: str) -> None:
    found = scores(half)
    assert set(found) == set(REASON_OF)
    for name, score in found.items():
        assert score.hits + score.misses >= 100, name
        assert score.false_hits + score.passes >= 100, name
        assert score.precision >= LEAST, (name, score.precision)
        assert score.recall >= LEAST, (name, score.recall)


@pytest.mark.parametrize("half", HALVES)
def test_all_filters_together_keep_good_captions(half: str) -> None:
    kept, good, _ = kept_by_default(half)
    assert kept / good >= LEAST


def test_no_text_stands_in_both_halves() -> None:
    tuning, sealed = ({row["text"].casefold() for row in labelled(half) if len(row.get("text", "")) >= 20} for half in HALVES)
    assert not tuning & sealed


@pytest.mark.parametrize("half", HALVES)
def test_the_cheap_look_passes_on_what_refuses(half: str) -> None:
    rows = [row for row in labelled(half) if row["filter"] == "refusals" and row["refuse"]]
    passed = sum(may_speak(words_of(row["text"])) for row in rows)
    assert passed >= LEAST * len(rows)
