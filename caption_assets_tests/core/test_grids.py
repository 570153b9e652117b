"""How a grid looks: every picture in its own cell, with its number."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageChops

from caption_assets.config import GridConfig
from caption_assets.core.grids import cell_image, compose, grid_size
from caption_assets.core.images import Decoded

COLOURS = [(220, 20, 20), (20, 160, 40), (30, 40, 210), (200, 180, 0), (0, 160, 160), (160, 0, 160), (90, 90, 90), (250, 120, 0)]
LOSSLESS = GridConfig(rows=2, cols=3, cell_size=64, gap=6, label_font_size=0, format="png")


def decoded(colour: tuple[int, int, int], width: int = 60, height: int = 40) -> Decoded:
    return Decoded(Image.new("RGB", (width, height), colour), width, height, "png")


def grid_of(grid: GridConfig, pictures: list[Decoded]) -> Image.Image:
    with Image.open(io.BytesIO(compose([cell_image(p, grid) for p in pictures], grid))) as image:
        return image.convert("RGB")


def corner(grid: GridConfig, slot: int) -> tuple[int, int]:
    row, col = divmod(slot - 1, grid.cols)
    return grid.gap + col * (grid.cell_size + grid.gap), grid.gap + row * (grid.cell_size + grid.gap)


def test_pictures_stand_row_major_in_the_middle_of_their_cells_on_white() -> None:
    grid = LOSSLESS
    image = grid_of(grid, [decoded(colour) for colour in COLOURS[:6]])
    assert image.size == grid_size(grid) == (3 * 64 + 4 * 6, 2 * 64 + 3 * 6)
    for slot, colour in enumerate(COLOURS[:6], 1):
        x, y = corner(grid, slot)
        assert image.getpixel((x + 32, y + 32)) == colour
        assert image.getpixel((x, y + 32)) == colour and image.getpixel((x + 63, y + 32)) == colour
        assert image.getpixel((x + 32, y + 2)) == (255, 255, 255) and image.getpixel((x + 32, y + 61)) == (255, 255, 255)
        assert image.getpixel((x - 1, y + 32)) == (255, 255, 255) and image.getpixel((x + 64, y + 32)) == (255, 255, 255)


@pytest.mark.parametrize("size", [(60, 40), (40, 60), (64, 64), (3000, 1500), (2, 300), (400, 2), (7, 7)])
def test_the_aspect_is_kept_whatever_the_size(size: tuple[int, int]) -> None:
    image = grid_of(LOSSLESS, [decoded(COLOURS[0], *size)])
    box = ImageChops.difference(image, Image.new("RGB", image.size, (255, 255, 255))).getbbox()
    assert box
    width, height = box[2] - box[0], box[3] - box[1]
    longest = max(size)
    assert abs(width - size[0] * 64 / longest) <= 1 and abs(height - size[1] * 64 / longest) <= 1 and max(width, height) == 64


def test_cells_without_a_picture_stay_empty() -> None:
    grid = GridConfig(rows=2, cols=2, cell_size=64, gap=6, label_font_size=20, format="png")
    image = grid_of(grid, [decoded(COLOURS[0])])
    for slot in (2, 3, 4):
        x, y = corner(grid, slot)
        assert image.crop((x, y, x + 64, y + 64)).getextrema() == ((255, 255),) * 3


def test_each_filled_cell_shows_its_own_number_white_on_black() -> None:
    grid = GridConfig(rows=4, cols=4, cell_size=64, gap=6, label_font_size=20, format="png")
    image = grid_of(grid, [decoded(COLOURS[0])] * 16)
    labels = []
    for slot in range(1, 17):
        x, y = corner(grid, slot)
        label = image.crop((x, y, x + 32, y + 20))
        assert label.getpixel((0, 0)) == (0, 0, 0)
        assert label.getextrema()[1][1] == 255
        labels.append(label.tobytes())
    assert len(set(labels)) == 16


def test_a_number_larger_than_its_cell_stays_in_it() -> None:
    grid = GridConfig(rows=1, cols=2, cell_size=16, gap=4, label_font_size=200, format="png")
    image = grid_of(grid, [decoded(COLOURS[0])] * 2)
    assert image.size == (44, 24)
    assert all(image.getpixel((x, 12)) == (255, 255, 255) for x in (0, 3, 20, 23, 40, 43))


@pytest.mark.parametrize(("format", "kind"), [("webp", "WEBP"), ("jpeg", "JPEG"), ("png", "PNG")])
def test_the_format_and_quality_asked_for(format: str, kind: str) -> None:
    noisy = Decoded(Image.effect_noise((300, 200), 80).convert("RGB"), 300, 200, "png")
    sizes = []
    for quality in (40, 95):
        grid = GridConfig(rows=1, cols=2, cell_size=128, format=format, quality=quality)
        data = compose([cell_image(noisy, grid)] * 2, grid)
        assert Image.open(io.BytesIO(data)).format == kind
        assert data == compose([cell_image(noisy, grid)] * 2, grid)
        sizes.append(len(data))
    assert sizes[0] < sizes[1] or format == "png"


def test_what_does_not_fit_is_refused() -> None:
    for cells in ([], [Image.new("RGB", (64, 64))] * 7, [Image.new("RGB", (65, 10))]):
        with pytest.raises(ValueError, match=r"cannot show|larger than cell_size"):
            compose(cells, LOSSLESS)
