"""A project of many shards of which all but a few are done, in its store and in Dagster's records, without captioning them.

One shard is captioned by the command, against the stub endpoint. What that left, rows in Dagster's databases and objects in the
store, is then copied for the others under their own keys, run ids and event ids: the same rows as runs of their own would have
written. Left out are the events that only a run's own page shows (logs, steps), which no command reads.
"""

from __future__ import annotations

import io
import os
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dagster import DagsterInstance
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, AssetEventTagsTable, SqlEventLogStorageTable
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster_shared.serdes import deserialize_value

from caption_assets.instance import DAGSTER_YAML, POSTGRES_YAML
from caption_assets_tests.pictures import noise, save
from caption_assets_tests.project import Project
from caption_assets_tests.servers import running_postgres
from caption_assets_tests.stubs.openai_server import StubServer

DATASET = "photos"
LINKS = 50_000
"""Names of one file; ext4 allows 65,000."""
AT_ONCE = 100


def shard_name(number: int) -> str:
    return f"s{number:06d}"


def make_tars(folder: Path, first: int, end: int) -> None:
    """Tars of four pictures: names of a few files, since planning reads none."""
    source, whole, sink = folder / "in", folder / "tars", io.BytesIO()
    source.mkdir(parents=True, exist_ok=True)
    whole.mkdir(exist_ok=True)
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for number in range(4):
            content = save(noise(number, 32, 32), "jpeg")
            info = tarfile.TarInfo(f"{number}.jpg")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    for number in range(first, end):
        target = whole / f"{number // LINKS}.tar"
        if not target.exists():
            target.write_bytes(sink.getvalue())
            os.utime(target, (1.7e9, 1.7e9))
        os.link(target, source / f"{shard_name(number)}.tar")


def make(folder: Path, shards: int, done: int) -> Project:
    """`shards` tars, planned; `done` of them captioned and merged."""
    make_tars(folder, 0, shards)
    entry = {
        "name": DATASET,
        "source": "./in/",
        "format": "webdataset",
        "grid": {"rows": 2, "cols": 2, "cell_size": 64, "gap": 4, "label_font_size": 12},
        "prompts": [{"text": "Describe the picture."}],
        "filters": {"min_chars": 3, "duplicate_captions": False},
    }
    with StubServer() as server:
        engine = {"kind": "openai", "model": "stub", "endpoints": [server.url]}
        project = Project(folder, {"store": "./store", "engine": engine, "datasets": [entry]})
        project.write()
        project.command("run", "--shards", shard_name(0), timeout_s=3600)
    copy_store(folder / "store" / DATASET, done)
    with instance_of(project) as instance:
        copy_records(instance, done)
    return project


@contextmanager
def records_in(folder: Path, postgres: bool) -> Iterator[dict[str, str]]:
    """Where Dagster's records are to be: the environment of the commands. PostgreSQL runs as long as this, and keeps nothing."""
    if not postgres:
        yield {}
        return
    home = folder / ".dagster_home"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text(DAGSTER_YAML + POSTGRES_YAML)
    with running_postgres() as server:
        yield {"DAGSTER_POSTGRES_URL": server.make_database()}


@contextmanager
def instance_of(project: Project) -> Iterator[DagsterInstance]:
    with DagsterInstance.from_config(str(project.folder / ".dagster_home")) as instance:
        yield instance


def copy_store(root: Path, done: int) -> None:
    """Names in the store for shards 1 to `done`, for the files of shard 0."""
    old = shard_name(0)
    files = [
        path
        for path in root.rglob("*")
        if path.is_file() and (old in path.relative_to(root).parts or path.stem == old) and path.parent.name != "leases"
    ]
    for number in range(1, done):
        new, made = shard_name(number), set[Path]()
        for path in files:
            target = root / str(path.relative_to(root)).replace(old, new)
            if number % LINKS == 0:
                (bytes_now := target.with_name(target.name + ".new")).parent.mkdir(parents=True, exist_ok=True)
                bytes_now.write_bytes(path.read_bytes())
                os.replace(bytes_now, path)
            if target.parent not in made:
                target.parent.mkdir(parents=True, exist_ok=True)
                made.add(target.parent)
            os.link(path, target)


