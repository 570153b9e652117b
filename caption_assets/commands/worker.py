"""A process that runs shards one after the other for `caption-assets run`, which tells it which on stdin.

Each worker executes its Dagster runs in its main thread, where interrupts arrive; two of them keep an engine busy: the second
shard is read and put into grids while the first one is asked.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
from dataclasses import asdict
from typing import IO, Any

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Reads `{"dataset", "job", "assets", "shard", "tags", "known"}` lines, writes `{"event": …}` lines."""
    _end_with_parent()
    # Between runs an interrupt is nothing: the parent closes stdin. During a run Dagster makes an exception of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = _private_stdout()
    _show_waiting()
    from caption_assets.commands.faults import told
    from caption_assets.configerrors import ConfigError
    from caption_assets.display import plain

    try:
        _work(answers)
    except ConfigError as error:
        sys.exit(f"the config was changed while the command ran: {plain(str(error))}")
    except Exception as error:
        if (said := told(error)) is None:
            raise
        sys.exit(plain(said))


def _work(answers: IO[str]) -> None:
    """Until nobody gives a task any more."""
    from dagster import DagsterInstance

    from caption_assets.configfile import load_config
    from caption_assets.core.loop.leases import LeaseHeld
    from caption_assets.partitions import Dataset
    from caption_assets.progress import listening
    from caption_assets.resources.store import StoreResource
    from caption_assets.runs import Ending, Runner
    from caption_assets.sqlitelocks import wait_for_locks

    wait_for_locks()
    config = load_config()

    def show(stage: str, done: int, total: int | None, rate: float | None) -> None:
        _say(answers, event="progress", stage=stage, done=done, total=total, rate=rate)

    with DagsterInstance.get() as instance, listening(show):
        runner = Runner(instance, StoreResource(s3_settings=config.s3.model_dump_json(), root=config.store).objects)
        for line in sys.stdin:
            task, held_by = json.loads(line), None
            task["ds"] = Dataset(config, config.dataset(task.pop("dataset")))
            try:
                ending = runner.run(**task)
            except LeaseHeld as error:
                ending, held_by = Ending(None, False), error.lease.who
            _say(answers, event="ended", held_by=held_by, **asdict(ending))


def _say(answers: IO[str], **message: Any) -> None:
    try:
        answers.write(json.dumps(message) + "\n")
        answers.flush()
    except BrokenPipeError:  # the command is gone, and its worker is being ended: no fault of the run's
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), answers.fileno())


def _show_waiting() -> None:
    """Starting a model takes minutes, as does waiting for one that is away: what is said about it goes to the user's terminal."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    for part in ("engines", "assets"):
        logger = logging.getLogger(f"caption_assets.{part}")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


def _private_stdout() -> IO[str]:
    """The pipe to the parent; whatever else prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _end_with_parent() -> None:
    """When the command is killed, its workers are interrupted: they store what was answered and mark their runs failed."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:
        sys.exit()


if __name__ == "__main__":
    main()
