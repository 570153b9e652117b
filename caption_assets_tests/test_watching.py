"""`run` and `status --watch` tell the pace and the time left of a run that is at work."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
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


def on_a_terminal(columns: int, code: str) -> list[str]:
    """What Python code prints on a terminal of so many columns: its lines, as they stand at last."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=follower, env=environment)
    os.close(follower)
    said = b""
    try:
        while part := os.read(leader, 65_536):
            said += part
    except OSError:  # how a terminal says that nobody writes any more
        pass
    os.close(leader)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", said.decode()).replace("\r\n", "\n").replace("\r", "\n").splitlines()


def test_bars_fit_a_narrow_terminal():
    code = """if True:
        from caption_assets.commands.telling import Telling
        from caption_assets.commands.workers import Task
        task = Task("holiday_photos", "caption_shard", ("captions", "merged"), "shard-00000")
        with Telling("holiday_photos", {"shard-00000": 48.0}) as telling:
            for done in (8, 16, 24):
                telling.progress(task, {"stage": "captions", "done": done, "total": 48, "rate": 12.3})
            telling._bars.refresh()
    """
    lines = on_a_terminal(60, code)
    (shard,) = {line for line in lines if line.startswith("shard-00000 captions") and "24/48" in line}
    assert "━" in shard and "12.3/s, about 2 s left" in shard and len(shard) <= 60


def test_a_table_is_read_on_a_narrow_terminal_and_in_a_file():
    code = """if True:
        from caption_assets.commands.terminal import table
        table(("dataset", "shards", "done", "failed", "records", "captioned"), [("photos", 12, 10, 0, "120,000", None)])
    """
    assert on_a_terminal(40, code) == ["photos: shards 12, done 10, records", "  120,000"]
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heading, row = said.splitlines()
    assert heading == "dataset  shards  done  failed  records  captioned"
    assert row == "photos       12    10       0  120,000          -"
    assert on_a_terminal(60, code) == said.splitlines()


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
