"""`plan --accept-changed`: the shards of a changed file are retired and planned anew, under new keys, from what is there now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from caption_assets.config import DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.core.plan.generations import GenerationWriter
from caption_assets.core.plan.plans import Plan, PlanEntry, PlanError
from caption_assets.core.plan.sharding import File, Keys, Piece, Shard, cut, packed, piece_rows, records_of
from caption_assets.core.sources.listing import possible_roots, root_of


def replace_changed(objects: ObjectStore, layout: Layout, spec: DatasetConfig, plan: Plan, name: str) -> list[str]:
    """Plans the shards that hold the file `name` (its address, or its path below the source) anew; returns the new keys.

    What else changed in these shards is accepted with it, or the new ones could not be read either. Raises PlanError when no
    active shard has the file, when it did not change, and when nothing is left of its shards.
    """
    uri = _planned_address(spec, plan, name)
    old, now = _affected(objects, spec, plan, uri)
    entries = [entry for shard in old.values() for entry in shard]
    if all(_same(entry, now.get(uri)) for entry in entries if entry.source_uri == uri):
        raise PlanError(f"{uri}: is as it was planned; there is nothing to accept")
    kind = entries[0].kind
    groups = _groups(objects, spec, kind, entries, now)
    if not groups:
        raise PlanError(f"{uri}: is gone, and nothing is left of its shard")
    writer = GenerationWriter(objects, layout, len(plan.generations), kind, plan.kinds)
    keys, new = Keys(plan, spec), []
    for at, group in enumerate(groups):
        replaced = list(old)[at : at + 1 if at + 1 < len(groups) else None] or [list(old)[-1]]
        was_replacement = bool(plan.planned[replaced[0]].replaces)
        key = keys.replacing(replaced[0], was_replacement, writer.number) if at < len(old) else keys.numbered()
        rows = piece_rows(key, kind, group, writer.number, replaced[0])
        # A plan row names one retired shard: further ones stand in rows without records.
        none = [Piece(group[-1].file, 0, 0, 0, 0)]
        for other in replaced[1:]:
            rows += piece_rows(key, kind, none, writer.number, other)
        writer.add(Shard(key, records_of(group), tuple(replaced), rows))
        new.append(key)
    writer.close()
    return new


def _planned_address(spec: DatasetConfig, plan: Plan, name: str) -> str:
    """The planned file that `name` means."""
    below = (f"{root}{name}" for source in spec.source for root in possible_roots(source))
    for uri in (name, *below, os.path.abspath(name)):
        if plan.shards_of(uri):
            return uri
    raise PlanError(f"{name}: no shard of the plan holds such a file")


def _affected(
    objects: ObjectStore, spec: DatasetConfig, plan: Plan, uri: str
) -> tuple[dict[str, list[PlanEntry]], dict[str, File]]:
    """The shards to replace, in plan order, and their files as they are now."""
    shards: dict[str, list[PlanEntry]] = {}
    now: dict[str, File] = {}
    waiting = [uri]
    while waiting:
        for shard in plan.shards_of(waiting.pop()):
            if shard in shards:
                continue
            entries = shards[shard] = list(plan.entries(shard))
            now.update(_current(objects, spec, entries))
            waiting += {entry.source_uri for entry in entries if not _same(entry, now.get(entry.source_uri))}
    return {key: shards[key] for key in plan.shards if key in shards}, now


def _same(entry: PlanEntry, file: File | None) -> bool:
    return file is not None and (file.etag, file.size) == (entry.etag, entry.size)


def _current(objects: ObjectStore, spec: DatasetConfig, entries: Sequence[PlanEntry]) -> dict[str, File]:
    """The entries' files as they are now, by address, without those that are gone. Pictures are listed, not asked one by one."""
    uris = dict.fromkeys(entry.source_uri for entry in entries)
    found: dict[str, File] = {}
    if entries[0].kind == "images":
        last = max(uris)
        for info in objects.list(root_of(spec, entries[0].source_uri), min(uris)[:-1]):
            if info.uri > last:
                break
            if info.uri in uris:
                found[info.uri] = File(info.uri, info.size, info.etag)
        return found
    for uri in uris:
        try:
            info = objects.head(uri)
            found[uri] = File(uri, info.size, info.etag)
        except ObjectMissing:
            continue
    return found


def _groups(
    objects: ObjectStore, spec: DatasetConfig, kind: str, entries: list[PlanEntry], now: dict[str, File]
) -> list[list[Piece]]:
    """The new shards: what did not change stays cut as it was."""
    pieces = list(_pieces(objects, spec, kind, entries, now))
    if kind in ("jsonl", "parquet"):
        return list(packed(pieces, spec.shard_size))
    return [pieces] if pieces else []


def _pieces(
    objects: ObjectStore, spec: DatasetConfig, kind: str, entries: list[PlanEntry], now: dict[str, File]
) -> Iterator[Piece]:
    done = set()
    for entry in entries:
        file = now.get(entry.source_uri)
        if file is None or entry.source_uri in done:
            continue
        if _same(entry, file):
            yield Piece(file, entry.start, entry.count, entry.byte_offset, entry.byte_length)
        else:
            done.add(file.uri)
            yield from cut(objects, kind, file, spec.shard_size)
