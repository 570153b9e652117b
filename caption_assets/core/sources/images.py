"""Manifest rows of image folders: one picture file, one record, with the .txt and .json files beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import orjson
import pyarrow as pa

from caption_assets.config import DatasetConfig
from caption_assets.core.objectstore import NotAFile, ObjectError, ObjectMissing, ObjectStore
from caption_assets.core.plan.plans import PlanEntry, SourceChanged
from caption_assets.core.sources.listing import record_path, root_of
from caption_assets.core.sources.names import SIDECAR_EXTENSIONS, extension, is_junk, safe_text, stem
from caption_assets.core.sources.rows import BATCH_ROWS, Rows, Tally
from caption_assets.core.sources.texts import sidecar_json

SIDECAR_LIMIT = 16 << 20
CONCURRENCY = 32

Picture = tuple[PlanEntry, list[str]]
"""A planned picture and the addresses of its sidecars, those named after the whole file first."""


def read_images(
    objects: ObjectStore, spec: DatasetConfig, entries: Iterable[PlanEntry], tally: Tally
) -> Iterator[pa.RecordBatch]:
    """The rows of planned pictures, which stand in order of address, as the plan has them.

    The folder is listed again over their range: that finds the sidecars, and pictures that changed. A picture that is gone has
    its row all the same; whoever reads it learns that it is missing.
    """
    rows = Rows(tally)
    for root, group in groupby(entries, lambda entry: root_of(spec, entry.source_uri)):
        pictures = _with_sidecars(objects, spec, root, iter(group))
        while some := list(islice(pictures, BATCH_ROWS)):
            texts = _read(objects, [uri for _, sidecars in some for uri in sidecars], tally)
            for entry, sidecars in some:
                _add(
                    objects,
                    rows,
                    entry,
                    record_path(spec, entry.source_uri),
                    {extension(uri): texts.get(uri) for uri in reversed(sidecars)},
                )
            yield rows.take()


def _with_sidecars(objects: ObjectStore, spec: DatasetConfig, root: str, entries: Iterator[PlanEntry]) -> Iterator[Picture]:
    """All files that begin with `{stem}.` stand together in a listing: an entry waits only until they have passed."""
    entry = next(entries, None)
    if entry is None:
        return
    waiting: deque[PlanEntry] = deque()
    texts = _Sidecars()
    folder, _, name = entry.source_uri.rpartition("/")
    before = f"{folder}/{name.split('.')[0]}"  # where x.json may stand, if x.a.jpg is first and x.jpg follows
    for info in objects.list(root, min(before, entry.source_uri[:-1])):
        while entry is not None and entry.source_uri <= info.uri:
            if entry.source_uri == info.uri and (info.etag, info.size) != (entry.etag, entry.size):
                raise SourceChanged(spec.name, info.uri, "has changed")
            waiting.append(entry)
            entry = next(entries, None)
        while waiting and _passed(stem(waiting[0].source_uri), info.uri):
            picture = waiting.popleft()
            yield picture, texts.beside(picture.source_uri)
        if entry is None and not waiting:
            return
        texts.forget(waiting[0].source_uri if waiting else info.uri)
        if extension(info.uri) in SIDECAR_EXTENSIONS and not is_junk(info.uri):
            texts.add(info.uri)
    while entry is not None:
        waiting.append(entry)
        entry = next(entries, None)
    for picture in waiting:
        yield picture, texts.beside(picture.source_uri)


def _passed(name: str, current: str) -> bool:
    """Whether a listing that has come to `current` shows no more files that begin with `{name}.`."""
    return current > f"{name}." and not current.startswith(f"{name}.")


class _Sidecars:
    """The sidecars that a picture still to come may want."""

    def __init__(self) -> None:
        self._order: deque[str] = deque()
        self._by_stem: dict[str, list[str]] = {}

    def add(self, uri: str) -> None:
        self._order.append(uri)
        self._by_stem.setdefault(stem(uri), []).append(uri)

    def beside(self, picture: str) -> list[str]:
        return [*self._by_stem.get(picture, ()), *self._by_stem.get(stem(picture), ())]

    def forget(self, current: str) -> None:
        while self._order and _passed(stem(self._order[0]), current):
            self._by_stem.pop(stem(self._order.popleft()), None)


def _read(objects: ObjectStore, uris: list[str], tally: Tally) -> dict[str, str]:
    """Each sidecar's content as JSON; one that is gone by now, or too long, is counted and left out."""
    texts: dict[str, str] = {}
    contents = objects.read_many(((uri, 0, SIDECAR_LIMIT + 1) for uri in uris), CONCURRENCY)
    for uri, content in zip(uris, contents, strict=True):
        if isinstance(content, ObjectError) and not isinstance(content, ObjectMissing):
            raise content
        if isinstance(content, ObjectError) or len(content) > SIDECAR_LIMIT:
            tally.bad_sidecars += 1
        else:
            texts[uri], good = sidecar_json(content, extension(uri))
            tally.bad_sidecars += not good
    return texts


def _add(objects: ObjectStore, rows: Rows, entry: PlanEntry, path: str, sidecars: dict[str, str | None]) -> None:
    path = safe_text(path)
    fields = {"path": orjson.dumps(path).decode(), **{name: text for name, text in sidecars.items() if text is not None}}
    record = "{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}"
    uri = safe_text(entry.source_uri)
    fault = _why_no_bytes(objects, entry.source_uri, path) if entry.size == 0 else (None, None)
    rows.add(path, path, uri, uri, 1, record, None, entry.size, *fault)


def _why_no_bytes(objects: ObjectStore, uri: str, path: str) -> tuple[str, str]:
    """A file without bytes, or no file at all: a pipe has no size either."""
    try:
        with objects.open(uri):
            return "empty_file", f"{path} has no bytes"
    except (NotAFile, ObjectMissing) as error:
        return error.reason, str(error)
