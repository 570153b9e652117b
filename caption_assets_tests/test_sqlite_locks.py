"""Dagster's SQLite files are locked by somebody else: commands wait, and say which file it is when that takes too long."""

import contextlib
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from caption_assets import sqlitelocks
from caption_assets.presence import HOST_TAG
from caption_assets.sqlitelocks import lock_message, locked_files, shared_warning, wait_for_locks
from caption_assets_tests.project import make_project
from caption_assets_tests.stubs.openai_server import StubServer

HOLD = """
import sqlite3, sys, time
connections = [sqlite3.connect(path, isolation_level=None, timeout=30) for path in sys.argv[2:]]
for connection in connections:
    connection.execute("BEGIN EXCLUSIVE")
print("LOCKED", flush=True)
time.sleep(float(sys.argv[1]))
"""


@contextlib.contextmanager
def held(files: list[Path], seconds: float):
    """Another process has an exclusive lock on the files."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(seconds), *map(str, files)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "LOCKED\n"
        yield
    finally:
        process.kill()
        process.wait()


def test_a_run_waits_for_files_that_are_locked_longer_than_dagster_would_wait(tmp_path):
    with StubServer() as stub:
        project = make_project(tmp_path, stub.url, shard_size=100)
        project.command("plan", "photos")
        files = sorted((tmp_path / ".dagster_home").rglob("*.db"))
        assert {"runs.db", "index.db"} <= {file.name for file in files}
        command = project.start("run")
        with held(files, 8):
            time.sleep(8)  # Dagster's own patience for runs.db is 5 s
        output, _ = command.communicate(timeout=120)
        assert command.returncode == 0, output
        assert len(project.rows("merged")) == 8 and stub.counts() == {"grid": 2}


def test_a_file_that_stays_locked_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlitelocks, "PATIENCE_S", 0.2)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    wait_for_locks()
    for name in ("runs.db", "free.db"):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute("CREATE TABLE t (x)")
    engine = sa.create_engine(f"sqlite:///{tmp_path}/runs.db", poolclass=sa.pool.NullPool)
    with held([tmp_path / "runs.db"], 30):
        assert locked_files(tmp_path) == [tmp_path / "runs.db"]
        with pytest.raises(sa.exc.OperationalError) as caught, engine.begin() as connection:
            connection.execute(sa.text("INSERT INTO t VALUES (1)"))
        said = lock_message(caught.value)
    assert said is not None and said.startswith(f"{tmp_path}/runs.db: locked by another process") and "free.db" not in said
    assert "PostgreSQL: docs/team.md" in said
    assert lock_message(ValueError("database is locked")) is None and locked_files(tmp_path) == []


def test_another_machine_on_the_same_files_is_named_with_the_way_out(tmp_path):
    @dg.job
    def work(): ...

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for host in (socket.gethostname(), "beta"):
            assert shared_warning(instance) is None
            instance.create_run_for_job(work, tags={HOST_TAG: host}, status=dg.DagsterRunStatus.STARTED)
        said = shared_warning(instance)
    assert said is not None and said.startswith("beta works with the same SQLite files") and "PostgreSQL: docs/team.md" in said


@pytest.mark.long
def test_many_commands_at_once_on_sqlite_end_well_or_with_advice(tmp_path):
    with StubServer(latency=(0.02, 0.05)) as stub:
        project = make_project(tmp_path, stub.url, pictures=48, shard_size=4)
        project.command("plan", "photos")
        commands = [project.start("run") for _ in range(5)]
        for command in commands:
            output, _ = command.communicate(timeout=500)
            assert "Traceback" not in output, output
            assert command.returncode in (0, 3) or "PostgreSQL: docs/team.md" in output, output
        project.command("run")
        assert len(project.rows("merged")) == 48 and stub.counts() == {"grid": 12}
