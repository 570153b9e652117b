"""The characters of a caption: what is trimmed, decoded and removed before it is stored. Pure functions."""

from __future__ import annotations

import html
import re

# Only with their semicolon: `salt&notes` is no entity.
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_NO_TEXT = "\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffd\ufdd0-\ufdef\ufffe\uffff"
_LOST = re.compile(rf"(?<= )[{_NO_TEXT}]+ |[{_NO_TEXT}]+")
_LOST_LETTER = re.compile("\\w\ufffd|\ufffd\\w")
_BYTE_TOKEN = re.compile("<0x(?:0A|0D|[89A-F][0-9A-F])>")
_SPACE_TOKENS = "Ġ▁"
_INVISIBLE = re.compile("[\u200b\u2060\ufeff]")
_MOSTLY = 0.1


def clean_text(text: str) -> tuple[str, str | None]:
    """The text as it is stored, and what is wrong with it if it is too damaged to be stored.

    Entities are decoded once; controls, lone surrogates, replacement and invisible characters are removed; line ends become \\n.
    A replacement character at a word stands for letters that are lost, so such a text is damaged, as is one of which a tenth is
    gone, or one that was never put together from its tokens.
    """
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if not text.isascii() and any(text.count(sign) > max(3, text.count(" ")) for sign in _SPACE_TOKENS):
        return text, "the tokenizer's own signs stand for spaces"
    if "<0x" in text and _BYTE_TOKEN.search(text):
        return text, "the tokenizer's own signs stand for bytes"
    if not text.isprintable() or "\ufffd" in text:
        text = _LINE_BREAKS.sub("\n", text)
        lost = sum(len(run.rstrip(" ")) for run in _LOST.findall(text))
        if lost:
            if _LOST_LETTER.search(text):
                return text, "letters were lost (replacement characters)"
            if lost > max(2, len(text) * _MOSTLY):
                return text, f"{lost} of {len(text)} characters are damaged"
            text = _LOST.sub("", text)
        text = _INVISIBLE.sub("", text)
    return text.strip(), None
