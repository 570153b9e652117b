"""What each cell gets out of replies as models write them."""

from __future__ import annotations

import json

import pytest

from caption_assets.core.parsing import CellText, parse_reply
from caption_assets_tests.core.replykit import BARE, CAPTIONS, SLOTS, A, B, C, read, single


@pytest.mark.parametrize(
    "reply",
    [
        BARE,
        f"```json\n{json.dumps({str(s): t for s, t in CAPTIONS.items()}, indent=2)}\n```",
        f"Sure! Here are the captions:\n\n```\n{BARE}\n```\nLet me know if you need more.",
        f"```json\n{BARE}",
        f"The captions of {{all}} cells are: {BARE}",
        f'<think>First {{"1": "a draft"}}, hm.</think>\n{BARE}',
        f'First {{"1": "a draft"}}, hm.</think>\n{BARE}',
        f"<answer>{BARE}</answer>",
        f"{BARE}<|im_end|>\n<|im_start|>user\n{{}}",
        f"\ufeff{BARE}",
        BARE[:-1] + ",\n}",
        BARE[:-1],
        BARE.replace("plain light", "plain\nlight").replace("plain\nlight", "plain light"),
        json.dumps({"captions": json.loads(BARE)}),
        json.dumps({"reasoning": {"1": "first", "2": "then"}, "captions": json.loads(BARE)}),
        json.dumps({f"cell {s}": t for s, t in CAPTIONS.items()}),
        json.dumps({f"Cell_{s}": t for s, t in CAPTIONS.items()}),
        json.dumps({f"Image {s}:": {"caption": t, "confidence": 0.9} for s, t in CAPTIONS.items()}),
        json.dumps([{"slot": s, "caption": t} for s, t in CAPTIONS.items()]),
        json.dumps({"cells": [{"description": t, "id": str(s)} for s, t in reversed(CAPTIONS.items())]}),
        json.dumps([{str(s): t} for s, t in CAPTIONS.items()]),
        "\n".join(json.dumps({"cell": s, "text": t}) for s, t in CAPTIONS.items()),
        json.dumps({"title": "Four shapes", **json.loads(BARE), "5": "one more"}),
        f"{BARE}\n{BARE}",
        f"{{{', '.join(f'{s}: {json.dumps(t)}' for s, t in CAPTIONS.items())}}}",
        str({str(s): t for s, t in CAPTIONS.items()}),
    ],
)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_whole_captions_in_any_usual_wrapping(reply: str, finish: str) -> None:
    if finish == "length" and reply == BARE[:-1]:  # the last quotation mark may be one of the caption
        assert read(reply, finish) == {**CAPTIONS, 4: "TRUNCATED_OUTPUT"}
    else:
        assert read(reply, finish) == CAPTIONS


def test_fences_in_a_caption_do_not_cut_it() -> None:
    captions = {**CAPTIONS, 1: "A sign that reads ```x``` on a red circle."}
    assert read(json.dumps(captions)) == captions
    assert read(f"```json\n{json.dumps(captions)}\n```") == captions


@pytest.mark.parametrize(
    "reply", ["```json\n```", "{}", "[]", "four shapes", json.dumps(list(CAPTIONS.values())), '{"captions": ["a", "b"]}']
)
def test_without_a_key_there_is_no_caption(reply: str) -> None:
    assert set(read(reply).values()) == {"PARSE_ERROR"}


def test_a_missing_cell_shifts_nothing() -> None:
    assert read(json.dumps({"1": A, "2": B, "4": C})) == {1: A, 2: B, 3: "MISSING_SLOT", 4: C}


def test_numbers_that_were_not_asked_for_put_all_in_doubt_when_some_are_missing() -> None:
    assert set(read(json.dumps({"0": A, "1": B, "2": C, "3": A})).values()) == {"PARSE_ERROR"}
    assert set(read(json.dumps([{"index": i, "caption": t} for i, t in enumerate(CAPTIONS.values())])).values()) == {
        "PARSE_ERROR"
    }
    assert read(json.dumps({"1": A, "2": B, "3": C}), slots=(1, 2)) == {1: A, 2: B}


def test_swapped_keys_and_values_are_not_guessed() -> None:
    assert set(read(json.dumps({t: str(s) for s, t in CAPTIONS.items()})).values()) == {"PARSE_ERROR"}
    assert read(json.dumps({"2": B, "1": A, "4": C, "3": A})) == {1: A, 2: B, 3: A, 4: C}
    assert read('{"1": {"slot": 2, "caption": "x y"}, "2": {"slot": 2, "caption": "z"}}', slots=(1, 2)) == {
        1: "PARSE_ERROR",
        2: "z",
    }


