"""The Dagster instance of the command: where it lies and how it is prepared."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from caption_assets.config import Config
from caption_assets.configerrors import ConfigError
from caption_assets.configfile import config_path
from caption_assets.core.hiding import hidden
from caption_assets.postgresql import alone, database_url
from caption_assets.sqlitelocks import wait_for_locks

if TYPE_CHECKING:
    import dagster as dg

DAGSTER_YAML = """\
# Made by `caption-assets init`. https://docs.dagster.io/deployment/oss/dagster-yaml
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    max_concurrent_runs: 8
  pools:
    default_limit: 2          # GPU steps at a time: one shard feeds while the other drains
    granularity: op
run_monitoring:
  enabled: true
  start_timeout_seconds: 600
  cancel_timeout_seconds: 180
  free_slots_after_run_end_seconds: 60
sensors:
  use_threads: true
  num_workers: 4
  num_submit_workers: 8
retention:
  sensor:
    purge_after_days: 7
"""

POSTGRES_YAML = """\
storage:
  postgres:
    postgres_url:
      env: DAGSTER_POSTGRES_URL
"""

LOGS_UPLOAD_S = 60
"""Seconds between uploads of a running step's log."""


def step_logs_yaml(config: Config, logs_to: str | None = None) -> str:
    """The part of dagster.yaml that keeps what steps print in S3: at `logs_to`, else beside the datasets of a store in S3. Empty
    for a store on disk: Dagster keeps them in its own folder."""
    where = logs_to or (f"{config.store.rstrip('/')}/_logs" if config.store.startswith("s3://") else None)
    if where is None:
        return ""
    found = re.fullmatch(r"s3://([^/]+)/(.*[^/])/*", where)
    if not found:
        raise ConfigError(f"{where}: step logs are kept at s3://bucket/prefix")
    import yaml

    reached = config.s3.for_bucket(found[1]).model_dump(exclude_defaults=True, exclude={"requester_pays", "anonymous"})
    settings = {"bucket": found[1], "prefix": found[2], "upload_interval": LOGS_UPLOAD_S, **reached}
    return yaml.safe_dump({"compute_logs": {"module": "caption_assets.steplogs", "class": "S3StepLogs", "config": settings}})


def dagster_home(config_file: Path) -> tuple[Path, bool]:
    """Where Dagster keeps its records, and whether $DAGSTER_HOME named it; else `.dagster_home` beside the config."""
    named = os.environ.get("DAGSTER_HOME")
    if not named:
        return _usable(config_file.parent / ".dagster_home"), False
    home = Path(named).expanduser()
    if not home.is_absolute():
        raise ConfigError(f"DAGSTER_HOME={named}: must be an absolute path")
    return _usable(home), True


def _usable(home: Path) -> Path:
    """Dagster takes the path for a pattern where it looks for dagster.yaml, and for a part of an address for SQLite."""
    if found := re.search(r"[*?[]|%[0-9A-Fa-f]{2}", str(home)):
        raise ConfigError(f"{home}: Dagster takes no folder with {found[0]} in its path: set DAGSTER_HOME to another")
    return home


def throwaway_warning() -> str | None:
    """What to say where plain Dagster would use an instance that ends with the process; None where there is one, or where this
    process only serves code to others."""
    if os.environ.get("DAGSTER_HOME") or {"api", "code-server"}.intersection(sys.argv[1:3]):
        return None
    home = config_path().parent / ".dagster_home"
    return f"DAGSTER_HOME is not set, so Dagster knows no shards and forgets its runs: export DAGSTER_HOME={home}"


def prepare(home: Path, *parts: str) -> bool:
    """Makes the folder, dagster.yaml (with these further parts) and the databases, under a lock: first use by several processes
    at once would break them. True when it was new. An existing dagster.yaml stays as it is. `.prepared` names the database."""
    wait_for_locks()
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        locks.enter_context(_locked(home))
        file, fresh = home / "dagster.yaml", False
        if not file.exists():
            temporary = home / ".dagster.yaml.new"
            temporary.write_text("".join((DAGSTER_YAML, *parts)))
            os.replace(temporary, file)
            fresh = True
        marker, url = home / ".prepared", database_url(home)
        if url:
            locks.enter_context(alone(url))
        database = hidden(url) if url else ""
        if not marker.exists() or marker.read_text() != database:
            with _instance(home) as instance:
                instance.get_runs(limit=1)
                instance.get_dynamic_partitions("none")
                instance.event_log_storage.get_concurrency_keys()
                instance.all_instigator_state()
            marker.write_text(database)
        return fresh


@contextmanager
def open_instance(home: Path, *parts: str) -> Iterator[dg.DagsterInstance]:
    """The instance at `home`, prepared as `prepare` does; child processes find it in DAGSTER_HOME."""
    os.environ["DAGSTER_HOME"] = str(home)
    prepare(home, *parts)
    with _instance(home) as instance:
        yield instance


def _instance(home: Path) -> dg.DagsterInstance:
    from dagster import DagsterInstance, DagsterInvalidConfigError

    try:
        return DagsterInstance.from_config(str(home))
    except DagsterInvalidConfigError as error:
        raise ConfigError(f"{home}/dagster.yaml: {' '.join(str(error).split())[:300]}") from None


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    with open(home / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
