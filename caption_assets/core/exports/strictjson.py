"""Records as JSON that every reader takes. Pure functions.

record_json keeps what was written in a catalog; DuckDB, polars, orjson and pandas refuse some of that, and the file with it.
"""

from __future__ import annotations

import math
import re

import orjson

_LONG = re.compile(r"\d{19}")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)|-?\d[\d.eE+-]*', re.DOTALL)
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


def strict_json(text: str) -> str:
    """The same JSON, but for what some readers refuse: whole numbers beyond 64 bits and numbers beyond a double are texts of the
    same digits, lone surrogates their six characters (as in record_ids), NaN and the infinities null (as in JavaScript)."""
    try:
        orjson.loads(text)
        if not _LONG.search(text):
            return text
    except ValueError:
        pass
    return _TOKEN.sub(lambda token: _strict(token[0]), text)


def _strict(token: str) -> str:
    if token[0] == '"':
        return _ESCAPE.sub(lambda escape: rf"\\{escape[1]}" if escape[1] else escape[0], token) if "\\" in token else token
    if token.endswith(("NaN", "Infinity")):
        return "null"
    if token.lstrip("-").isdecimal():
        fits = len(token) <= 20 and -(1 << 63) <= int(token) < 1 << 64
    else:
        fits = math.isfinite(float(token))
    return token if fits else f'"{token}"'
