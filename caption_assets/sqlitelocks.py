"""Dagster's SQLite files while another process holds them: wait a good while, and then say which file it is."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import dagster as dg

PATIENCE_S = 60
"""By itself Dagster waits 30 s for its event log and 5 s for its runs."""
ADVICE = "Several people or machines at once want Dagster's records in PostgreSQL: docs/team.md"


def wait_for_locks() -> None:
    """Every SQLite connection that this process opens from now on waits PATIENCE_S for a lock."""
    import sqlalchemy as sa

    if not sa.event.contains(sa.Engine, "connect", _be_patient):
        sa.event.listen(sa.Engine, "connect", _be_patient)


def _be_patient(connection: Any, _: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute(f"PRAGMA busy_timeout = {int(PATIENCE_S * 1000)}")


def lock_message(error: BaseException) -> str | None:
    """What to tell the user where `error` says that a file stayed locked; None for any other error."""
    chain: list[BaseException | None] = [error]
    while chain[-1] is not None:
        chain.append(getattr(chain[-1], "orig", None) or chain[-1].__cause__ or chain[-1].__context__)
    if not any(isinstance(link, sqlite3.OperationalError) and "locked" in str(link) for link in chain):
        return None
    home = Path(os.environ.get("DAGSTER_HOME", "."))
    names = ", ".join(map(str, locked_files(home))) or f"a database in {home}"
    return f"{names}: locked by another process for more than {PATIENCE_S} s; what was answered is stored, run again. {ADVICE}"


def shared_warning(instance: dg.DagsterInstance) -> str | None:
    """What to say where another machine's runs write to the same SQLite files, whose locks hold on one machine only."""
    import dagster as dg
    from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES
    from dagster._core.storage.event_log import SqliteEventLogStorage

    from caption_assets.presence import HOST_TAG

    if not isinstance(instance.event_log_storage, SqliteEventLogStorage):
        return None
    runs = instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS_RUN_STATUSES))
    hosts = {run.tags[HOST_TAG] for run in runs if HOST_TAG in run.tags} - {socket.gethostname()}
    if not hosts:
        return None
    names = ", ".join(sorted(hosts))
    return f"{names} works with the same SQLite files in {instance.root_directory}, which can break them. {ADVICE}"


def locked_files(home: Path) -> list[Path]:
    """The databases below `home` that cannot be written now."""
    found = []
    for file in sorted(home.rglob("*.db")):
        try:
            with contextlib.closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                found.append(file)
    return found
