"""Manifest rows of WebDataset tars: members are grouped into samples; every picture of a sample is a record."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson
import pyarrow as pa

from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.plans import PlanEntry
from caption_assets.core.sources.decompression import Stream, UnsupportedCompression
from caption_assets.core.sources.names import (
    CONTENT_EXTENSIONS,
    IMAGE_EXTENSIONS,
    is_junk,
    safe_text,
    sample_key,
    stem,
)
from caption_assets.core.sources.rows import Rows, Seen, Tally
from caption_assets.core.sources.sniffing import is_picture
from caption_assets.core.sources.tarindex import Member, TarIndex
from caption_assets.core.sources.texts import sidecar_json

SIDECAR_LIMIT = 16 << 20
SNIFFED = 64
GROUP_LIMIT = 4096
DEFERRED_LIMIT = 50_000
_LINKS = ("link", "symlink")
_REFUSED = {
    "other": ("not_a_file", "is a device, a pipe or a part of a file"),
    "sparse": ("unsupported_format", "is stored as a sparse file"),
}


Text = tuple[Member, str, str, bool]
"""A sidecar, its field's name, its content as JSON, and whether that is without loss."""


@dataclass
class _Sample:
    """Members of one key that stand together: pictures with their number among the tar's records and their name in ids."""

    key: str
    pictures: list[tuple[Member, int, str]] = field(default_factory=list)
    sidecars: list[tuple[Member, str]] = field(default_factory=list)


