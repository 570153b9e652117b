"""What models and records say, made safe to show: it is data. Characters that cannot be seen, or that turn what is around them,
are spelled out; markup is escaped by the templates (autoescape)."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Controls but tab and line feed, what turns the writing direction, what has no width, fillers, tags. Joiners (U+200C, U+200D)
are part of words and emoji and stay."""


def visible(text: str) -> str:
    """The text with every unseen character as ⟨U+XXXX⟩."""
    return _UNSEEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def finalize(value: Any) -> Any:
    """For a Jinja environment: applied to all that a template puts out, before it is escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def number(value: float | None, digits: int = 0) -> str:
    """With thousands separated; – for none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def brief(value: float | None) -> str:
    """Three digits that count, so that a column of them is even; – for none."""
    if not value:
        return "–" if value is None else "0"
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def share(part: float | None) -> str:
    """As per cent; 100 % only where nothing is missing."""
    if part is None:
        return "–"
    return f"{min(part * 100, 99.9) if part < 1 else 100:.1f} %"


def duration(seconds: float | None) -> str:
    """0.4 s, 42 s, 3 min, 2.5 h, 1.2 days; – for none."""
    if seconds is None or seconds < 10:
        return "–" if seconds is None else f"{seconds:.1f} s"
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h"), (float("inf"), 86_400, "days")):
        if seconds < limit:
            return f"{seconds / unit:.{0 if unit < 3600 else 1}f} {name}"
    return "–"


def plural(count: int, what: str) -> str:
    """1 shard, 2 shards."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def setting(value: Any) -> str:
    """A value of the config in a word."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else "any" if value is None else str(value)
