"""What the filters refuse, and what they must leave alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from caption_assets.config import FiltersConfig
from caption_assets.configerrors import ConfigError
from caption_assets.core.filters import language
from caption_assets.core.parsing import CellText, parse_reply
from caption_assets.core.quality import judge

PROMPT = "Describe the picture in one sentence. Name the colours."
LONG = "A person in a white shirt stands in a green forest and turns toward the trees in soft morning light."


def reasons(
    texts: Mapping[int, str], prompt: str = PROMPT, pictures: Mapping[int, str] | None = None, **filters: Any
) -> dict[int, str | None]:
    cells = {slot: CellText(text, None, None) for slot, text in texts.items()}
    judged = judge(cells, FiltersConfig(**filters), dict.fromkeys(cells, prompt), pictures)
    for slot, cell in judged.items():
        assert cell == cells[slot] or (cell.text is None and cell.detail)
    return {slot: cell.reason for slot, cell in judged.items()}


def reason(text: str, prompt: str = PROMPT, **filters: Any) -> str | None:
    return reasons({1: text}, prompt, **filters)[1]


def test_a_refusal_an_echo_boilerplate_and_a_good_caption_with_the_same_words() -> None:
    texts = {
        1: "I'm sorry, but I can't help with describing this image.",
        2: "Describe each of the four images in one or two sentences and return JSON.",
        3: "The image does not contain any imaginary content, and all descriptions are based on the visible content "
        "of the image.",
        4: "A man who looks sorry is holding a cardboard sign that says I cannot.",
    }
    assert reasons(texts) == {1: "refusal", 2: "prompt_echo", 3: "boilerplate", 4: None}


def test_loops_and_a_caption_that_repeats_words_rightly() -> None:
    texts = {
        1: "The shelf holds bottles of many colors. " * 40,
        2: "A view of the side " + "of the side " * 120,
        3: "m" * 900,
        4: "A red square next to a red square, with a third red square behind them.",
    }
    assert reasons(texts) == {1: "repetition", 2: "repetition", 3: "repetition", 4: None}


def test_one_long_caption_for_three_different_pictures_is_no_caption() -> None:
    assert reasons(dict.fromkeys((1, 2, 3, 4), LONG)) == dict.fromkeys((1, 2, 3, 4), "duplicate_caption")
    assert reasons({1: LONG, 2: LONG.upper(), 3: f"{LONG[:-1]}  ", 4: "A red circle on white."})[4] is None
    assert reasons({1: LONG, 2: LONG.upper(), 3: LONG.replace(" ", "  "), 4: "A red circle."})[1] == "duplicate_caption"
    assert set(reasons({1: LONG, 2: LONG}).values()) == {None}
    assert set(reasons(dict.fromkeys((1, 2, 3), "A plain red square on white.")).values()) == {None}
    same = {1: "aa", 2: "aa", 3: "bb"}
    assert set(reasons(dict.fromkeys(same, LONG), pictures=same).values()) == {None}
    assert set(reasons(dict.fromkeys(same, LONG), pictures={**same, 2: "cc"}).values()) == {"duplicate_caption"}


def test_what_the_parser_refused_keeps_its_reason() -> None:
    cells = parse_reply('{"1": "A red circle on white."}', "stop", None, (1, 2), True)
    judged = judge(cells, FiltersConfig(), {1: PROMPT, 2: PROMPT})
    assert (judged[1].text, judged[2].reason) == ("A red circle on white.", "missing_slot")


def test_lengths_are_in_characters_and_inclusive() -> None:
    assert reason("123456789") == "too_short"
    assert reason("A red car.") is None
    assert reason("A red car.", min_chars=11) == "too_short"
    assert reason("A red car.", min_chars=0, max_chars=10) is None
    assert reason("A red car.", min_chars=0, max_chars=9) == "too_long"


@pytest.mark.parametrize(
    ("switch", "text", "refused"),
    [
        ("refusals", "I cannot describe this image.", "refusal"),
        ("prompt_echo", "Correct the alt text of this goat.", "prompt_echo"),
        ("boilerplate", "Sure! Here is a caption: a goat on a roof.", "boilerplate"),
        ("repetition", "a goat on a roof, " * 12, "repetition"),
    ],
)
def test_each_filter_can_be_switched_off(switch: str, text: str, refused: str) -> None:
    prompt = "Correct the alt text of this goat. Alt text: a goat on a roof"
    assert reason(text, prompt) == refused
    assert reason(text, prompt, **{switch: False}) is None
    assert set(reasons(dict.fromkeys((1, 2, 3), LONG), duplicate_captions=False).values()) == {None}


def test_an_echo_of_a_title_in_the_prompt_is_a_caption() -> None:
    prompt = "Correct this alt text: A boat at the old harbour of Bergen. Keep it short."
    assert reason("A boat at the old harbour of Bergen.", prompt) is None
    assert reason("Correct this alt text: A boat at the old harbour of Bergen.", prompt) == "prompt_echo"
    assert reason("Keep it short. A boat at the old harbour.", prompt) == "prompt_echo"


def test_an_echo_of_the_wording_around_a_grid() -> None:
    assert reason("Answer with one JSON object that maps each cell number to its text, nothing else.") == "prompt_echo"
    assert reason("The image is a grid of numbered pictures; each cell's number is drawn in its corner.") == "prompt_echo"
    assert reason("The image is a grid of nine coloured squares.") is None


@pytest.mark.parametrize(
    "text",
    [
        "a red circle on a white background",
        "a blue square",
        "Two green triangles on grey.",
        "The image shows a red circle on a white background.",
        "A person holding a sign 'I cannot' in front of a town hall.",
        "I can't stop staring at this sunset over the bay.",
        "A chat window in which the assistant answers: I'm sorry, but I can't assist with that.",
        "红色的圆圈",
        "白い背景の上の赤い円",
        "A tile pattern of star, cross, star, cross, star and cross in blue, white, blue, white, blue and white.",
        "There is no text in the image; only three overlapping triangles.",
        "An apology written in chalk on the pavement.",
        "A red apple, a green apple, a yellow apple, a red pear, a green pear, a yellow pear and a red plum in a row.",
        "A poster for the film 七人の侍 with seven samurai on a hill, and a sign that reads Défense d'afficher.",
    ],
)
def test_good_captions_are_kept(text: str) -> None:
    assert reason(text, min_chars=0) is None


def test_the_language() -> None:
    assert reason("Ein Mann sitzt auf einer Bank und liest die Zeitung.", language="en") == "wrong_language"
    assert reason("A man sits on a bench and reads the newspaper.", language="en") is None
    assert reason("A man sits on a bench and reads the newspaper.", language="de") == "wrong_language"
    assert reason("赤い車が止まっています。", language="zh") == "wrong_language"
    assert reason('A sign reading "Zutritt für Unbefugte verboten" on a steel door.', language="en") is None
    with pytest.raises(ConfigError, match=r"filters\.language: 'xx' is not known; allowed: .*\ben\b"):
        reason("A man sits on a bench.", language="xx")


def test_the_language_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    language._detector.cache_clear()
    with pytest.raises(ConfigError, match=r"caption-assets\[language\]"):
        reason("A man sits on a bench and reads.", language="en")
    language._detector.cache_clear()
