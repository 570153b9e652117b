"""A bounded queue from a thread to an event loop, cheap per item."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Handoff(Generic[T]):
    """Runs `make()` in a thread of its own and hands over what it yields, at most `bound` items ahead.

    To be made and used inside one event loop.
    """

    def __init__(self, make: Callable[[], Iterable[T]], bound: int) -> None:
        self._make, self._loop = make, asyncio.get_running_loop()
        self._items: deque[T] = deque()
        self._room = threading.Semaphore(bound)
        self._ready = asyncio.Event()
        self._waiting = self._closed = self._ended = False
        self._error: BaseException | None = None
        self._aborted: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="feed", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            for item in self._make():
                self._room.acquire()
                if self._closed:
                    return
                self._items.append(item)
                self._wake()
        except BaseException as error:
            self._error = error
        finally:
            self._ended = True
            if not self._closed:
                self._wake()

    def _wake(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.call_soon_threadsafe(self._ready.set)

    async def next(self) -> T | None:
        """The next item; None after the last. Raises what the iterable raised, or what `abort` was given."""
        while self._aborted or not self._items:
            self._ready.clear()
            self._waiting = True
            if not (self._items or self._ended or self._aborted):
                await self._ready.wait()
            self._waiting = False
            if self._aborted:
                raise self._aborted
            if self._ended and not self._items:
                if self._error:
                    raise self._error
                return None
        self._room.release()
        return self._items.popleft()

    def abort(self, error: BaseException) -> None:
        """Lets a waiting `next` raise it. To be called in the loop."""
        self._aborted = error
        self._ready.set()

    async def close(self) -> None:
        """Ends the thread; what it has read ahead is dropped."""
        self._closed = True
        self._room.release()
        await asyncio.to_thread(self._thread.join, 30)
