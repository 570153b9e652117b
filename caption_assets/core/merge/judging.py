"""From the stored replies of one output to a row for each cell: its caption, or the reason why there is none.

Most replies are plain and their captions pass at a glance: those are read and judged many at a time, without a Python object for
each. The others go through `parse_reply` and `quality.judge` one by one; both ways give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.config import FiltersConfig
from caption_assets.core import quality
from caption_assets.core.filters.glance import Bools, glance_at
from caption_assets.core.merge.rows import MergeRows
from caption_assets.core.merge.spill import Ints, Spill
from caption_assets.core.parsing import numbers_several, parse_reply
from caption_assets.core.replies.plain import plain_texts

CELLS = pa.schema({"request": pa.int64(), "said": pa.string(), "reason": pa.string(), "detail": pa.string()})
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Shown(Mapping[int, str]):
    """The sha256 of the pictures in some slots, looked up when asked for: few replies need them."""

    def __init__(self, rows: MergeRows, numbers: dict[int, int]) -> None:
        self._rows, self._numbers = rows, numbers

    def __getitem__(self, slot: int) -> str:
        return str(self._rows.pictures[self._numbers[slot]].as_py())

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(frozen=True)
class Places:
    """The cells of some replies that count, in order of replies and of positions in them.

    reply: row of the batch; position: among its slots; n: of the record. A reply's cells stand together:
    starts and ends of these, and `replies`, the rows of those that have one.
    """

    reply: Ints
    position: Ints
    n: Ints
    replies: Ints
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, reply: Ints, position: Ints, n: Ints) -> Places:
        starts = np.flatnonzero(np.diff(reply, prepend=-1))
        return cls(reply, position, n, reply[starts], starts, np.append(starts[1:], len(reply)))


@dataclass(frozen=True)
class Judging:
    """Parses and judges the replies of one output. texts: rendered prompts by n, None where all records have `text`."""

    text: str
    filters: FiltersConfig
    texts: Spill | None
    rows: MergeRows

    def judge(self, replies: pa.RecordBatch, places: Places) -> tuple[pa.Table, Bools]:
        """One row per place, in their order, as CELLS; and by reply whether it is a single picture's in the form of a grid's."""
        said = plain_texts(replies).take(places.reply, places.position)
        reasons, details = pa.nulls(len(said), pa.string()), pa.nulls(len(said), pa.string())
        several = np.zeros(replies.num_rows, bool)
        doubtful = np.flatnonzero(~self._surely_fine(said, places, replies))
        if len(doubtful):
            edges = np.zeros(len(said) + 1, np.int8)
            edges[places.starts[doubtful]] += 1
            edges[places.ends[doubtful]] -= 1
            rows = np.cumsum(edges[:-1]).astype(bool)
            several[places.replies[doubtful]], judged = self._closely(replies, places, doubtful, rows)
            said, reasons, details = (
                pc.replace_with_mask(column, pa.array(rows), pa.array(new, pa.string()))
                for column, new in zip((said, reasons, details), zip(*judged, strict=True), strict=True)
            )
        return pa.table([replies["request"].take(pa.array(places.reply)), said, reasons, details], schema=CELLS), several

    def _surely_fine(self, said: pa.StringArray, places: Places, replies: pa.RecordBatch) -> Bools:
        """For each reply that has places whether all its captions stand as they were read."""
        if self.texts is not None or not len(said):
            return np.zeros(len(places.replies), bool)
        glance = glance_at(said, self.filters, self.text)
        fine: Bools = np.logical_and.reduceat(glance.passes, places.starts)
        if self.filters.duplicate_captions:
            numbers = glance.said + places.reply.view(np.uint64) * _SPREAD
            order = np.sort(numbers)
            if len(again := order[1:][order[1:] == order[:-1]]):
                fine[np.searchsorted(places.replies, places.reply[np.isin(numbers, again)])] = False
            asked = pc.list_value_length(replies["slots"]).to_numpy(zero_copy_only=False)[places.replies]
            fine &= (asked < quality.DUPLICATE_MIN_CELLS) | (places.ends - places.starts == asked)
        return fine

    def _closely(
        self, replies: pa.RecordBatch, places: Places, doubtful: Ints, rows: Bools
    ) -> tuple[list[bool], list[tuple[str | None, str | None, str | None]]]:
        """These of the replies that have places, one by one: which have the form of a grid's answer though they are for one
        picture, and what stands in `rows`: text, reason and detail."""
        chosen = replies.take(pa.array(places.replies[doubtful]))
        columns = [chosen[name].to_pylist() for name in ("reply", "finish_reason", "error", "slots")]
        grids = chosen["grid_id"].is_valid().to_pylist()
        prompts = self.texts.take(places.n[rows], ["text"])["text"].to_pylist() if self.texts else [self.text] * int(rows.sum())
        several: list[bool] = []
        judged: list[tuple[str | None, str | None, str | None]] = []
        for place, reply, finish, error, slots, grid in zip(doubtful.tolist(), *columns, grids, strict=True):
            here = slice(places.starts[place], places.ends[place])
            mine = [slots[position] for position in places.position[here].tolist()]
            own = dict(zip(mine, prompts[len(judged) : len(judged) + len(mine)], strict=True))
            shown = Shown(self.rows, dict(zip(mine, places.n[here].tolist(), strict=True))) if grid else None
            parsed = parse_reply(reply, finish, error, slots, grid)
            verdicts = quality.judge(parsed, self.filters, own, shown)
            judged += [(parsed[slot].text, verdicts[slot].reason, verdicts[slot].detail) for slot in mine]
            several.append(not grid and numbers_several(reply))
        return several, judged
