"""What the demo model learns from agrees with itself: pixels, labels and answers are of one picture, seeds give one data set."""

import json

import numpy as np
import pytest
from PIL import Image

from caption_assets.core.prompts import grid_text
from caption_assets.demo.shapes import ALL_SPECS, COLOURS, SHAPES
from caption_assets.demo.training_data import PATCHES, Examples, pixels_of

SPECS = {spec.caption: spec for spec in ALL_SPECS}


def examples(kind, count=40, short=False, seed="a test"):
    return list(Examples(seed).stream(kind, count, short))


@pytest.mark.parametrize("kind", ["single", "grid", "text"])
def test_one_seed_gives_one_data_set(kind):
    first, again, other = examples(kind, 4), examples(kind, 4), examples(kind, 4, seed="another")
    assert [(e.text, e.answer) for e in first] == [(e.text, e.answer) for e in again] != [(e.text, e.answer) for e in other]
    if kind != "text":
        assert all((a.shown.pixels == b.shown.pixels).all() for a, b in zip(first, again, strict=True))


def test_a_grid_is_asked_for_in_the_products_words_and_answered_by_cell():
    for example in examples("grid"):
        answer = json.loads(example.answer)
        assert list(answer) == [str(n) for n in range(1, len(answer) + 1)]
        assert example.text.startswith(grid_text([1], ["x"]).split("<cell")[0]) and f'"{len(answer)}"' in example.text
        assert all(caption in SPECS for caption in answer.values())


def test_patches_are_labelled_with_the_cell_they_lie_in():
    full = [e for e in examples("grid", 60) if len(json.loads(e.answer)) == 4]
    for example in full:
        shapes, colours, _ = example.shown.labels.reshape(3, PATCHES, PATCHES)
        for cell, caption in json.loads(example.answer).items():
            row, col = divmod(int(cell) - 1, 2)
            corner = (row * PATCHES // 2, col * PATCHES // 2)
            assert shapes[corner] == SHAPES.index(SPECS[caption].shape)
            assert colours[corner] == list(COLOURS).index(SPECS[caption].colour)


def test_foreground_is_where_the_colour_is():
    looked_at = 0
    for example in examples("single"):
        colour = np.array(COLOURS[SPECS[example.answer].colour]) / 127.5 - 1
        inside = example.shown.mask.min(axis=1) == 1  # patches that are shape throughout
        patches = example.shown.pixels.reshape(3, PATCHES, 12, PATCHES, 12).mean(axis=(2, 4)).reshape(3, -1).T
        assert np.abs(patches[inside] - colour).max(initial=0) < 0.25
        looked_at += int(inside.sum())
    assert looked_at > 100


def test_what_records_say_does_not_change_the_answer():
    misled = [e for e in examples("single", 200) if any(caption in e.text for caption in SPECS)]
    assert misled and any(e.answer not in e.text for e in misled)


def test_a_text_stage_is_answered_from_its_text():
    assert all(e.shown is None and (e.answer in e.text or e.answer.startswith("the number")) for e in examples("text"))


def test_pixels_are_those_of_the_models_processor():
    pytest.importorskip("transformers")
    from transformers import AutoProcessor

    from caption_assets.demo import MODEL

    processor = AutoProcessor.from_pretrained(MODEL).image_processor
    if "Pil" not in type(processor).__name__:
        pytest.skip("torchvision is here, and its scaling differs a little")
    noise = np.random.default_rng(0)
    for size in ((96, 96), (262, 262), (320, 213), (97, 131)):
        image = Image.fromarray(noise.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8))
        theirs = np.asarray(processor([[image]], return_tensors="np")["pixel_values"])[0][0]
        assert np.abs(theirs - pixels_of(image)).max() < 1e-5
