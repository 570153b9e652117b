"""Whether the store can be written to, and whether it refuses to overwrite when asked so."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from caption_assets.config import Config
from caption_assets.core.objectstore import ObjectError, ObjectStore
from caption_assets.core.storage.s3store import S3Objects
from caption_assets.diagnosis.findings import Finding


def store(config: Config) -> Iterator[Finding]:
    """Writes an object, reads it back and deletes it. Folders are not made for it."""
    if "://" not in config.store:
        yield _folder(config.store)
        return
    uri = f"{config.store.rstrip('/')}/.caption-assets-doctor/{secrets.token_hex(8)}"
    objects, data = ObjectStore(config.s3), secrets.token_bytes(32)
    try:
        objects.put_new(uri, data)
        same = objects.read(uri) == data
    except ObjectError as error:
        yield Finding("problem", "store", config.store, str(error), "set store to where these credentials may write")
        return
    finally:
        left = _delete(objects, uri)
    if not same:
        yield Finding("problem", "store", config.store, "what was written came back changed", "use another store")
        return
    if left:
        yield Finding("warning", "store", config.store, f"written, but not deleted again: {left}", "allow DeleteObject there")
    held = objects.of(uri)
    conditional = held.conditional_puts(uri) if isinstance(held, S3Objects) else True
    if conditional:
        yield Finding("ok", "store", config.store, "writable, knows conditional puts")
    else:
        yield Finding(
            "warning", "store", config.store, "writable, but knows no conditional puts (If-None-Match)",
            "plan a dataset in one place at a time: two planners of one instant may not notice each other",
        )  # fmt: skip


def _delete(objects: ObjectStore, uri: str) -> str | None:
    """What keeps it from being deleted."""
    try:
        objects.delete(uri)
    except ObjectError as error:
        return str(error)
    return None


def _folder(path: str) -> Finding:
    folder = existing(Path(path))
    what = "writable" if folder == Path(path) else f"does not exist yet, and can be made in {folder}"
    if not folder.is_dir():
        return Finding("problem", "store", path, f"{folder} is a file", "set store to a folder")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(secrets.token_bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Finding("problem", "store", path, f"{folder}: cannot be written to: {error.strerror}", _remedy(error))
    return Finding("ok", "store", path, what)


def _remedy(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "give this user the right to write there, or set store to another folder"
    return "make room there, or set store to another disk"


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
