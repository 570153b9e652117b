"""`write_shards`: samples into numbered tars, by several processes, within a count and a size, resumable tar by tar.

The caller's process cuts the samples into tars and hands each tar to one worker process, or writes it itself when all have
enough to do; what waits for a worker is bounded, so that memory does not grow with the tars. A tar appears whole under its final
name; a receipt in `.export/` says what is in it, and a later call with the same fingerprint passes over tars that have one.
"""

from __future__ import annotations

import itertools
import json
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from caption_assets.config import S3Config
from caption_assets.core.exports.tarfiles import END, Contents, Sample, TarReport, read_parts
from caption_assets.core.exports.tarworker import Setup, finish_tar, temporary
from caption_assets.core.objectstore import ObjectMissing, ObjectStore

MAXCOUNT = 10_000
MAXSIZE = 1 << 30
MESSAGE_BYTES = 1 << 20
WAITING_TARS = 2
"""A worker that has so many to write gets no more; this process then writes one itself."""
WAITING_MESSAGES = 24
"""Messages of about MESSAGE_BYTES that may wait for one worker."""


class WorkerFailed(Exception):
    """A worker process could not write its tar; the message says why."""


def file_contents() -> Contents:
    """Contents of FileParts: local files."""
    return read_parts


def write_shards(
    samples: Iterable[Sample],
    folder: str,
    prefix: str = "shard",
    *,
    maxcount: int = MAXCOUNT,
    maxsize: int = MAXSIZE,
    processes: int = 2,
    fingerprint: str | None = None,
    contents: Callable[[], Contents] = file_contents,
    s3: S3Config | None = None,
    progress: Callable[[TarReport], None] | None = None,
) -> list[TarReport]:
    """Writes `{folder}/{prefix}-00000.tar` and on, and returns a report of each, in order.

    maxcount: samples in a tar; maxsize: bytes of a tar, headers included (a larger sample gets a tar of its own). processes: that
    write, this one included. fingerprint: names the input; tars that an earlier call finished for the same one are kept, all
    other tars of this prefix replaced or removed. contents: a function importable by name that makes the Contents for what is not
    bytes. progress: called for each finished tar. Raises WorkerFailed, ObjectError, or what the samples raise.
    """
    setup = Setup(folder.rstrip("/") + "/", fingerprint, s3, contents)
    objects = ObjectStore(setup.s3)
    _sweep(setup.folder, prefix)
    order: list[str] = []
    reports: dict[str, TarReport] = {}
    lock = threading.Lock()

    def done(report: TarReport) -> None:
        with lock:
            reports[report.name] = report
            if progress:
                progress(report)

    pool = _Pool(objects, setup, processes, done)
    try:
        for name, group in _cut(iter(samples), prefix, maxcount, maxsize):
            order.append(name)
            if (kept := _kept(objects, setup, name)) is None:
                pool.write(name, group)
                continue
            first = next(group)
            if first.key != kept.first:
                pool.write(name, itertools.chain([first], group))
                continue
            last, taken = first.key, 1
            for sample in group:
                last, taken = sample.key, taken + 1
            if (last, taken) != (kept.last, kept.taken):
                raise ValueError(f"{setup.folder}{name} was made of other samples, although the fingerprint is the same")
            done(kept)
        pool.finish()
    finally:
        pool.stop()
    _drop_others(objects, setup, prefix, set(order))
    return [reports[name] for name in order]


def _cut(samples: Iterator[Sample], prefix: str, maxcount: int, maxsize: int) -> Iterator[tuple[str, Iterator[Sample]]]:
    """The samples of each tar; each group has to be drawn to its end before the next."""
    waiting = list(itertools.islice(samples, 1))

    def group() -> Iterator[Sample]:
        count, size = 0, len(END)
        while waiting:
            more = waiting[0].tar_bytes()
            if count and (count >= maxcount or size + more > maxsize):
                return
            count, size = count + 1, size + more
            yield waiting.pop()
            waiting.extend(itertools.islice(samples, 1))

    for index in itertools.count():
        if not waiting:
            return
        yield f"{prefix}-{index:05d}.tar", group()


def _kept(objects: ObjectStore, setup: Setup, name: str) -> TarReport | None:
    """What an earlier call wrote under this name for the same fingerprint, where it is still there."""
    if setup.fingerprint is None:
        return None
    try:
        receipt: dict[str, Any] = json.loads(objects.read(setup.receipt(name)))
        if receipt.pop("fingerprint") != (setup.fingerprint) or objects.head(setup.folder + name).size != receipt["bytes"]:
            return None
        return TarReport(**receipt)
    except (ObjectMissing, ValueError, KeyError, TypeError):
        return None


