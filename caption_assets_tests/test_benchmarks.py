"""The command that runs all benchmarks, and the page that is made of their figures."""

from __future__ import annotations

import json
import subprocess
import sys

from caption_assets_tests.benchmarks import __main__ as command
from caption_assets_tests.benchmarks import page
from caption_assets_tests.benchmarks.reporting import Figure
from caption_assets_tests.benchmarks.timing import Median


def test_a_figure_meets_its_target_by_value_and_by_ratio():
    assert Figure("x", "ms", 6, obvious=10, of_obvious=0.6, floor=5, of_floor=1.4).met
    assert not Figure("x", "ms", 6, obvious=10, of_obvious=0.6, floor=4, of_floor=1.4).met
    assert Figure("x", "%", 4.9, at_most=5).met and not Figure("x", "/s", 400, at_least=415).met
    assert Figure("x", "ms", 6, obvious=10).met is None
    assert Figure("x", "ms", 1, obvious=10, of_obvious=0.6, at_least=0.5).target == "at least 0.5, at most 0.6 of the obvious way"


def test_medians_keep_their_spread():
    figure = Figure("x", "ms", Median([100, 300, 200]) / 100)
    assert (figure.ours, figure.spread) == (2, (1, 3))


def test_one_benchmark_by_the_command_and_the_others_keep_their_figures(tmp_path):
    kept = {"figures": [], "outcome": "failed: exit 1", "command": "grids", "ended": "2026-01-01", "seconds": 1, "load": [0, 1]}
    (tmp_path / page.RESULTS).write_text(json.dumps({"benchmarks": {"grids": kept, "long_gone": kept}}))
    done = subprocess.run(
        [sys.executable, "-m", "caption_assets_tests.benchmarks", "filters", "--docs", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "1 benchmarks failed" in done.stdout, done.stdout + done.stderr
    found = json.loads((tmp_path / page.RESULTS).read_text())["benchmarks"]
    assert list(found) == ["filters", "grids"] and found["grids"] == kept
    assert found["filters"]["outcome"] == "ok" and all(figure["met"] for figure in found["filters"]["figures"])
    text = (tmp_path / page.PAGE).read_text()
    assert "* `grids` failed: exit 1" in text and "| filters, lowest recall on the sealed half" in text


def test_plots_where_there_is_something_to_plot(tmp_path):
    figure = Figure("loop", "CPU ms", 1, obvious=4, of_obvious=0.6, floor=0.8, peers={"another": 20}).as_json()
    entry = {"figures": [figure], "outcome": "ok", "command": "loop 1", "ended": "2026-01-01", "seconds": 1, "load": [0, 1]}
    machine = {"cpu": "c", "cores": 2, "memory_gb": 8, "system": "s", "python": "3", "versions": {"numpy": "2"}}
    (tmp_path / page.RESULTS).write_text(json.dumps({"machine": machine, "benchmarks": {"loop": entry}}))
    page.write(tmp_path)
    text = (tmp_path / page.PAGE).read_text()
    for name in (page.RATIOS, page.PEERS):
        assert name in text and (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert "1 of 1 targets are met" in text and "another: 20" in text


def test_a_benchmark_that_fails_or_takes_too_long_says_so_and_no_more(monkeypatch):
    assert command.run("no_such_benchmark", "quick")["outcome"].startswith("failed: No module named")
    monkeypatch.setitem(command.LIMIT_S, "quick", 0.01)
    late = command.run("filters", "quick")
    assert late["outcome"] == "stopped after 0 s" and late["figures"] == []


def test_every_benchmark_has_its_arguments():
    for name in command.names():
        assert all(isinstance(command.arguments(name, form), list) for form in ("quick", "full")), name
