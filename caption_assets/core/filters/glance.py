"""Captions that no filter would look at closely, found many at a time: nearly all of a shard's are such.

The filters' first looks (`may_speak`, `may_echo`, `may_loop`, the lengths) cost ten microseconds a text, more than all else in a
merge. Here the same is asked of thousands of texts at once, by RE2 and arrays over their bytes, and always on the safe side: a
text that passes has no fault; any other is for `core.quality.judge`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.config import FiltersConfig
from caption_assets.core.filters import boilerplate, echo, sentences

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]
MIN_WORDS, LONG_WORD = 7, 24
"""Texts of fewer words, and with a longer one, are always looked at."""
TEXTS_AT_A_TIME = 1024
BINS = 512
_LOWER = bytes(range(65)) + bytes(range(97, 123)) + bytes(range(91, 256))
_END = r"(?:[ \x01]|$)"
_BEGINNINGS = np.array([256**size - 1 for size in range(9)], np.uint64)
"""Masks of the first 0 to 8 bytes of a word in a little-endian integer."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def passes(texts: Sequence[str], filters: FiltersConfig, prompt: str) -> Bools:
    """For each text whether `judge` surely leaves it as it is. prompt: the rendered prompt of all of them."""
    if filters.language is not None or not texts:
        return np.zeros(len(texts), bool)
    plain = pa.array(texts, pa.string())
    _, offsets, data = plain.buffers()
    low_bytes = data.to_pybytes().translate(_LOWER) if data else b""
    bare_bytes = low_bytes.translate(sentences._PUNCTUATION)
    low, bare = (pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(part)) for part in (low_bytes, bare_bytes))
    bounds = np.frombuffer(offsets, np.int32, len(texts) + 1)
    sizes = np.diff(bounds)
    fit: Bools = pc.string_is_ascii(plain).to_numpy(zero_copy_only=False) & (sizes >= filters.min_chars)
    fit &= sizes <= filters.max_chars
    for start in range(0, len(texts), TEXTS_AT_A_TIME):
        some = bounds[start : start + TEXTS_AT_A_TIME + 1]
        fit[start : start + TEXTS_AT_A_TIME] &= _varied(bare_bytes[some[0] : some[-1]], some - some[0])
    fit &= ~pc.match_substring_regex(bare, _signs(prompt)).to_numpy(zero_copy_only=False)
    return fit & ~_may_quote(low, prompt)


def _varied(bare: bytes, bounds: Ints) -> Bools:
    """Whether a text has enough words, few of them twice, none very long, and no more between them than usual.

    bare: all texts, one after the other, ending at bounds[1:]. Words are told apart by their first eight letters, in BINS by
    hash, so that a text may seem to repeat more than it does, never less.
    """
    texts, size = len(bounds) - 1, len(bare)
    within = np.frombuffer(bare, np.uint8) > 32
    edge = np.zeros(size + 1, bool)
    edge[bounds] = True
    starts = np.flatnonzero(within & (edge[:-1] | ~np.concatenate(([False], within[:-1]))))
    ends = np.flatnonzero(within & (edge[1:] | ~np.concatenate((within[1:], [False])))) + 1
    lengths = ends - starts
    words = np.ndarray((size,), "<u8", bare + bytes(8), strides=(1,))[starts] & _BEGINNINGS[np.minimum(lengths, 8)]
    counts = np.diff(np.searchsorted(starts, bounds))
    text = np.repeat(np.arange(texts), counts)
    seen = np.zeros((texts, BINS), bool)
    seen[text, (words * _SPREAD >> np.uint64(55)).astype(np.int64)] = True
    gaps = np.diff(bounds) - np.bincount(text, lengths, texts)
    good = (counts >= MIN_WORDS) & (gaps <= 1.5 * counts + 20)
    good &= counts - np.count_nonzero(seen, axis=1) < counts * (0.2 + 0.0015 * counts)
    good[text[lengths > LONG_WORD]] = False
    return good


def _may_quote(low: pa.StringArray, prompt: str) -> Bools:
    """Whether a text begins like a part of the prompt, or has its beginning."""
    asked, beginning, _ = echo._prepared(prompt)
    start = pc.utf8_slice_codeunits(pc.utf8_ltrim(low, characters=echo._MARKS), 0, 12)
    parts = {asked[at : at + length] for length in range(13) for at in range(len(asked) - length + 1)}
    found = pc.is_in(start, value_set=pa.array(sorted(parts), pa.string()))
    if beginning:
        found = pc.or_(found, pc.match_substring(low, beginning))
    return found.to_numpy(zero_copy_only=False)


@lru_cache(maxsize=16)
def _signs(prompt: str) -> str:
    """RE2 for words that call for a look, between blanks and marks that a sentence may begin after (\\x01)."""
    orders = echo._prepared(prompt)[2]
    ways = [
        rf"(?:^|[ \x01]){_any(sentences._TELLING)}{_END}",
        rf"(?:^|\x01) *{_any(sentences._FIRST | orders)}{_END}",
        rf"^[ \x01]*(?:[^ \x01]+[ \x01]+)?{_any(echo._ANY_TASK)}{_END}",
        rf"^[ \x01]*(?:(?:{_any(boilerplate._NOTHING_ELSE)}|[0-9]+)(?:[ \x01]+|$))+$",
        r"[\t\r\x0b\x0c\x1c-\x1f]",
    ]
    if orders:
        ways.append(rf"^(?:[ \x01]*[^ \x01]+[ \x01]+){{0,7}}{_any(orders)}{_END}")
    return "|".join(ways)


def _any(words: Iterable[str]) -> str:
    return "(?:" + "|".join(re.escape(word) for word in sorted(words) if word.isascii()) + ")"
