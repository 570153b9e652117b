"""Whether a source holds enough new files to plan them: listed minus planned, without memory of its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow.compute as pc

from caption_assets.config import DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.comparing import Comparison
from caption_assets.core.plan.plans import load_plan
from caption_assets.core.planning import kinds_of_sources, planned_kind, source_files

T = TypeVar("T")


@dataclass(frozen=True)
class Notice:
    """new: files that no shard has and that are old enough; unsettled: younger ones, perhaps still being copied; complete: False
    when the source is so large that the time ran out, and then the counts are of its first part."""

    new: int
    unsettled: int
    complete: bool


class _TimeUp(Exception):
    pass


def notice_new(
    objects: ObjectStore, layout: Layout, spec: DatasetConfig, *, settle_s: float = 0, within_s: float | None = None
) -> Notice:
    """Compares the listing with the plan, for at most `within_s` seconds. Raises PlanError and ObjectError as planning does."""
    end = time.monotonic() + within_s if within_s is not None else None
    newest, new, unsettled = time.time() - settle_s, 0, 0
    plan = load_plan(objects, layout)
    try:
        for kind, sources in kinds_of_sources(objects, layout, spec, plan).items():
            files = _until(end, source_files(objects, layout, sources, kind, Counter()))
            for batch in Comparison(plan, planned_kind(kind)).new(files):
                young = pc.sum(pc.greater(batch.column("mtime"), newest)).as_py() or 0
                new, unsettled = new + batch.num_rows - young, unsettled + young
    except _TimeUp:
        return Notice(new, unsettled, complete=False)
    return Notice(new, unsettled, complete=True)


def _until(end: float | None, items: Iterable[T]) -> Iterator[T]:
    for number, item in enumerate(items):
        if end is not None and number % 1000 == 0 and time.monotonic() > end:
            raise _TimeUp
        yield item