def copy_records(instance: DagsterInstance, done: int) -> None:
    """Dagster's rows of shard 0's run, for shards 1 to `done`."""
    old = shard_name(0)
    (run,) = [r for r in instance.get_runs() if r.tags.get("dagster/partition") == old]
    storage: Any = instance.event_log_storage
    runs: Any = instance.run_storage
    with runs.connect() as connection:
        run_row = dict(connection.execute(sa.select(RunsTable).where(RunsTable.c.run_id == run.run_id)).mappings().one())
        run_tags = _rows(connection, RunTagsTable, RunTagsTable.c.run_id == run.run_id)
    events_table, columns = SqlEventLogStorageTable, SqlEventLogStorageTable.c
    with storage.index_connection() as connection:
        kinds = [columns.dagster_event_type.like(kind) for kind in ("PIPELINE_%", "ASSET_CHECK_%")]
        shown = sa.or_(columns.asset_key.is_not(None), *kinds)
        events = _rows(connection, events_table, sa.and_(columns.run_id == run.run_id, shown))
        tags = _rows(connection, AssetEventTagsTable, AssetEventTagsTable.c.event_id.in_([event["id"] for event in events]))
        checks = _rows(connection, AssetCheckExecutionsTable, AssetCheckExecutionsTable.c.run_id == run.run_id)
        last = int(connection.execute(sa.select(sa.func.max(columns.id))).scalar_one())
    place = {event["id"]: at for at, event in enumerate(events, 1)}
    for first in range(1, done, AT_ONCE):
        made: dict[str, list[dict[str, Any]]] = {"events": [], "tags": [], "checks": [], "runs": [], "run_tags": []}
        for number in range(first, min(first + AT_ONCE, done)):
            copy = _Copy(old, shard_name(number), run.run_id, str(uuid.UUID(int=number + (4 << 76))), place, last)
            made["events"] += [{**copy.row(event), "id": copy.ids[event["id"]]} for event in events]
            made["tags"] += [copy.row(tag, "id") for tag in tags]
            made["checks"] += [copy.row(check, "id") for check in checks]
            made["runs"].append(copy.row(run_row, "id"))
            made["run_tags"] += [copy.row(tag, "id") for tag in run_tags]
            last += len(events)
        with runs.connect() as connection:
            connection.execute(RunsTable.insert(), made["runs"])
            connection.execute(RunTagsTable.insert(), made["run_tags"])
        with storage.index_connection() as connection:
            connection.execute(events_table.insert(), made["events"])
            connection.execute(AssetEventTagsTable.insert(), made["tags"])
            connection.execute(AssetCheckExecutionsTable.insert(), made["checks"])
    for event in made["events"]:  # what Dagster keeps of each asset's latest event
        if event["dagster_event_type"].startswith("ASSET_MATERIALIZATION"):
            storage.store_asset_event(deserialize_value(event["event"], EventLogEntry), event["id"])
    if storage.supports_global_concurrency_limits and not storage.is_run_sharded:
        with storage.index_connection() as connection:
            connection.execute(sa.text("SELECT setval('event_logs_id_seq', (SELECT max(id) FROM event_logs))"))


class _Copy:
    """Rows of one shard's run as rows of another's."""

    def __init__(self, old: str, new: str, old_run: str, new_run: str, place: dict[int, int], last: int) -> None:
        self._names = ((old, new), (old_run, new_run))
        self.ids = {event: last + at for event, at in place.items()}

    def row(self, row: dict[str, Any], *without: str) -> dict[str, Any]:
        return {name: self._value(name, value) for name, value in row.items() if name not in without}

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            for old, new in self._names:
                value = value.replace(old, new)
        elif name in ("event_id", "evaluation_event_storage_id", "materialization_event_storage_id"):
            return self.ids.get(value, value)
        return value


def _rows(connection: sa.Connection, table: sa.Table, where: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(sa.select(table).where(where).order_by(table.c.id)).mappings()]
