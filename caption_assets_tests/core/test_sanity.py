"""A shard's captions as a whole: each kind of nonsense is told, and ordinary captions are not complained of."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caption_assets.core.sanity import look_over

GOOD = [
    f"A {size} {colour} square lies on a {where} table." for size in ("small", "large") for colour in "abcdefg" for where in "xyz"
]


def said(tmp_path, texts, duplicate_of=None):
    rows = pa.table(
        {"caption": pa.array(texts, pa.string()), "duplicate_of": pa.array(duplicate_of or [None] * len(texts), pa.string())}
    )
    pq.write_table(rows, tmp_path / "merged.parquet")
    return look_over(tmp_path / "merged.parquet", ["caption"])


@pytest.mark.parametrize(
    "texts",
    [
        GOOD,
        GOOD[:3],
        [],
        [None, None],
        ["红色的方块"] * 3 + GOOD[:1],
        ["Überall rote Flächen, größer als vorher."] * 5 + GOOD,
        GOOD * 3,
    ],
)
def test_ordinary_captions_pass(tmp_path, texts):
    assert said(tmp_path, texts).warnings == []


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["12, 34!"] * 3 + GOOD, "3 of 45 texts have no letter"),
        (["A photo."] * 50 + GOOD, "one text stands for 50 of 92 different pictures"),
        (["very " * 200] * 3 + GOOD, "3 of 45 texts are more than 8 times"),
        (["A."] * 2 + [text * 5 for text in GOOD], "2 of 44 texts are more than 8 times"),
        (["桌子上有一个红色的方块。"] * 5 + GOOD, "42 are in latin script, but 5 cjk"),
        (["На столе лежит квадрат."] * 5 + GOOD, "but 5 cyrillic"),
    ],
)
def test_nonsense_is_told(tmp_path, texts, words):
    (warning,) = said(tmp_path, texts).warnings
    assert words in warning and warning.startswith("caption: ")


def test_one_picture_many_times_is_not_one_text_for_many_pictures(tmp_path):
    copies = said(tmp_path, ["A photo."] * 50 + GOOD, [None] + ["first"] * 49 + [None] * len(GOOD))
    assert copies.warnings == []


def test_figures_are_numbers_for_plots(tmp_path):
    figures = said(tmp_path, GOOD).figures
    assert figures["caption_different_texts"] == 42 and figures["caption_other_script_share"] == 0
    assert figures["caption_empty"] == figures["caption_far_off_length"] == 0 and 30 < figures["caption_median_chars"] < 45
