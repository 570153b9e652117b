"""Which requests a shard still needs for one output, and what each of them asks.

`captions` asks each grid once: whole while none of its cells is answered, else the missing cells singly from the source; what
ended with a passing fault is asked again by every run. `recaptions` completes the budget of `retries`: grids without a good cell
again whole, single pictures and texts again, then the bad cells of grids singly, once. An extra round asks what is still bad
once more, unless this root run has asked it already.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.core.columns import REASONS, RETRYABLE_REASONS
from caption_assets.core.grids import grid_size
from caption_assets.core.images import MEDIA_TYPES
from caption_assets.core.owed.answered import NONE, VALID
from caption_assets.core.owed.shardjob import Bools
from caption_assets.core.owed.survey import Survey
from caption_assets.core.sources.pictures import REF_COLUMNS, PictureRef

PIXELS_PER_TOKEN = 28 * 28
"""Of Qwen's vision encoders; for estimates only."""
BYTES_PER_TOKEN = 4
_SHOWN = ("sha256", "format", "width", "height")
_GRID = ("grid_id", "slot", "grid_object", "byte_offset", "byte_length")


class Wave(Enum):
    """One pass over a shard's records."""

    FIRST = "first"
    AGAIN = "again"
    SINGLY = "singly"
    EXTRA = "extra"


class Choice(NamedTuple):
    """Records to be asked: whole grids, and by themselves."""

    whole: Bools
    single: Bools


@dataclass(frozen=True, slots=True)
class Ask:
    """One request before anything was read. grid: a mapping row, or picture: a single one, or neither for text only.

    sha256: of the picture; fits: it can probably be sent as its own bytes."""

    request_id: str
    output: str
    slots: tuple[int, ...]
    record_ids: tuple[str, ...]
    texts: tuple[str, ...]
    prompt_sha256s: tuple[str, ...]
    attempt: int
    grid: dict[str, Any] | None = None
    picture: PictureRef | None = None
    sha256: str | None = None
    fits: bool = False

    @property
    def grid_id(self) -> str | None:
        return self.grid["grid_id"] if self.grid else None