def test_one_key_twice_is_ambiguous_unless_both_say_the_same() -> None:
    assert read(f'{{"1": "{A}", "2": "{B}", "1": "{C}"}}', slots=(1, 2)) == {1: "PARSE_ERROR", 2: B}
    assert read(f'{{"1": "{A}", "\\u0031": "{C}"}}', slots=(1,)) == {1: "PARSE_ERROR"}
    assert read(f'{{"1": "{A}", "cell 1": "{C}", "2": "{B}"}}', slots=(1, 2)) == {1: "PARSE_ERROR", 2: B}
    assert read(f'{{"1": "{A}", "2": "{B}", "1": "{A}"}}', slots=(1, 2)) == {1: A, 2: B}
    assert read(f'{{"1": "{A}"}}\nNo, better:\n{{"1": "{C}"}}', slots=(1,)) == {1: "PARSE_ERROR"}


@pytest.mark.parametrize("end", range(1, len(BARE)))
def test_a_cut_reply_keeps_whole_captions_only(end: int) -> None:
    cells = read(BARE[:end], "length")
    for slot, said in cells.items():
        assert said in (CAPTIONS[slot], "TRUNCATED_OUTPUT")
    whole = [slot for slot, text in CAPTIONS.items() if f'"{slot}": {json.dumps(text)},' in BARE[:end]]
    assert [slot for slot, said in cells.items() if said == CAPTIONS[slot]] == whole


SLOT_FIRST = json.dumps({"captions": [{"slot": slot, "caption": text} for slot, text in CAPTIONS.items()]})
TEXT_FIRST = json.dumps([{"caption": text, "slot": slot} for slot, text in CAPTIONS.items()])
NESTED = json.dumps({str(slot): {"caption": text} for slot, text in CAPTIONS.items()})


@pytest.mark.parametrize("reply", [SLOT_FIRST, TEXT_FIRST, NESTED], ids=["slot first", "text first", "nested"])
def test_a_cut_list_of_objects_keeps_whole_captions_only(reply: str) -> None:
    for end in range(1, len(reply)):
        for slot, said in read(reply[:end], "length").items():
            assert said in (CAPTIONS[slot], "TRUNCATED_OUTPUT"), reply[:end]
        for slot, said in read(reply[:end], "stop").items():
            assert said in (CAPTIONS[slot], "TRUNCATED_OUTPUT", "MISSING_SLOT", "PARSE_ERROR"), reply[:end]


def test_a_cell_that_is_named_without_a_text() -> None:
    reply = [{"slot": 1, "caption": A}, {"slot": 2}, {"slot": 3, "caption": None}, {"slot": 4, "caption": {}}]
    assert read(json.dumps(reply)) == {1: A, 2: "MISSING_SLOT", 3: "EMPTY_OUTPUT", 4: "PARSE_ERROR"}
    assert read(json.dumps({"1": {}, "2": [], "3": C, "4": A})) == {1: "MISSING_SLOT", 2: "MISSING_SLOT", 3: C, 4: A}
    assert read(json.dumps({"cells": [{"slot": 1}], "captions": {"1": A}}), slots=(1,)) == {1: A}


def test_the_reply_of_a_full_budget_that_stops_in_the_third_caption() -> None:
    reply = BARE[: BARE.index("blue circle o") + len("blue circle o")]
    expected = {1: A, 2: B, 3: "TRUNCATED_OUTPUT", 4: "TRUNCATED_OUTPUT"}
    assert read(reply, "length") == expected
    assert read(f"```json\n{reply}", "length") == expected
    assert read(reply, "stop") == {**expected, 4: "MISSING_SLOT"}
    assert read("Let me describe each of the cells at leng", "length") == dict.fromkeys(SLOTS, "TRUNCATED_OUTPUT")


@pytest.mark.parametrize("reply", [None, "", "  \n", "<think>all in all</think>"])
def test_nothing_said(reply: str | None) -> None:
    for grid in (True, False):
        assert read(reply, "stop", (1,), grid) == {1: "EMPTY_OUTPUT"}
        assert read(reply, "length", (1,), grid) == {1: "TRUNCATED_OUTPUT"}


def test_an_unclosed_thought_is_no_answer() -> None:
    assert set(read(f"<think>Perhaps {BARE}", "length").values()) == {"TRUNCATED_OUTPUT"}
    assert set(read(f"<think>Perhaps {BARE}").values()) == {"PARSE_ERROR"}
    assert single("<think>A red circle, or is it") == "PARSE_ERROR"


