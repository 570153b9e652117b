"""From what is to be asked to requests that can be sent: reads grids and pictures ahead, and prepares them.

One picture is decoded only where it cannot be sent as its own bytes; that it is whole is known from concat_grids, by its sha256.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

from caption_assets.core.columns import TRANSIENT_REASONS
from caption_assets.core.faults import Fault, PictureFault
from caption_assets.core.images import MEDIA_TYPES, prepare_single
from caption_assets.core.objectstore import ObjectMissing
from caption_assets.core.owed.requests import Ask
from caption_assets.core.owed.shardjob import ShardJob
from caption_assets.core.pictures.gridtars import read_grid
from caption_assets.core.plan.plans import SourceChanged
from caption_assets.core.prompts import grid_text
from caption_assets.core.recipes import sampling_for
from caption_assets.core.sources.pictures import PictureRef, Pictures
from caption_assets.engines.base import ChatRequest

AHEAD = 16
OUTAGE = 20
"""So many pictures in a row that cannot be read for a passing reason are no faults of theirs: the source is away."""


class SourceDown(Exception):
    """The source cannot be read now. The run fails and can be started again."""


class GridsMissing(Exception):
    """The shard's grids were cleaned away and are needed again: concat_grids has to run."""


@dataclass(frozen=True, slots=True)
class Fed:
    """A request ready to be sent, or why its picture cannot be read."""

    ask: Ask
    request: ChatRequest | None
    fault: Fault | None = None


class Feed:
    """Feeds one output of a shard. Single pictures come in the order of asks, grids too; a few are read ahead."""

    def __init__(self, job: ShardJob, output: str) -> None:
        self._job = job
        self._prompt = next(prompt for prompt in job.spec.prompts if prompt.name == output)
        self._pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="feed")

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def feed(self, asks: Iterable[Ask]) -> Iterator[Fed]:
        """Raises SourceChanged, SourceDown, GridsMissing, ObjectError of the store."""
        for whole, group in _runs(asks):
            if whole:
                yield from self._ahead(self._pool.submit(self._grid, ask) for ask in group)
            elif self._prompt.image:
                yield from _without_outage(self._ahead(self._singles(group)))
            else:
                yield from (Fed(ask, self._request(ask, None, None)) for ask in group)

    def _ahead(self, items: Iterator[Future[Fed] | Fed]) -> Iterator[Fed]:
        waiting: deque[Future[Fed] | Fed] = deque()
        for item in items:
            waiting.append(item)
            while waiting and (len(waiting) >= AHEAD or not isinstance(waiting[0], Future) or waiting[0].done()):
                first = waiting.popleft()
                yield first.result() if isinstance(first, Future) else first
        for item in waiting:
            yield item.result() if isinstance(item, Future) else item

    def _grid(self, ask: Ask) -> Fed:
        assert ask.grid is not None
        try:
            data = read_grid(self._job.objects, ask.grid)
        except ObjectMissing as error:
            raise GridsMissing(
                f"{error}; the grids of {self._job.shard} are gone (`keep: until_merged`?): materialize concat_grids again"
            ) from None
        return Fed(ask, self._request(ask, data, MEDIA_TYPES[self._job.spec.grid.format]))

    def _singles(self, asks: Iterable[Ask]) -> Iterator[Future[Fed] | Fed]:
        waiting: deque[Ask] = deque()

        def refs() -> Iterator[PictureRef]:
            for ask in asks:
                waiting.append(ask)
                assert ask.picture is not None
                yield ask.picture

        for ref, data in Pictures(self._job.objects, self._job.spec).stream(refs()):
            ask = waiting.popleft()
            if isinstance(data, Fault):
                yield self._unread(ask, ref, data)
                continue
            if hashlib.sha256(data).hexdigest() != ask.sha256:
                raise SourceChanged(self._job.spec.name, ref.source_uri, f"the picture of {ref.record_id} has another sha256")
            if ask.fits:
                yield self._picture(ask, data)
            else:
                yield self._pool.submit(self._picture, ask, data)

    def _unread(self, ask: Ask, ref: PictureRef, fault: Fault) -> Fed:
        """A picture that a catalog only points to may vanish alone; one that lies in a planned file may not."""
        inside = ref.byte_offset is not None or ref.uri == ref.source_uri or ref.uri.startswith(f"{ref.source_uri}#")
        if fault.reason in ("object_missing", "missing_image") and inside:
            raise SourceChanged(self._job.spec.name, ref.source_uri, f"the picture of {ref.record_id} has gone ({fault.detail})")
        return Fed(ask, None, fault)

    def _picture(self, ask: Ask, data: bytes) -> Fed:
        try:
            prepared = prepare_single(data, self._job.spec.images)
        except PictureFault as error:
            return Fed(ask, None, error.fault)
        return Fed(ask, self._request(ask, prepared.data, prepared.media_type))

    def _request(self, ask: Ask, image: bytes | None, image_type: str | None) -> ChatRequest:
        text = grid_text(ask.slots, ask.texts) if ask.grid else ask.texts[0]
        keys = tuple(str(slot) for slot in ask.slots) if ask.grid else ()
        sampling = sampling_for(self._job.spec, self._prompt, len(ask.slots), ask.attempt)
        return ChatRequest(ask.request_id, text, image, image_type, keys, sampling)


def _runs(asks: Iterable[Ask]) -> Iterator[tuple[bool, Iterable[Ask]]]:
    """Grids, then single requests: lazily, each kind by itself."""
    return groupby(asks, key=lambda ask: ask.grid is not None)


def _without_outage(items: Iterable[Fed]) -> Iterator[Fed]:
    """Holds unreadable pictures back until one is readable again; raises SourceDown when too many follow one another."""
    held: list[Fed] = []
    for fed in items:
        if fed.fault is None or fed.fault.reason not in TRANSIENT_REASONS:
            yield from held
            held = []
            yield fed
            continue
        held.append(fed)
        if len(held) >= OUTAGE:
            raise SourceDown(
                f"{len(held)} pictures in a row cannot be read, the last: {fed.ask.record_ids[0]}: {fed.fault.detail}"
            )
    yield from held
