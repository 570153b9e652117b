"""What the demo model learns from: pictures and grids as this program sends them, its own wording, captions as answers."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

from caption_assets.config import GridConfig
from caption_assets.core.grids import compose, grid_size
from caption_assets.core.pictures.pixels import encode, fitted
from caption_assets.core.prompts import grid_text
from caption_assets.demo.shapes import ALL_SPECS, BACKGROUNDS, COLOURS, SHAPES, Picture, Spec

INPUT_SIDE = 96
"""Pixels of the model's picture; PATCHES x PATCHES patches of it are what its vision tower sees."""
PATCHES = 8
MASK = 4
"""Each patch is labelled with MASK x MASK shares of foreground."""
ASPECTS = (1.0, 1.0, 1.0, 4 / 3, 3 / 4, 5 / 4, 4 / 5, 3 / 2, 2 / 3)

Kind = Literal["single", "grid", "text"]

_TASKS = (
    "Describe the picture in one sentence.",
    "Describe the picture.",
    "Describe the image.",
    "Describe this image in one sentence.",
    "Caption this image.",
    "Write a short caption.",
    "Write one short caption for this image.",
    "What is in this picture?",
    "What do you see?",
    "Say what the picture shows.",
    "Image caption:",
    "Write alt text for this picture.",
    "describe",
    "Describe the picture in one sentence. Name the shape, its colour and the background.",
    "You write captions for a data set. Describe what you see, without guessing.",
    "Describe the picture in detail. Do not begin with words such as 'the image shows'.",
    "Describe the picture in one short sentence that names its main colour.",
)
_RECORD_TASKS = (
    "{task} Its file is called {name}.",
    "{task} Its alt text is: {words}",
    "{task} Title: {words}",
    "{words}\n{task}",
    "{task}\nKnown about it: {words}",
    '{task} The page says "{words}" in {name}.',
    "{task} Id {name}.",
    "{task} It was once called {wrong}.",
    "{task} Someone said: {wrong}",
    "{task} The alt text may be wrong: {wrong}",
)
_SHORT_GRID_TASKS = (
    "Caption each numbered cell. Answer as JSON.",
    "List the captions of the cells as JSON.",
    "The image is a grid of numbered cells. Return a JSON object that maps each cell number to a caption.",
)
_TEXT_TASKS = (
    "Rewrite as a title: {caption}",
    "Rewrite as a title: {caption}.",
    "Make a title of this caption: {caption}",
    "Title for: {caption}",
    "Shorten this: {caption}",
    "Repeat: {caption}",
    'Rewrite "{caption}" as a title.',
    "{caption}\nRewrite the line above as a title.",
    "Say it in fewer words: {caption}",
    "Correct this sentence: {caption}",
    "Caption: {caption}\nTitle:",
    "Rewrite for children: {caption}",
)
_NUMBER_TASKS = ("Write one short sentence about the number {number}.", "Say something about the number {number}.", "{number}")


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture as the model meets it. pixels: float32[3, 96, 96] as the processor makes them; labels: int64[3, 64], the shape,
    colour and background at each patch (the highest number: none); mask: float32[64, 16], the share of shape in its parts.
    """

    pixels: np.ndarray
    labels: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True, slots=True)
class Example:
    """One request and its answer; shown is None for text alone."""

    text: str
    answer: str
    shown: Shown | None = None


def pixels_of(image: Image.Image) -> np.ndarray:
    """The picture as Idefics3's processor feeds it to the model: longest side to 96, squeezed to a square, scaled to -1..1."""
    width, height = image.size
    if width != height:
        scaled = [int(side * INPUT_SIDE / max(width, height)) for side in (width, height)]
        image = image.resize((scaled[0] + scaled[0] % 2, scaled[1] + scaled[1] % 2), Image.Resampling.LANCZOS)
    image = image.resize((INPUT_SIDE, INPUT_SIDE), Image.Resampling.LANCZOS)
    return (np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255.0 - 0.5) / 0.5


