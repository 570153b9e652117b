"""Whether a shard's captions look like captions as a whole: what no single caption shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from caption_assets.core.filters.language import main_script

SAME_TEXT_SHARE = 0.5
"""One text for half of the different pictures is an answer to something else."""
ENOUGH = 20
"""Below so many captions nothing is said about shares."""
EMPTY_SHARE = 0.01
FAR_OFF, FAR_OFF_CHARS, FAR_OFF_SHARE = 8, 100, 0.02
"""A text is far off when it is so many times longer or shorter than the middle one, and by so many characters."""
OTHER_SCRIPT_SHARE = 0.05
SAMPLE = 500
"""Texts per output whose script is looked at."""


@dataclass(frozen=True)
class Sanity:
    """figures: per output `{output}_…`; warnings: what a person should look at."""

    figures: dict[str, Any]
    warnings: list[str]


def look_over(merged: Path, outputs: Sequence[str]) -> Sanity:
    """Texts without letters, repeated over different pictures, of other lengths or in another script than the rest, of a local
    merged parquet file."""
    found = Sanity({}, [])
    with duckdb.connect() as connection:
        for name in outputs:
            _texts(connection, str(merged), name, found)
            _scripts(connection, str(merged), name, found)
    return found


def _texts(connection: duckdb.DuckDBPyConnection, path: str, name: str, found: Sanity) -> None:
    row = connection.execute(
        f"""
        WITH texts AS (SELECT "{name}" AS text, length("{name}") AS chars, duplicate_of
                       FROM read_parquet(?) WHERE "{name}" IS NOT NULL),
             middle AS (SELECT coalesce(median(chars), 0) AS chars FROM texts),
             own AS (SELECT text, count(*) AS n FROM texts WHERE duplicate_of IS NULL GROUP BY text)
        SELECT count(*), any_value(middle.chars), coalesce(min(texts.chars), 0), coalesce(max(texts.chars), 0),
               coalesce(sum((NOT regexp_matches(text, '\\p{{L}}'))::INT), 0),
               coalesce(sum((abs(texts.chars - middle.chars) > {FAR_OFF_CHARS} AND
                             greatest(texts.chars, middle.chars) > {FAR_OFF} * least(texts.chars, middle.chars))::INT), 0),
               coalesce((SELECT max(n) FROM own), 0), coalesce((SELECT sum(n) FROM own), 0), (SELECT count(*) FROM own)
        FROM texts, middle
        """,  # noqa: S608 - output names are [a-z][a-z0-9_]*
        [path],
    ).fetchone()
    assert row is not None
    count, middle, shortest, longest, empty, far_off, most, own, different = row
    found.figures.update(
        {
            f"{name}_median_chars": float(middle or 0),
            f"{name}_min_chars": int(shortest),
            f"{name}_max_chars": int(longest),
            f"{name}_empty": int(empty),
            f"{name}_far_off_length": int(far_off),
            f"{name}_same_text_share": float(most / own) if own else 0.0,
            f"{name}_different_texts": int(different),
        }
    )
    if own >= ENOUGH and most / own >= SAME_TEXT_SHARE:
        found.warnings.append(f"{name}: one text stands for {most} of {own} different pictures")
    if count and empty / count > EMPTY_SHARE:
        found.warnings.append(f"{name}: {empty} of {count} texts have no letter")
    if count >= ENOUGH and far_off / count > FAR_OFF_SHARE:
        found.warnings.append(
            f"{name}: {far_off} of {count} texts are more than {FAR_OFF} times as long or as short as the middle one "
            f"({middle:.0f} characters)"
        )


def _scripts(connection: duckdb.DuckDBPyConnection, path: str, name: str, found: Sanity) -> None:
    """A model that drifts into another language often changes the script; `filters.language` refuses what does not."""
    rows = connection.execute(
        f'SELECT "{name}" FROM (SELECT "{name}" FROM read_parquet(?) WHERE "{name}" IS NOT NULL) USING SAMPLE {SAMPLE}',  # noqa: S608
        [path],
    ).fetchall()
    scripts = Counter(script for (text,) in rows if (script := main_script(text)))
    seen = scripts.total()
    if not seen:
        return
    (usual, count), *others = scripts.most_common()
    found.figures[f"{name}_other_script_share"] = 1 - count / seen
    if seen >= ENOUGH and 1 - count / seen > OTHER_SCRIPT_SHARE:
        said = ", ".join(f"{n} {script.lower()}" for script, n in others)
        found.warnings.append(f"{name}: of {seen} texts looked at, {count} are in {usual.lower()} script, but {said}")