def _drop_others(objects: ObjectStore, setup: Setup, prefix: str, names: set[str]) -> None:
    """Removes tars of this prefix that an earlier call wrote and this one did not."""
    receipts = f"{setup.folder}.export/"
    ours = re.compile(re.escape(f"{receipts}{prefix}-") + r"\d{5,}\.tar\.json")
    for info in list(objects.list(receipts)):
        name = info.uri[len(receipts) : -len(".json")]
        if ours.fullmatch(info.uri) and name not in names:
            objects.delete(setup.folder + name)
            objects.delete(info.uri)


def _sweep(folder: str, prefix: str) -> None:
    """Removes what killed calls left half-written."""
    if "://" not in folder:
        for path in Path(folder).glob(f"{temporary(prefix)[:-1]}-*"):
            shutil.rmtree(path, ignore_errors=True)


class _Pool:
    """This process and the workers, which are started when they are needed."""

    def __init__(self, objects: ObjectStore, setup: Setup, processes: int, done: Callable[[TarReport], None]) -> None:
        self._objects, self._setup, self._processes, self._done = objects, setup, processes, done
        self._workers: list[_Worker] = []

    def write(self, name: str, samples: Iterator[Sample]) -> None:
        if len(self._workers) < self._processes - 1 and all(worker.waiting for worker in self._workers):
            self._workers.append(_Worker(self._setup, self._done))
        worker = min(self._workers, key=lambda w: w.waiting, default=None)
        if worker is None or worker.waiting >= WAITING_TARS:
            self._done(finish_tar(self._objects, self._setup, name, samples, self._setup.contents()))
            return
        worker.put(name)
        batch: list[Sample] = []
        size = 0
        for sample in samples:
            batch.append(sample)
            size += 200 + sum(len(c) for c in sample.files.values() if isinstance(c, bytes))
            if size >= MESSAGE_BYTES:
                worker.put(batch)
                batch, size = [], 0
        worker.put(batch)
        worker.put(None)

    def finish(self) -> None:
        """Waits for all tars."""
        for worker in self._workers:
            worker.put(None)
        for worker in self._workers:
            worker.join()

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()


class _Worker:
    """One process, and the thread that feeds it and hears from it."""

    def __init__(self, setup: Setup, done: Callable[[TarReport], None]) -> None:
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "caption_assets.core.exports.tarworker", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603
        theirs.close()
        self._messages: queue.Queue[Any] = queue.Queue(WAITING_MESSAGES)
        self._error: str | None = None
        self._given = self._finished = 0
        self._thread = threading.Thread(target=self._feed, args=(setup, done), daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Tars that it has not finished."""
        return self._given - self._finished

    def put(self, message: Any) -> None:
        """Queues a message, waiting while too many wait. Raises WorkerFailed."""
        self._given += isinstance(message, str)
        while True:
            if self._error is not None:
                raise WorkerFailed(self._error)
            try:
                return self._messages.put(message, timeout=0.2)
            except queue.Full:
                continue

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise WorkerFailed(self._error)

    def stop(self) -> None:
        """Ends process and thread, whatever they do."""
        self._process.kill()
        self._process.wait()
        self._error = self._error or "stopped"
        self._thread.join()
        self._pipe.close()

    def _feed(self, setup: Setup, done: Callable[[TarReport], None]) -> None:
        try:
            self._pipe.send(setup)
            while (name := self._next()) is not None:
                self._pipe.send(name)
                while (batch := self._next()) is not None:
                    self._pipe.send(batch)
                self._pipe.send(None)
                answer = self._pipe.recv()
                if isinstance(answer, str):
                    raise WorkerFailed(answer)
                done(answer)
                self._finished += 1
        except WorkerFailed as error:
            self._error = str(error)
        except (OSError, EOFError):
            self._error = self._last_words()

    def _next(self) -> Any:
        while True:
            try:
                return self._messages.get(timeout=0.2)
            except queue.Empty:
                if self._error is not None:
                    raise WorkerFailed(self._error) from None

    def _last_words(self) -> str:
        try:
            if self._pipe.poll(1):
                return str(self._pipe.recv())
        except (OSError, EOFError):
            pass
        return f"the worker process ended with exit code {self._process.wait()}"
