"""A run that waits for a slot of a pool sleeps meanwhile. By itself Dagster (1.13.27) asks in a loop without a pause: each of
these runs takes a core of the machine."""

from __future__ import annotations

import time

from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

LONGEST_S = 0.5
"""Well below Dagster's own time between two looks for a slot, so that an interrupt is noticed soon."""


def sleep_for_slots() -> None:
    """For every run that this process executes from now on."""
    setattr(InstanceConcurrencyContext, "interval_to_next_pending_claim_check", _until_next_look)  # noqa: B010


def _until_next_look(context: InstanceConcurrencyContext) -> float:
    """Seconds; Dagster's takes the smallest of these and 0."""
    now = time.time()
    return min(LONGEST_S, max(0.0, min((at - now for at in context._pending_timeouts.values()), default=0.0)))