@dataclass(frozen=True)
class Pending:
    """What a choice costs. again: requests whose records have been answered or failed before; bytes: of pictures sent."""

    requests: int = 0
    records: int = 0
    again: int = 0
    prompt_tokens: int = 0
    max_completion_tokens: int = 0
    picture_bytes: int = 0

    def __add__(self, other: Pending) -> Pending:
        return Pending(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


class Requests:
    """The requests of one output. only_reasons: of records that have a bad answer, those with another reason are left alone."""

    def __init__(self, survey: Survey, only_reasons: frozenset[str] | None = None) -> None:
        self.survey, self._rows, self._job = survey, survey.rows, survey.rows.job
        reasons = RETRYABLE_REASONS if only_reasons is None else only_reasons
        self._selected = np.zeros(256, bool)
        self._selected[[REASONS.index(reason) for reason in reasons]] = True
        self._all_due = only_reasons is None

    def choose(self, wave: Wave) -> Choice:
        """What the wave asks, by the replies read so far; nothing when it is complete."""
        survey, replies, retries = self.survey, self.survey.replies, self._job.spec.retries
        free = survey.own & ~replies.submitted
        if wave is Wave.FIRST:
            due = survey.due() & free
            if not self._all_due:
                due &= (replies.kind == NONE) | self._selected[replies.reason]
            whole = self._whole_where(due)
            return Choice(whole, due & ~whole)
        bad = free & (replies.kind != NONE) & (replies.reason != VALID) & self._selected[replies.reason]
        if wave is Wave.AGAIN:
            hopeless = self._whole_where(free & (replies.reason != VALID) & (replies.kind != NONE))
            whole = hopeless & self._groups_with(bad) & ~self._groups_with((replies.grid_spent >= retries.attempts) & survey.own)
            whole &= self._groups_with(replies.grid_spent > 0)
            return Choice(whole, bad & ~whole & (replies.grid_spent == 0) & (replies.single_spent < retries.attempts))
        if wave is Wave.SINGLY:
            split = bad & (replies.grid_spent > 0) & (replies.single_spent == 0)
            return Choice(np.zeros_like(bad), split & retries.split_grids)
        bad &= ~replies.of_root
        whole = self._groups_with(bad) if not retries.split_grids else np.zeros_like(bad)
        return Choice(whole, bad & ~whole)

    def _groups_with(self, records: Bools) -> Bools:
        """All own records of the grids that show one of these."""
        group = self.survey.group
        hit = np.zeros(int(group.max(initial=-1)) + 2, bool)
        hit[group[records & self.survey.own]] = True
        hit[-1] = False
        return self.survey.own & (group >= 0) & hit[group]

    def _whole_where(self, records: Bools) -> Bools:
        """Own records of the grids that show none but these."""
        return self.survey.own & (self.survey.group >= 0) & ~self._groups_with(self.survey.own & ~records)

    def count(self, choice: Choice) -> int:
        """Number of requests."""
        return len(np.unique(self.survey.group[choice.whole])) + int(choice.single.sum())

    def pending(self, choice: Choice) -> Pending:
        """Counts without asking, and without reading pictures."""
        survey, spec = self.survey, self._job.spec
        asked, requests = choice.whole | choice.single, self.count(choice)
        grids, tokens = requests - int(choice.single.sum()), survey.text_bytes(asked) / BYTES_PER_TOKEN
        fresh = Choice(choice.whole & (survey.replies.kind == NONE), choice.single & (survey.replies.kind == NONE))
        sent = 0
        if survey.prompt.image:
            width, height = grid_size(spec.grid)
            tokens += grids * width * height / PIXELS_PER_TOKEN
            for start, _, shown in self._rows.batches(mapping_columns=["width", "height", "file_bytes", "slot", "byte_length"]):
                here = pa.array(choice.single[start : start + len(shown)])
                sides = [np.asarray(shown[name].filter(here).fill_null(0), np.float64) for name in ("width", "height")]
                shrink = np.minimum(1, spec.images.longest_side / np.maximum(1, np.maximum(*sides)))
                tokens += float((sides[0] * sides[1] * shrink**2).sum()) / PIXELS_PER_TOKEN
                sent += pc.sum(shown["file_bytes"].filter(here)).as_py() or 0
                first = pc.and_(pa.array(choice.whole[start : start + len(shown)]), pc.equal(shown["slot"], 1).fill_null(False))
                sent += pc.sum(shown["byte_length"].filter(first)).as_py() or 0
        records = int(asked.sum())
        most = spec.sampling_of(survey.prompt).max_tokens * records
        return Pending(requests, records, requests - self.count(fresh), int(tokens), most, sent)

    def asks(self, choice: Choice) -> Iterator[Ask]:
        """The requests in the records' order: grids, then single ones."""
        if choice.whole.any():
            yield from self._grids(choice.whole)
        if choice.single.any():
            yield from self._singles(choice.single) if self.survey.prompt.image else self._text_only(choice.single)

    def _grids(self, chosen: Bools) -> Iterator[Ask]:
        group: list[tuple[int, dict[str, Any]]] = []
        for start, _, shown in self._rows.batches(mapping_columns=_GRID):
            for number, place in _picked(chosen, start, {name: shown[name] for name in ("record_id", *_GRID)}):
                if group and self.survey.group[group[0][0]] != self.survey.group[number]:
                    yield self._grid(group)
                    group = []
                group.append((number, place))
        if group:
            yield self._grid(group)

    def _grid(self, cells: list[tuple[int, dict[str, Any]]]) -> Ask:
        numbers = [number for number, _ in cells]
        return self._ask(
            tuple(place["slot"] for _, place in cells),
            numbers,
            tuple(place["record_id"] for _, place in cells),
            1 + max(int(self.survey.replies.grid_attempt[number]) for number in numbers),
            grid=cells[0][1],
        )

    def _singles(self, chosen: Bools) -> Iterator[Ask]:
        side = self._job.spec.images.longest_side
        for start, rows, shown in self._rows.batches(REF_COLUMNS, _SHOWN):
            columns = {name: rows[name] for name in REF_COLUMNS} | {name: shown[name] for name in _SHOWN}
            for number, place in _picked(chosen, start, columns):
                fits = place["format"] in MEDIA_TYPES and max(place["width"] or 0, place["height"] or 0) <= side
                yield self._single(number, place["record_id"], picture=PictureRef.of(place), sha256=place["sha256"], fits=fits)

    def _text_only(self, chosen: Bools) -> Iterator[Ask]:
        for start, rows, _ in self._rows.batches():
            for number, place in _picked(chosen, start, {"record_id": rows["record_id"]}):
                yield self._single(number, place["record_id"])

    def _single(self, number: int, record_id: str, **picture: Any) -> Ask:
        return self._ask((1,), [number], (record_id,), 1 + int(self.survey.replies.single_attempt[number]), **picture)

    def _ask(self, slots: tuple[int, ...], numbers: list[int], record_ids: tuple[str, ...], attempt: int, **picture: Any) -> Ask:
        survey = self.survey
        texts = tuple(survey.text(number) for number in numbers)
        shas = tuple(survey.sha256(number) for number in numbers)
        return Ask(uuid.uuid4().hex, survey.prompt.name, slots, record_ids, texts, shas, attempt, **picture)


def _picked(chosen: Bools, start: int, columns: dict[str, pa.ChunkedArray]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, the columns' values) of the chosen records of a batch."""
    length = len(next(iter(columns.values())))
    here = np.flatnonzero(chosen[start : start + length])
    if len(here):
        values = [column.take(pa.array(here)).to_pylist() for column in columns.values()]
        for number, *row in zip((here + start).tolist(), *values, strict=True):
            yield number, dict(zip(columns, row, strict=True))
