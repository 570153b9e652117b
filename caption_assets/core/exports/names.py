"""File names and keys of exported samples: unique, the same on every run, safe in tars and on disks.

A key is the record_id with every character percent-encoded that has a meaning somewhere: dots (readers of tars split names at
the first), glob and path characters, controls. `urllib.parse.unquote` gives the record_id back, but for the rare parts that are
empty (written `%`) or too long (cut, and a hash of the whole added).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

LONGEST_PART = 180
"""Bytes of one part of a path, so that `.extension` and a store's temporary names still fit into 255."""
_SPECIAL = re.compile(r'[%.\\:*?"<>|\[\]{}$\x00-\x1f\x7f]')
EXTENSIONS = {"jpeg": "jpg", "tiff": "tif"}


def sample_key(record_id: str) -> str:
    """The key of a record: folders stay, no dots, at most LONGEST_PART bytes a part. Different records have different keys."""
    encoded = _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", record_id)
    return "/".join([_part(part) for part in encoded.split("/")])


def extension(picture_format: str | None) -> str:
    """The usual file extension of a picture format as merged names it."""
    return EXTENSIONS.get(picture_format or "", picture_format or "bin")


def sidecar_names(paths: Iterable[str], suffix: str, shared: Iterable[str] = ()) -> list[str]:
    """Where the sidecars of pictures go: `cats/001.jpg` → `cats/001.txt`, as trainers look for them.

    Pictures that share a stem (among `paths` and `shared`, the other pictures of their folders) keep their whole name:
    `cats/001.jpg.txt`, `cats/001.png.txt`.
    """
    own = list(paths)
    stems = Counter(_stem(path) for path in {*own, *shared})
    return [f"{_stem(path) if stems[_stem(path)] == 1 else path}.{suffix}" for path in own]


def _stem(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    stem, dot, _ = name.rpartition(".")
    return f"{folder}{slash}{stem}" if dot and stem else path


def _part(part: str) -> str:
    if part.startswith("__"):  # readers of WebDataset take such names for their own
        part = f"%5F{part[1:]}"
    raw = part.encode()
    if len(raw) <= LONGEST_PART:
        return part or "%"
    cut = raw[: LONGEST_PART - 20].decode("utf-8", "ignore")
    return f"{cut}~{hashlib.sha256(raw).hexdigest()[:16]}"
