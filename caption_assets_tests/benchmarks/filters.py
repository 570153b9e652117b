"""Precision and recall of every filter on the labelled replies: `python -m caption_assets_tests.benchmarks.filters [--errors]`.

--errors lists what was judged wrongly, of the tuning half only: the sealed half is never looked at to tune.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caption_assets.config import FiltersConfig
from caption_assets.core.parsing import CellText
from caption_assets.core.quality import judge
from caption_assets_tests.benchmarks.reporting import Figure, report

QUICK = ()
DATA = Path(__file__).parent.parent / "data"
HALVES = ("tuning", "sealed")
OFF: dict[str, Any] = {
    "min_chars": 0,
    "max_chars": 10**9,
    "language": None,
    "refusals": False,
    "repetition": False,
    "prompt_echo": False,
    "boilerplate": False,
    "duplicate_captions": False,
}
REASON_OF = {
    "refusals": "refusal",
    "repetition": "repetition",
    "prompt_echo": "prompt_echo",
    "boilerplate": "boilerplate",
    "language": "wrong_language",
    "duplicate_captions": "duplicate_caption",
    "min_chars": "too_short",
    "max_chars": "too_long",
}


@dataclass
class Score:
    """Counts of one filter on one half; wrong: the rows judged wrongly."""

    hits: int = 0
    misses: int = 0
    false_hits: int = 0
    passes: int = 0
    wrong: list[dict[str, Any]] = field(default_factory=list)

    @property
    def precision(self) -> float:
        return self.hits / max(1, self.hits + self.false_hits)

    @property
    def recall(self) -> float:
        return self.hits / max(1, self.hits + self.misses)


def labelled(half: str) -> Iterator[dict[str, Any]]:
    with open(DATA / f"replies_{half}.jsonl", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def refused(row: dict[str, Any], filters: FiltersConfig) -> dict[int, str]:
    """The reasons by slot, of all filters that are on."""
    cells = {slot: CellText(text, None, None) for slot, text in enumerate(row.get("cells") or [row["text"]], 1)}
    pictures = dict(enumerate(row["pictures"], 1)) if row.get("pictures") else None
    judged = judge(cells, filters, dict.fromkeys(cells, row.get("prompt", "")), pictures)
    return {slot: cell.reason for slot, cell in judged.items() if cell.reason is not None}


def only(row: dict[str, Any]) -> FiltersConfig:
    """The filter that the row is about, alone."""
    name = row["filter"]
    return FiltersConfig(**{**OFF, name: row.get("limit", row.get("language", True))})


def is_right(row: dict[str, Any]) -> bool:
    slots = row.get("refused_slots", [1]) if row["refuse"] else []
    return refused(row, only(row)) == dict.fromkeys(slots, REASON_OF[row["filter"]])


def scores(half: str) -> dict[str, Score]:
    found: dict[str, Score] = {}
    for row in labelled(half):
        score = found.setdefault(row["filter"], Score())
        right = is_right(row)
        score.hits += right and row["refuse"]
        score.misses += not right and row["refuse"]
        score.false_hits += not right and not row["refuse"]
        score.passes += right and not row["refuse"]
        if not right:
            score.wrong.append(row)
    return found


def kept_by_default(half: str) -> tuple[int, int, list[dict[str, Any]]]:
    """Good captions that all the default filters together keep, all of them, and the ones that they refuse."""
    filters = FiltersConfig(min_chars=0)
    rows = [r for r in labelled(half) if not r["refuse"] and "text" in r and r["filter"] not in ("min_chars", "max_chars")]
    lost = [row for row in rows if refused(row, filters)]
    return len(rows) - len(lost), len(rows), lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--errors", action="store_true")
    arguments = parser.parse_args()
    print(f"{'filter':20} {'half':8} {'bad':>5} {'good':>5} {'missed':>7} {'false':>6} {'precision':>10} {'recall':>7}")
    judged: dict[str, Score] = {}
    for half in HALVES:
        start = time.process_time()
        judged = scores(half)
        for name, score in judged.items():
            bad, good = score.hits + score.misses, score.false_hits + score.passes
            counts = f"{bad:5} {good:5} {score.misses:7} {score.false_hits:6}"
            print(f"{name:20} {half:8} {counts} {score.precision:10.3f} {score.recall:7.3f}")
            if arguments.errors and half == "tuning":
                for row in score.wrong:
                    print("   ", json.dumps(row, ensure_ascii=False)[:300])
        kept, all_good, lost = kept_by_default(half)
        print(f"{'all, good captions':20} {half:8} kept {kept} of {all_good}; {time.process_time() - start:.1f} s CPU")
        if arguments.errors and half == "tuning":
            for row in lost:
                print("   ", json.dumps(row, ensure_ascii=False)[:300])
    for measure in ("precision", "recall"):
        name = min(judged, key=lambda filter_: getattr(judged[filter_], measure))
        value = getattr(judged[name], measure)
        report(Figure(f"filters, lowest {measure} on the sealed half", "", value, at_least=0.98, note=name))


if __name__ == "__main__":
    main()
