"""SIGKILL at random moments, of run, step and server: the short form of benchmarks/kill_storm.py."""

from __future__ import annotations

import pytest

from caption_assets_tests.benchmarks.kill_storm import Storm, problems


@pytest.mark.parametrize("single", [True, False], ids=["1x1", "2x2"])
def test_a_kill_storm_loses_nothing_repeats_nothing_and_tears_nothing(tmp_path, single):
    storm = Storm(tmp_path, pictures=400, shards=2, kills=3, single=single, every=4.0, seed=5 + single)
    storm.blow(patience_s=300)
    figures = storm.figures()
    assert figures["kills"] >= 2 and problems(figures) == [], figures