def read_tar(objects: ObjectStore, entry: PlanEntry, path: str, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows of one tar; a fault of the whole file is one more row, `{path}#`."""
    rows = Rows(tally)
    try:
        with Stream(objects.open(entry.source_uri)) as stream:
            yield from _Tar(entry.source_uri, path, rows, tally).read(TarIndex(stream, entry.size, _wanted))
    except UnsupportedCompression as error:
        detail = f"tars packed with {error} are not read; gz and zst are"
        rows.add(f"{path}#", None, entry.source_uri, entry.source_uri, 0, reason="unsupported_compression", detail=detail)
    yield rows.take()


def _wanted(name: str, size: int) -> int:
    """How many bytes of a member are needed: all of a sidecar, the beginning of what its name does not tell."""
    ending = name[name.rfind(".") + 1 :].lower()
    if ending in IMAGE_EXTENSIONS:
        return 0
    return min(size, SIDECAR_LIMIT if ending in CONTENT_EXTENSIONS else SNIFFED)


class _Tar:
    def __init__(self, uri: str, path: str, rows: Rows, tally: Tally) -> None:
        self._uri, self._path, self._rows, self._tally = safe_text(uri), path, rows, tally
        self._names, self._keys = Seen(), Seen()
        self._repeats: dict[str, int] = {}
        self._sample = _Sample("")
        self._records = self._sidecars = 0
        self._links: list[tuple[Member, int, str]] = []
        self._lonely: dict[str, Member] = {}
        self._reopened: str | None = None

    def read(self, index: TarIndex) -> Iterator[pa.RecordBatch]:
        for members in index.batches():
            self._take(members)
            if self._rows.full:
                yield self._rows.take()
        self._close(_Sample(""))
        self._settle()
        faults = [("truncated_shard", index.damage.detail)] if index.damage else []
        if self._reopened and self._sidecars:
            detail = f"the members of a sample do not stand together, first seen at {self._reopened!r}: texts are not joined"
            faults.append(("unordered_shard", detail))
        if faults:
            detail = safe_text("; ".join(detail for _, detail in faults))
            self._rows.add(f"{self._path}#", None, self._uri, self._uri, 0, reason=faults[0][0], detail=detail)

    def _take(self, members: list[Member]) -> None:
        files = [m for m in members if m.kind != "folder" and not is_junk(m.name)]
        self._tally.ignored += len(members) - len(files)
        keys = [sample_key(m.name) for m in files]
        repeated = self._names.before([m.name.removeprefix("./") for m in files])
        opening = [i for i, (key, _) in enumerate(keys) if key != (keys[i - 1][0] if i else self._sample.key)]
        reopened = dict(zip(opening, self._keys.before([keys[i][0] for i in opening]), strict=True))
        for i, (member, (key, name)) in enumerate(zip(files, keys, strict=True)):
            if i in reopened:
                self._close(_Sample(key))
            if i in reopened and reopened[i] and not repeated[i]:
                self._reopened = self._reopened or member.name
            self._place(member, name, bool(repeated[i]))

    def _place(self, member: Member, name: str, repeated: bool) -> None:
        """Puts a member into the open sample."""
        ending = name.rpartition(".")[2]
        if ending in IMAGE_EXTENSIONS or (member.kind == "file" and member.content and is_picture(member.content)):
            self._records += 1
            shown = self._repeat(member.name) if repeated else member.name
            if member.kind in _LINKS and not repeated:
                self._links.append((member, self._records, self._sample.key))
            else:
                self._sample.pictures.append((member, self._records, shown))
            if len(self._sample.pictures) > GROUP_LIMIT or len(self._links) > DEFERRED_LIMIT:
                self._close(_Sample(self._sample.key))
                self._settle_links()
        elif ending in CONTENT_EXTENSIONS and member.kind == "file" and not repeated:
            self._sidecars += 1
            self._sample.sidecars.append((member, name))
        else:
            self._tally.ignored += 1

    def _repeat(self, name: str) -> str:
        """`name~n` for the n-th member of a name, from 2."""
        while True:
            number = self._repeats[name] = self._repeats.get(name, 1) + 1
            shown = f"{name}~{number}"
            if not self._names.before([shown])[0]:
                return shown

    def _close(self, following: _Sample) -> None:
        """Makes the open sample's pictures records, each with the texts that are its own."""
        sample, self._sample = self._sample, following
        if sample.pictures:
            self._lonely.pop(sample.key, None)
        elif sample.sidecars and sample.key not in self._lonely and self._reopened is None:
            self._lonely[sample.key] = sample.sidecars[0][0]._replace(content=b"")
            if len(self._lonely) > DEFERRED_LIMIT:
                self._settle_lonely()
        texts = [(m, name, *sidecar_json(m.content, name.rpartition(".")[2])) for m, name in sample.sidecars]
        self._tally.bad_sidecars += sum(not good for *_, good in texts)
        for member, number, shown in sample.pictures:
            fields = {"__key__": orjson.dumps(safe_text(sample.key)).decode()}
            for name, text in _texts_of(member, sample.pictures, texts):
                fields.setdefault(name, text)
            record = "{" + ",".join([f"{orjson.dumps(safe_text(k)).decode()}:{v}" for k, v in fields.items()]) + "}"
            self._add(member, number, shown, sample.key, record)

    def _add(
        self, member: Member, number: int, shown: str, key: str, record: str | None, fault: tuple[str, str] | None = None
    ) -> None:
        if shown != member.name:
            fault = ("duplicate_key", f"an earlier member of the tar has the same name, {member.name!r}; the first one is kept")
        elif member.kind in _REFUSED:
            fault = (_REFUSED[member.kind][0], f"{member.name!r} {_REFUSED[member.kind][1]}")
        elif fault is None and member.size == 0:
            fault = ("empty_file", f"{member.name!r} has no bytes")
        reason, detail = fault or (None, None)
        self._rows.add(
            f"{self._path}#{safe_text(shown)}",
            safe_text(key),
            f"{self._uri}#{safe_text(member.name)}",
            self._uri,
            number,
            record,
            member.offset,
            member.size,
            reason,
            safe_text(detail) if detail else None,
        )

    def _settle(self) -> None:
        self._settle_links()
        self._settle_lonely()

    def _settle_links(self) -> None:
        """Links are not followed; whether what they point to is in the tar is known at its end."""
        links, self._links = self._links, []
        for member, number, key in links:
            folder = posixpath.dirname(member.name) if member.kind == "symlink" else ""
            target = posixpath.normpath(posixpath.join(folder, member.link))
            if self._names.has(target):
                fault = ("link_member", f"{member.name!r} is a link to {member.link!r}, which is a member itself")
            else:
                fault = ("missing_target", f"{member.name!r} is a link to {member.link!r}, which is not in the tar")
            self._add(member, number, member.name, key, None, fault)

    def _settle_lonely(self) -> None:
        """Samples that have texts and no picture."""
        lonely, self._lonely = self._lonely, {}
        for key, member in lonely.items():
            self._records += 1
            fault = ("missing_image", f"the sample of {member.name!r} has no picture")
            self._add(member, self._records, member.name, key, None, fault)


def _texts_of(picture: Member, pictures: list[tuple[Member, int, str]], texts: list[Text]) -> Iterator[tuple[str, str]]:
    """Field names and JSON of the sidecars of one of a sample's pictures: those named after it, and those after none."""
    if len(pictures) == 1 and not any("." in name for _, name, _, _ in texts):
        yield from ((name, text) for _, name, text, _ in texts)
        return
    everyones = {name for member, _, _ in pictures for name in (member.name, stem(member.name))}
    for member, name, text, _ in texts:
        owner = stem(member.name)
        if owner in (picture.name, stem(picture.name)):
            yield name.rpartition(".")[2], text
        elif owner not in everyones:
            yield name, text
