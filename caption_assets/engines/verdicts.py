"""Whether an endpoint lies, told from its answers to canaries. Weak but honest models are not to be condemned.

So every reproach is positive evidence, measured by what this very model has been seen to do: an answer without text counts only
where the model has answered with text, a missing colour only where it has named them, and so on. What was seen is kept in a
`Baseline` as long as the process runs. Two reproaches need none: captions of other cells in canaries with different
colours, and one text repeated for a canary and for many pictures in a row. In a fleet, what all others agree on counts too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from caption_assets.engines.canaries import Form, Reading, normal

MONOTONE = 50
"""So many replies to different requests with one text, and a canary with the same: the endpoint says nothing else."""


@dataclass
class Baseline:
    """What a model has been seen to do with canaries of one form; only ever rises.

    accepts: does not refuse them; speaks: answers with text; parses: with a caption for every cell; tells_apart: with another
    text for every cell of a grid. rights: by endpoint, the canaries in which every colour was named.
    """

    accepts: bool = False
    speaks: bool = False
    parses: bool = False
    tells_apart: bool = False
    rights: dict[str, set[int]] = field(default_factory=dict)

    @property
    def names(self) -> bool:
        """Some endpoint named all colours of two canaries: once may be chance, or a fixed answer."""
        return any(len(numbers) > 1 for numbers in self.rights.values())


@dataclass
class Record:
    """One endpoint's answers: its last readings of a form, and the text it has been repeating for real requests."""

    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=4))
    same_text: str | None = None
    repeated: int = 0


class Court:
    """The readings of one session's endpoints. Endpoints are told by name; each form is judged by itself."""

    def __init__(self, baselines: dict[Form, Baseline]) -> None:
        self._baselines = baselines
        self._records: dict[tuple[str, Form], Record] = defaultdict(Record)

    def baseline(self, form: Form) -> Baseline:
        return self._baselines.setdefault(form, Baseline())

    def record(self, endpoint: str, form: Form) -> Record:
        return self._records[endpoint, form]

    def note(self, endpoint: str, form: Form, text: str | None) -> None:
        """A reply to a real request."""
        record, text = self.record(endpoint, form), text or ""
        record.repeated = record.repeated + 1 if text == record.same_text else 1
        record.same_text = text
        if text:
            self.baseline(form).speaks = True

    def hear(self, endpoint: str, form: Form, reading: Reading) -> None:
        """Keeps an answer, and raises the baseline by what it shows."""
        baseline = self.baseline(form)
        self.record(endpoint, form).readings.append(reading)
        baseline.accepts = True
        baseline.speaks |= bool(reading.raw)
        baseline.parses |= reading.parsed
        baseline.tells_apart |= form == "grid" and reading.parsed and len(set(reading.texts)) == len(reading.texts)
        if reading.right and form != "text":
            baseline.rights.setdefault(endpoint, set()).add(reading.number)

    def reproach(self, endpoint: str, form: Form) -> str | None:
        """What the last answer of the endpoint proves against it; None where nothing."""
        record, baseline = self.record(endpoint, form), self.baseline(form)
        if not record.readings:
            return None
        last = record.readings[-1]
        before = record.readings[-2] if len(record.readings) > 1 else None
        if not last.raw and baseline.speaks:
            return "answers a canary without text"
        if not last.parsed and baseline.parses:
            return "answers a canary without a caption for every cell"
        if baseline.tells_apart and len(set(last.texts)) == 1:
            return "answers with one text for different pictures"
        if baseline.names and (last.crossed >= 2 or (form == "single" and last.strange)):
            return "answers with the captions of other pictures"
        if baseline.names and not last.own:
            return "names none of a canary's colours"
        if before and last.permuted and before.permuted and before.number != last.number:
            return "answers with the captions of other cells"
        if record.repeated >= MONOTONE and last.raw == normal(record.same_text):
            return f"answers with one text: for {record.repeated} requests and a canary"
        return self._dissent(endpoint, form)

    def _dissent(self, endpoint: str, form: Form) -> str | None:
        """All others agree, word for word, on two canaries, and this endpoint says something else both times."""
        if form == "text":
            return None  # two honest machines need not say the same about nothing in particular
        others = [record for (name, of), record in self._records.items() if of == form and name != endpoint]
        compared = 0
        for reading in self.record(endpoint, form).readings:
            same = [r.texts for record in others for r in record.readings if r.number == reading.number]
            if len(same) < 2 or len(set(same)) > 1:
                continue
            if reading.own or reading.texts == same[0]:
                return None
            compared += 1
        return "answers two canaries unlike all others, which agree" if compared >= 2 else None
