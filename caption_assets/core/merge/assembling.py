"""The last step of the merge: manifest, mapping and answers side by side, in manifest order, into the files merged and failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from caption_assets.config import PromptConfig
from caption_assets.core.columns import FAILED, INFO_FIELDS, RETRYABLE_REASONS, TRANSIENT_REASONS, merged_columns
from caption_assets.core.merge.answers import Answers
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.shardrows import beside
from caption_assets.core.sources.pictures import REF_COLUMNS
from caption_assets.core.tables import ROW_GROUP_ROWS, WITH_SUMS, TableHandle, arrow_schema, arrow_type

Bools = npt.NDArray[np.bool_]
SAMPLES = 4
_MANIFEST = [*REF_COLUMNS, "id", "record_json", "reason", "detail"]
_MAPPING = [
    "record_id",
    "width",
    "height",
    "format",
    "file_bytes",
    "sha256",
    "grid_id",
    "slot",
    "duplicate_of",
    "reason",
    "detail",
]
_INFO = {column.name: {"captioned_at": "sent_at"}.get(column.name, column.name) for column in INFO_FIELDS}
_INFO_TYPE = arrow_type("info")
_FEW_VALUES = ("format", "source_uri", "reason", "detail", "retryable")
_STATISTICS = ["record_id", "source_uri", "source_index", "width", "height", "file_bytes", "reason"]
"""Columns by whose bounds a reader may skip row groups; for long texts they cost more than they are worth."""
_FEW_INFO = ("recipe", "model", "revision", "finish_reason", "endpoint", "run_id", "attempt")


@dataclass(frozen=True)
class _Output:
    """One output of some rows: text where it is valid, else reason and detail; info of the reply; attempts made."""

    text: pa.ChunkedArray
    reason: pa.ChunkedArray
    detail: pa.ChunkedArray
    info: pa.StructArray
    attempts: pa.Array


@dataclass
class Tally:
    """What the rows add up to. reasons: in failed and in every output, how many records and one example of each."""

    records: int = 0
    captioned: int = 0
    duplicates: int = 0
    transient: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)
    valid: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, tuple[int, str]] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def counts(self) -> dict[str, Any]:
        """Figures for the metadata; those per output only where there are several."""
        several = {f"{name}_captioned": count for name, count in self.valid.items()} if len(self.valid) > 1 else {}
        return {
            "records": self.records,
            "captioned": self.captioned,
            "failed": self.records - self.captioned,
            "coverage": self.captioned / self.records if self.records else 1.0,
            "duplicates": self.duplicates,
            "transient": self.transient,
            **several,
        }

    def add_reasons(self, ids: pa.ChunkedArray, outputs: Sequence[_Output]) -> None:
        """Counts each record once for every different reason among its outputs."""
        earlier: list[pa.ChunkedArray] = []
        transient = pa.array(np.zeros(len(ids), bool))
        for output in outputs:
            new = output.reason
            for other in earlier:
                new = pc.if_else(pc.fill_null(pc.equal(output.reason, other), False), None, new)
            earlier.append(output.reason)
            transient = pc.or_(transient, pc.is_in(output.reason, value_set=pa.array(TRANSIENT_REASONS)))
            for item in pc.value_counts(new).to_pylist():
                reason, count = item["values"], item["counts"]
                if reason is None:
                    continue
                known, example = self.reasons.get(reason, (0, ""))
                if not example:
                    row = pc.index(new, reason).as_py()
                    example = f"{ids[row].as_py()}: {output.detail[row].as_py() or reason}"
                self.reasons[reason] = (known + count, example)
        self.transient += pc.sum(transient, min_count=0).as_py()


@dataclass
class Assembly:
    """Writes both files in one pass; memory holds a few batches."""

    objects: ObjectStore
    prompts: Sequence[PromptConfig]
    manifest: TableHandle
    mapping: TableHandle
    answers: Mapping[str, Answers]

    def write(self, merged_path: Path, failed_path: Path, metadata: Mapping[str, str]) -> Tally:
        """Writes the files; metadata is added to both, and a `summary` of counts and reasons."""
        names = [prompt.name for prompt in self.prompts]
        merged_schema, failed_schema = arrow_schema(merged_columns(names)), arrow_schema(FAILED)
        few = [*_FEW_VALUES, *(f"{n}_reason" for n in names), *(f"{n}_info.{c}" for n in names for c in _FEW_INFO)]
        tally = Tally(valid=Counter(dict.fromkeys(names, 0)))
        with _Writer(merged_path, merged_schema, few) as merged, _Writer(failed_path, failed_schema, few) as failed:
            for rows, shown in beside(self.objects, self.manifest, self.mapping, _MANIFEST, _MAPPING):
                outputs = self._outputs(rows, shown, tally)
                captioned = np.logical_or.reduce([pc.is_valid(output.text).to_numpy() for output in outputs.values()])
                merged.write(_merged(rows, shown, outputs), captioned)
                failed.write(_failed(rows, outputs[names[0]]), ~captioned)
                self._count(tally, rows, shown, outputs, captioned)
            summary = {**tally.counts(), "reasons": {reason: count for reason, (count, _) in tally.reasons.items()}}
            for writer in (merged, failed):
                writer.metadata = {**metadata, "summary": json.dumps(summary)}
        return tally

    def _outputs(self, rows: pa.Table, shown: pa.Table, tally: Tally) -> dict[str, _Output]:
        start, end = tally.records, tally.records + rows.num_rows
        fault, fault_detail = pc.coalesce(rows["reason"], shown["reason"]), pc.coalesce(rows["detail"], shown["detail"])
        found: dict[str, _Output] = {}
        for prompt in self.prompts:
            answers = self.answers[prompt.name]
            cells = answers.cells.take(answers.best[start:end])
            reason, detail = cells["reason"], cells["detail"]
            for used in reversed(prompt.uses):
                refused = pc.is_valid(found[used].reason)
                why = pc.binary_join_element_wise(f"no {used}: ", pc.fill_null(found[used].detail, ""), "")
                reason, detail = pc.if_else(refused, found[used].reason, reason), pc.if_else(refused, why, detail)
            reason = pc.coalesce(fault, reason)
            detail = pc.if_else(pc.is_valid(fault), fault_detail, detail)
            text = cells["said"]
            if reason.null_count < len(reason):
                text = pc.if_else(pc.is_null(reason), text, None)
            nothing = pc.and_(pc.is_null(reason), pc.is_null(text))
            tally.unanswered[prompt.name] += pc.sum(nothing, min_count=0).as_py()
            attempts = pa.array(answers.attempts[start:end])
            found[prompt.name] = _Output(text, reason, detail, _info(answers, cells["request"]), attempts)
        return found

    def _count(self, tally: Tally, rows: pa.Table, shown: pa.Table, outputs: Mapping[str, _Output], captioned: Bools) -> None:
        first, start = next(iter(outputs.values())), tally.records
        tally.records += rows.num_rows
        tally.captioned += int(captioned.sum())
        tally.duplicates += rows.num_rows - shown["duplicate_of"].null_count
        for name, output in outputs.items():
            tally.valid[name] += len(output.text) - output.text.null_count
        tally.add_reasons(rows["record_id"], list(outputs.values()))
        readable = np.flatnonzero(pc.and_(pc.is_null(rows["reason"]), pc.is_null(shown["reason"])).to_numpy())
        while len(tally.samples) < SAMPLES:
            wanted = len(tally.samples) * self.manifest.rows // SAMPLES
            readable = readable[np.searchsorted(readable, wanted - start) :]
            if not len(readable):
                break
            row, readable = int(readable[0]), readable[1:]
            place = {name: rows[name][row].as_py() for name in REF_COLUMNS}
            tally.samples.append({**place, "text": first.text[row].as_py(), "reason": first.reason[row].as_py()})


def _info(answers: Answers, request: pa.ChunkedArray) -> pa.StructArray:
    """How each answer was made; null where there is none."""
    numbers = pc.fill_null(request, -1).to_numpy()
    columns = answers.replies.take(numbers, list(_INFO.values())).combine_chunks()
    arrays = [
        pc.cast(columns[source].combine_chunks(), kind.type) for source, kind in zip(_INFO.values(), _INFO_TYPE, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(_INFO_TYPE), mask=pa.array(numbers < 0))


def _merged(rows: pa.Table, shown: pa.Table, outputs: Mapping[str, _Output]) -> dict[str, Any]:
    columns: dict[str, Any] = {**{c: rows[c] for c in rows.column_names}, **{c: shown[c] for c in _MAPPING[1:]}}
    for name, output in outputs.items():
        columns |= {name: output.text, f"{name}_reason": output.reason, f"{name}_info": output.info}
    return columns


def _failed(rows: pa.Table, first: _Output) -> dict[str, Any]:
    return {
        **{c: rows[c] for c in rows.column_names},
        "reason": first.reason,
        "detail": first.detail,
        "retryable": pc.is_in(first.reason, value_set=pa.array(sorted(RETRYABLE_REASONS))),
        "attempt": pc.cast(first.attempts, pa.int32()),
    }


class _Writer:
    """A parquet file written in whole row groups. metadata is added at the end."""

    def __init__(self, path: Path, schema: pa.Schema, few_values: Sequence[str]) -> None:
        self.metadata: Mapping[str, str] = {}
        self._schema = schema
        self._writer = pq.ParquetWriter(
            path, schema, compression="zstd", use_dictionary=list(few_values), write_statistics=_STATISTICS, **WITH_SUMS
        )
        self._waiting = schema.empty_table()

    def write(self, columns: Mapping[str, Any], wanted: Bools) -> None:
        """Adds the wanted rows."""
        if not wanted.any():
            return
        rows = pa.table([columns[name] for name in self._schema.names], schema=self._schema)
        self._waiting = pa.concat_tables([self._waiting, rows if wanted.all() else rows.filter(pa.array(wanted))])
        while self._waiting.num_rows >= ROW_GROUP_ROWS:
            self._writer.write_table(self._waiting.slice(0, ROW_GROUP_ROWS), row_group_size=ROW_GROUP_ROWS)
            self._waiting = self._waiting.slice(ROW_GROUP_ROWS)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None and self._waiting.num_rows:
            self._writer.write_table(self._waiting)
        self._writer.add_key_value_metadata(dict(self.metadata))
        self._writer.close()
