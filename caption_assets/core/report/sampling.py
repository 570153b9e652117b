"""A bounded sample of a shard's records in which every reason is represented, drawn while the tables stream by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
CAPTIONED = "captioned"
"""The group of records for which every output is valid; the others go by reason."""


@dataclass
class _Group:
    """Of the records offered so far, those with the smallest keys: a random choice, equal for equal tables."""

    limit: int
    size: int = 0
    kept: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def offer(self, keys: npt.NDArray[np.float64], at: npt.NDArray[np.int64], rows: pa.Table) -> None:
        self.size += len(keys)
        if len(self.kept) == self.limit:
            low = keys < self.kept[-1][0]
            keys, at = keys[low], at[low]
        if len(keys) > self.limit:
            smallest = np.argpartition(keys, self.limit)[: self.limit]
            keys, at = keys[smallest], at[smallest]
        if len(keys):
            found = rows.take(pa.array(at)).to_pylist()
            self.kept = sorted([*self.kept, *zip(keys.tolist(), found, strict=True)], key=lambda item: item[0])[: self.limit]


class Sample:
    """At most `limit` records: half of them captioned, the other half shared by the reasons, and what one half leaves goes to the
    other. Memory holds `limit` records of each group."""

    def __init__(self, limit: int, seed: int = 0) -> None:
        self.limit = limit
        self._groups: dict[str, _Group] = {}
        self._random = np.random.default_rng(seed)

    def add(self, rows: pa.Table, groups: Mapping[str, Bools]) -> None:
        """rows: as they come back from `chosen`; groups: which rows are of each group, CAPTIONED or a reason."""
        keys = self._random.random(rows.num_rows)
        for name, members in groups.items():
            here = np.flatnonzero(members)
            self._groups.setdefault(name, _Group(self.limit)).offer(keys[here], here, rows)

    @property
    def sizes(self) -> dict[str, int]:
        """How many records were offered of each group."""
        return {name: group.size for name, group in self._groups.items()}

    def chosen(self) -> dict[str, dict[str, Any]]:
        """The chosen rows by record_id."""
        shares = divide(self.sizes, self.limit)
        kept = [row for name, group in self._groups.items() for _, row in group.kept[: shares[name]]]
        return {row["record_id"]: row for row in kept}


def divide(sizes: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many of each group make up `limit`: captioned ones half, or as many as the others leave; the others in turns."""
    others = {name: size for name, size in sizes.items() if name != CAPTIONED}
    captioned = min(sizes.get(CAPTIONED, 0), max(limit // 2, limit - sum(others.values())))
    shares = dict.fromkeys(sizes, 0) | ({CAPTIONED: captioned} if CAPTIONED in sizes else {})
    left = limit - captioned
    while left and (open_ := [name for name, size in others.items() if shares[name] < size]):
        for name in sorted(open_)[:left]:
            shares[name] += 1
            left -= 1
    return shares
