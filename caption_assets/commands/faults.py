"""Errors that are no bugs, as the one message that people read: what is wrong, and the way out."""

from __future__ import annotations

import errno
import os

from caption_assets.core.hiding import hidden
from caption_assets.sqlitelocks import lock_message

OWN = "caption_assets."
LINES = 20
"""Of a message of ours: vLLM's has the end of its log."""

_ANEW = "move the folder away and run `caption-assets reconcile`, which tells Dagster what the store holds"
_SQLITE = {
    "database or disk is full": "make room there",
    "disk I/O error": "make room there, or look at the disk",
    "unable to open database file": "give this user the right to write there",
    "attempt to write a readonly database": "give this user the right to write there",
    "file is not a database": _ANEW,
    "malformed": _ANEW,
    "no such table": _ANEW,
}
_FULL = "make room there and run again: what was stored is kept (`caption-assets doctor` looks at all disks)"
_DENIED, _TAKEN = "give this user the right", "something else lies there: move it away"
_REMEDIES = {
    errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EACCES: _DENIED, errno.EPERM: _DENIED, errno.EROFS: "it is mounted read-only",
    errno.EISDIR: _TAKEN, errno.ENOTDIR: _TAKEN, errno.EEXIST: _TAKEN, errno.ELOOP: _TAKEN,
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}  # fmt: skip


def told(error: BaseException) -> str | None:
    """What the user is told; None for an error that nobody foresaw, which deserves its traceback."""
    if said := lock_message(error) or _of_records(error):
        return said
    from caption_assets.core.damage import Damaged
    from caption_assets.core.exports.selection import ExportError
    from caption_assets.core.objectstore import ObjectError
    from caption_assets.core.plan.plans import PlanError
    from caption_assets.core.storage.objects import MachineFault
    from caption_assets.engines.base import EngineDown

    if isinstance(error, (EngineDown, ObjectError, MachineFault, PlanError, ExportError, Damaged)):
        return hidden(str(error))
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}: {_REMEDIES[error.errno]}"
    return None


def _of_records(error: BaseException) -> str | None:
    """Of Dagster's records: SQLite files that cannot be written, or a PostgreSQL that does not answer."""
    from sqlalchemy.exc import DBAPIError, NoSuchTableError

    home = os.environ.get("DAGSTER_HOME", "DAGSTER_HOME")
    gone = "DAGSTER_HOME" in os.environ and not os.path.isdir(home)
    if gone and type(error).__module__.startswith(("dagster.", "sqlalchemy.")):
        return f"{home}: Dagster's records are gone: run again, which tells Dagster what the store holds"
    if isinstance(error, NoSuchTableError):
        return f"{home}: Dagster's records are damaged: no such table: {error}: {_ANEW}"
    if not isinstance(error, DBAPIError):
        return None
    said = next(iter(str(error.orig).strip().splitlines()), "")
    for words, remedy in _SQLITE.items():
        if words in said:
            return f"{home}: Dagster's records cannot be kept there: {said}: {remedy}, or set DAGSTER_HOME to another folder"
    if type(error.orig).__module__.startswith("psycopg"):
        return f"Dagster's records in PostgreSQL cannot be reached: {said}: look at $DAGSTER_POSTGRES_URL and the server"
    return None


def in_words(message: str) -> str:
    """The text of an exception as Dagster keeps it (`module.Class: text`): without the class where it is ours."""
    name, _, text = message.strip().partition(": ")
    if name.startswith(OWN) and text:
        return "\n".join(text.splitlines()[:LINES])
    if name.endswith("DagsterExecutionInterruptedError"):
        return "it was interrupted: what was answered is stored; run again"
    last = (message.strip().splitlines() or [message])[-1]
    return f"{last}: {_FULL}" if "No space left on device" in last else last
