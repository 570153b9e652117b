"""One output of a shard: which records are asked with which text, who shares whose answer, and what was answered so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.config import PromptConfig
from caption_assets.core.owed.answered import NONE, TRANSIENT, Judging, Replies
from caption_assets.core.owed.cellkeys import KeyIndex, TextFile, cell_keys
from caption_assets.core.owed.shardjob import Bools, JobRows
from caption_assets.core.prompts import prompt_sha256, record_fields, render, uses_record


class Survey:
    """Everything by record number in compact arrays; nothing here grows with texts or pictures.

    used: surveys of the outputs that the prompt's text refers to, by name, read to their last reply. judged: whether validity is
    wanted (for recaptions). foresee: for counting ahead, a record whose used output is still to be asked counts as askable.
    """

    def __init__(
        self, rows: JobRows, prompt: PromptConfig, used: Mapping[str, Survey], *, judged: bool, foresee: bool = False
    ) -> None:
        self.rows, self.prompt, self._used = rows, prompt, used
        self._foreseen = {name: survey.due() for name, survey in used.items()} if foresee else {}
        count, spec = rows.count, rows.job.spec
        self.own = np.zeros(count, bool)
        """Records that are asked themselves: readable, with all that their text needs, and not sharing a first copy's answer."""
        self.group = np.full(count, -1, np.int32)
        """Number of the grid that shows the record, for an output that is asked with grids; else -1."""
        self.missing_fields = 0
        self._texts = TextFile(count) if uses_record(prompt.text) else None
        self._static_sha = prompt_sha256(prompt.text)
        keys = self._walk(prompt.image and not spec.grid.single)
        uses_this = any(prompt.name in other.uses for other in spec.prompts)
        judging = Judging(spec.filters_of(prompt), self.text, self._picture) if judged else None
        self.replies = Replies(rows, prompt.name, KeyIndex(keys), judging, uses_this)

    def _walk(self, grids: bool) -> npt.NDArray[np.uint64]:
        """One pass over the records: fills texts, own and group; returns the key of each askable record."""
        count, leaders = self.rows.count, self.rows.leaders
        keys = np.zeros((count, 2), np.uint64)
        asked, text_hash = np.zeros(count, bool), np.zeros(count if self._texts else 0, np.uint64)
        last, number = None, -1
        json = ["record_json"] if "{record." in self.prompt.text else []
        for start, rows, shown in self.rows.batches(json, ["grid_id"] if grids else []):
            here = np.flatnonzero(_readable(rows, shown))
            shas: list[str] = []
            if self._texts is not None:
                here, shas = self._render(start, here, rows["record_json"].to_pylist() if json else None)
                text_hash[here + start] = [int(sha[:16], 16) for sha in shas]
            else:
                shas = [self._static_sha] * len(here)
            keys[here + start] = cell_keys(rows["record_id"].take(pa.array(here)).to_pylist(), shas)
            asked[here + start] = True
            if grids:
                ids = shown["grid_id"].to_pylist()
                for index in here.tolist():
                    if (grid := ids[index]) is not None:
                        number, last = number + (grid != last), grid
                        self.group[start + index] = number
        self.own = asked
        if leaders is not None:
            copies = np.flatnonzero(asked & (leaders >= 0))
            shares = asked[leaders[copies]]
            if self._texts is not None:
                shares &= text_hash[copies] == text_hash[leaders[copies]]
            self.own[copies[shares]] = False
        return keys

    def _render(self, start: int, here: npt.NDArray[Any], records: list[str | None] | None) -> tuple[npt.NDArray[Any], list[str]]:
        """Renders the texts of these records; returns those that can be asked and their texts' hashes."""
        assert self._texts is not None
        kept, shas, uses = [], [], self.prompt.uses
        text_field = self.rows.job.spec.fields.text
        for index in here.tolist():
            outputs = {name: self._used_text(name, start + index) for name in uses}
            said = {name: text for name, text in outputs.items() if text is not None}
            if len(said) < len(outputs):
                continue
            record = record_fields(records[index], text_field) if records else {}
            text, missing = render(self.prompt.text, record, said)
            self.missing_fields += missing
            self._texts.put(start + index, text)
            kept.append(index)
            shas.append(prompt_sha256(text))
        return np.array(kept, np.int64), shas

    def _used_text(self, name: str, record: int) -> str | None:
        """What `{output.NAME}` is for this record: the newest parsable reply, filters not applied; None without one."""
        survey = self._used[name]
        answering = survey._answering(record)
        text = survey.replies.text(answering)
        return "" if text is None and name in self._foreseen and self._foreseen[name][answering] else text

    def _answering(self, record: int) -> int:
        """The record whose answer this one gets: itself, or its first copy."""
        leaders = self.rows.leaders
        return record if leaders is None or self.own[record] or leaders[record] < 0 else int(leaders[record])

    def text(self, record: int) -> str:
        """The text the record is asked with."""
        return self.prompt.text if self._texts is None else self._texts.get(record) or ""

    def text_bytes(self, records: Bools) -> int:
        """Bytes of the texts of these records."""
        return len(self.prompt.text) * int(records.sum()) if self._texts is None else self._texts.size(records)

    def sha256(self, record: int) -> str:
        return self._static_sha if self._texts is None else prompt_sha256(self.text(record))

    def _picture(self, record: int) -> str:
        return f"{int(self.rows.pictures[record]):016x}"

    def due(self) -> Bools:
        """Records that a round of captions asks: not answered yet, or with a passing fault in an earlier run."""
        return self.own & ((self.replies.kind == NONE) | (self.replies.kind == TRANSIENT))


def _readable(rows: pa.Table, shown: pa.Table) -> Bools:
    here = pc.and_(pc.is_null(rows["reason"]), pc.and_(pc.is_valid(shown["record_id"]), pc.is_null(shown["reason"])))
    return here.to_numpy(zero_copy_only=False)
