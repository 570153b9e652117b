"""What goes over the wire, and what is read from it."""

from __future__ import annotations

import base64
import json

import pytest

from caption_assets.engines.base import ChatRequest
from caption_assets.engines.payload import BadBody, Dialect, body_parts, error_message, read_answer
from caption_assets_tests.engines.asking import grid_request, single_request, text_request

SAMPLING = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 256, "repetition_penalty": 1.05, "seed": 3, "stop": []}


def body(request: ChatRequest, dialect: Dialect | None = None, user: str | None = None) -> dict:
    return json.loads(b"".join(body_parts(request, 'mo"del', dialect or Dialect(), user)))


def completion(content: object, **choice: object) -> bytes:
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": content}, **choice}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}).encode()


def test_text_stands_before_the_picture_and_the_picture_is_whole():
    request = single_request("r")
    message = body(request)["messages"][0]
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]
    url = message["content"][1]["image_url"]["url"]
    assert base64.b64decode(url.removeprefix("data:image/png;base64,")) == request.image


def test_text_alone_is_a_plain_message():
    assert body(text_request("r", 'a "quoted"\nline'))["messages"] == [{"role": "user", "content": 'a "quoted"\nline'}]


def test_a_grid_asks_for_exactly_its_keys():
    wanted = body(grid_request("r", [(1, 2, 3)] * 3))["response_format"]["json_schema"]
    assert wanted["strict"] is True
    assert wanted["schema"] == {
        "type": "object",
        "properties": {"1": {"type": "string"}, "2": {"type": "string"}, "3": {"type": "string"}},
        "required": ["1", "2", "3"],
        "additionalProperties": False,
    }
    assert "response_format" not in body(single_request("r"))


def test_sampling_is_passed_on_but_for_empty_lists():
    asked = body(single_request("r", **SAMPLING))
    assert {name: asked[name] for name in SAMPLING if name != "stop"} == {k: v for k, v in SAMPLING.items() if k != "stop"}
    assert "stop" not in asked and asked["model"] == 'mo"del'
    assert body(single_request("r", stop=["###"]))["stop"] == ["###"]


def test_only_canaries_are_marked():
    assert "user" not in body(single_request("r"))
    assert body(single_request("r"), user="caption-assets-canary")["user"] == "caption-assets-canary"


def test_a_prompt_with_a_lone_surrogate_can_be_sent():
    assert body(text_request("r", "a \ud83d b"))["messages"][0]["content"] == "a \ufffd b"
    assert body(text_request("r", "a \ud83d\ude00 b"))["messages"][0]["content"] == "a \U0001f600 b"


@pytest.mark.parametrize(
    ("refusal", "gone"),
    [
        ("400: response_format is not supported by this model", "response_format"),
        ("400: Invalid json_schema: strict is unknown", "response_format"),
        ("400: Unrecognized request argument supplied: repetition_penalty", "repetition_penalty"),
        ("422: body.repetition_penalty: Extra inputs are not permitted", "repetition_penalty"),
        ("400: Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
    ],
)
def test_what_an_endpoint_does_not_take_is_left_out_from_then_on(refusal, gone):
    request = grid_request("r", [(1, 2, 3)] * 4, repetition_penalty=1.05)
    plainer = Dialect().after(refusal, request)
    assert plainer is not None and gone not in body(request, plainer)
    assert (gone == "max_tokens") == ("max_completion_tokens" in body(request, plainer))
    assert plainer.after(refusal, request) is None


@pytest.mark.parametrize(
    "refusal",
    [
        "400: cannot identify image file",
        "400: This model's maximum context length is 1024 tokens, 'max_tokens' is too large",
        "413: too large",
    ],
)
def test_a_refusal_of_the_request_itself_changes_no_form(refusal):
    assert Dialect().after(refusal, grid_request("r", [(1, 2, 3)] * 4, repetition_penalty=1.05)) is None


@pytest.mark.parametrize("said", ["plain", "", None, "a\u0000b", "\U0001f600", '{"1": "x"}'])
def test_the_reply_is_what_was_said(said):
    answer = read_answer(completion(said))
    assert answer == (said, "stop", 7, 3)


def test_a_reply_in_parts_is_joined():
    assert read_answer(completion([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}])).text == "a b"


def test_lone_surrogates_in_a_reply_do_not_lose_it():
    assert read_answer(rb'{"choices":[{"message":{"content":"a \ud83d b \ud83d\ude00"},"finish_reason":"length"}]}') == (
        "a \ufffd b \U0001f600", "length", None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"<html>",
        completion("x")[:50],
        b"{}",
        b"[]",
        b"null",
        b'{"choices":[]}',
        b'{"error":{"message":"x"}}',
        completion(3),
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_completion_is_told_apart(wire):
    with pytest.raises(BadBody):
        read_answer(wire)


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        (b'{"error": {"message": "too\\n long"}}', "too long"),
        (b'{"error": "no"}', "no"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"message": "m"}', "m"),
        (b"<html>gateway</html>", "<html>gateway</html>"),
        (b'{"error": {}}', '{"error":{}}'),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_an_error_says_what_the_server_said(wire, said):
    assert error_message(wire) == said
