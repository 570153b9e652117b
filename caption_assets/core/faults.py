"""Why one record cannot be captioned: a reason of core.columns.REASONS and what happened in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """reason: one of core.columns.REASONS; detail: for people, at most a few hundred characters."""

    reason: str
    detail: str


class PictureFault(Exception):
    """A picture that cannot be read, decoded or sent; it costs its own record, never the shard."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.fault = Fault(reason, detail[:500])
