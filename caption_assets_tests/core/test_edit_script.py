"""Every change of a config costs the least requests possible, counted where they arrive."""

from __future__ import annotations

from caption_assets_tests.benchmarks.edit_script import Edited, edits
from caption_assets_tests.stubs.openai_server import StubServer


def test_each_change_costs_the_least_possible(tmp_path):
    with StubServer() as stub:
        taken = {change: (took, least) for change, took, least in edits(Edited(tmp_path, stub))}
    assert len(taken) >= 8 and {change: pair for change, pair in taken.items() if pair[0] != pair[1]} == {}
