"""What a source holds: its objects in order, the record path of each, and which format it has."""

from __future__ import annotations

import heapq
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from caption_assets.config import DatasetConfig
from caption_assets.core.objectstore import NotAFile, ObjectError, ObjectInfo, ObjectMissing, ObjectStore
from caption_assets.core.plan.plans import PlanError
from caption_assets.core.sources.names import is_junk, kind_of
from caption_assets.core.sources.sniffing import HEAD_BYTES, sniff_kind

PROBED = 100_000
PAGE = 1_000
TEXT = "text"
_WILDCARD = re.compile(r"[*?\[]")


def source_root(source: str, uri: str) -> str | None:
    """The part of `uri` that is the root of `source`, ending in /; None where `uri` is not of this source.

    The root of a folder is the folder, of a file the folder it lies in, of a glob the folder before the first wildcard.
    """
    if uri == source:
        return source[: source.rfind("/") + 1]
    folder = source if source.endswith("/") else f"{source}/"
    if uri.startswith(folder):
        return folder
    if found := _WILDCARD.search(source):
        folder = source[: source.rfind("/", 0, found.start()) + 1]
        return folder if uri.startswith(folder) else None
    return None


def possible_roots(source: str) -> tuple[str, ...]:
    """The roots that `source` has if it is a folder, a file or a glob."""
    before = source[: found.start()] if (found := _WILDCARD.search(source)) else source
    return (source if source.endswith("/") else f"{source}/", source[: source.rfind("/") + 1], before[: before.rfind("/") + 1])


def root_of(spec: DatasetConfig, uri: str) -> str:
    """The root of the source that `uri` is of."""
    return next((root for source in spec.source if (root := source_root(source, uri))), uri[: uri.rfind("/") + 1])


def record_path(spec: DatasetConfig, uri: str) -> str:
    """What a record's id begins with: the path below the source's root; for a list of sources the whole address."""
    root = source_root(spec.source[0], uri) if len(spec.source) == 1 else None
    return uri[len(root) :] if root else uri


def list_sources(objects: ObjectStore, sources: Sequence[str]) -> Iterator[ObjectInfo]:
    """Every object of the sources once, in order of address. PlanError names a source that holds none."""
    if len(sources) == 1:
        yield from list_source(objects, sources[0])
        return
    last = ""
    for info in heapq.merge(*(list_source(objects, source) for source in sources), key=lambda info: info.uri):
        if info.uri != last:
            yield info
        last = info.uri


def list_source(objects: ObjectStore, source: str) -> Iterator[ObjectInfo]:
    """The objects of one folder, file or glob. A name that exists is taken literally before it is taken for a glob."""
    named: ObjectInfo | None = None
    if not source.endswith("/") and not re.fullmatch(r"[a-z0-9]+://[^/]*", source):
        try:
            named = objects.head(source)
            if named.size:
                yield named
                return
        except (ObjectMissing, NotAFile):
            pass
    found = False
    for info in objects.list(source if source.endswith("/") else f"{source}/"):
        found = True
        yield info
    if not found and named is not None:
        found = True  # an empty file, and not the marker of a folder
        yield named
    if not found and (wildcard := _WILDCARD.search(source)):
        matches = glob_pattern(source).fullmatch
        before = source[: wildcard.start()]
        for info in objects.list(before if "://" in source else before[: before.rfind("/") + 1]):
            if matches(info.uri):
                found = True
                yield info
    if not found:
        raise PlanError(f"{source}: {_why_nothing(source)}")


def _why_nothing(source: str) -> str:
    """What a source that holds nothing is, if that can be told."""
    if "://" in source:
        return "there is nothing: look at source in the config"
    if _WILDCARD.search(source):
        return "no file matches: look at source in the config"
    return "the folder is empty" if os.path.isdir(source) else "there is no such file or folder: look at source in the config"


def glob_pattern(glob: str) -> re.Pattern[str]:
    """`*`, `?` and `[…]` match within a folder, `**` across folders."""
    parts, at = [], 0
    while at < len(glob):
        if glob.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            parts.append(".*")
            at += 2
        elif glob[at] in "*?":
            parts.append("[^/]*" if glob[at] == "*" else "[^/]")
            at += 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            chosen = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"(?!/)[{'^' + chosen[1:] if chosen[0] in '!^' else chosen}]")
            at = end + 1
        else:
            parts.append(re.escape(glob[at]))
            at += 1
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise PlanError(
            f"{glob}: what stands in [ ] is no set of characters ({error.msg}): look at source in the config"
        ) from None


def detect(objects: ObjectStore, spec: DatasetConfig, source: str, skip: str | None = None) -> str:
    """The format of a source: as configured, else told from what its first objects are; TEXT for JSONL in files of other names.

    Where several are there, tars win over parquet over JSONL over pictures: the others are their index, or their pictures.
    skip: objects below this address do not count (the store).
    """
    if spec.format not in ("auto", "jsonl"):
        return spec.format
    seen: Counter[str] = Counter()
    texts: list[ObjectInfo] = []
    infos = islice((i for i in list_source(objects, source) if not is_junk(i.uri) and not _skipped(i, skip)), PROBED)
    for info, kind in _kinds(objects, infos):
        seen[kind or "other"] += 1
        if kind == "webdataset" and spec.format == "auto":
            return kind
        if kind in ("sidecar", None):
            texts.append(info)
    for kind in ("parquet", "jsonl", "images") if spec.format == "auto" else ("jsonl",):
        if seen[kind]:
            return kind
    if any(_sniffed(objects, info) == "jsonl" for info in texts[:PAGE]):
        return TEXT
    wanted = "tar, JSONL, parquet or picture" if spec.format == "auto" else "JSONL"
    raise PlanError(f"{source}: holds no {wanted} among its {seen.total()} files")


def files_of(
    objects: ObjectStore, sources: Sequence[str], kind: str, ignored: Counter[str], skip: str | None = None
) -> Iterator[ObjectInfo]:
    """The files of `kind` (as `detect` has it) in these sources, in order of address; the others are counted in `ignored`."""
    infos = (i for i in list_sources(objects, sources) if not _skipped(i, skip) and not _counted_junk(i, ignored))
    for info, found in _kinds(objects, infos):
        if kind == TEXT and found in ("sidecar", None) and _sniffed(objects, info) == "jsonl":
            found = TEXT
        if found == kind or (kind == TEXT and found == "jsonl") or info.uri in sources:
            yield info
        else:
            ignored[found or "other"] += 1


def _skipped(info: ObjectInfo, skip: str | None) -> bool:
    return skip is not None and info.uri.startswith(skip)


def _counted_junk(info: ObjectInfo, ignored: Counter[str]) -> bool:
    junk = is_junk(info.uri)
    ignored["junk"] += junk
    return junk


def _kinds(objects: ObjectStore, infos: Iterator[ObjectInfo]) -> Iterator[tuple[ObjectInfo, str | None]]:
    """Each object with its kind: by its name, and by its content where the name says nothing."""
    while page := list(islice(infos, PAGE)):
        unknown = [info for info in page if kind_of(info.uri) is None and info.size]
        heads = objects.read_many((info.uri, 0, HEAD_BYTES) for info in unknown)
        sniffed = {info.uri: sniff_kind(head) for info, head in zip(unknown, heads, strict=True) if isinstance(head, bytes)}
        for info in page:
            yield info, kind_of(info.uri) or sniffed.get(info.uri)


def _sniffed(objects: ObjectStore, info: ObjectInfo) -> str | None:
    try:
        return sniff_kind(objects.read(info.uri, 0, HEAD_BYTES))
    except ObjectError:
        return None
