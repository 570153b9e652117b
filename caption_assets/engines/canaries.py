"""Canaries: requests with known answers, in the form of real ones. A coloured shape, a grid of four, or a line of text.

Canary number n of a form is the same for every endpoint, so that their answers can be compared. Neighbouring numbers show
different sets of colours, so that an endpoint with one answer for everything cannot be right twice.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from PIL import Image, ImageDraw

from caption_assets.config import GridConfig
from caption_assets.core.grids import compose
from caption_assets.core.parsing import parse_reply
from caption_assets.core.prompts import grid_text
from caption_assets.engines.base import ChatReply, ChatRequest

Form = Literal["text", "single", "grid"]
FORMS: tuple[Form, ...] = ("text", "single", "grid")
"""From the weakest to the strongest: a grid also shows whether captions reach their cells."""

COLOURS = {
    "red": (220, 30, 30), "green": (30, 160, 50), "blue": (40, 70, 220), "yellow": (245, 220, 40), "purple": (135, 50, 170),
}  # fmt: skip
BACKGROUNDS = ((248, 248, 248), (12, 12, 12), (128, 128, 128))
SIDE = 256
GRID = GridConfig(rows=2, cols=2, cell_size=SIDE, gap=3, label_font_size=SIDE * 52 // 1024, format="png")
SLOTS = (1, 2, 3, 4)
PROMPT = "Describe the picture in one short sentence that names its main colour."

_WORDS = {name: name for name in COLOURS} | {"violet": "purple", "magenta": "purple", "gold": "yellow", "golden": "yellow"}
_COLOUR_WORD = re.compile(rf"\b({'|'.join(_WORDS)})\b", re.I)


def form_of(request: ChatRequest) -> Form:
    """The form of a real request."""
    if request.image is None:
        return "text"
    return "grid" if request.json_keys else "single"


@dataclass(frozen=True)
class Canary:
    """colours: the right one of each cell, () for text."""

    number: int
    form: Form
    colours: tuple[str, ...]
    request: ChatRequest


@dataclass(frozen=True)
class Reading:
    """What an answer to a canary says. raw: all of it; texts: per cell, "" where there is none; the three counts are of cells.

    own: names its own colour and no other; crossed: names only the colours of other cells; strange: names only colours that the
    picture does not have. permuted: each cell names one colour, together they are the right ones, but not in their cells.
    """

    number: int
    raw: str
    parsed: bool
    texts: tuple[str, ...]
    own: int
    crossed: int
    strange: int
    permuted: bool

    @property
    def right(self) -> bool:
        """Every cell's colour is named."""
        return self.own == len(self.texts)


def make_canary(form: Form, number: int, sampling: Mapping[str, Any]) -> Canary:
    """Canary `number` (from 0 on; they repeat after 60). sampling: that of real requests; only the temperature becomes 0."""
    number %= 60
    sampling = {**sampling, "temperature": 0}
    name = f"canary-{form}-{number}"
    if form == "text":
        return Canary(
            number,
            form,
            (),
            ChatRequest(name, f"Write one short sentence about the number {number + 2}.", None, None, (), sampling),
        )
    if form == "single":
        colour = list(COLOURS)[number % len(COLOURS)]
        return Canary(number, form, (colour,), ChatRequest(name, PROMPT, _single(colour, number), "image/png", (), sampling))
    colours = _four(number)
    text, keys = grid_text(SLOTS, [PROMPT] * 4), tuple(map(str, SLOTS))
    return Canary(number, form, colours, ChatRequest(name, text, _grid(colours, number), "image/png", keys, sampling))


def _four(number: int) -> tuple[str, ...]:
    """Four colours in some order; which one is left out changes from number to number."""
    names = list(COLOURS)
    names.pop(number % len(names))
    random.Random(number).shuffle(names)
    return tuple(names)


def _draw(colour: str, number: int) -> Image.Image:
    rng = random.Random(f"{colour} {number}")
    image = Image.new("RGB", (SIDE, SIDE), rng.choice(BACKGROUNDS))
    half = SIDE * rng.uniform(0.28, 0.4)
    box = (SIDE / 2 - half, SIDE / 2 - half, SIDE / 2 + half, SIDE / 2 + half)
    draw = ImageDraw.Draw(image)
    (draw.ellipse if rng.random() < 0.5 else draw.rectangle)(box, fill=COLOURS[colour])
    return image


@lru_cache(maxsize=64)
def _single(colour: str, number: int) -> bytes:
    sink = io.BytesIO()
    _draw(colour, number).save(sink, "PNG")
    return sink.getvalue()


@lru_cache(maxsize=64)
def _grid(colours: tuple[str, ...], number: int) -> bytes:
    return compose([_draw(colour, number) for colour in colours], GRID)


def read_canary(canary: Canary, reply: ChatReply) -> Reading:
    """What the reply to a canary says."""
    raw = normal(reply.reply)
    if canary.form == "text":
        return Reading(canary.number, raw, bool(raw), (raw,), 0, 0, 0, False)
    grid = canary.form == "grid"
    cells = parse_reply(reply.reply, reply.finish_reason, None, SLOTS if grid else (1,), grid)
    texts = tuple(normal(cells[slot].text) for slot in (SLOTS if grid else (1,)))
    named = [{_WORDS[word.lower()] for word in _COLOUR_WORD.findall(text)} for text in texts]
    there = set(canary.colours)
    return Reading(
        canary.number,
        raw,
        all(texts),
        texts,
        own=sum(words == {colour} for words, colour in zip(named, canary.colours, strict=True)),
        crossed=sum(bool(words) and words <= there - {colour} for words, colour in zip(named, canary.colours, strict=True)),
        strange=sum(bool(words) and not words & there for words in named),
        permuted=sorted(map(sorted, named)) == sorted([colour] for colour in there) and named != [{c} for c in canary.colours],
    )


def normal(text: str | None) -> str:
    """The text in lower case with single spaces; "" for none."""
    return " ".join((text or "").lower().split())
