"""JSON and other text that strangers wrote: every digit kept, lone surrogates kept, nothing raised that is not a ValueError."""

from __future__ import annotations

import codecs
import json
from typing import Any

import orjson

from caption_assets.core.sources.names import safe_text

DIGITS = 4000
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def parse(line: bytes) -> tuple[Any, str]:
    """The value of a JSON text and the text itself as valid UTF-8, losslessly: what is no UTF-8 becomes escapes.

    Integers of more than DIGITS digits are strings of digits. Whole numbers beyond 64 bits may come as floats: see `exact`.
    Raises ValueError.
    """
    try:
        return orjson.loads(line), line.decode()
    except ValueError:
        text = _decoded(line)
        return exact(text), text


def exact(text: str) -> Any:
    """The value with every digit of whole numbers; takes NaN and lone surrogates. Raises ValueError."""
    try:
        return _EXACT.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def id_text(value: Any, text: str, find: Any) -> str | None:
    """A catalog's id as text with its digits as written. `find(record)` finds it in the record, whose JSON is `text`."""
    if value is None or isinstance(value, str):
        return None if value is None else safe_text(value)
    if isinstance(value, float):
        return str(find(_AS_WRITTEN.decode(text)))
    return safe_text(json.dumps(value, ensure_ascii=False))


def sidecar_json(content: bytes, ending: str) -> tuple[str, bool]:
    """A sidecar's content as JSON text, and whether it could be read without loss.

    Text is decoded by its byte order mark, else as UTF-8 with U+FFFD for what is none; a .json that is none is kept as text.
    """
    if ending == "json":
        try:
            orjson.loads(content)
            return content.decode().strip(), True
        except ValueError:
            pass
    text, good = _by_bom(content)
    if ending == "json":
        try:
            exact(text)
            return safe_text(text.strip()), good
        except ValueError:
            good = False
    return orjson.dumps(text).decode(), good


def _by_bom(content: bytes) -> tuple[str, bool]:
    encoding, start = next(((name, len(bom)) for bom, name in _BOMS if content.startswith(bom)), ("utf-8", 0))
    try:
        return content[start:].decode(encoding), True
    except UnicodeDecodeError:
        return content[start:].decode(encoding, "replace"), False


def _decoded(line: bytes) -> str:
    for errors in ("strict", "surrogatepass", "surrogateescape"):
        try:
            return safe_text(line.decode("utf-8", errors))
        except UnicodeDecodeError:
            continue
    raise ValueError("no text")  # surrogateescape takes every byte


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS else digits


_EXACT = json.JSONDecoder(parse_int=_integer)
_AS_WRITTEN = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
