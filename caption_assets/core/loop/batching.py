"""Captions through batch files: a local batch is waited for; a remote one is submitted now and collected by a later run.

A remote batch is noted in the store before it is submitted, with all that is needed to store its answers, so that nothing is
submitted twice and what finished while nobody looked is found, whatever happens to the runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from caption_assets.core.damage import Damaged, read_json
from caption_assets.core.loop.asking import Tally, reply_row, unread
from caption_assets.core.loop.feeding import Fed, Feed
from caption_assets.core.owed.answered import is_transient
from caption_assets.core.owed.requests import Ask, Choice, Requests
from caption_assets.core.owed.rounds import Round
from caption_assets.core.replies.chunks import CAPTIONS_SCHEMA, ChunkWriter, ReplyRow, list_chunks, read_chunks
from caption_assets.engines.base import ChatReply, ChatRequest, EngineDown
from caption_assets.engines.batch import BatchEngine
from caption_assets.engines.batch_api import BatchFailed

CHUNK_ROWS = 1000
FULL = 0.9
"""A batch is closed when it is so full, before the engine would close it: what is in it must be noted before it is submitted."""
BYTES_A_ROW = 2048
"""Of a row besides text and picture, at most."""


@dataclass
class Note:
    """`_batches/{tag}.json`. batch_id: the endpoint's, None until it was submitted; asks: what stands in it; end: collected,
    failed, or None while its answers are still to come."""

    tag: str
    output: str
    recipe: str
    asks: list[dict[str, Any]]
    run_id: str
    noted_at: float
    batch_id: str | None = None
    end: str | None = None


class Batches:
    """One stage of one shard through a batch engine."""

    def __init__(self, round_: Round, engine: BatchEngine) -> None:
        self._round, self._job, self._engine = round_, round_.job, engine
        job = self._job
        self._folder = job.layout.batches_folder(job.shard)
        self._writer = ChunkWriter(job.objects, job.layout, job.shard, job.run_id, job.root_run_id)
        self._submitted = 0
        self.tally = Tally()
        self.open: list[Note] = []

    def run(self) -> None:
        """Raises EngineDown when a batch failed, after everything else was collected and submitted."""
        started, failures = time.monotonic(), []
        for note in self._notes():
            try:
                self._look_at(note)
            except BatchFailed as error:
                self._put(note, end=f"failed: {error}")
                failures.append(str(error))
        for note in self.open:
            cells = [cell for ask in note.asks for cell in zip(ask["record_ids"], ask["prompt_sha256s"], strict=True)]
            if note.recipe == self._job.recipes.get(note.output):
                self._round.submitted.setdefault(note.output, []).extend(cells)
        owed, answered = self._round.sweep(), None
        try:
            while True:
                requests, choice = next(owed) if answered is None else owed.send(answered)
                answered = self._submit(requests, choice) if self._engine.remote else self._answer(requests, choice)
        except StopIteration:
            pass
        finally:
            self.tally.seconds = time.monotonic() - started
        if self._writer.last >= 0:
            self._writer.settle({self._writer.step: self._writer.last})
        if failures:
            raise EngineDown("; ".join(failures) + ". Its requests are submitted again by the next run.")

    def _notes(self) -> Iterator[Note]:
        """Batches whose answers were not collected yet."""
        for info in self._job.objects.list(self._folder):
            remove = "remove it: its batch is submitted again then"
            said = read_json(self._job.objects, info.uri, remove)
            try:
                note = Note(**said)
            except TypeError as error:
                raise Damaged(info.uri, error, remove) from None
            if note.end is None:
                yield note

    def _put(self, note: Note, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(note, name, value)
        said = {**vars(note), "asks": note.asks if note.end is None else []}
        self._job.objects.put(f"{self._folder}{note.tag}.json", json.dumps(said).encode())

    def _look_at(self, note: Note) -> None:
        """Collects a batch if it has finished, else counts it as open; one that was never handed in is forgotten."""
        if note.batch_id is None:
            batch_id = self._engine.find(note.tag)
            if batch_id is None:
                self._job.objects.delete(f"{self._folder}{note.tag}.json")
                return
            self._put(note, batch_id=batch_id)
        assert note.batch_id is not None
        replies = self._engine.collect(note.batch_id)
        if replies is None:
            self.open.append(note)
            return
        asks = {ask["request_id"]: _ask(note.output, ask) for ask in note.asks}
        for request_id in self._stored(note):
            asks.pop(request_id, None)
        self._store(replies, asks, note.output, note.recipe)
        self._put(note, end="collected")

    def _stored(self, note: Note) -> Iterator[str]:
        """Request ids that an interrupted collection has stored already."""
        folder = self._job.layout.chunks_folder(self._job.shard, note.output, note.recipe)
        files = list_chunks(self._job.objects, folder, [])
        for _, rows in read_chunks(self._job.objects, files, CAPTIONS_SCHEMA, ["request_id"], []):
            yield from rows["request_id"].to_pylist()

    def _store(self, replies: Iterator[ChatReply], asks: dict[str, Ask], output: str, recipe: str) -> None:
        """Writes the replies to these asks, and takes them out of `asks`."""
        rows = (self._row(asks.pop(reply.request_id), reply, recipe) for reply in replies if reply.request_id in asks)
        while chunk := list(islice(rows, CHUNK_ROWS)):
            self._writer.write(output, recipe, chunk)

    def _row(self, ask: Ask, reply: ChatReply, recipe: str) -> ReplyRow:
        tally = self.tally
        tally.requests += bool(reply.endpoint)
        tally.records += len(ask.record_ids)
        tally.faults += len(ask.record_ids) if is_transient(reply.error) else 0
        tally.prompt_tokens += reply.prompt_tokens or 0
        tally.completion_tokens += reply.completion_tokens or 0
        return reply_row(self._job, ask, reply, recipe)

    def _readable(self, fed: Iterator[Fed], output: str) -> Iterator[Fed]:
        """Stores what cannot be read; the rest goes on."""
        for item in fed:
            if item.fault:
                recipe = self._job.recipes[output]
                self._writer.write(output, recipe, [self._row(item.ask, unread(item.ask, item.fault), recipe)])
            else:
                yield item

    def _answer(self, requests: Requests, choice: Choice) -> bool:
        """A local batch, or as many as it takes."""
        output, asks, feed = requests.survey.prompt.name, dict[str, Ask](), Feed(self._job, requests.survey.prompt.name)

        def sent() -> Iterator[ChatRequest]:
            for item in self._readable(feed.feed(requests.asks(choice)), output):
                assert item.request is not None
                asks[item.ask.request_id] = item.ask
                yield item.request

        try:
            self._store(self._engine.run_local(sent()), asks, output, self._job.recipes[output])
        finally:
            feed.close()
        if asks:
            raise EngineDown(f"the batch left {len(asks)} requests without an answer; what was answered is stored")
        return True

    def _submit(self, requests: Requests, choice: Choice) -> bool:
        """Hands in what is owed, batch by batch."""
        output, feed = requests.survey.prompt.name, Feed(self._job, requests.survey.prompt.name)
        items = self._readable(feed.feed(requests.asks(choice)), output)
        try:
            while first := next(items, None):
                tag = f"{self._writer.step}-{self._submitted:05d}"
                self._submitted += 1
                note = Note(tag, output, self._job.recipes[output], [], self._job.run_id, time.time())
                batch_id = self._engine.submit(self._file(note, first, items), tag)
                self._put(note, batch_id=batch_id)
                self.open.append(note)
        finally:
            feed.close()
        return False

    def _file(self, note: Note, first: Fed, items: Iterator[Fed]) -> Iterator[ChatRequest]:
        """The requests of one batch; at their end, before they are submitted, the note is put into the store."""
        limits, size, item = self._engine.limits, 0, first
        while item:
            assert item.request is not None
            note.asks.append(_plain(item.ask))
            yield item.request
            size += BYTES_A_ROW + len(json.dumps(item.request.text)) + 4 * len(item.request.image or b"") // 3
            if size > FULL * limits.max_bytes or len(note.asks) >= limits.max_rows - 1:
                break
            item = next(items, None)  # type: ignore[assignment]
        self._put(note)


def caption_in_batches(round_: Round, engine: BatchEngine) -> Batches:
    """Collects what has finished, and hands in (remote) or has answered (local) what is owed."""
    batches = Batches(round_, engine)
    batches.run()
    return batches


def _plain(ask: Ask) -> dict[str, Any]:
    return {
        "request_id": ask.request_id,
        "grid_id": ask.grid_id,
        "slots": ask.slots,
        "record_ids": ask.record_ids,
        "prompt_sha256s": ask.prompt_sha256s,
        "attempt": ask.attempt,
    }


def _ask(output: str, plain: dict[str, Any]) -> Ask:
    grid = {"grid_id": plain["grid_id"]} if plain["grid_id"] else None
    slots, record_ids, shas = (tuple(plain[name]) for name in ("slots", "record_ids", "prompt_sha256s"))
    return Ask(plain["request_id"], output, slots, record_ids, (), shas, plain["attempt"], grid)
