"""What a run says of itself while it lives, wherever it was started: tags that name its process, and the lease of its shard.

The lease is renewed from the run's first moment, so that a run that waits an hour for a pool slot is not taken for dead, and so
that a second run on the shard is told at once.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG

from caption_assets.core.layout import Layout

if TYPE_CHECKING:
    from caption_assets.core.objectstore import ObjectStore

USER_TAG, HOST_TAG = "caption_assets/user", "caption_assets/host"
RUNNER_TAG = "caption_assets/runner"
"""`{run id}@host:boot:pid:start` of the process that executes the run. The id is there because a run that is executed again from
the UI inherits tags."""

_told: set[str] = set()


@contextmanager
def presence(context: dg.InitResourceContext, objects: ObjectStore, store: str) -> Iterator[None]:
    """Lasts as long as the run works in this process. Where another run holds the shard, its steps will say so."""
    from caption_assets.core.loop.leases import LeaseHeld, hold
    from caption_assets.core.objectstore import ObjectError
    from caption_assets.liveness import bury_predecessor

    run, instance = context.run, context.instance
    with ExitStack() as stack:
        if run is not None and instance is not None:
            if run.run_id not in _told:
                _told.add(run.run_id)
                instance.add_run_tags(run.run_id, _tags(run))
            try:
                if uri := lease_of(run, store):
                    bury_predecessor(instance, stack.enter_context(hold(objects, uri, run.run_id)))
            except (LeaseHeld, ObjectError, OSError):
                pass
        yield


def _tags(run: dg.DagsterRun) -> dict[str, str]:
    from caption_assets.core.loop.leases import process_token, user_name

    user = {} if USER_TAG in run.tags else {USER_TAG: user_name()}
    return {**user, HOST_TAG: socket.gethostname(), RUNNER_TAG: f"{run.run_id}@{process_token()}"}


def dataset_of(run: dg.DagsterRun) -> str | None:
    """The dataset that a run works on."""
    return next(iter(run.asset_selection)).path[0] if run.asset_selection else run.tags.get("dataset")


def lease_of(run: dg.DagsterRun, store: str) -> str | None:
    """Where the lease of the run's shard lies; None for a run without one."""
    dataset, shard = dataset_of(run), run.tags.get(PARTITION_NAME_TAG)
    if not dataset or not shard:
        return None
    try:
        return Layout(store, dataset).lease(shard)
    except ValueError:
        return None


def started_by(run: dg.DagsterRun | None) -> str | None:
    """user@host of a run, as far as it is known."""
    if run is None or not (run.tags.get(USER_TAG) or run.tags.get(HOST_TAG)):
        return None
    return f"{run.tags.get(USER_TAG) or 'somebody'}@{run.tags.get(HOST_TAG) or '?'}"
