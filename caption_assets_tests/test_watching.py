"""`run` and `status --watch` tell the pace and the time left of a run that is at work."""

import re
import subprocess
import time

import pytest

from caption_assets.commands.telling import Telling
from caption_assets.commands.workers import Task
from caption_assets_tests.project import make_project
from caption_assets_tests.stubs.openai_server import StubServer


def test_lines_of_a_run_tell_how_much_is_left(capsys, monkeypatch):
    monkeypatch.setattr("caption_assets.commands.telling.SAY_EVERY_S", 0.0)
    clock = iter(range(100))
    monkeypatch.setattr("caption_assets.commands.telling.time.monotonic", lambda: float(next(clock)))
    tasks = [Task("photos", "caption_shard", ("captions", "merged"), shard) for shard in "ab"]
    with Telling("photos", {"a": 100.0, "b": None}) as telling:
        for done in (10, 20, 30):
            telling.progress(tasks[0], {"stage": "captions", "done": done, "total": 100, "rate": 10.0})
        telling.progress(tasks[0], {"stage": "recaptions", "done": 5, "total": 5, "rate": None})
        left = telling.ended(tasks[0], True)
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "photos: 30 of 200 answers, 10.0/s, about 17 s left"
    assert left == pytest.approx(12, abs=3)


@pytest.mark.long
def test_status_watch_tells_of_runs_started_elsewhere(tmp_path):
    with StubServer(rate=8) as stub:
        project = make_project(tmp_path, stub.url, pictures=300, shard_size=200)
        project.config["engine"]["concurrency"] = 2
        project.write()
        project.command("init")
        run, watch = project.start("run"), project.start("status", "--watch")
        try:
            lines, end = [], time.monotonic() + 600
            for line in watch.stdout:
                lines.append(line)
                if "left for all of the 2 shards" in line or time.monotonic() > end:
                    break
            assert re.search(r"photos: [\d.]+ pictures/s; about [\d.]+ (s|min) left for all of the 2 shards", lines[-1]), lines
            assert any(re.match(r"photos/shard-00000 +captions +\d+ +[\d.]+ +[\d.]+ +[\d.]+ (s|min)", line) for line in lines)
        finally:
            watch.kill()
            run.terminate()
            try:
                run.wait(120)
            except subprocess.TimeoutExpired:
                run.kill()
