"""What nobody needs any more: grids of merged shards, replies to superseded recipes, leases of the dead, torn temporaries.

Never replies to a current recipe, never merged or failed; and nothing of a shard that a run is at work on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from caption_assets.config import DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.loop.leases import is_dead, read_lease
from caption_assets.core.merging import read_pair
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.recipes import dataset_recipe
from caption_assets.core.storage.localstore import TEMPORARY

STRAY_AFTER_S = 3600.0
"""A temporary file that nothing was written to for so long belongs to nobody."""


@dataclass(frozen=True)
class Removed:
    """One object that goes."""

    uri: str
    size: int
    why: str

    def __str__(self) -> str:
        return f"{self.uri} ({self.size:,} bytes): {self.why}"


def clean(
    objects: ObjectStore, layout: Layout, spec: DatasetConfig, recipes: Mapping[str, str], *, dry_run: bool = False
) -> list[Removed]:
    """Removes what is not needed and returns it; with dry_run nothing goes. recipes: the current one of each output."""
    gone = list(_unneeded(objects, layout, spec, recipes))
    if not dry_run:
        for item in gone:
            objects.delete(item.uri)
    return gone


def _unneeded(objects: ObjectStore, layout: Layout, spec: DatasetConfig, recipes: Mapping[str, str]) -> Iterator[Removed]:
    @cache
    def free(shard: str) -> bool:
        lease = read_lease(objects, layout.lease(shard))
        return lease is None or is_dead(objects, layout.lease(shard), lease)

    @cache
    def merged(shard: str) -> bool:
        pair = read_pair(objects, layout, shard)
        return pair is not None and pair.merged.metadata["dataset_recipe"] == dataset_recipe(dict(recipes))

    if spec.grid.keep == "until_merged":
        for info in objects.list(layout.all_grids):
            shard = info.uri[len(layout.all_grids) :].partition("/")[0]
            if info.uri.endswith(".tar") and free(shard) and merged(shard):
                yield Removed(info.uri, info.size, f"grids of {shard}, which is merged")
    for info in objects.list(layout.all_captions):
        shard, _, path = info.uri[len(layout.all_captions) :].partition("/")
        output, _, path = path.partition("/")
        recipe, inside, _ = path.partition("/")
        if inside and not output.startswith("_") and recipes.get(output) != recipe and free(shard):
            yield Removed(info.uri, info.size, f"replies to a superseded recipe of {output}")
    for info in objects.list(layout.all_leases):
        lease = read_lease(objects, info.uri)
        if lease is not None and is_dead(objects, info.uri, lease):
            yield Removed(info.uri, info.size, f"the lease of run {lease.run_id}, which is dead")
    yield from _strays(layout)


def _strays(layout: Layout) -> Iterator[Removed]:
    """Temporary files that killed processes left in a local store."""
    if "://" in layout.root:
        return
    for folder, _, names in os.walk(layout.root):
        for name in names:
            if name.startswith(TEMPORARY):
                path = os.path.join(folder, name)
                try:
                    stat = os.stat(path)
                except FileNotFoundError:
                    continue
                if time.time() - stat.st_mtime > STRAY_AFTER_S:
                    yield Removed(path, stat.st_size, "a temporary file that a killed process left")
