"""Whether a shard's captions look like captions as a whole: what no single caption shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

SAME_TEXT_SHARE = 0.5
"""One text for half of the different pictures is an answer to something else."""
ENOUGH = 20
"""Below so many captions nothing is said about shares."""


@dataclass(frozen=True)
class Sanity:
    """figures: per output `{output}_…`; warnings: what a person should look at."""

    figures: dict[str, Any]
    warnings: list[str]


def look_over(merged: Path, outputs: Sequence[str]) -> Sanity:
    """Lengths, repeated texts over different pictures, and texts without letters, of a local merged parquet file."""
    figures: dict[str, Any] = {}
    warnings: list[str] = []
    with duckdb.connect() as connection:
        for name in outputs:
            column = f'"{name}"'
            row = connection.execute(
                f"""
                WITH texts AS (SELECT {column} AS text, duplicate_of FROM read_parquet(?) WHERE {column} IS NOT NULL),
                     own AS (SELECT text, count(*) AS n FROM texts WHERE duplicate_of IS NULL GROUP BY text)
                SELECT count(*), coalesce(median(length(text)), 0),
                       coalesce(min(length(text)), 0), coalesce(max(length(text)), 0),
                       coalesce(sum((NOT regexp_matches(text, '\\p{{L}}'))::INT), 0),
                       coalesce((SELECT max(n) FROM own), 0), coalesce((SELECT sum(n) FROM own), 0)
                FROM texts
                """,  # noqa: S608 - output names are [a-z][a-z0-9_]*
                [str(merged)],
            ).fetchone()
            assert row is not None
            count, middle, shortest, longest, wordless, most, own = row
            figures |= {
                f"{name}_median_chars": float(middle),
                f"{name}_min_chars": int(shortest),
                f"{name}_max_chars": int(longest),
                f"{name}_same_text_share": float(most / own) if own else 0.0,
            }
            if own >= ENOUGH and most / own >= SAME_TEXT_SHARE:
                warnings.append(f"{name}: one text stands for {most} of {own} different pictures")
            if count and wordless / count > 0.01:
                warnings.append(f"{name}: {wordless} of {count} texts have no letter")
    return Sanity(figures, warnings)
