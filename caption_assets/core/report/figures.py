"""What is kept of every page: figures of its shard, from which the dataset's page is made without reading the shard again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.core.report.costs import Costs
from caption_assets.core.tables import parquet_bytes


@dataclass
class ShardFigures:
    """version: of the merged pair and of the page's form; reasons: records and an example by reason; lengths: see reading.py."""

    shard: str
    version: str
    recipe: str
    records: int
    captioned: int
    failed: int
    duplicates: int
    reasons: dict[str, tuple[int, str]] = field(default_factory=dict)
    lengths: dict[str, list[int]] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)

    @property
    def coverage(self) -> float:
        return self.captioned / self.records if self.records else 1.0


def load_figures(objects: ObjectStore, layout: Layout) -> dict[str, ShardFigures]:
    """By shard; none where there is no report yet, or one of another form."""
    try:
        data = objects.read(layout.report_figures)
    except ObjectMissing:
        return {}
    try:
        rows = pq.read_table(pa.BufferReader(data))["figures"].to_pylist()
        return {found.shard: found for found in map(_from_json, rows)}
    except (pa.ArrowException, KeyError, TypeError, ValueError):
        return {}


def save_figures(objects: ObjectStore, layout: Layout, figures: Iterable[ShardFigures]) -> None:
    rows = [{"shard": f.shard, "figures": orjson.dumps(asdict(f)).decode()} for f in figures]
    schema = pa.schema({"shard": pa.string(), "figures": pa.string()})
    objects.put(layout.report_figures, parquet_bytes(pa.Table.from_pylist(rows, schema)))


def _from_json(text: str) -> ShardFigures:
    values: dict[str, Any] = orjson.loads(text)
    costs = Costs(**values.pop("costs"))
    costs.busy = {endpoint: [(begin, end) for begin, end in times] for endpoint, times in costs.busy.items()}
    reasons = {reason: (count, example) for reason, (count, example) in values.pop("reasons").items()}
    return ShardFigures(**values, costs=costs, reasons=reasons)
