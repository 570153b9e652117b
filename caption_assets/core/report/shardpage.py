"""The page of one shard: pictures with what was said about them, why others have nothing, and how it was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from caption_assets.config import DatasetConfig, EngineConfig
from caption_assets.core.hiding import hidden
from caption_assets.core.layout import Layout
from caption_assets.core.merging import Pair
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.core.recipes import dataset_recipe, geometry
from caption_assets.core.report import costs, plots
from caption_assets.core.report.figures import ShardFigures
from caption_assets.core.report.pictures import Place, Thumbnail, places, thumbnails
from caption_assets.core.report.reading import ShardRead, read_shard
from caption_assets.core.report.rendering import form, render
from caption_assets.core.report.sampling import CAPTIONED
from caption_assets.core.tables import table

SHOWN = 200
"""Records on a page."""
RATE_POINTS = 60


@dataclass(frozen=True)
class Recipe:
    """What the config says now: the recipe of each output, and what they are made of."""

    spec: DatasetConfig
    engine: EngineConfig
    outputs: Mapping[str, str]
    revision: str | None

    @property
    def dataset(self) -> str:
        return dataset_recipe(dict(self.outputs))

    def described(self) -> dict[str, Any]:
        """For the pages."""
        spec = self.spec
        prompts = [
            {"prompt": p, "recipe": self.outputs[p.name], "sampling": spec.sampling_of(p).model_dump()} for p in spec.prompts
        ]
        grid = "one picture a request" if spec.grid.single else f"{spec.grid.rows} × {spec.grid.cols} pictures a request"
        return {
            "model": self.engine.model,
            "revision": self.revision,
            "kind": self.engine.kind,
            "prompts": prompts,
            "grid": grid,
            "geometry": geometry(spec),
            "filters": spec.filters.model_dump(),
            "attempts": spec.retries.attempts,
            "recipe": self.dataset,
        }


@dataclass(frozen=True)
class Card:
    """One record on the page. groups: its reasons, or captioned; texts: (output, text, reason) each."""

    record_id: str
    groups: list[str]
    texts: list[tuple[str, str | None, str | None]]
    picture: Thumbnail
    detail: str | None
    facts: list[tuple[str, Any]]


def page_version(pair: Pair) -> str:
    """Equal as long as the page would come out the same."""
    return f"{pair.merged.metadata['data_version']}/{form()}"


def write_shard_report(
    objects: ObjectStore, layout: Layout, shard: str, pair: Pair, recipe: Recipe, shown: int = SHOWN
) -> ShardFigures:
    """Writes the page of a shard whose merged and failed are `pair`. Memory does not grow with the shard.

    Raises ObjectError when the store or the source is down; a picture that cannot be read now is only not shown.
    """
    read = read_shard(objects, pair, shown)
    found = _places(objects, layout, shard, read)
    pictures = (
        thumbnails(objects, recipe.spec, found, {i: row.get("sha256") for i, row in read.rows.items()})
        if (recipe.spec.thumbnails)
        else {}
    )
    cards = [_card(read.rows[place.record_id], read.outputs, pictures.get(place.record_id)) for place in found]
    folders = [layout.chunks_folder(shard, output, name) for output, name in _recipes(read, recipe)]
    traffic = costs.read_traffic(objects, folders)
    figures = _figures(shard, pair, read, traffic.costs)
    points = min(RATE_POINTS, max(4, traffic.costs.requests // 4))
    page = render(
        "shard.html",
        title=f"{layout.dataset} / {shard}",
        index_link=layout.report_index.rsplit("/", 1)[1],
        figures=figures,
        cards=cards,
        groups=_counts(cards),
        reasons=by_count(figures.reasons),
        recipe=recipe.described(),
        current=figures.recipe == recipe.dataset,
        made_with=_made_with(read),
        engine_s=costs.engine_seconds(traffic.costs.busy),
        wall_s=costs.wall_seconds(traffic.costs.busy),
        lengths=plots.lengths(read.lengths),
        rate=plots.rate(*costs.rate(traffic, points)),
    )
    objects.put(layout.report_page(shard), page)
    return figures


def _places(objects: ObjectStore, layout: Layout, shard: str, read: ShardRead) -> list[Place]:
    """The sampled records in the order of the manifest; without one (only merged and failed were kept) they have no pictures."""
    try:
        return places(objects, table(objects, layout.manifest(shard)), set(read.rows))
    except ObjectMissing:
        return [Place(record_id, None) for record_id in read.rows]


def _recipes(read: ShardRead, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """(output, recipe) of the replies that the shard was merged from."""
    for output in read.outputs:
        names = {made[0] for made in read.made_with[output] if made[0]} or {recipe.outputs.get(output, "")}
        yield from ((output, name) for name in sorted(names) if name)


def _card(row: Mapping[str, Any], outputs: list[str], picture: Thumbnail | None) -> Card:
    facts: list[tuple[str, Any]]
    texts: list[tuple[str, str | None, str | None]]
    if "reason" in row:
        groups, texts = [row["reason"]], [(outputs[0], None, row["reason"])]
        facts = [("attempts", row["attempt"] or None), ("may be asked again", "yes" if row["retryable"] else "no")]
    else:
        texts = [(name, row[name], row[f"{name}_reason"]) for name in outputs]
        groups = list(dict.fromkeys(reason for _, _, reason in texts if reason)) or [CAPTIONED]
        facts = [("picture", _original(row)), ("same picture as", row["duplicate_of"])]
        for name in outputs:
            facts += _answer(name if len(outputs) > 1 else "", row[f"{name}_info"])
    facts = [("id", row["id"]), ("uri", row["uri"] and hidden(row["uri"])), *facts]
    shown = [(name, value if isinstance(value, str) else f"{value}") for name, value in facts if value is not None]
    return Card(row["record_id"], groups, texts, picture or Thumbnail(None), row.get("detail"), shown)


def _answer(name: str, info: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    if info is None:
        return []
    of = f"{name}: " if name else ""
    tokens = f"{info['prompt_tokens']} + {info['completion_tokens']}" if info["completion_tokens"] is not None else None
    took = f"{info['latency_ms'] / 1000:.1f} s" if info["latency_ms"] else None
    return [(f"{of}attempt", info["attempt"]), (f"{of}tokens of the request", tokens), (f"{of}took", took)]


def _original(row: Mapping[str, Any]) -> str:
    size = f"{row['width']} × {row['height']}" if row["width"] else ""
    held = f"{row['file_bytes']:,} bytes" if row["file_bytes"] else ""
    return ", ".join(part for part in (size, row["format"], held) if part)


def _figures(shard: str, pair: Pair, read: ShardRead, spent: costs.Costs) -> ShardFigures:
    summary, metadata = pair.merged.summary, pair.merged.metadata
    examples: dict[str, str] = {}
    for row in read.rows.values():
        for name in [row.get("reason"), *(row.get(f"{output}_reason") for output in read.outputs)]:
            if name and name not in examples:
                examples[name] = f"{row['record_id']}: {row['detail']}" if row.get("detail") else row["record_id"]
    reasons = {reason: (count, examples.get(reason, "")) for reason, count in summary.get("reasons", {}).items()}
    return ShardFigures(
        shard=shard,
        version=page_version(pair),
        recipe=metadata["dataset_recipe"],
        records=pair.merged.rows + pair.failed.rows,
        captioned=pair.merged.rows,
        failed=pair.failed.rows,
        duplicates=summary.get("duplicates", 0),
        reasons=reasons,
        lengths=read.lengths,
        costs=spent,
    )


def _counts(cards: list[Card]) -> list[tuple[str, int]]:
    """How many cards there are of each group: captioned first, then the most frequent."""
    counts: dict[str, tuple[int, str]] = {}
    for card in cards:
        for name in card.groups:
            counts[name] = (counts.get(name, (0, ""))[0] + 1, "")
    return sorted(
        ((name, count) for name, (count, _) in counts.items()), key=lambda item: (item[0] != CAPTIONED, -item[1], item[0])
    )


def by_count(reasons: Mapping[str, tuple[int, str]]) -> list[tuple[str, int, str]]:
    return sorted(
        ((reason, count, example) for reason, (count, example) in reasons.items()), key=lambda item: (-item[1], item[0])
    )


def _made_with(read: ShardRead) -> list[tuple[str, str, str]]:
    """(output, model, revision) as the replies say."""
    found = {(output, made[1] or "", made[2] or "") for output in read.outputs for made in read.made_with[output]}
    return sorted(found)
