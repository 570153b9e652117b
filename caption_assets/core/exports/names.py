"""File names and keys of exported samples: unique, the same on every run, safe in tars and on disks.

A key is the record_id with every character percent-encoded that has a meaning somewhere: dots (readers of tars split names at
the first), glob and path characters, controls. `urllib.parse.unquote` gives the record_id back, but for the rare parts that are
empty (written `%`) or too long (cut, and a hash of the whole added).
"""

from __future__ import annotations

import hashlib
import re

LONGEST_PART = 180
"""Bytes of one part of a path, so that `.extension` and a store's temporary names still fit into 255."""
_SPECIAL = re.compile(r'[%.\\:*?"<>|\[\]{}$\x00-\x1f\x7f]')
_CONTROL = re.compile(r"[\\\x00-\x1f\x7f]")
EXTENSIONS = {"jpeg": "jpg", "tiff": "tif"}


def sample_key(record_id: str) -> str:
    """The key of a record: folders stay, no dots, at most LONGEST_PART bytes a part. Different records have different keys."""
    encoded = _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", record_id)
    return "/".join([_part(part) for part in encoded.split("/")])


def extension(picture_format: str | None) -> str:
    """The usual file extension of a picture format as merged names it."""
    return EXTENSIONS.get(picture_format or "", picture_format or "bin")


def split_record(record_id: str, source_uri: str) -> tuple[str, str | None]:
    """A record_id's path below the root, and its member or line; None for a file of its own."""
    if source_uri.endswith(record_id):
        return record_id, None
    cuts = [match.start() for match in re.finditer("#", record_id) if source_uri.endswith(record_id[: match.start()])]
    return (record_id[: cuts[-1]], record_id[cuts[-1] + 1 :]) if cuts else (record_id, None)


def mirror_path(record_id: str, source_uri: str) -> str:
    """Where a record lies in a mirror of its source: a file at its own path, a member of a tar below the tar's path, a line of a
    catalog at `{catalog}/{line}`."""
    path, member = split_record(record_id, source_uri)
    if member is not None:
        path = f"{path}/{member.zfill(9) if member.isdecimal() else member}"
    return safe_path(path)


def safe_path(path: str) -> str:
    """The path as one that never leads out of a folder, nor to an export's own files."""
    first, *rest = [_safe_part(part) for part in path.split("/")]
    first = {".export": "%2Eexport", "export.json": "export%2Ejson"}.get(first, first)
    return "/".join([first, *rest])


def stem(path: str) -> str:
    """The path without its last extension."""
    folder, slash, name = path.rpartition("/")
    base, dot, _ = name.rpartition(".")
    return f"{folder}{slash}{base}" if dot and base else path


def _part(part: str) -> str:
    if part.startswith("__"):  # readers of WebDataset take such names for their own
        part = f"%5F{part[1:]}"
    return _short(part) or "%"


def _safe_part(part: str) -> str:
    """A part of a path that stays one: no step upwards, nothing empty, no controls."""
    if part in ("", ".", ".."):
        return "%2E" * len(part) or "%"
    return _short(_CONTROL.sub(lambda match: f"%{ord(match[0]):02X}", part))


def _short(part: str) -> str:
    raw = part.encode()
    if len(raw) <= LONGEST_PART:
        return part
    cut = raw[: LONGEST_PART - 20].decode("utf-8", "ignore")
    return f"{cut}~{hashlib.sha256(raw).hexdigest()[:16]}"
