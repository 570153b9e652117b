"""Any captions in any known noise: each cell gets exactly its caption or a reason, never another's or a part of one."""

from __future__ import annotations

import json
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caption_assets.core.filters.sentences import word_set
from caption_assets.core.parsing import CellText, parse_reply
from caption_assets.core.replies.text import clean_text

SETTINGS = settings(max_examples=150, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
NASTY = "\"'`\\{}[],:;&<>|#\n\t ```1234567890ab éß語😀\u200d\ud83d\x00\x08\ufffd—"
DRAFT = '{"1": "draft one", "2": "draft two", "3": "draft three", "4": "draft four"}'

words = st.sampled_from(sorted(word_set("a red blue circle on the left of square white cat dog's sign it's 12 No. café 猫 grün")))
plain = st.lists(words, min_size=1, max_size=8).map(" ".join)
quoting = st.lists(st.one_of(words, words.map('"{}"'.format), words.map("'{}'".format)), min_size=1, max_size=8).map(" ".join)
anything = st.one_of(plain, quoting, st.text(NASTY, max_size=40), st.text(max_size=30))
prose = st.sampled_from(
    [
        "",
        "Sure! Here are the captions:",
        "Here is the JSON {object} you asked for:",
        "Captions [1] to [4]:",
        'The "answer":',
        "图片描述：",
        "I looked at cells 1, 2, 3 and 4.",
        "\ufeff",
        "json",
        "Answer:\n\n",
    ]
)
after = st.sampled_from(
    ["", "\n", "\nLet me know if you need more.", "\n\nNote: {braces} and [brackets].", "<|im_end|>", "</s>", " Done."]
)
thought = st.sampled_from(
    [
        "",
        "<think>\nLet me see. </think>",
        f"<think>Perhaps {DRAFT}? No.</think>\n",
        f"Hm {DRAFT}</think>",
        f"[THINK]{DRAFT}[/THINK]",
        "<thinking>a</thinking>",
        f"◁think▷{DRAFT}◁/think▷",
    ]
)
KEYS = ("{}", "cell {}", "Cell_{}", "image {}", "slot-{}", "Picture {}:", "#{}", "图{}", "caption_{}")


def slots_of(draw: st.DrawFn) -> list[int]:
    return sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=5)))


def fence(draw: st.DrawFn, body: str) -> str:
    style = draw(st.sampled_from(("{}", "```json\n{}\n```", "```\n{}\n```", "```JSON {} ```", "~~~\n{}\n~~~", "```json\n{}")))
    return style.replace("{}", body)


def members(draw: st.DrawFn, captions: dict[int, str]) -> str:
    """The captions as JSON in one of the forms that models choose, keys in any order."""
    ascii_only, indent = draw(st.booleans()), draw(st.sampled_from((None, 2)))
    order = draw(st.permutations(list(captions)))
    key = draw(st.sampled_from(KEYS))
    flat = {key.format(slot): captions[slot] for slot in order}
    field = draw(st.sampled_from(("caption", "text", "description")))
    number = draw(st.sampled_from(("slot", "cell", "cell_number", "id", "index")))
    value = draw(
        st.sampled_from(
            [
                flat,
                {"captions": flat},
                {"result": {"captions": flat, "note": "none"}},
                {k: {field: v} for k, v in flat.items()},
                [{number: slot, field: captions[slot]} for slot in order],
                {"cells": [{field: captions[slot], number: str(slot)} for slot in order]},
                [{key.format(slot): captions[slot]} for slot in order],
                {**flat, "title": "Four pictures"},
            ]
        )
    )
    return json.dumps(value, ensure_ascii=ascii_only, indent=indent)


def expect(cells: dict[int, CellText], captions: dict[int, str], all_found: bool = False) -> None:
    for slot, caption in captions.items():
        cell = cells[slot]
        assert (cell.text is None) != (cell.reason is None)
        right, damage = clean_text(caption)
        if cell.text is not None:
            assert cell.text == right, (cell.text, caption)
            assert damage is None
        elif all_found:
            assert cell.reason == ("bad_characters" if damage else "empty_output"), cell


@SETTINGS
@given(st.data())
def test_every_wrapping_of_whole_json_gives_all_captions(data: st.DataObject) -> None:
    draw = data.draw
    captions = {slot: draw(anything) for slot in slots_of(draw)}
    body = members(draw, captions)
    finish = draw(st.sampled_from(("stop", None, "length")))
    reply = draw(thought) + draw(prose) + fence(draw, body) + draw(after)
    cells = parse_reply(reply, finish, None, list(captions), True)
    plain_text = all(c.isalnum() or c in " .,'\"" for text in captions.values() for c in text)
    expect(cells, captions, all_found=plain_text and finish == "stop")


