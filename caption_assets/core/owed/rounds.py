"""What a stage asks of a shard: its outputs one after the other, each in waves, until nothing is owed."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal

from caption_assets.config import PromptConfig
from caption_assets.core.owed.answered import ANSWER
from caption_assets.core.owed.requests import Choice, Pending, Requests, Wave
from caption_assets.core.owed.shardjob import JobRows, ShardJob
from caption_assets.core.owed.survey import Survey
from caption_assets.core.replies.chunks import ChunkFile

Stage = Literal["captions", "recaptions"]
Owed = Generator[tuple[Requests, Choice], bool, None]
"""What is owed, choice by choice. To be sent True when the choice is answered and stored, False when its answers will only come
later (a remote batch), so that nothing can be built on them yet."""


Cells = dict[str, list[tuple[str, str]]]


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
    begun: int = 0
    """Outputs that were looked at so far."""
    resumed: int | None = None
    """Records of the first output that had an answer before."""
    missing_fields: int = 0
    warnings: list[str] = field(default_factory=list)
    unproven: dict[ChunkFile, set[str]] = field(default_factory=dict)
    """Of steps that did not end well: chunks, and the endpoints in them."""
    revoked: bool = False
    """Whether replies were taken back since the sweep began: then another one is needed."""
    submitted: Cells = field(default_factory=dict)
    """By output: (record_id, prompt_sha256) of the cells in open batches, which are not asked again."""

    def __post_init__(self) -> None:
        self.rows = JobRows(self.job)

    @property
    def waves(self) -> tuple[Wave, ...]:
        if self.stage == "captions":
            return (Wave.FIRST,)
        return (Wave.FIRST, Wave.AGAIN, Wave.SINGLY, *((Wave.EXTRA,) if self.extra_round else ()))

    def sweep(self) -> Owed:
        """Goes over all outputs once. An output that another one uses is complete before that one is looked at."""
        self.revoked, self.missing_fields, done = False, 0, dict[str, Survey]()
        for number, prompt in enumerate(self.job.spec.prompts, 1):
            if all(name in done for name in prompt.uses):
                survey = self._survey(prompt, done)
                self.begun = max(self.begun, number)
                if (yield from self._output(survey)):
                    done[prompt.name] = survey

    @property
    def expected(self) -> int:
        """Records to be asked in all, as far as can be told: later outputs are taken to want as many as those before them."""
        later = len(self.job.spec.prompts) - self.begun if self.stage == "captions" and self.begun else 0
        return self.planned + later * (self.planned // max(1, self.begun))

    def _survey(self, prompt: PromptConfig, done: dict[str, Survey], foresee: bool = False) -> Survey:
        survey = Survey(self.rows, prompt, done, judged=self.stage == "recaptions", foresee=foresee)
        survey.replies.refresh()
        survey.replies.submit(self.submitted.get(prompt.name, ()))
        self.missing_fields += survey.missing_fields
        self.warnings += [text for text in survey.replies.warnings if text not in self.warnings]
        self.unproven.update(survey.replies.unproven)
        if self.resumed is None:
            self.resumed = int(((survey.replies.kind == ANSWER) & survey.own).sum())
        return survey

    def _output(self, survey: Survey) -> Generator[tuple[Requests, Choice], bool, bool]:
        """All that one output owes; False when answers are still to come."""
        requests = Requests(survey, self.only_reasons)
        for wave in self.waves:
            asked = False
            while True:
                choice = requests.choose(wave)
                if not requests.count(choice):
                    break
                if asked and wave is not Wave.AGAIN:
                    raise RuntimeError(f"{self.job.shard}: replies that were stored are not found in the store")
                self.planned += int((choice.whole | choice.single).sum())
                if not (yield requests, choice):
                    return False
                if wave is Wave.FIRST and not survey.replies.looks_into and not self.revoked:
                    break
                asked = not survey.replies.refresh()
        return not survey.replies.submitted.any()

    def pending(self) -> dict[str, Pending]:
        """What the stage would ask now, by output, without asking. Retries of answers that are still to come are not in it."""
        done, found = dict[str, Survey](), dict[str, Pending]()
        for prompt in self.job.spec.prompts:
            survey = done[prompt.name] = self._survey(prompt, done, foresee=True)
            requests = Requests(survey, self.only_reasons)
            found[prompt.name] = sum((requests.pending(requests.choose(wave)) for wave in self.waves), Pending())
        return found