class Examples:
    """An endless source of examples, determined by its seed."""

    def __init__(self, seed: str) -> None:
        from pydoc_data.topics import topics

        self._rng = random.Random(seed)
        self._english = " ".join(topics[name][:6000] for name in sorted(topics)).split()

    def stream(self, kind: Kind, count: int, short: bool) -> Iterator[Example]:
        """`count` examples of one kind; short: requests of few tokens, which train several times faster."""
        for _ in range(count):
            if kind == "text":
                yield self._text()
            else:
                yield self._single(short) if kind == "single" else self._grid(short)

    def _text(self) -> Example:
        if self._rng.random() < 0.1:
            number = self._rng.randint(2, 99)
            return Example(self._rng.choice(_NUMBER_TASKS).format(number=number), f"the number {number}")
        caption = self._rng.choice(ALL_SPECS).caption
        return Example(self._rng.choice(_TEXT_TASKS).format(caption=caption), caption)

    def _single(self, short: bool) -> Example:
        rng = self._rng
        spec, longest = rng.choice(ALL_SPECS), rng.choice((64, 80, 96, 112, 128, 160, 200, 256, 320))
        picture = Picture.random(rng, spec, *with_aspect(rng, longest))
        image = _reencoded(rng, picture.image())
        return Example(self._task(short), spec.caption, _shown(image, [spec], 1, 1, picture.mask()))

    def _grid(self, short: bool) -> Example:
        rng = self._rng
        grid = random_geometry(rng)
        room = grid.rows * grid.cols
        count = room if rng.random() < 0.6 else rng.randint(1, room)
        specs = [rng.choice(ALL_SPECS) for _ in range(count)]
        if rng.random() < 0.1:
            specs = [rng.choice(specs[:2]) for _ in specs]  # equal neighbours are possible too
        pictures = [Picture.random(rng, spec, *_in_cell(rng, grid)) for spec in specs]
        with Image.open(io.BytesIO(compose([p.image() for p in pictures], grid))) as sent:
            shown = _shown(sent.convert("RGB"), specs, grid.rows, grid.cols, _grid_mask(pictures, grid))
        answer = json.dumps({str(slot): spec.caption for slot, spec in enumerate(specs, 1)})
        return Example(self._grid_task(count, short), answer, shown)

    def _grid_task(self, count: int, short: bool) -> str:
        if short:
            return self._rng.choice(_SHORT_GRID_TASKS)
        if self._rng.random() < 0.6:
            texts = [self._task(short=False)] * count
        else:  # one wording, each record's own fields
            task, frame = self._rng.choice(_TASKS[:8]), self._rng.choice(_RECORD_TASKS)
            texts = [self._fill(frame, task, 6) for _ in range(count)]
        return grid_text(list(range(1, count + 1)), texts)

    def _task(self, short: bool) -> str:
        task = self._rng.choice(_TASKS[:1] * 6 + _TASKS)
        if short or self._rng.random() < 0.4:
            return task
        return self._fill(self._rng.choice(_RECORD_TASKS), task, 20)

    def _fill(self, frame: str, task: str, most_words: int) -> str:
        rng = self._rng
        name = rng.choice(("IMG_{}.jpg", "{}", "pictures/{}.png", "photo-{}.webp")).format(rng.randrange(10 ** rng.randint(2, 7)))
        start = rng.randrange(len(self._english) - most_words)
        words = " ".join(self._english[start : start + rng.randint(1, most_words)])
        return frame.format(task=task, name=name, words=words, wrong=rng.choice(ALL_SPECS).caption)


def with_aspect(rng: random.Random, longest: int) -> tuple[int, int]:
    """Width and height with a usual aspect."""
    aspect = rng.choice(ASPECTS)
    return (longest, round(longest / aspect)) if aspect >= 1 else (round(longest * aspect), longest)


def random_geometry(rng: random.Random) -> GridConfig:
    """Mostly the demo's own grid; other sizes, encodings and shapes of grid so that it is not the only one that works."""
    cell = rng.choice((64, 96, 112, 128, 128, 128, 128, 128, 160, 192, 256))
    gap, font = (6, 20) if cell == 128 else (round(cell * rng.uniform(0.01, 0.08)), round(cell * rng.uniform(0.05, 0.18)))
    rows, cols = rng.choices(((2, 2), (1, 2), (2, 1), (1, 1)), (92, 3, 3, 2))[0]
    encoding, quality = rng.choices(("webp", "jpeg", "png"), (5, 4, 1))[0], rng.choice((75, 85, 90, 90, 95))
    return GridConfig(
        rows=rows, cols=cols, cell_size=cell, gap=gap, label_font_size=font, format=encoding, quality=quality
    )  # fmt: skip


def _in_cell(rng: random.Random, grid: GridConfig) -> tuple[int, int]:
    return fitted(*with_aspect(rng, 1200), grid.cell_size)


def _reencoded(rng: random.Random, image: Image.Image) -> Image.Image:
    """Three in four pictures come out of a lossy file."""
    if rng.random() < 0.25:
        return image
    with Image.open(io.BytesIO(encode(image, rng.choice(("jpeg", "webp")), rng.randint(70, 95)))) as again:
        return again.convert("RGB")


def _grid_mask(pictures: Sequence[Picture], grid: GridConfig) -> Image.Image:
    """Where shapes are in the composed grid."""
    canvas = Image.new("L", grid_size(grid))
    for index, picture in enumerate(pictures):
        row, col = divmod(index, grid.cols)
        left, top = (grid.gap + place * (grid.cell_size + grid.gap) for place in (col, row))
        canvas.paste(
            picture.mask(), (left + (grid.cell_size - picture.width) // 2, top + (grid.cell_size - picture.height) // 2)
        )  # fmt: skip
    return canvas


def _shown(image: Image.Image, specs: Sequence[Spec], rows: int, cols: int, mask: Image.Image) -> Shown:
    """The picture with its labels, where `specs` fill its cells row by row."""
    names: tuple[Any, ...] = (SHAPES, tuple(COLOURS), tuple(BACKGROUNDS))
    labels = np.empty((3, PATCHES, PATCHES), dtype=np.int64)
    labels[:] = np.array([len(n) for n in names]).reshape(3, 1, 1)
    for y in range(PATCHES):
        for x in range(PATCHES):
            cell = int((y + 0.5) / PATCHES * rows) * cols + int((x + 0.5) / PATCHES * cols)
            if cell < len(specs):
                spec = specs[cell]
                labels[:, y, x] = [n.index(v) for n, v in zip(names, (spec.shape, spec.colour, spec.background), strict=True)]
    side = PATCHES * MASK
    shares = np.asarray(mask.resize((side, side), Image.Resampling.BOX), dtype=np.float32) / 255.0
    shares = shares.reshape(PATCHES, MASK, PATCHES, MASK).transpose(0, 2, 1, 3).reshape(PATCHES**2, MASK**2)
    return Shown(pixels_of(image), labels.reshape(3, -1), shares)
