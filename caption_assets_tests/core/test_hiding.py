"""Secrets in texts: none is shown, and what else the text says stays."""

from __future__ import annotations

import pytest

from caption_assets.core.columns import REASONS
from caption_assets.core.faults import Fault, PictureFault
from caption_assets.core.hiding import hidden
from caption_assets.core.sources.rows import Rows, Tally


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:hush@host:80/x.png does not answer", "http://***@host:80/x.png does not answer"),
        ("http://me:hu/sh@hush@host/v1", "http://***@host/v1"),
        ("https://hush@host/", "https://***@host/"),
        ("s3://hush:hush@bucket/key", "s3://***@bucket/key"),
        ("postgresql+psycopg2://me:hush@host/db?password=hush", "postgresql+psycopg2://***@host/db?***"),
        ("('https://host/a.png?X-Amz-Signature=hush&x=1,2&hush'), next", "('https://host/a.png?***'), next"),
        ("https://host/#access_token=hush", "https://host/#***"),
        ("two: http://a:hush@b/?hush http://c:hush@d/", "two: http://***@b/?*** http://***@d/"),
        (
            "s3://bucket/key?X-Amz-Credential=hush&X-Amz-Signature=hush",
            "s3://bucket/key?X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        (r'{"uri": "http:\/\/host\/a?x=1\u0026sig=hush"', r'{"uri": "http:\/\/host\/a?x=1\u0026sig=***"'),
        ("AWSAccessKeyId=hush&Expires=1 token='hush'", "AWSAccessKeyId=***&Expires=1 token='***'"),
        ('{"api_key": "hush", "id": "a"}', '{"api_key": "***", "id": "a"}'),
        ("connection to host: password=hush user=me", "connection to host: password=*** user=me"),
        ("Authorization: Bearer hush.hush-hush", "Authorization: Bearer ***"),
    ],
)
def test_what_is_secret_is_hidden_and_nothing_else(text, shown):
    assert hidden(text) == shown
    assert hidden(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000/v1: 400: max_tokens=900: token count: 12",
        "http://host:8000/x@2x.png", "http://[::1]:8000/x@2x.png", "https://host/what? no", "s3://bucket/a@b/what?c#1@d.png",
        "hf://datasets/owner/name@main/a.png", "/data/a@b?c.png", "photos.jsonl#12", "me@host", "C:/x@y", "the token is wrong",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text):
    assert hidden(text) == text


def test_a_secret_that_is_known_is_hidden_wherever_it_stands():
    assert hidden("Incorrect key sk-hush given", "sk-hush", None, "") == "Incorrect key *** given"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["a-", "://", "a://b:", "token", "?", "://a:b", "x=", '":'])
def test_no_text_takes_minutes(piece):
    text = piece * (60_000 // len(piece))
    assert hidden(text) == text


@pytest.mark.parametrize(
    "address", ["http://me:hush@host/a.png", "https://host/a.png?sig=hush", "https://host/" + "a" * 600 + "?hush"]
)
def test_no_detail_of_any_fault_holds_one(address):
    rows = Rows(Tally())
    rows.add("a", None, address, "s", 1, "{}", reason=REASONS[0], detail=f"line 1: {address}")
    row = rows.take().to_pylist()[0]
    assert "hush" not in row["detail"] and row["uri"] == address, "what the catalog says is kept as it is"
    fault = PictureFault("s3_error", f"{address}: no answer")
    assert "hush" not in f"{fault}{fault.fault}{Fault('timeout', address)}"
