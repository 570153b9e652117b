"""Worker processes of `caption-assets run`: tasks go out, what happens comes back through one queue."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

AT_A_TIME = 2
SHARED_AFTER_S = 5.0
"""A process costs seconds of CPU time to start, so only work that lasts is shared."""
HEARD_WITHIN_S, HEARD_AT_LAST = 10.0, 12


@dataclass(frozen=True)
class Task:
    """One Dagster run: these assets of a dataset, of one shard where they have shards, through one of its jobs.

    known: storage id of the shard's latest merge, so that no run is made for a shard that somebody else finishes meanwhile.
    """

    dataset: str
    job: str
    assets: Sequence[str]
    shard: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    known: int | None = None

    @property
    def title(self) -> str:
        return f"{self.dataset}/{self.shard or self.assets[-1]}"


@dataclass(frozen=True)
class Ended:
    """How a task ended. run_id: None when no run was made, or the worker was killed; held_by: who is at work on the shard;
    done_by: who had finished it meanwhile."""

    run_id: str | None = None
    success: bool = False
    held_by: str | None = None
    done_by: str | None = None


class Worker:
    """One process; `task` is what it is at. In a session of its own, so that Ctrl-C reaches the command alone, which passes it on
    to the worker and not to what the worker has started."""

    def __init__(self, events: Events) -> None:
        self.task: Task | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "caption_assets.commands.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(events,), daemon=True).start()

    def _listen(self, events: Events) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                events.put((self, json.loads(line)))
        except ValueError:  # it was killed within a line
            self.process.kill()
        finally:
            events.put((self, {"event": "gone"}))

    def give(self, task: Task) -> None:
        assert self.process.stdin is not None
        self.task = task
        with suppress(BrokenPipeError):  # it has just ended: the task ends as that is heard
            self.process.stdin.write(json.dumps({**vars(task), "assets": list(task.assets)}) + "\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """No more tasks."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def interrupt(self) -> None:
        """The run at work is given up, after what was answered is stored. Said again when it was not heard: an exception that
        a signal raises is lost where Python ignores exceptions (in callbacks of its garbage collector)."""
        for _ in range(HEARD_AT_LAST):
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(HEARD_WITHIN_S)
                return
            except subprocess.TimeoutExpired:
                continue
        self.process.kill()


Events = queue.Queue[tuple[Worker, dict[str, Any]]]


class Workers:
    """Up to AT_A_TIME processes for the time of one command, started when there is enough to do. An interrupt is passed on to
    them, and they are waited for: the runs at work store what was answered."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._events: Events = queue.Queue()
        self._waiting: list[Task] = []

    def __enter__(self) -> Workers:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for worker in self._workers:
            worker.close()
        if kind is not None:
            enders = [threading.Thread(target=worker.interrupt) for worker in self._workers]
            for ender in enders:
                ender.start()
            for ender in enders:
                ender.join()
        for worker in self._workers:
            worker.process.wait()

    def run(
        self,
        tasks: Sequence[Task],
        ended: Callable[[Task, Ended], None],
        progress: Callable[[Task, dict[str, Any]], None] | None = None,
    ) -> None:
        """Runs all tasks, some at a time, and returns when the last has ended."""
        self._waiting = list(reversed(tasks))
        shared_at = time.monotonic() + SHARED_AFTER_S
        while self._waiting or any(worker.task for worker in self._workers):
            alone_s = shared_at - time.monotonic()
            while self._waiting and (idle := self._idle(AT_A_TIME if alone_s <= 0 else 1)):
                idle.give(self._waiting.pop())
            try:
                worker, message = self._events.get(timeout=alone_s if self._waiting and alone_s > 0 else None)
            except queue.Empty:
                continue
            task = worker.task
            if message["event"] == "progress":
                if task and progress:
                    progress(task, message)
                continue
            if message.pop("event") == "gone":
                self._workers.remove(worker)
                worker.process.wait()  # so that its run is seen to be dead
            worker.task = None
            if task:
                ended(task, Ended(**message))

    def drop_waiting(self) -> int:
        """Tasks that nobody has yet are not given out any more; returns how many."""
        dropped, self._waiting = len(self._waiting), []
        return dropped

    def _idle(self, most: int) -> Worker | None:
        """A worker without a task; a further one while there are less than `most`."""
        found = next((worker for worker in self._workers if worker.task is None), None)
        if found is None and len(self._workers) < most:
            found = Worker(self._events)
            self._workers.append(found)
        return found
