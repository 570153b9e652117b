"""How a loop over shards goes, for whoever watches: bars with rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from caption_assets.commands.terminal import duration
from caption_assets.display import plain
from caption_assets.pace import Outlook

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from caption_assets.commands.workers import Task

SAY_EVERY_S = 30.0


class Telling:
    """Of one dataset. expected: what each shard is to be asked, 0 for nothing, None where that is not known."""

    def __init__(self, name: str, expected: Mapping[str, float | None]) -> None:
        self.outlook = Outlook(expected)
        self._name, self._stack, self._said = name, ExitStack(), time.monotonic()
        self._bars: Progress | None = None
        self._known: dict[str, TaskID] = {}

    def __enter__(self) -> Telling:
        if sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
            self._bars = self._stack.enter_context(Progress(*columns, transient=True))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def progress(self, task: Task, message: dict[str, Any]) -> None:
        """A worker said how far its shard is."""
        now, stage = time.monotonic(), "captions" if "captions" in task.assets else "recaptions"
        if message["stage"] == stage:  # what is asked again after it is little, and nobody knows how much
            self.outlook.progress(now, str(task.shard), message["done"], message["total"])
        if self._bars:
            text = _pace(message["rate"], _left(message["rate"], message["total"], message["done"]))
            self._show(f"{plain(str(task.shard))} {message['stage']}", task.title, message["done"], message["total"], text)
            self._show(self._name, "", round(self.outlook.done), _rounded(self.outlook.total), self._whole(now))
        elif now - self._said >= SAY_EVERY_S and self.outlook.left(now) is not None:
            self._said = now
            print(f"{self._name}: {self.outlook.done:,.0f} of {self.outlook.total:,.0f} answers, {self._whole(now)}", flush=True)

    def ended(self, task: Task, success: bool) -> float | None:
        """A shard is at its end; seconds until the last one will be, where that can be told."""
        now = time.monotonic()
        self.outlook.ended(now, str(task.shard), success)
        if self._bars and task.title in self._known:
            self._bars.remove_task(self._known.pop(task.title))
        return self.outlook.left(now)

    def _whole(self, now: float) -> str:
        return _pace(self.outlook.rate, self.outlook.left(now))

    def _show(self, text: str, key: str, done: int, total: int | None, pace: str) -> None:
        assert self._bars is not None
        if key not in self._known:
            self._known[key] = self._bars.add_task(text, total=total, pace=pace)
        self._bars.update(self._known[key], description=text, completed=done, total=total, pace=pace)


def _left(rate: float | None, total: int | None, done: int) -> float | None:
    return (total - done) / rate if rate and total is not None else None


def _pace(rate: float | None, left: float | None) -> str:
    known = (f"{rate:,.1f}/s" if rate else "", f"about {duration(left)} left" if left is not None else "")
    return ", ".join(filter(None, known))


def _rounded(count: float | None) -> int | None:
    return None if count is None else round(count)
