"""How replies are read in tests: each cell's text, or its reason in capitals."""

from __future__ import annotations

import json

from caption_assets.core.columns import REASONS
from caption_assets.core.parsing import parse_reply

SLOTS = (1, 2, 3, 4)
CAPTIONS = {
    1: "Caption for 1: a red circle on a plain light background.",
    2: "Caption for 2: a green square on a plain light background.",
    3: "Caption for 3: a blue circle on a plain light background.",
    4: "Caption for 4: a yellow square on a plain light background.",
}
BARE = json.dumps({str(slot): text for slot, text in CAPTIONS.items()})
A, B, C = CAPTIONS[1], CAPTIONS[2], CAPTIONS[3]


def read(reply: str | None, finish: str | None = "stop", slots: tuple[int, ...] = SLOTS, grid: bool = True) -> dict[int, str]:
    """Texts, and reasons in capitals, by slot."""
    cells = parse_reply(reply, finish, None, slots, grid)
    assert list(cells) == list(slots)
    for cell in cells.values():
        assert (cell.text is None) == (cell.reason is not None) == (cell.detail is not None)
        assert cell.reason is None or cell.reason in REASONS
    return {slot: cell.text if cell.text is not None else str(cell.reason).upper() for slot, cell in cells.items()}


def single(reply: str | None, finish: str | None = "stop") -> str:
    return read(reply, finish, (1,), grid=False)[1]
