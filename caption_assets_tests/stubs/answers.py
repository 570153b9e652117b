"""What the stub server says: captions that name the picture they are about, so that a test can tell where each one belongs."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

PALETTE = {
    "red": (220, 30, 30), "green": (30, 160, 50), "blue": (40, 70, 220), "yellow": (245, 220, 40), "orange": (245, 135, 25),
    "purple": (135, 50, 170), "cyan": (50, 205, 215), "pink": (250, 140, 185), "white": (248, 248, 248), "black": (12, 12, 12),
    "gray": (128, 128, 128), "brown": (105, 65, 30),
}  # fmt: skip
_HEX = re.compile(r"#([0-9a-f]{6})")


class BadPicture(Exception):
    """The picture of a request cannot be decoded."""


@dataclass(frozen=True)
class Asked:
    """One request as a server sees it. keys: the JSON keys wanted, () for plain text; data_url: the picture or None."""

    text: str
    data_url: str | None
    keys: tuple[str, ...]
    canary: bool

    @property
    def kind(self) -> str:
        if self.data_url is None:
            return "text"
        return "grid" if self.keys else "single"

    @property
    def picture(self) -> bytes:
        """The picture's own bytes. Raises BadPicture."""
        try:
            return base64.b64decode((self.data_url or "").partition(",")[2], validate=True)
        except binascii.Error as error:
            raise BadPicture(str(error)) from None


def read_request(body: dict[str, Any]) -> Asked:
    """Takes an OpenAI chat request apart; the keys come from the schema, else from the `Keys:` line of a grid's text."""
    text, data_url = "", None
    for message in body["messages"]:
        parts = message["content"]
        if isinstance(parts, str):
            parts = [{"type": "text", "text": parts}]
        for part in parts:
            if part["type"] == "text":
                text += part["text"]
            elif part["type"] == "image_url":
                data_url = part["image_url"]["url"]
    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema", {})
    keys = tuple(schema.get("properties", ())) or tuple(
        re.findall(r'"(\w+)"', text.rpartition("Keys:")[2]) if "Keys:" in text else ()
    )
    return Asked(text, data_url, keys, body.get("user") == "caption-assets-canary")


def instant(asked: Asked) -> dict[str, str]:
    """A caption per key (key "" for plain text) without decoding anything; it names the CRC of the picture's data URL."""
    digest = zlib.crc32((asked.data_url or asked.text).encode())
    return {key: f"An instant answer about {digest:08x}{f', cell {key}' if key else ''}." for key in asked.keys or ("",)}


def truthful(asked: Asked, rows: int, cols: int) -> dict[str, str]:
    """A caption per key (key "" for plain text) that names the colour in the middle of the cell or picture. Raises BadPicture."""
    if asked.data_url is None:
        return {
            key: f"A line for the text {hashlib.sha256(asked.text.encode()).hexdigest()[:12]}." for key in asked.keys or ("",)
        }
    picture = asked.picture
    try:
        image = Image.open(io.BytesIO(picture)).convert("RGB")
    except Exception as error:
        raise BadPicture(str(error)) from None
    if not asked.keys or not all(key.isdigit() for key in asked.keys):
        return {key: _caption(_middle(image, 0, 1, 1), "") for key in asked.keys or ("",)}
    return {key: _caption(_middle(image, int(key) - 1, rows, cols), f" in cell {key}") for key in asked.keys}


def _middle(image: Image.Image, index: int, rows: int, cols: int) -> tuple[int, int, int]:
    """The mean colour of the middle of a cell (a twelfth of its sides)."""
    if index >= rows * cols:
        return (0, 0, 0)
    width, height = image.width / cols, image.height / rows
    x, y = (index % cols + 0.5) * width, (index // cols + 0.5) * height
    box = (int(x - width / 24), int(y - height / 24), int(x + width / 24) + 1, int(y + height / 24) + 1)
    return image.crop(box).resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))  # type: ignore[return-value]


def _caption(rgb: tuple[int, int, int], where: str) -> str:
    return f"A picture with {nearest(rgb)} in its middle, shade #{bytes(rgb).hex()}{where}."


def nearest(rgb: Sequence[int]) -> str:
    """The palette's name for a colour."""
    return min(PALETTE, key=lambda name: sum((a - b) ** 2 for a, b in zip(rgb, PALETTE[name], strict=True)))


def shade_in(caption: str | None) -> tuple[int, int, int] | None:
    """The colour a truthful caption names, as RGB; None where it names none."""
    found = _HEX.search(caption or "")
    return tuple(bytes.fromhex(found[1])) if found else None  # type: ignore[return-value]
