"""OpenAI's chat format: bodies of requests and what stands in replies. Pure functions, used over HTTP and in batch files."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from caption_assets.core.hiding import hidden
from caption_assets.core.prompts import sendable
from caption_assets.engines.base import ChatRequest

CANARY_USER = "caption-assets-canary"
"""The `user` field of canary requests, so that whoever counts requests at a server can tell them apart."""

_REFUSES = re.compile(
    r"unsupported|not supported|unrecogni[sz]ed|unknown|unexpected|extra|not permitted|not allowed|does not support", re.I
)
_SCHEMA_WORDS = re.compile(r"response_format|json_schema|guided_|structured.?output|grammar", re.I)


class BadBody(Exception):
    """A body that is no chat completion, such as half of one."""


class Answer(NamedTuple):
    """What a chat completion says. text: None where content is null."""

    text: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True)
class Dialect:
    """What an endpoint accepts; found out from its refusals. dropped: sampling parameters that it does not know."""

    schema: bool = True
    max_tokens: str = "max_tokens"
    dropped: frozenset[str] = frozenset()

    def after(self, refusal: str, request: ChatRequest) -> Dialect | None:
        """The dialect to try after a 400 with these words; None where the refusal is about the request itself."""
        if re.search(r"use '?max_completion_tokens", refusal, re.I) and self.max_tokens == "max_tokens":
            return replace(self, max_tokens="max_completion_tokens")
        for name in request.sampling.keys() - self.dropped - {"max_tokens"}:
            if re.search(rf"\b{name}\b", refusal) and _REFUSES.search(refusal):
                return replace(self, dropped=self.dropped | {name})
        if self.schema and request.json_keys and _SCHEMA_WORDS.search(refusal):
            return replace(self, schema=False)
        return None


def body_parts(request: ChatRequest, model: str, dialect: Dialect = Dialect(), user: str | None = None) -> tuple[bytes, ...]:
    """The request's body in pieces. The picture goes through no JSON encoder: base64 needs no escapes."""
    fields: dict[str, Any] = {}
    for name, value in request.sampling.items():
        if name not in dialect.dropped and value not in ([], None):
            fields[dialect.max_tokens if name == "max_tokens" else name] = value
    if user:
        fields["user"] = user
    text = orjson.dumps(sendable(request.text))
    head = b'{"model":' + orjson.dumps(model) + b',"messages":[{"role":"user","content":'
    tail = (b"," + orjson.dumps(fields)[1:-1] if fields else b"") + (
        _response_format(request.json_keys) if request.json_keys and dialect.schema else b""
    )
    if request.image is None:
        return (head + text + b"}]" + tail + b"}",)
    picture_type = (request.image_type or "image/jpeg").encode()
    return (
        head
        + b'[{"type":"text","text":'
        + text
        + b'},{"type":"image_url","image_url":{"url":"data:'
        + picture_type
        + b";base64,",
        base64.b64encode(request.image),
        b'"}}]}]' + tail + b"}",
    )


@lru_cache(maxsize=1024)
def _response_format(keys: tuple[str, ...]) -> bytes:
    schema = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in keys},
        "required": list(keys),
        "additionalProperties": False,
    }
    value = {"type": "json_schema", "json_schema": {"name": "captions", "strict": True, "schema": schema}}
    return b',"response_format":' + orjson.dumps(value)


def read_answer(body: bytes) -> Answer:
    """The first choice of a chat completion. Raises BadBody."""
    try:
        return answer_of(orjson.loads(body))
    except orjson.JSONDecodeError:
        pass
    try:  # orjson refuses lone surrogates, which models do say
        return answer_of(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise BadBody(f"the reply is no JSON: {error}") from None


def answer_of(value: Any) -> Answer:
    """As read_answer, of a decoded body."""
    try:
        choice, usage = value["choices"][0], value.get("usage")
        content = choice["message"].get("content")
        if isinstance(content, list):
            content = "".join(part.get("text") or "" for part in content)
        if content is not None and not isinstance(content, str):
            raise TypeError("content is no text")
        text = None if content is None else sendable(content)
        finish = choice.get("finish_reason")
        return Answer(
            text, finish if finish is None else str(finish), _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        said = message_in(value) if isinstance(value, dict) and value.get("error") else repr(error)
        raise BadBody(f"the reply is no chat completion: {said}") from None


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else None


def error_message(body: bytes, key: str | None = None) -> str:
    """What an error body says, in one line of at most 500 characters; without secrets: some servers repeat the key."""
    try:
        value: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = body.decode("utf-8", "replace")
    return hidden(message_in(value), key)


def message_in(value: Any) -> str:
    """As error_message, of a decoded body: {"error": {"message"}}, {"message"}, {"detail"} or text."""
    for key in ("error", "message", "detail"):
        while isinstance(value, dict) and value.get(key):
            value = value[key]
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return " ".join(sendable(text).split())[:500]