@SETTINGS
@given(st.data())
def test_a_reply_cut_anywhere_gives_whole_captions_or_reasons(data: st.DataObject) -> None:
    draw = data.draw
    captions = {slot: draw(anything) for slot in slots_of(draw)}
    reply = draw(prose) + fence(draw, members(draw, captions))
    cells = parse_reply(reply[: draw(st.integers(0, len(reply)))], "length", None, list(captions), True)
    expect(cells, captions)


@SETTINGS
@given(st.data())
def test_broken_json_is_read_only_where_it_has_one_meaning(data: st.DataObject) -> None:
    """Unescaped quotes, single quotes, trailing commas, raw line breaks, a missing brace, whole or cut."""
    draw = data.draw
    captions = {
        slot: draw(st.one_of(plain, quoting)) + draw(st.sampled_from(("", ".", "\nA second line.", ", and more")))
        for slot in slots_of(draw)
    }
    flat = {str(slot): text for slot, text in captions.items()}
    body = json.dumps(flat, ensure_ascii=False, indent=draw(st.sampled_from((None, 2))))
    breaking = draw(st.sets(st.sampled_from(("quotes", "comma", "newline", "brace", "single", "python", "commas")), max_size=3))
    if "python" in breaking:
        body = repr(flat)
    elif "single" in breaking:
        body = "{" + ", ".join(f"'{key}': '{text}'" for key, text in flat.items()) + "}"
    if "quotes" in breaking:
        body = body.replace('\\"', '"')
    if "newline" in breaking:
        body = body.replace("\\n", "\n")
    if "commas" in breaking:
        body = body.replace('",\n', '"\n')
    if "comma" in breaking:
        body = body[:-1] + ",}"
    if "brace" in breaking:
        body = body[:-1]
    cut = draw(st.booleans())
    if cut:
        body = body[: draw(st.integers(0, len(body)))]
    cells = parse_reply(fence(draw, body), "length" if cut else "stop", None, list(captions), True)
    expect(cells, captions)


@SETTINGS
@given(st.data())
def test_two_objects_never_mix(data: st.DataObject) -> None:
    """A second object may repeat or complete the first; where it says otherwise, the cell has no caption."""
    draw = data.draw
    slots = slots_of(draw)
    first = {slot: draw(plain) for slot in slots if draw(st.booleans())}
    second = {slot: draw(plain) for slot in slots if draw(st.booleans())}
    dump = lambda captions: json.dumps({str(k): v for k, v in captions.items()})  # noqa: E731
    cells = parse_reply(f"{dump(first)}\n{dump(second)}", "stop", None, slots, True)
    for slot in slots:
        said = {c[slot] for c in (first, second) if slot in c}
        assert cells[slot].text in said or cells[slot].text is None
        if len(said) != 1:
            assert cells[slot].reason in ("parse_error", "missing_slot")


@SETTINGS
@given(st.data())
def test_strange_texts_never_crash(data: st.DataObject) -> None:
    draw = data.draw
    pieces = st.sampled_from(
        [
            "{",
            "}",
            "[",
            "]",
            '"',
            "'",
            ":",
            ",",
            "\\",
            "1",
            "2",
            "cell",
            "caption",
            "null",
            "```",
            "<think>",
            "</think>",
            "\n",
            "a b",
            "\ud800",
            "{{",
        ]
    )
    reply = "".join(draw(st.lists(pieces, max_size=40)))
    finish = draw(st.sampled_from(("stop", "length", None)))
    for grid in (True, False):
        slots = [1, 2] if grid else [1]
        cells = parse_reply(reply, finish, None, slots, grid)
        assert list(cells) == slots
        assert all((cell.text is None) != (cell.reason is None) for cell in cells.values())


@SETTINGS
@given(st.data())
def test_a_single_picture_gets_its_text_or_a_reason(data: st.DataObject) -> None:
    draw = data.draw
    caption = draw(plain) + draw(st.sampled_from(("", ".", ' "quoted".', "\nSecond line.", " {x} [y]")))
    body = draw(
        st.sampled_from(
            [
                caption,
                json.dumps({"caption": caption}),
                json.dumps({"1": caption}),
                json.dumps({"text": caption}, indent=1),
                f"<answer>{caption}</answer>",
            ]
        )
    )
    style = draw(st.sampled_from(("{}", "```\n{}\n```", "```json\n{}\n```", "\n {}\n")))
    reply = draw(thought) + style.replace("{}", body) + draw(st.sampled_from(("", "<|im_end|>", "</s>", "\n")))
    assert parse_reply(reply, "stop", None, [1], False)[1] == CellText(clean_text(caption)[0], None, None)
    cut = reply[: draw(st.integers(0, len(reply)))]
    text = parse_reply(cut, "length", None, [1], False)[1].text
    assert text is None or text == clean_text(caption)[0]


def test_the_draft_in_a_thought_is_no_answer() -> None:
    assert re.search("draft", DRAFT)
    for reply in (f"<think>{DRAFT}", f"<think>{DRAFT}</think>", f"{DRAFT}</think>"):
        assert all(cell.text is None for cell in parse_reply(reply, "stop", None, [1, 2, 3, 4], True).values())
