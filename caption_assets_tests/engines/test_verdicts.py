"""Liars are found, weak but honest models are not condemned."""

from __future__ import annotations

import json

import pytest

from caption_assets.engines.base import ChatReply
from caption_assets.engines.canaries import COLOURS, SLOTS, Form, make_canary, read_canary
from caption_assets.engines.verdicts import MONOTONE, Baseline, Court


def answer(form: Form, number: int, texts: list[str] | str | None) -> ChatReply:
    said = json.dumps({str(slot): text for slot, text in zip(SLOTS, texts, strict=True)}) if isinstance(texts, list) else texts
    return ChatReply("canary", said, "stop", None, 1, 1, 1.0, "e", 0.0)


class Hearing:
    """A session's court: `says` lets an endpoint answer its next canary; the reproach, or None."""

    def __init__(self, baselines: dict[Form, Baseline] | None = None) -> None:
        self.court = Court({} if baselines is None else baselines)
        self.numbers: dict[str, int] = {}

    def says(self, endpoint: str, how, form: Form = "grid") -> str | None:
        number = self.numbers.get(endpoint, -1) + 1
        self.numbers[endpoint] = number
        canary = make_canary(form, number, {})
        said = how(canary.colours) if callable(how) else how
        self.court.hear(endpoint, form, read_canary(canary, answer(form, number, said)))
        return self.court.reproach(endpoint, form)


def truth(colours):
    texts = [f"A {colour} shape." for colour in colours]
    return texts if len(texts) > 1 else texts[0]


def swapped(colours):
    return truth(colours[1:] + colours[:1])


def taught(form: Form = "grid") -> Hearing:
    """A court that has seen the model do well."""
    hearing = Hearing()
    assert [hearing.says("honest", truth, form) for _ in range(3)] == [None] * 3
    return hearing


@pytest.mark.parametrize(
    "lie",
    [None, "", "  ", "no JSON at all", ["A shape."] * 4, ["x", "y", "z", "w"], swapped, ["A red shape.", None, None, None]],
    ids=["null", "empty", "blank", "nonsense", "same", "babble", "swapped", "half"],
)
def test_a_liar_is_found_where_the_model_has_been_seen_to_do_better(lie):
    hearing = taught()
    assert hearing.says("liar", lie)
    assert hearing.says("honest", truth) is None


@pytest.mark.parametrize(
    "lie", [None, "", "A purple-ish nothing, or a pink thing.", lambda c: "A green shape." if c != ("green",) else "Red."]
)
def test_so_it_is_for_single_pictures(lie):
    assert taught("single").says("liar", lie, "single")


@pytest.mark.parametrize("lie", [None, "", "no JSON", ["A shape."] * 4, swapped])
def test_an_honest_endpoint_that_begins_to_lie_is_found(lie):
    hearing = taught()
    assert hearing.says("honest", lie)


@pytest.mark.parametrize(
    "weak",
    [
        None,
        "",
        "no JSON",
        ["a picture"] * 4,
        ["one", "two", "three", "four"],
        ["A person in a red shirt."] * 4,
        ["A red circle.", "A green square.", "A blue circle.", "A yellow square."],  # the same whatever it is shown
        lambda colours: [f"A {colour} thing" if n < 2 else "Something" for n, colour in enumerate(colours)],
        lambda colours: ["A red thing" if colour == "yellow" else f"A {colour} thing" for colour in colours],
    ],
    ids=["null", "empty", "nonsense", "same", "colourless", "one-colour", "fixed", "half-blind", "colour-blind"],
)
def test_a_weak_model_that_was_never_better_stays(weak):
    hearing = Hearing()
    assert [hearing.says(endpoint, weak) for _ in range(6) for endpoint in ("a", "b")] == [None] * 12


def test_numbered_answers_as_of_a_fake_server_stay():
    """As a stand-in server answers: another text for each request and cell, the same JSON for single pictures."""
    count = iter(range(1000))

    def fake(_):
        request = next(count)
        return [
            f"Picture {cell} of request {request}: a plain shape number {request * 4 + cell} on a light background."
            for cell in SLOTS
        ]

    hearing = Hearing()
    assert [hearing.says("fake", fake) for _ in range(8)] == [None] * 8
    assert [hearing.says("fake", lambda c: json.dumps(fake(c)), "single") for _ in range(8)] == [None] * 8


def test_a_good_model_may_miss_a_colour_now_and_then():
    hearing = taught()
    assert (
        hearing.says("honest", lambda colours: ["A golden thing" if c == "yellow" else f"A {c} thing" for c in colours]) is None
    )
    assert hearing.says("honest", lambda colours: [f"A {c} thing" if n else "A thing" for n, c in enumerate(colours)]) is None
    assert hearing.says("honest", lambda colours: [f"A {c} thing beside a {colours[0]} one" for c in colours]) is None


def test_captions_of_other_cells_are_found_without_knowing_the_model():
    hearing = Hearing()
    assert hearing.says("liar", swapped) is None  # once is chance, or a fixed answer
    assert "other cells" in (hearing.says("liar", swapped) or "")


def test_a_fixed_answer_can_not_look_like_swapped_cells():
    """Neighbouring canaries show different sets of colours."""
    for number in range(60):
        now, then = make_canary("grid", number, {}), make_canary("grid", number + 1, {})
        assert set(now.colours) != set(then.colours) and len(set(now.colours)) == 4
        single, next_single = make_canary("single", number, {}), make_canary("single", number + 1, {})
        assert single.colours != next_single.colours and set(single.colours) <= set(COLOURS)


def test_one_text_for_everything_is_found_without_knowing_the_model():
    hearing = Hearing()
    for _ in range(MONOTONE - 1):
        hearing.court.note("liar", "single", "!!!!!!!!")
    assert hearing.says("liar", "!!!!!!!!", "single") is None
    hearing.court.note("liar", "single", "!!!!!!!!")
    assert hearing.says("liar", "!!!!!!!!", "single")
    assert hearing.says("liar", "another text", "single") is None


def test_one_that_contradicts_all_others_is_found_where_no_colours_are_named():
    hearing = Hearing()
    for _ in range(2):
        for honest in ("a", "b", "c"):
            assert hearing.says(honest, lambda colours: f"picture {hash(colours)}", "single") is None
    assert hearing.says("liar", "picture 1", "single") is None
    assert "unlike all others" in (hearing.says("liar", "picture 2", "single") or "")


def test_where_the_others_do_not_agree_themselves_nobody_contradicts():
    hearing = Hearing()
    for n in range(3):
        for e in ("a", "b", "c", "d"):
            assert hearing.says(e, f"{e} says {n}", "single") is None


def test_a_text_stage_is_held_to_speaking_only():
    """Two honest machines, or one weak model, may say anything about nothing in particular."""
    hearing = Hearing()
    assert [hearing.says(e, "a red square", "text") for e in ("a", "b", "c") for _ in range(3)] == [None] * 9
    assert hearing.says("a", "a cyan triangle", "text") is None
    assert hearing.says("a", "", "text")


def test_what_was_seen_outlives_the_session():
    baselines: dict[Form, Baseline] = {}
    first = Hearing(baselines)
    for _ in range(2):
        first.says("only", truth)
    assert Hearing(baselines).says("only", ["A shape."] * 4)


def test_a_real_reply_with_text_shows_that_the_model_speaks():
    hearing = Hearing()
    assert hearing.says("only", "") is None
    hearing.court.note("only", "grid", "some text")
    assert hearing.says("only", "")
