"""Captions that no filter would look at closely, found many at a time: nearly all of a shard's are such.

The filters' first looks (`may_speak`, `may_echo`, `may_loop`, the lengths) cost ten microseconds a text, more than all else in a
merge. Here the same is asked of thousands of texts at once, by arrays over their bytes and words, and always on the safe side: a
text that passes has no fault; any other is for `core.quality.judge`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from caption_assets.config import FiltersConfig
from caption_assets.core.filters import boilerplate, echo, sentences

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
MIN_WORDS, LONG_WORD = 7, 24
"""Texts of fewer words, and with a longer one, are always looked at."""
TEXTS_AT_A_TIME = 512
_FOREIGN = 255
"""Stands for every byte that the arrays do not know: not ASCII, or a control other than line feed."""
_LOWER = bytes(range(65)) + bytes(range(97, 123)) + bytes(range(91, 256))
_BARE = bytes(
    _FOREIGN if byte > 126 or (byte < 32 and byte != 10) else sentences._PUNCTUATION[_LOWER[byte]] for byte in range(256)
)
"""Lower case; punctuation as in `sentences.words_of`: \\x01 where a sentence may begin after, else a space."""
_BEGINNINGS = np.array([256**size - 1 for size in range(9)], np.uint64)
"""Masks of the first 0 to 8 bytes of a word in a little-endian integer."""
_SPREAD, _SPREAD_LENGTH = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_HASHES, _BINS = 1 << 16, 1 << 9
_TELLING, _FIRST, _ORDER, _TASK, _EMPTY = (np.uint8(1 << bit) for bit in range(5))
_CALLS = np.uint8(_TELLING | _FIRST | _ORDER | _TASK)
_IS_MARK = np.isin(np.arange(256), np.frombuffer(echo._MARKS.encode().translate(_BARE), np.uint8))
_LANES, _SUM_OF_LANES = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0001000100010001)


class Glance(NamedTuple):
    """For each text whether `judge` surely leaves it as it is; and of those that pass a number of their words, equal for texts
    that differ in case, blanks and the final stop only."""

    passes: Bools
    said: Numbers


def glance_at(texts: pa.StringArray, filters: FiltersConfig, prompt: str) -> Glance:
    """Looks at many texts at once; null never passes. prompt: the rendered prompt of all of them."""
    found = Glance(np.zeros(len(texts), bool), np.zeros(len(texts), np.uint64))
    if filters.language is not None or not len(texts):
        return found
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    whole = memoryview(data or b"")
    signs = _signs(prompt)
    for start in range(0, len(texts), TEXTS_AT_A_TIME):
        some = bounds[start : start + TEXTS_AT_A_TIME + 1]
        here = slice(start, start + len(some) - 1)
        bare = whole[some[0] : some[-1]].tobytes().translate(_BARE)
        found.passes[here], found.said[here] = _look(bare, some - some[0], signs)
    sizes = np.diff(bounds)
    fit = (sizes >= filters.min_chars) & (sizes <= filters.max_chars)
    np.logical_and(found.passes, fit, out=found.passes)
    return found


class _Signs(NamedTuple):
    """What calls for a closer look under one prompt.

    likely: by a word's hash, the kinds that it may be. exact, kinds: the words that are of a kind, sorted by number and length.
    beginning: of the prompt, bare; parts: all its parts of eight bytes, as integers in order.
    """

    likely: npt.NDArray[np.uint8]
    exact: Numbers
    kinds: npt.NDArray[np.uint8]
    beginning: bytes
    parts: Numbers


@lru_cache(maxsize=16)
def _signs(prompt: str) -> _Signs:
    asked, beginning, orders = echo._prepared(prompt)
    sets = {
        _TELLING: sentences._TELLING | echo._GRID_WORDS,
        _FIRST: sentences._FIRST | orders,
        _ORDER: orders,
        _TASK: echo._ANY_TASK,
        _EMPTY: boilerplate._NOTHING_ELSE,
    }
    words = sorted({word for known in sets.values() for word in known if word.isascii()})
    kinds = np.array([sum(int(kind) for kind, known in sets.items() if word in known) for word in words], np.uint8)
    lengths = np.array([len(word) for word in words])
    numbers = _numbers("".join(words).encode(), np.cumsum(lengths) - lengths, lengths)
    likely = np.zeros(_HASHES, np.uint8)
    np.bitwise_or.at(likely, _hashes(numbers), kinds)
    exact = _exact(numbers, lengths)
    order = np.argsort(exact)
    bare = asked.encode("utf-8", "replace").translate(_BARE)
    begins = beginning.encode().translate(_BARE) if beginning.isascii() else b""
    return _Signs(likely, exact[order], kinds[order], begins, np.unique(_eight_bytes(bare, np.arange(max(0, len(bare) - 7)))))


class _Words(NamedTuple):
    """Words of some texts, one after the other: first byte, the byte after the last, length, number (of the first eight bytes),
    hash, text; by text its first word and their count."""

    starts: Ints
    ends: Ints
    lengths: Ints
    numbers: Numbers
    hashes: Ints
    text: Ints
    first: Ints
    counts: Ints


def _look(bare: bytes, bounds: Ints, signs: _Signs) -> tuple[Bools, Numbers]:
    """bare: all texts, one after the other, ending at bounds[1:]."""
    words = _words(bare, bounds)
    if not len(words.starts):
        return np.zeros(len(words.counts), bool), np.zeros(len(words.counts), np.uint64)
    first = np.minimum(words.first, len(words.starts) - 1)
    good = _varied(words, np.diff(bounds) - np.add.reduceat(words.lengths, first))
    good[words.text[_calling(bare, words, signs)]] = False
    good[_saying_nothing(bare, words, np.flatnonzero(good), signs)] = False
    good[_quoting(bare, bounds, signs)] = False
    good[_texts_at(bounds, np.flatnonzero(np.frombuffer(bare, np.uint8) == _FOREIGN))] = False
    return good, np.add.reduceat(words.numbers, first)


def _words(bare: bytes, bounds: Ints) -> _Words:
    within = np.concatenate(([False], np.frombuffer(bare, np.uint8) > 32, [False]))
    edges = np.flatnonzero(within[1:] != within[:-1])
    joined = bounds[within[bounds] & within[bounds + 1]]
    if len(joined):  # a text that ends in a letter, and another that begins with one
        joined = np.repeat(np.unique(joined), 2)
        edges = np.insert(edges, np.searchsorted(edges, joined), joined)
    starts, ends = np.ascontiguousarray(edges[::2]), np.ascontiguousarray(edges[1::2])
    lengths = ends - starts
    numbers = _numbers(bare, starts, lengths)
    first = np.searchsorted(starts, bounds)
    counts = np.diff(first)
    text = np.repeat(np.arange(len(counts)), counts)
    return _Words(starts, ends, lengths, numbers, _hashes(numbers), text, first[:-1], counts)


def _numbers(bare: bytes, starts: Ints, lengths: Ints) -> Numbers:
    return (_eight_bytes(bare, starts) & _BEGINNINGS[np.minimum(lengths, 8)]) * _SPREAD


def _hashes(numbers: Numbers) -> Ints:
    return (numbers >> np.uint64(48)).view(np.int64)


def _exact(numbers: Numbers, lengths: Ints) -> Numbers:
    return numbers + lengths.view(np.uint64) * _SPREAD_LENGTH


def _eight_bytes(data: bytes, places: Ints) -> Numbers:
    """The bytes from these places on as little-endian integers, zeros behind the end."""
    return np.ndarray((len(data),), "<u8", data + bytes(8), strides=(1,))[places]


def _varied(words: _Words, gaps: Ints) -> Bools:
    """Whether a text has enough words, few of them twice, none very long, and no more between them than usual.

    Different words are counted in bins by their hashes, so that a text may seem to repeat more than it does, never less.
    """
    texts, counts = len(words.counts), words.counts
    seen = np.zeros((texts, _BINS), np.uint8)
    seen.reshape(-1)[words.text * _BINS + (words.hashes >> 7)] = 1
    lanes = seen.view(np.uint64).sum(axis=1)
    different = ((lanes & _LANES) + (lanes >> np.uint64(8) & _LANES)) * _SUM_OF_LANES >> np.uint64(48)
    good = (counts >= MIN_WORDS) & (gaps <= 1.5 * counts + 20)
    good[words.text[np.flatnonzero(words.lengths > LONG_WORD)]] = False
    again = np.flatnonzero(good & (counts - different.view(np.int64) >= counts * np.minimum(0.2 + 0.0015 * counts, 0.5)))
    if len(again):
        good[again] = _pairs_again(words, again) + 1 <= np.maximum(3, 0.08 * counts[again])
    return good


def _pairs_again(words: _Words, texts: Ints) -> Ints:
    """How many pairs of neighbouring words of these texts stood in them before."""
    counts = words.counts[texts] - 1
    text = np.repeat(np.arange(len(texts)), counts)
    word = np.arange(len(text)) + np.repeat(words.first[texts] - (np.cumsum(counts) - counts), counts)
    pairs = (words.numbers[word] * _SPREAD_LENGTH + words.numbers[word + 1] + text.view(np.uint64)) * _SPREAD
    order = np.argsort(pairs)
    return np.bincount(text[order[1:][pairs[order[1:]] == pairs[order[:-1]]]], minlength=len(texts))


def _calling(bare: bytes, words: _Words, signs: _Signs) -> Ints:
    """The words that call for a look where they stand."""
    some = np.flatnonzero(signs.likely[words.hashes] & _CALLS)
    exact = _exact(words.numbers[some], words.lengths[some])
    place = np.minimum(np.searchsorted(signs.exact, exact), len(signs.exact) - 1)
    known = signs.exact[place] == exact
    some, kinds = some[known], signs.kinds[place[known]]
    ordinal = some - words.first[words.text[some]]
    before = np.ndarray((len(bare),), "<u2", bare + bytes(2), strides=(1,))[words.ends[some - 1] * (ordinal > 0)]
    gap = words.starts[some] - words.ends[some - 1]
    begins = (ordinal == 0) | (before & 255 == 1) | ((gap > 1) & (before >> 8 == 1)) | (gap > 2)
    calls = (kinds & _TELLING > 0) | ((kinds & _FIRST > 0) & begins)
    calls |= ((kinds & _ORDER > 0) & (ordinal < 8)) | ((kinds & _TASK > 0) & (ordinal < 2))
    return some[calls]


def _saying_nothing(bare: bytes, words: _Words, texts: Ints, signs: _Signs) -> Ints:
    """Of these texts, none of them short, those whose first words all say nothing about a picture, or are numbers."""
    characters = np.frombuffer(bare, np.uint8)
    for ordinal in range(MIN_WORDS):
        word = words.first[texts] + ordinal
        digit = characters[words.starts[word]] - np.uint8(48) < 10
        texts = texts[digit | (signs.likely[words.hashes[word]] & _EMPTY > 0)]
    return texts


def _quoting(bare: bytes, bounds: Ints, signs: _Signs) -> Ints:
    """The texts that begin like a part of the prompt, or with a quotation mark, or have the prompt's beginning.

    Short texts that begin like it may be left out.
    """
    starts = np.minimum(bounds[:-1], len(bare) - 1)
    marked = _IS_MARK[np.frombuffer(bare, np.uint8)[starts]]
    if len(signs.parts):
        heads = _eight_bytes(bare, starts)
        marked |= signs.parts[np.minimum(np.searchsorted(signs.parts, heads), len(signs.parts) - 1)] == heads
    found = [np.flatnonzero(marked)]
    at = bare.find(signs.beginning) if signs.beginning else -1
    while at >= 0:
        found.append(_texts_at(bounds, np.array([at])))
        at = bare.find(signs.beginning, max(at + 1, int(bounds[found[-1][0] + 1]) - len(signs.beginning)))
    return np.concatenate(found)


def _texts_at(bounds: Ints, places: Ints) -> Ints:
    return np.searchsorted(bounds, places, side="right") - 1
