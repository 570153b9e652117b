"""What models and records say, made safe to show: it is data, never markup."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from caption_assets.config import DatasetConfig
    from caption_assets.core.objectstore import ObjectStore

THUMBNAILS = 4
THUMBNAIL_BYTES = 4096
"""Four of at most 4 KB: Dagster keeps about four times their size for every materialization."""

THUMBNAIL_SIDES = (128, 96, 64)
"""Pixels; the first that fits into THUMBNAIL_BYTES."""

_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|~:/@])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def markdown(text: str, limit: int = 300) -> str:
    """Text for a markdown table: one line, nothing in it is a link, a picture or HTML."""
    line = " ".join(plain(text).split())
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    return _MARKUP.sub(r"\\\1", html.escape(line, quote=False))


def plain(text: str) -> str:
    """Text for a terminal: control codes (also those that turn the writing direction) are shown as U+FFFD."""
    return _CONTROL.sub("\ufffd", text)


def plain_metadata(figures: Mapping[str, Any]) -> dict[str, Any]:
    """A summary as Dagster metadata: numbers and text as they are, mappings of reasons as tables."""
    shown: dict[str, Any] = {}
    for key, value in short(figures).items():
        if key in ("reasons", "faults") and isinstance(value, Mapping):
            shown |= reasons_table(key, {reason: (count, "") for reason, count in value.items()})
        elif isinstance(value, (Mapping, list, tuple)):
            shown[key] = dg.MetadataValue.json(value)
        elif value is not None:
            shown[key] = value
    return shown


def short(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Six digits that count of every fraction: 0.923077; all else as it is."""
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in figures.items()}


def reasons_table(name: str, reasons: Mapping[str, tuple[int, str]]) -> dict[str, dg.TableMetadataValue]:
    """Under this name: reason, how many records, and one example where examples are known, the most frequent first. Nothing
    where there are no reasons."""
    if not reasons:
        return {}
    columns = {"reason": "string", "records": "int", **({"example": "string"} if any(e for _, e in reasons.values()) else {})}
    rows: list[dict[str, str | int]] = [
        {"reason": reason, "records": count, "example": plain(example)}
        for reason, (count, example) in sorted(reasons.items(), key=lambda item: (-item[1][0], item[0]))
    ]
    return {
        name: dg.MetadataValue.table(
            records=[dg.TableRecord({column: row[column] for column in columns}) for row in rows],
            schema=dg.TableSchema([dg.TableColumn(column, kind) for column, kind in columns.items()]),
        )
    }


def contact_sheet(objects: ObjectStore, spec: DatasetConfig, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A few pictures with what was said about them, as a markdown table; a picture that cannot be read now is left out."""
    from caption_assets.core.faults import PictureFault
    from caption_assets.core.images import thumbnail
    from caption_assets.core.plan.plans import SourceChanged
    from caption_assets.core.sources.pictures import PictureRef, Pictures

    pictures, lines = Pictures(objects, spec), ["| picture | caption | record |", "|---|---|---|"]
    for row in samples[:THUMBNAILS]:
        try:
            picture = pictures.read(PictureRef.of(row))
            tries = (thumbnail(picture, spec.images, side) for side in THUMBNAIL_SIDES)
            data = next((small for small in tries if len(small) <= THUMBNAIL_BYTES), None)
        except (PictureFault, SourceChanged):
            continue
        if data is not None:
            shown = f"![](data:image/jpeg;base64,{base64.b64encode(data).decode()})"
            lines.append(f"| {shown} | {markdown(row['text'] or row['reason'])} | {markdown(row['record_id'])} |")
    return {"pictures": dg.MetadataValue.md("\n".join(lines))} if len(lines) > 2 else {}