def test_values_that_are_no_text() -> None:
    reply = '{"1": null, "2": "", "3": 5, "4": ["a", "b"]}'
    assert read(reply) == {1: "EMPTY_OUTPUT", 2: "EMPTY_OUTPUT", 3: "5", 4: "PARSE_ERROR"}
    assert read('{"1": 1.50, "2": true, "3": ["one text"], "4": {"a": "x", "b": "y"}}') == {
        1: "1.50",
        2: "true",
        3: "one text",
        4: "PARSE_ERROR",
    }


def test_quotes_that_were_not_escaped() -> None:
    assert read('{"1": "A sign that says "STOP" on a pole.", "2": "Two cats."}', slots=(1, 2)) == {
        1: 'A sign that says "STOP" on a pole.', 2: "Two cats.",
    }  # fmt: skip
    assert read("{'1': 'A man's hat.', '2': 'The cat\\'s toy.'}", slots=(1, 2)) == {1: "A man's hat.", 2: "The cat's toy."}
    # a quotation that is not closed, and JSON within a caption: more than one reading
    assert read('{"1": "A sign says "hello", "2": "world"}', slots=(1, 2)) == {1: "PARSE_ERROR", 2: "PARSE_ERROR"}
    assert read('{"1": "Code with {"2": "evil"} on a screen", "2": "real"}', slots=(1, 2))[1] == "PARSE_ERROR"
    assert "set {" not in read('{"1": "set {"} as bra', "length", (1,)).values()
    assert "set {" not in read('{"1": {"caption": "set {"} as brace"}}', slots=(1,)).values()


def test_refusals_in_prose_and_content_filters() -> None:
    assert set(read("I'm sorry, but I cannot assist with that request.").values()) == {"REFUSAL"}
    assert set(read(None, "content_filter").values()) == {"REFUSAL"}
    assert single("", "content_filter") == "REFUSAL"


def test_errors_of_requests() -> None:
    for error, reason in (("timeout: 300 s", "timeout"), ("model_error: 400 bad", "model_error"), ("HTTP 500", "model_error")):
        cells = parse_reply(None, None, error, SLOTS, True)
        assert cells == dict.fromkeys(SLOTS, CellText(None, reason, error))


def test_surrogates_nul_and_controls() -> None:
    reply = (
        r'{"1": "A red circle \ud83d on a light ground.", "2": "A green\u0000 square on a\b light ground.",'
        r' "3": "\udc97A blue circle on a light ground.", "4": "A yellow square \ud83d\ude00 on a light ground."}'
    )
    assert read(reply) == {
        1: "A red circle on a light ground.", 2: "A green square on a light ground.", 3: "A blue circle on a light ground.",
        4: "A yellow square \U0001f600 on a light ground.",
    }  # fmt: skip
    assert read('{"1": "caf\ufffd au lait in a glass"}', slots=(1,)) == {1: "BAD_CHARACTERS"}
    assert read(r'{"1": "\ud83d\ud83d\ud83d a cat \ud83d\ud83d"}', slots=(1,)) == {1: "BAD_CHARACTERS"}
    assert read('{"1": "a cat \ufffd"}', slots=(1,)) == {1: "a cat"}
    assert single("two\r\nlines\u2028here\x07") == "two\nlines\nhere"


def test_texts_that_were_never_put_together_from_their_tokens() -> None:
    for text in (
        "AĠredĠcircleĠonĠaĠtable.",
        "▁A▁red▁circle▁on▁a▁table.",
        "A red circle.<0x0A>A green square.",
        "A caf<0xC3><0xA9>.",
    ):
        assert single(text) == "BAD_CHARACTERS" and read(json.dumps({"1": text}, ensure_ascii=False), slots=(1,)) == {
            1: "BAD_CHARACTERS"
        }
    for text in ("A chart ▁▂▃▅▇ on a screen.", "Code that says <0x41> on a screen."):
        assert single(text) == text


def test_entities_are_decoded_once() -> None:
    assert single("Salt &amp; pepper &lt;3 &#128512; &amp;lt;") == "Salt & pepper <3 \U0001f600 &lt;"
    assert single("AT&T, salt&notes and R&D;") == "AT&T, salt&notes and R&D;"
    assert read('{"1": "&quot;STOP&quot; &amp;amp;"}', slots=(1,)) == {1: '"STOP" &amp;'}


def test_many_cells_and_parts_of_grids() -> None:
    slots = tuple(range(1, 65))
    captions = {slot: f"Picture {slot} of a long strip." for slot in slots}
    assert read(json.dumps(captions), slots=slots) == captions
    assert read(json.dumps({"2": A, "7": B}), slots=(2, 7)) == {2: A, 7: B}


def test_deep_nesting_ends_as_a_reason() -> None:
    for reply in ("[" * 5000, '{"1":' * 5000, '{"a":[' * 300 + '{"1": "x"}'):
        assert set(read(reply).values()) == {"PARSE_ERROR"}
