"""Why one record cannot be captioned: a reason of core.columns.REASONS and what happened in words."""

from __future__ import annotations

from dataclasses import dataclass

from caption_assets.core.hiding import hidden


@dataclass(frozen=True, slots=True)
class Fault:
    """reason: one of core.columns.REASONS; detail: for people, at most a few hundred characters, without secrets."""

    reason: str
    detail: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", hidden(self.detail))


class PictureFault(Exception):
    """A picture that cannot be read, decoded or sent; it costs its own record, never the shard."""

    def __init__(self, reason: str, detail: str) -> None:
        self.fault = Fault(reason, hidden(detail)[:500])
        super().__init__(f"{reason}: {self.fault.detail}")
