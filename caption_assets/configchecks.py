"""What single values of caption_assets.yaml may be, where a type does not say it: names, places, limits of one another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from caption_assets.core.hiding import hidden

NAME = re.compile(r"[a-z][a-z0-9_]*")
LONGEST_NAME = 100
"""Names become folders, columns and Dagster's keys."""
LARGEST_SEED = 2**63 - 1
"""What vLLM takes."""
OWN_SERVER_ARGS = ("host", "port", "api_key", "model", "revision", "served_model_name", "trust_remote_code")
"""Set by this program."""


def name(value: str) -> str:
    if not NAME.fullmatch(value) or len(value) > LONGEST_NAME:
        raise ValueError(f"must be lower-case letters, digits and _, beginning with a letter, {LONGEST_NAME} at most")
    return value


def place(value: str, schemes: Sequence[str]) -> str:
    """A local path or an address of one of these schemes, without credentials; an empty one would be the config's own folder."""
    if not value.strip():
        raise ValueError("is empty: name a place")
    try:
        bad = 0 in value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        bad = True
    if bad:
        raise ValueError("holds a character that no file name has")
    scheme, found, rest = value.partition("://")
    if found and scheme not in schemes:
        raise ValueError(f"must be a local path{''.join(f' or {s}://…' for s in schemes)}; {scheme}:// is not known here")
    if found and not rest.partition("/")[0]:
        raise ValueError(f"names nothing behind {scheme}://")
    if found and "@" in rest.partition("/")[0]:
        raise ValueError("must be without user or password: credentials come from the environment or s3.profile")
    return value


def environment_name(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("must be the NAME of an environment variable that holds the key, never the key itself")
    return value


def server(url: str | None, path: str = "") -> str | None:
    """http(s)://host:port and a path. Dagster's pages and messages show it, so that a secret has no place in it."""
    if url is not None and not re.fullmatch(r"https?://[^/\s@?#]+(/[^\s?#]*)?", url):
        shown = hidden(url.rpartition("@")[2] if "://" not in url else url)
        raise ValueError(f"{shown!r}: must be http(s)://host:port{path}, without user or password, and without ?")
    return url


def endpoints(values: list[str]) -> list[str]:
    """Addresses up to /v1, each once, without a / at the end."""
    return list(dict.fromkeys(url.rstrip("/") for url in values if server(url, "/v1")))


def server_args(values: dict[str, Any]) -> dict[str, Any]:
    owned = sorted(name for name in values if name.lstrip("-").replace("-", "_") in OWN_SERVER_ARGS)
    if owned:
        raise ValueError(f"{', '.join(owned)}: set by this program, not here (use engine.model, engine.revision, …)")
    return values


def no_booleans(values: Any, numbers: Sequence[str]) -> None:
    """YAML's yes, no, on and off are true and false, which Python would count as 1 and 0."""
    if isinstance(values, Mapping):
        for key in numbers:
            if isinstance(values.get(key), bool):
                raise ValueError(f"{key}: must be a number (got {values[key]!r})")


def in_order(low: tuple[str, float], high: tuple[str, float]) -> None:
    if low[1] > high[1]:
        raise ValueError(f"{low[0]} ({low[1]}) must not be above {high[0]} ({high[1]})")


def apart(dataset: str, sources: Sequence[str], store: str) -> None:
    """A source is neither the store nor what this very dataset writes there: it would read its own results."""
    root = store.rstrip("/")
    for source in sources:
        at = source.rstrip("/")
        if at == root or at == f"{root}/{dataset}" or at.startswith(f"{root}/{dataset}/"):
            raise ValueError(f"datasets: {dataset}: the source {source} is where the results go: choose another folder for store")
