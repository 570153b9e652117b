"""Dagster's records in PostgreSQL, by the one switch of `init`."""

import os
import re
import subprocess
import sys

import pytest
import sqlalchemy as sa

from caption_assets.commands.doctor import instance as doctors_instance
from caption_assets_tests.project import Project, make_project
from caption_assets_tests.stubs.openai_server import StubServer

URL = "DAGSTER_POSTGRES_URL"


def _init(project: Project, home: str, url: str) -> subprocess.Popen[str]:
    environment = {**project.environment, "DAGSTER_HOME": str(project.folder / home), URL: url}
    command = [sys.executable, "-m", "caption_assets.cli", "init", "--postgres"]
    return subprocess.Popen(
        command, cwd=project.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _in_one_process(project: Project, *commands: str) -> list[str]:
    """What each command prints; a process of its own for each would take most of the time."""
    lines = ["from caption_assets.cli import cli"]
    for command in commands:
        lines.append(f"assert not cli.main({command.split()}, standalone_mode=False); print('END', flush=True)")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=project.folder, env=project.environment, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("END\n")[:-1]


def test_the_whole_work_on_postgres(postgres, tmp_path, monkeypatch):
    """First use by several homes at once, then every command; nothing of it lies in SQLite, and no file has the password."""
    url = postgres.make_database()
    monkeypatch.setenv(URL, url)
    with StubServer() as stub:
        project = make_project(tmp_path, stub.url, filters={"min_chars": 3, "duplicate_captions": False})
        (tmp_path / "photos" / "0003.png").write_bytes(b"")
        processes = [_init(project, home, url) for home in (".dagster_home", "second", "third")]
        for process in processes:
            output, _ = process.communicate(timeout=240)
            assert process.returncode == 0 and "prepared the Dagster instance" in output, output
            assert "Retrying" not in output and "Traceback" not in output, output
        assert f"env: {URL}" in (tmp_path / ".dagster_home" / "dagster.yaml").read_text()
        assert "[2/2]" in project.command("run") and stub.counts() == {"grid": 2}
        (project.store / "photos/merged/shard-00001.parquet").unlink()
        commands = ("reconcile", "status", "retry photos --reason refusal", "clean")
        reconciled, status, retried, cleaned = _in_one_process(project, *commands)
        assert "photos/merged: 0 shards found in the store, 1 lost there" in reconciled
        assert re.search(r"^photos +2 +1 ", status, re.MULTILINE), status
        assert re.fullmatch(r"(.*is not set.*\n)?photos: no record failed for refusal\n", retried), retried
        assert "nothing to remove" in cleaned
        assert "[1/1] photos/shard-00001" in project.command("run") and stub.counts() == {"grid": 2}
        assert len(project.rows("merged")) == 7 and len(project.rows("failed")) == 1
    with sa.create_engine(url, poolclass=sa.pool.NullPool).connect() as connection:
        owners = connection.execute(sa.text("SELECT DISTINCT value FROM run_tags WHERE key = 'caption_assets/user'")).scalars()
        assert list(owners) == [os.environ.get("USER") or "root"]
    assert not list(tmp_path.rglob("*.db"))
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size < 1 << 20]
    assert not [file for file in kept if b"ss%2Fword" in file.read_bytes() or postgres.password.encode() in file.read_bytes()]


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        (None, 2, f"set {URL} to postgresql+psycopg2://user:password@host/database"),
        ("postgresql://me:secret@127.0.0.1/db", 2, "postgresql+psycopg2://user:password@host/database, not at postgresql:"),
        ("postgresql+psycopg2://me:secret@127.0.0.1:9/db", 1, "PostgreSQL cannot be reached"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_message_without_the_password(url, code, words, tmp_path, monkeypatch):
    monkeypatch.delenv(URL, raising=False)
    if url:
        monkeypatch.setenv(URL, url)
    said = make_project(tmp_path, "http://127.0.0.1:9/v1", pictures=1).command("init", "--postgres", code=code)
    assert words in said and "Traceback" not in said and "secret" not in said
    assert len(said.strip().splitlines()) <= 2, said
    (tmp_path / ".dagster_home" / ".prepared").touch()  # what was there before it was lost
    (found,) = doctors_instance(tmp_path / ".dagster_home", True)
    assert found.state == "problem" and words in found.said and "secret" not in found.said
