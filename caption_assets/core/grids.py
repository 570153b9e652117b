"""Several pictures in one: the numbered grid that a model is shown. Pure functions of pictures and geometry.

A model may have been trained on these very pixels (the demo model was), so how a grid looks is fixed: white canvas, cells
row-major with `gap` pixels around and between them, each picture enlarged or reduced to fit its cell and centred in it, its
number from 1 in white on a black box in the cell's top left corner. Cells without a picture stay canvas, without a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

from caption_assets.config import GridConfig
from caption_assets.core.images import Decoded
from caption_assets.core.pictures.pixels import encode, fitted, scaled

CANVAS = (255, 255, 255)


def grid_size(grid: GridConfig) -> tuple[int, int]:
    """Width and height of every grid of this geometry, in pixels."""
    pitch = grid.cell_size + grid.gap
    return grid.cols * pitch + grid.gap, grid.rows * pitch + grid.gap


def cell_image(decoded: Decoded, grid: GridConfig) -> Image.Image:
    """The picture in the size it has in a cell: its longer side is cell_size."""
    return scaled(decoded.image, fitted(decoded.width, decoded.height, grid.cell_size))


def compose(cells: Sequence[Image.Image], grid: GridConfig) -> bytes:
    """One grid as the bytes of grid.format: cells[n] is shown in cell n + 1, in RGB and not larger than cell_size (`cell_image`).

    The same pictures and geometry give the same bytes. ValueError: no cell, more than the grid holds, or one that is too large.
    """
    if not 0 < len(cells) <= grid.rows * grid.cols:
        raise ValueError(f"a grid of {grid.rows}x{grid.cols} cannot show {len(cells)} pictures")
    canvas = Image.new("RGB", grid_size(grid), CANVAS)
    for index, picture in enumerate(cells):
        row, col = divmod(index, grid.cols)
        left, top = (grid.gap + place * (grid.cell_size + grid.gap) for place in (col, row))
        spare_x, spare_y = grid.cell_size - picture.width, grid.cell_size - picture.height
        if spare_x < 0 or spare_y < 0:
            raise ValueError(f"cell {index + 1}: {picture.width}x{picture.height} is larger than cell_size {grid.cell_size}")
        canvas.paste(picture, (left + spare_x // 2, top + spare_y // 2))
        if grid.label_font_size:
            label = label_image(index + 1, grid.label_font_size)
            canvas.paste(label.crop((0, 0, min(label.width, grid.cell_size), min(label.height, grid.cell_size))), (left, top))
    return encode(canvas, grid.format, grid.quality)


@lru_cache(maxsize=256)
def label_image(number: int, font_size: int) -> Image.Image:
    """The number in white on its black box. The font is the one inside Pillow, so it looks the same on every machine."""
    font, text = ImageFont.load_default(font_size), str(number)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("this Pillow was built without FreeType, so it cannot draw numbers; install Pillow's own wheel")
    pad = max(1, font_size // 5)
    left, top, right, bottom = (int(edge) for edge in font.getbbox(text))
    label = Image.new("RGB", (right - left + 2 * pad, bottom - top + 2 * pad))
    ImageDraw.Draw(label).text((pad - left, pad - top), text, (255, 255, 255), font)
    return label
