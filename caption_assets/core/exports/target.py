"""Where an export goes: its files, and what it says about them so that it can be checked and brought up to date.

`export.json` sums up; `.export/{shard}.json` tells of one shard; `.export/{shard}.jsonl` lists its files with their sizes and
checksums. A shard's files count from the moment its `.json` is there.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from caption_assets.core.damage import Damaged, read_json
from caption_assets.core.exports.selection import ExportError
from caption_assets.core.objectstore import ObjectMissing, ObjectStore, scratch_dir

SUMMARY = "export.json"
NOTES = ".export/"
SUMMARY_KEYS = ("format", "dataset", "records", "files", "bytes", "shards")
NOTE_KEYS = ("recipe", "fingerprint", "records", "files", "bytes", "list_sha256", "left_out", "left_out_examples")
AGAIN = "remove it and export again"
PUTS_AHEAD = 16


class Target:
    """One shard's files in an export. Used as a context: scratch space for the time of writing."""

    def __init__(self, objects: ObjectStore, folder: str, shard: str) -> None:
        self.objects, self.folder, self.shard = objects, folder, shard
        self.files = self.bytes = self.records = 0
        self.left_out: list[str] = []
        """Records whose picture cannot be read now, as `record: reason: detail`."""

    def __enter__(self) -> Target:
        self._scratch = tempfile.TemporaryDirectory(prefix="caption-assets-", dir=scratch_dir())
        self.scratch = Path(self._scratch.name)
        self._list = open(self.scratch / "files.jsonl", "wb")
        self._puts: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(PUTS_AHEAD)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._list.close()
        self._scratch.cleanup()

    def put(self, name: str, data: bytes, records: int = 0) -> None:
        """A small file; many are written side by side, since each waits for the disk or the network."""
        self.add(name, len(data), hashlib.sha256(data).hexdigest(), records)
        self._puts.append(self._pool.submit(self.objects.put, self.folder + name, data))
        if len(self._puts) >= 2 * PUTS_AHEAD:
            self._settle()

    def put_file(self, name: str, path: Path, records: int) -> None:
        """A finished scratch file, moved away."""
        self.add(name, path.stat().st_size, file_sha256(path), records)
        self.objects.put_file(self.folder + name, path)

    def add(self, name: str, size: int, sha256: str, records: int) -> None:
        """A file that somebody else has put there. size in bytes."""
        line = {"name": name, "bytes": size, "sha256": sha256, "records": records}
        self._list.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self.files, self.bytes, self.records = self.files + 1, self.bytes + size, self.records + records

    def finish(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Publishes the shard's list and note, after its files; files that only an earlier export of it had are removed."""
        self._settle()
        self._list.close()
        path = self.scratch / "files.jsonl"
        earlier = {line["name"] for line in listed(self.objects, self.folder, self.shard)}
        if earlier:
            with open(path, "rb") as lines:
                earlier -= {json.loads(line)["name"] for line in lines}
        note = {
            **facts,
            "records": self.records,
            "files": self.files,
            "bytes": self.bytes,
            "list_sha256": file_sha256(path),
            "left_out": len(self.left_out),
            "left_out_examples": self.left_out[:5],
        }
        self.objects.put_file(list_uri(self.folder, self.shard), path)
        self.objects.put(note_uri(self.folder, self.shard), _json(note))
        for name in earlier:
            self.objects.delete(self.folder + name)
        return note

    def _settle(self) -> None:
        for put in self._puts:
            put.result()
        self._puts.clear()


def note_uri(folder: str, shard: str) -> str:
    return f"{folder}{NOTES}{shard}.json"


def list_uri(folder: str, shard: str) -> str:
    return f"{folder}{NOTES}{shard}.jsonl"


def note(objects: ObjectStore, folder: str, shard: str) -> dict[str, Any] | None:
    """What an export says of a shard; None where it is not in it."""
    return _read(objects, note_uri(folder, shard), NOTE_KEYS)


def listed(objects: ObjectStore, folder: str, shard: str) -> Iterator[dict[str, Any]]:
    """The files of a shard: name, bytes, sha256, records."""
    uri = list_uri(folder, shard)
    try:
        with objects.open(uri) as lines:
            yield from (json.loads(line) for line in lines)
    except ObjectMissing:
        return
    except ValueError as error:
        raise Damaged(uri, error, AGAIN) from None


def begin(objects: ObjectStore, folder: str, head: dict[str, Any]) -> None:
    """Claims an empty folder, or finds that it holds this very export; one that ended before its first file holds none. Raises
    ExportError."""
    empty = {**head, "records": 0, "files": 0, "bytes": 0, "recipes": {}, "shards": {}}
    found = summary_of(objects, folder)
    if found is None:
        other = next(iter(objects.list(folder)), None)
        if other is None and objects.put_new(folder + SUMMARY, _json(empty)):
            return
        found = summary_of(objects, folder)  # another shard's export may have begun meanwhile
        if found is None:
            raise ExportError(f"{folder} is not empty and is no export ({other and other.uri}): choose an empty or new folder")
    for key, value in head.items():
        if found.get(key) != value:
            if all(info.uri == folder + SUMMARY for info in objects.list(folder)):
                objects.put(folder + SUMMARY, _json(empty))
                return
            raise ExportError(
                f"{folder} holds another export ({key} is {found.get(key)!r}, not {value!r}): choose another folder"
            )


def sum_up(objects: ObjectStore, folder: str, head: dict[str, Any]) -> dict[str, Any]:
    """Writes export.json from the shards' notes. Several runs may do so at once: whoever is last has seen all notes."""
    while True:
        before = noted(objects, folder)
        known = (summary_of(objects, folder) or {}).get("shards", {})
        shards: dict[str, Any] = {}
        for shard, etag in before.items():
            old = known.get(shard, {})
            fresh = old if old.get("etag") == etag else note(objects, folder, shard)
            if fresh is not None:
                shards[shard] = {**fresh, "etag": etag}
        recipes: dict[str, int] = {}
        for entry in shards.values():
            recipes[entry["recipe"]] = recipes.get(entry["recipe"], 0) + 1
        totals = {key: sum(entry[key] for entry in shards.values()) for key in ("records", "files", "bytes", "left_out")}
        summary = {**head, **totals, "recipes": recipes, "shards": shards}
        objects.put(folder + SUMMARY, _json(summary))
        if noted(objects, folder) == before:
            return summary


def noted(objects: ObjectStore, folder: str) -> dict[str, str]:
    """The shards that have a note, with its etag."""
    start = len(folder + NOTES)
    names = ((info.uri[start:], info.etag) for info in objects.list(folder + NOTES))
    return {name.removesuffix(".json"): etag for name, etag in names if name.endswith(".json") and name.count(".") == 1}


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


def summary_of(objects: ObjectStore, folder: str) -> dict[str, Any] | None:
    """What an export's export.json says; None where there is none. Raises Damaged."""
    found = _read(objects, folder + SUMMARY, SUMMARY_KEYS)
    shards = found["shards"] if found else {}
    if not isinstance(shards, dict) or not all(_whole(entry) for entry in shards.values()):
        raise Damaged(folder + SUMMARY, "it does not say what its shards hold", AGAIN)
    return found


def _whole(entry: Any) -> bool:
    counts = ("records", "files", "bytes")
    return isinstance(entry, dict) and entry.keys() >= set(NOTE_KEYS) and all(isinstance(entry[key], int) for key in counts)


def _read(objects: ObjectStore, uri: str, keys: Collection[str]) -> dict[str, Any] | None:
    try:
        return read_json(objects, uri, AGAIN, keys)
    except ObjectMissing:
        return None


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()
