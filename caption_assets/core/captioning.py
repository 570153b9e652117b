"""Captioning one shard: feed, engine and store overlap, nothing is lost, nothing is asked twice.

The store is the only memory: what is owed is read from the chunks that lie there, replies are stored within seconds, and what an
endpoint found lying had answered is revoked and asked again before the shard ends. A run that is killed is continued by the next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from caption_assets.config import DatasetConfig, EngineConfig
from caption_assets.core.layout import Layout
from caption_assets.core.loop.asking import Asking, Tally
from caption_assets.core.loop.feeding import Feed, GridsMissing, SourceDown
from caption_assets.core.loop.storing import StoreThread
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.owed.requests import Choice, Pending, Requests
from caption_assets.core.owed.rounds import Owed, Round, Stage
from caption_assets.core.owed.shardjob import ShardJob
from caption_assets.core.plan.plans import SourceChanged
from caption_assets.core.replies.chunks import CAPTIONS_SCHEMA, ChunkWriter, data_version, read_chunks
from caption_assets.core.tables import TableHandle
from caption_assets.engines.base import Engine, EngineDown, Session

__all__ = [
    "CaptionSummary",
    "EngineDown",
    "GridsMissing",
    "Pending",
    "ShardJob",
    "SourceChanged",
    "SourceDown",
    "caption_shard",
    "count_pending",
]

Progress = Callable[[int, int | None, dict[str, Any]], None]
"""on_progress(records asked so far, records to ask, figures)."""
PROGRESS_S = 1.0


@dataclass
class CaptionSummary:
    """What a stage did. open_batches: batches at a remote endpoint whose answers are still to come."""

    figures: dict[str, Any]
    data_version: str
    warnings: list[str] = field(default_factory=list)
    open_batches: int = 0

    def metadata(self) -> dict[str, Any]:
        return {name: value for name, value in self.figures.items() if value is not None}


def caption_shard(
    job: ShardJob,
    engine: Engine,
    *,
    stage: Stage = "captions",
    extra_round: bool = False,
    only_reasons: frozenset[str] | None = None,
    on_progress: Progress | None = None,
) -> CaptionSummary:
    """Asks all that the stage still owes for this shard, and returns when it is stored and its endpoints are proven honest.

    Raises EngineDown, StoreError, SourceChanged, SourceDown, GridsMissing and errors of the store; what was answered until then
    is stored. An interrupt in the calling thread does the same and comes out as itself.
    """
    round_ = Round(job, stage, extra_round, only_reasons)
    if engine.kind == "batch":
        from caption_assets.core.loop.batching import BatchEngine, caption_in_batches

        assert isinstance(engine, BatchEngine)
        batches = caption_in_batches(round_, engine)
        return summary(round_, batches.tally, {}, len(batches.open))
    return _Work(round_, engine).run(on_progress)


def count_pending(
    objects: ObjectStore,
    layout: Layout,
    spec: DatasetConfig,
    shard: str,
    recipes: dict[str, str],
    manifest: TableHandle,
    mapping: TableHandle,
    stage: Stage = "captions",
) -> Pending:
    """What the stage would ask now, over all outputs: no request is sent, no picture is read. Retries of answers that are still
    to come are not in it."""
    job = ShardJob(objects, layout, spec, EngineConfig(), shard, recipes, None, "", "", manifest, mapping)
    return sum(Round(job, stage).pending().values(), Pending())


class _Work:
    """One stage of one shard with a live engine. The event loop runs in a thread, so that interrupts reach the caller's."""

    def __init__(self, round_: Round, engine: Engine) -> None:
        self._round, self._job, self._engine = round_, round_.job, engine
        job = self._job
        self._writer = ChunkWriter(job.objects, job.layout, job.shard, job.run_id, job.root_run_id)
        self._tally = Tally()
        self._asking: Asking | None = None
        self._metrics: dict[str, Any] = {}
        self._looked_back: set[str] = set()
        self._doubted: set[str] = set()
        self._settled_at = 0
        self._error: BaseException | None = None
        self._started, self._ended = threading.Event(), threading.Event()

    def run(self, on_progress: Progress | None) -> CaptionSummary:
        threading.Thread(target=self._thread, name="captioning", daemon=True).start()
        try:  # not Thread.join: an interrupt inside of it makes the thread look ended (CPython 45274)
            while not self._ended.wait(PROGRESS_S):
                self._tell(on_progress)
        except BaseException:
            self._cancel()
            self._ended.wait()
            raise
        if self._error:
            raise self._error
        self._tell(on_progress)
        return self._summary()

    def _tell(self, on_progress: Progress | None) -> None:
        asking = self._asking
        if on_progress and asking and self._tally.records:
            figures = {"requests": self._tally.requests, "second_in_line": asking.session.second_in_line or None}
            on_progress(self._tally.records, self._round.expected, figures)

    def _thread(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _cancel(self) -> None:
        self._started.wait(10)
        try:
            self._loop.call_soon_threadsafe(self._main_task.cancel)
        except RuntimeError:
            pass  # the loop has ended by itself

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main_task = self._loop.create_task(self._sweeps())
        self._started.set()
        await self._main_task

    async def _sweeps(self) -> None:
        async with AsyncExitStack() as stack:
            self._stack = stack
            while True:
                owed, answered = self._round.sweep(), None
                while found := await asyncio.to_thread(_advance, owed, answered):
                    await self._drive(*found)
                    answered = True
                if not self._asking and self._doubtful():
                    await self._open()
                if self._asking:
                    await self._settle()
                if not self._round.revoked:
                    break
        if self._asking:
            await asyncio.to_thread(self._note_settled)

    async def _open(self) -> Asking:
        """The session, made when there is something to ask."""
        if self._asking is None:
            session: Session = await self._stack.enter_async_context(self._engine.session())
            self._stack.callback(lambda: self._metrics.update(session.metrics()))
            self._asking = Asking(
                self._job, session, lambda asking: StoreThread(self._writer, asking.stored, asking.store_failed), self._tally
            )
            self._stack.push_async_callback(self._asking.close)
        return self._asking

    async def _drive(self, requests: Requests, choice: Choice) -> None:
        asking, feed = await self._open(), Feed(self._job, requests.survey.prompt.name)
        try:
            await asking.drive(lambda: feed.feed(requests.asks(choice)))
        finally:
            await asyncio.to_thread(feed.close)
        await self._settle()

    def _doubtful(self) -> set[str]:
        """Endpoints in chunks of earlier steps that did not end well."""
        found = (names for file, names in self._round.unproven.items() if file.step != self._writer.step)
        return set().union(*found)

    async def _settle(self) -> None:
        """Until every endpoint that answered is proven honest, or what it answered is taken back."""
        asking = self._asking
        assert asking is not None
        asking.session.doubt(self._doubtful() - self._doubted)
        self._doubted |= self._doubtful()
        asking.take_back(await asking.session.settle())
        asking.take_back(asking.session.revoked())
        liars = asking.liars - self._looked_back
        self._looked_back |= liars
        asking.revoke(await asyncio.to_thread(self._older_requests, liars))
        await asking.flush()
        self._round.revoked |= self._tally.revoked > self._settled_at
        self._settled_at = self._tally.revoked

    def _older_requests(self, liars: set[str]) -> list[tuple[str, str]]:
        """What these endpoints answered in earlier steps that did not end well: (request_id, endpoint)."""
        files = [file for file, names in self._round.unproven.items() if file.step != self._writer.step and names & liars]
        found = []
        for _, rows in read_chunks(self._job.objects, files, CAPTIONS_SCHEMA, ["request_id", "endpoint"], []):
            pairs = zip(rows["request_id"].to_pylist(), rows["endpoint"].to_pylist(), strict=True)
            found += [(request, endpoint) for request, endpoint in pairs if endpoint in liars]
        return found

    def _note_settled(self) -> None:
        """Says in the store that this step ended well, and which earlier ones were proven."""
        upto: dict[str, int] = {self._writer.step: self._writer.last} if self._writer.last >= 0 else {}
        for file in self._round.unproven:
            upto[file.step] = max(file.seq, upto.get(file.step, -1))
        if upto:
            self._writer.settle(upto)

    def _summary(self) -> CaptionSummary:
        return summary(self._round, self._tally, self._metrics)


def _advance(owed: Owed, answered: bool | None) -> tuple[Requests, Choice] | None:
    """The next choice; None at the end."""
    try:
        return next(owed) if answered is None else owed.send(answered)
    except StopIteration:
        return None


def summary(round_: Round, tally: Tally, metrics: dict[str, Any], open_batches: int = 0) -> CaptionSummary:
    """The figures of a stage that has ended."""
    job, rows, waits = round_.job, round_.rows, tally.waits
    figures: dict[str, Any] = {
        "records": rows.count,
        "requests": tally.requests,
        "records_asked": tally.records,
        "transient_faults": tally.faults,
        "resumed_records": round_.resumed or 0,
        "duplicates": 0 if rows.leaders is None else int((rows.leaders >= 0).sum()),
        "revoked_requests": tally.revoked,
        "missing_fields": round_.missing_fields,
        "prompt_tokens": tally.prompt_tokens,
        "completion_tokens": tally.completion_tokens,
        "engine_seconds": round(max(0.0, tally.seconds), 3),
        "images_per_s": round(tally.records / tally.seconds, 2) if tally.records and tally.seconds > 0 else None,
        "canary_requests": 0,
        "retries": 0,
        **{f"{part}_wait_s": round(seconds, 3) for part, seconds in waits.items()},
        "bottleneck": tally.bottleneck,
        "bottleneck_share": tally.bottleneck_share,
        **metrics,
    }
    version = data_version(job.objects, job.layout, job.spec, job.shard, job.recipes, job.replaced)
    return CaptionSummary(figures, version, list(dict.fromkeys(round_.warnings)), open_batches)
