"""What people are told about a value of caption_assets.yaml that cannot be used: its key, what is allowed, and what it is."""

from __future__ import annotations

from typing import Any

from caption_assets.core.hiding import hidden

SECRETIVE = ("api_key_env", "endpoints", "endpoint_url")
"""Keys into which people put keys and passwords by mistake: an error does not repeat what stands there."""


class ConfigError(Exception):
    """The configuration cannot be used. The message names the file, the key, the value and what is allowed."""


def describe_error(error: Any, where: str = "") -> str:
    """One pydantic error as `key: what is allowed (got value)`."""
    key = ".".join(str(p) for p in ((where,) if where else ()) + tuple(error["loc"]) if p not in ("auto",))
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key (got {_short(error['input'])}); see docs/config.md for the keys that exist here"
    if error["type"] == "missing":
        return f"{key}: is required"
    whole = error["type"] == "value_error" and isinstance(error["input"], dict)
    if not key or whole or any(part in SECRETIVE for part in error["loc"]):
        return f"{key}: {message}" if key else message
    return f"{key}: {message} (got {_short(error['input'])})"


def _short(value: Any) -> str:
    text = hidden(repr(value))
    return text if len(text) <= 120 else text[:117] + "..."
