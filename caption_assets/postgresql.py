"""Dagster's records in PostgreSQL, for several machines or people: where they lie, and their first use by many at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption_assets.configerrors import ConfigError

if TYPE_CHECKING:
    import sqlalchemy as sa

DRIVER = "postgresql+psycopg2"
LOCK = 0x6361_7074_696F_6E73
"""The advisory lock of whoever makes the tables."""
CONNECT_S = 15


def database_url(home: Path) -> str | None:
    """The database that dagster.yaml names, with what it takes from the environment; None where the records lie in SQLite.

    Raises ConfigError where the file is no YAML, the environment lacks it, or the database could not be opened by anybody.
    """
    import yaml

    file = home / "dagster.yaml"
    try:
        storage = (yaml.safe_load(file.read_text()) or {}).get("storage") or {}
        settings = storage.get("postgres")
    except (yaml.YAMLError, ValueError, AttributeError) as error:
        said = " ".join(str(error).split())[:200]
        raise ConfigError(f"{file}: cannot be read ({said}): mend it, or remove it and run `caption-assets init`") from None
    if settings is None:
        return None
    try:
        from dagster_postgres.utils import pg_url_from_config
    except ImportError:
        raise ConfigError(f"{file}: PostgreSQL needs the extra: pip install 'caption-assets[postgres]'") from None
    url = pg_url_from_config(_resolved(settings, file))
    if not url.startswith(f"{DRIVER}://"):
        scheme = url.partition(":")[0]
        raise ConfigError(f"{file}: PostgreSQL is reached at {DRIVER}://user:password@host/database, not at {scheme}:")
    return url


def _resolved(value: Any, file: Path) -> Any:
    """Settings with {env: NAME} replaced, as Dagster does it."""
    if not isinstance(value, dict):
        return value
    if set(value) != {"env"}:
        return {key: _resolved(part, file) for key, part in value.items()}
    name = str(value["env"])
    if not os.environ.get(name):
        raise ConfigError(f"{file} keeps Dagster's records in PostgreSQL: set {name} to {DRIVER}://user:password@host/database")
    return os.environ[name]


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    """Raises DBAPIError at once when the server cannot be reached, where Dagster would try again and again."""
    import sqlalchemy as sa

    engine = sa.create_engine(url, poolclass=sa.pool.NullPool, connect_args={"connect_timeout": CONNECT_S})
    with engine.connect() as connection:
        yield connection


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Nobody on any machine prepares the database meanwhile. Dagster looks for one table and makes all when it is missing, one
    after the other: a second process would use half of them."""
    import sqlalchemy as sa

    with connected(url) as connection:
        connection.execute(sa.text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
        yield
