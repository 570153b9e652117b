"""The thread that stores replies: whole chunks, soon after the replies came, so that a kill costs little."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from caption_assets.core.replies.chunks import ChunkWriter, ReplyRow

CHUNK_ROWS = 100
FLUSH_S = 2.5
"""A reply waits at most so long for others to fill its chunk, and less in a shard's first chunks: a small shard, or one with a
slow engine, is stored reply by reply, and a large one has not many more chunks for it."""
PATIENCE_S = 0.05


@dataclass(frozen=True)
class _Revoke:
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class _Flush:
    done: Callable[[], object]


class StoreThread:
    """Takes replies from the event loop and writes them. stored(n): n replies are durable now; failed(error): none will be any
    more. Both are called in the store's thread."""

    def __init__(self, writer: ChunkWriter, stored: Callable[[int], None], failed: Callable[[BaseException], None]) -> None:
        self.writer = writer
        self._stored, self._failed = stored, failed
        self._inbox: queue.SimpleQueue[ReplyRow | _Revoke | _Flush | None] = queue.SimpleQueue()
        self._rows: list[ReplyRow] = []
        self._since = 0.0
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def put(self, row: ReplyRow) -> None:
        self._inbox.put(row)

    def revoke(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Takes requests back, before anything else is written."""
        self._inbox.put(_Revoke(pairs))

    def flush(self, done: Callable[[], object]) -> None:
        """Writes what waits, then calls `done` in the store's thread (also when nothing can be written any more)."""
        self._inbox.put(_Flush(done))

    def close(self) -> None:
        """Writes what waits and ends the thread."""
        self._inbox.put(None)
        self._thread.join()

    def _work(self) -> None:
        broken = False
        while True:
            item = self._next()
            if not broken:
                try:
                    self._do(item)
                except BaseException as error:
                    broken = True
                    self._failed(error)
            if isinstance(item, _Flush):
                item.done()
            if item is None:
                return

    def _next(self) -> ReplyRow | _Revoke | _Flush | str | None:
        patience = min(FLUSH_S, PATIENCE_S * (self.writer.last + 1))
        wait = max(0.0, self._since + patience - time.monotonic()) if self._rows else None
        try:
            return self._inbox.get(timeout=wait)
        except queue.Empty:
            return "time"

    def _do(self, item: ReplyRow | _Revoke | _Flush | str | None) -> None:
        if isinstance(item, ReplyRow):
            if self._rows and (item.output, item.recipe) != (self._rows[0].output, self._rows[0].recipe):
                self._write()
            if not self._rows:
                self._since = time.monotonic()
            self._rows.append(item)
            if len(self._rows) >= CHUNK_ROWS:
                self._write()
        elif isinstance(item, _Revoke):
            self.writer.revoke(item.pairs)
        else:
            self._write()

    def _write(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self.writer.write(rows[0].output, rows[0].recipe, rows)
            self._stored(len(rows))
