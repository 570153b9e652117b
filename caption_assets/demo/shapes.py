"""The pictures of the demo: one coloured shape, wholly visible, on a plain background.

6 shapes x 8 colours x 4 backgrounds: 192 captions, each of which names its picture. Needs Pillow only.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from PIL import Image, ImageDraw

Rgb = tuple[int, int, int]

SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross")
COLOURS: dict[str, Rgb] = {
    "red": (220, 30, 30),
    "green": (30, 160, 50),
    "blue": (40, 70, 220),
    "yellow": (245, 220, 40),
    "orange": (245, 135, 25),
    "purple": (135, 50, 170),
    "cyan": (50, 205, 215),
    "pink": (250, 140, 185),
}
BACKGROUNDS: dict[str, Rgb] = {"white": (248, 248, 248), "black": (12, 12, 12), "gray": (128, 128, 128), "brown": (105, 65, 30)}
TINT = 14
"""How far, per channel, a tint may lie from the colour it is called."""
SUPERSAMPLING = 2


@dataclass(frozen=True, slots=True)
class Spec:
    """What a picture shows."""

    shape: str
    colour: str
    background: str

    @property
    def caption(self) -> str:
        article = "an" if self.colour[0] in "aeiou" else "a"
        return f"{article} {self.colour} {self.shape} on a {self.background} background"


ALL_SPECS = tuple(Spec(s, c, b) for s in SHAPES for c in COLOURS for b in BACKGROUNDS)


@dataclass(frozen=True, slots=True)
class Picture:
    """One drawing of a spec: pixels of the canvas, centre and radius of the shape, exact tints."""

    spec: Spec
    width: int
    height: int
    x: float
    y: float
    radius: float
    fill: Rgb
    ground: Rgb

    @classmethod
    def random(cls, rng: random.Random, spec: Spec, width: int, height: int) -> Picture:
        """Place, size and tints vary with `rng`; the whole shape lies inside the canvas."""
        side = min(width, height)
        radius = side * rng.uniform(0.28, 0.44)
        edge = radius + side * 0.03
        x, y = rng.uniform(edge, width - edge), rng.uniform(edge, height - edge)
        return cls(
            spec, width, height, x, y, radius, _tint(rng, COLOURS[spec.colour]), _tint(rng, BACKGROUNDS[spec.background])
        )  # fmt: skip

    def image(self) -> Image.Image:
        """The picture, RGB."""
        return self._draw("RGB", self.ground, self.fill)

    def mask(self) -> Image.Image:
        """Where the shape is: 255 inside, 0 outside, mode L."""
        return self._draw("L", 0, 255)

    def _draw(self, mode: str, ground: Rgb | int, fill: Rgb | int) -> Image.Image:
        n = SUPERSAMPLING
        image = Image.new(mode, (self.width * n, self.height * n), ground)
        draw = ImageDraw.Draw(image)
        x, y, r = self.x * n, self.y * n, self.radius * n
        if self.spec.shape == "circle":
            draw.ellipse([x - r, y - r, x + r, y + r], fill=fill)
        else:
            draw.polygon([(x + r * dx, y + r * dy) for dx, dy in _OUTLINES[self.spec.shape]], fill=fill)
        return image.resize((self.width, self.height), Image.Resampling.BILINEAR)


def _tint(rng: random.Random, colour: Rgb) -> Rgb:
    red, green, blue = (max(0, min(255, value + rng.randint(-TINT, TINT))) for value in colour)
    return red, green, blue


def _star() -> list[tuple[float, float]]:
    """Five points, the first upwards."""
    turns = [(math.pi * (k / 5 - 0.5), 0.42 if k % 2 else 1.0) for k in range(10)]
    return [(length * math.cos(angle), length * math.sin(angle)) for angle, length in turns]


_ARM = 0.32
_OUTLINES: dict[str, list[tuple[float, float]]] = {
    "square": [(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)],
    "triangle": [(0, -1), (0.95, 0.75), (-0.95, 0.75)],
    "diamond": [(0, -1), (0.8, 0), (0, 1), (-0.8, 0)],
    "star": _star(),
    "cross": [
        (-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM),
        (_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM),
    ],
}  # fmt: skip
"""Corners of each shape in units of its radius, y downwards."""
