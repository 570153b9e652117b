"""What a stage asks of a shard: its outputs one after the other, each in waves, until nothing is owed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from caption_assets.config import PromptConfig
from caption_assets.core.chunks import ChunkFile
from caption_assets.core.replies import ANSWER
from caption_assets.core.requests import Choice, Pending, Requests, Wave
from caption_assets.core.shardjob import JobRows, ShardJob
from caption_assets.core.survey import Survey

Stage = Literal["captions", "recaptions"]
Drive = Callable[[Requests, Choice], Awaitable[bool]]
"""Asks a choice; False when its answers will only come later (a remote batch), so that nothing can be built on them yet."""


@dataclass
class Round:
    """One stage of one shard. extra_round: bad answers are asked once more, beyond the budget; only_reasons: only these."""

    job: ShardJob
    stage: Stage
    extra_round: bool = False
    only_reasons: frozenset[str] | None = None
    rows: JobRows = field(init=False)
    planned: int = 0
    """Records that were to be asked so far."""
    resumed: int | None = None
    """Records of the first output that had an answer before."""
    missing_fields: int = 0
    warnings: list[str] = field(default_factory=list)
    unproven: dict[ChunkFile, set[str]] = field(default_factory=dict)
    """Of steps that did not end well: chunks, and the endpoints in them."""
    revoked: bool = False
    """Whether replies were taken back since the sweep began: then another one is needed."""

    def __post_init__(self) -> None:
        self.rows = JobRows(self.job)

    @property
    def waves(self) -> tuple[Wave, ...]:
        if self.stage == "captions":
            return (Wave.FIRST,)
        return (Wave.FIRST, Wave.AGAIN, Wave.SINGLY, *((Wave.EXTRA,) if self.extra_round else ()))

    async def sweep(self, drive: Drive) -> None:
        """Goes over all outputs once. An output that another one uses is complete before that one is looked at."""
        self.revoked, self.missing_fields, done = False, 0, dict[str, Survey]()
        for prompt in self.job.spec.prompts:
            if not all(name in done for name in prompt.uses):
                continue
            survey = await asyncio.to_thread(self._survey, prompt, done)
            if await self._output(survey, drive):
                done[prompt.name] = survey

    def _survey(self, prompt: PromptConfig, done: dict[str, Survey], foresee: bool = False) -> Survey:
        survey = Survey(self.rows, prompt, done, judged=self.stage == "recaptions", foresee=foresee)
        survey.replies.refresh()
        self.missing_fields += survey.missing_fields
        self.warnings += [text for text in survey.replies.warnings if text not in self.warnings]
        self.unproven.update(survey.replies.unproven)
        if self.resumed is None:
            self.resumed = int(((survey.replies.kind == ANSWER) & survey.own).sum())
        return survey

    async def _output(self, survey: Survey, drive: Drive) -> bool:
        """Asks all that one output owes; False when answers are still to come."""
        requests = Requests(survey, self.only_reasons)
        for wave in self.waves:
            asked = False
            while True:
                choice = await asyncio.to_thread(requests.choose, wave)
                if not requests.count(choice):
                    break
                if asked and wave is not Wave.AGAIN:
                    raise RuntimeError(f"{self.job.shard}: replies that were stored are not found in the store")
                self.planned += int((choice.whole | choice.single).sum())
                if not await drive(requests, choice):
                    return False
                if wave is Wave.FIRST and not survey.replies.looks_into and not self.revoked:
                    break
                asked = not await asyncio.to_thread(survey.replies.refresh)
        return True

    def pending(self) -> dict[str, Pending]:
        """What the stage would ask now, by output, without asking. Retries of answers that are still to come are not in it."""
        done, found = dict[str, Survey](), dict[str, Pending]()
        for prompt in self.job.spec.prompts:
            survey = done[prompt.name] = self._survey(prompt, done, foresee=True)
            requests = Requests(survey, self.only_reasons)
            found[prompt.name] = sum((requests.pending(requests.choose(wave)) for wave in self.waves), Pending())
        return found
