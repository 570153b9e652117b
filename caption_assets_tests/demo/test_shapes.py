"""Every picture shows its whole shape in the colours its caption names."""

import random

import pytest

from caption_assets.demo.shapes import ALL_SPECS, BACKGROUNDS, COLOURS, TINT, Picture


def near(pixel, colour):
    return all(abs(a - b) <= TINT + 1 for a, b in zip(pixel, colour, strict=True))


@pytest.mark.parametrize("size", [(96, 96), (64, 96), (320, 213)])
def test_the_shape_is_wholly_visible_and_in_its_colours(size):
    rng = random.Random(1)
    for spec in ALL_SPECS:
        picture = Picture.random(rng, spec, *size)
        image, mask = picture.image(), picture.mask()
        left, top, right, bottom = mask.getbbox()
        assert left > 0 and top > 0 and right < size[0] and bottom < size[1]
        assert near(image.getpixel((0, 0)), BACKGROUNDS[spec.background])
        centre = (int(picture.x), int(picture.y))
        assert mask.getpixel(centre) == 255 and near(image.getpixel(centre), COLOURS[spec.colour])


def test_one_seed_gives_one_picture():
    first, again = (Picture.random(random.Random(5), ALL_SPECS[0], 80, 60) for _ in range(2))
    assert first == again and first.image().tobytes() == again.image().tobytes()
