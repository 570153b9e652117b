"""Replies that say their captions plainly, read many at a time from the bytes of an Arrow column: nearly all of a shard's do.

What is read here is what `core.parsing.parse_reply` gives, to the letter; all else is left to it. A grid's reply is plain when it
is one JSON object with exactly its slots as keys, in their order, and strings of printable ASCII without backslash, `&` or `<`; a
single picture's when it is such a text, with nothing in it that might be a wrapper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.core.parsing import CUT_SHORT

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_MOST_BLANKS = 12
_QUOTE, _SPACE = 34, 32
_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\r"))
_PRINTABLE = bytes(range(32, 127))


def _all_but(allowed: bytes) -> bytes:
    return bytes(byte not in allowed for byte in range(256))


_NOT_IN_STRINGS = _all_but(bytes(set(_PRINTABLE) - set(b"\\&<")))
_NOT_IN_TEXTS = _all_but(bytes(set(_PRINTABLE) - set(b"&<[{`~")))


class PlainTexts(NamedTuple):
    """The captions of some replies. texts: every second one, from the second on, is a caption, the others are what lies between
    them. first: for each reply the place in `texts` of its first slot's caption, the others follow; -1: it is not plain."""

    texts: pa.StringArray
    first: Ints

    def take(self, reply: Ints, position: Ints) -> pa.StringArray:
        """The captions at these positions among the slots of their replies; null where the reply is not plain."""
        first = self.first[reply]
        return self.texts.take(pa.array(first + 2 * position, mask=first < 0))


def plain_texts(replies: pa.RecordBatch) -> PlainTexts:
    """replies: with the columns reply, finish_reason, error, slots and grid_id of a chunk."""
    said: pa.StringArray = replies["reply"]
    _, offsets, data = said.buffers()
    bounds = np.frombuffer(offsets, np.int32)[said.offset : said.offset + len(said) + 1].astype(np.int64)
    origin = bounds[0]
    raw, bounds = memoryview(data or b"")[origin : bounds[-1]].tobytes(), bounds - origin
    count = pc.fill_null(pc.list_value_length(replies["slots"]), 0).to_numpy().astype(np.int64)
    slots = replies["slots"].flatten().to_numpy().astype(np.int64)
    grid = replies["grid_id"].is_valid().to_numpy(zero_copy_only=False)
    answered = replies["error"].is_null().to_numpy(zero_copy_only=False) & (np.diff(bounds) > 0) & (count > 0)
    grids, starts, ends = _grids(raw, bounds, answered & grid, count, slots)
    singles = _singles(raw, bounds, answered & ~grid & (count == 1) & _finished(replies["finish_reason"]))
    captions = np.where(grids, count, singles)
    spans = np.empty((int(captions.sum()), 2), np.int32)
    of_grids = np.repeat(grids, captions)
    spans[of_grids] = np.stack([starts, ends], axis=1)
    spans[~of_grids] = np.stack([bounds[:-1][singles], bounds[1:][singles]], axis=1)
    places = pa.py_buffer(np.concatenate(([0], spans.reshape(-1))).astype(np.int32) + np.int32(origin))
    texts = pa.StringArray.from_buffers(2 * len(spans), places, data)
    return PlainTexts(texts, np.where(captions > 0, 2 * (np.cumsum(captions) - captions) + 1, -1))


def _finished(reasons: pa.StringArray) -> Bools:
    cut = [reason for reason in reasons.unique().to_pylist() if reason is not None and reason.lower() in CUT_SHORT]
    return ~pc.is_in(reasons, value_set=pa.array(cut, pa.string())).to_numpy(zero_copy_only=False)


def _singles(raw: bytes, bounds: Ints, asked: Bools) -> Bools:
    """Which of the replies asked for are one plain text."""
    fit = asked.copy()
    if not fit.any():
        return fit
    data = np.frombuffer(raw, np.uint8)
    fit[_replies_at(bounds, np.flatnonzero(np.frombuffer(raw.translate(_NOT_IN_TEXTS), np.uint8)))] = False
    some = np.flatnonzero(fit)
    fit[some] = (data[bounds[some]] != _SPACE) & (data[bounds[some + 1] - 1] != _SPACE)
    return fit


def _grids(raw: bytes, bounds: Ints, asked: Bools, count: Ints, slots: Ints) -> tuple[Bools, Ints, Ints]:
    """Which of the replies asked for are one plain object, and where each caption of these begins and ends.

    In a text without backslashes every quotation mark begins or ends a string, so the marks' places tell all strings.
    """
    nothing = np.zeros(len(asked), bool), np.empty(0, np.int64), np.empty(0, np.int64)
    if not asked.any():
        return nothing
    data = np.frombuffer(raw, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    first = np.searchsorted(quotes, bounds)
    fit = asked & (np.diff(first) == 4 * count)
    strange = np.flatnonzero(np.frombuffer(raw.translate(_NOT_IN_STRINGS), np.uint8))
    reply = _replies_at(bounds, strange)
    within_a_string = (np.searchsorted(quotes, strange) - first[reply]) % 2 == 1
    fit[reply[within_a_string]] = False
    if not fit.any():
        return nothing
    members, slots = count[fit], slots[np.repeat(fit, count)]
    key, key_end, text, text_end = np.ascontiguousarray(quotes[np.repeat(fit, np.diff(first))].reshape(-1, 4).T)
    leading = np.cumsum(members) - members
    closing = leading + members - 1
    gap, before, higher = np.empty_like(key), np.full(len(key), ord(",")), np.empty(len(key), bool)
    gap[1:], higher[1:] = text_end[:-1] + 1, slots[1:] > slots[:-1]
    gap[leading], before[leading], higher[leading] = bounds[:-1][fit], ord("{"), True
    good = higher & _is_number(data, key, key_end, slots) & _sole(data, gap, key, before)
    good &= _sole(data, key_end + 1, text, np.full(len(key), ord(":")))
    good[closing] &= _sole(data, text_end[closing] + 1, bounds[1:][fit], np.full(len(closing), ord("}")))
    good &= (text_end > text + 1) & (data[text + 1] != _SPACE) & (data[text_end - 1] != _SPACE)
    whole = np.logical_and.reduceat(good, leading)
    fit[fit] = whole
    kept = np.repeat(whole, members)
    return fit, text[kept] + 1, text_end[kept]


def _is_number(data: Bytes, begin: Ints, end: Ints, numbers: Ints) -> Bools:
    """Whether the strings between these quotation marks are these numbers, of one or two digits."""
    digits = end - begin - 1
    tens, ones = data[begin + 1].astype(np.int64) - 48, data[end - 1].astype(np.int64) - 48
    sound = (ones >= 0) & (ones <= 9) & ((digits == 1) | ((digits == 2) & (tens >= 1) & (tens <= 9)))
    return sound & (numbers == ones + 10 * tens * (digits == 2))


def _sole(data: Bytes, begin: Ints, end: Ints, sign: Ints) -> Bools:
    """Whether there is this sign and nothing else but a few blanks from begin to end."""
    size = end - begin
    signs, others = np.zeros(len(size), np.int64), size > _MOST_BLANKS
    for at in range(min(_MOST_BLANKS, int(size.max(initial=0)))):
        byte = data[np.minimum(begin + at, end - 1)]
        here = at < size
        signs += here & (byte == sign)
        others |= here & (byte != sign) & ~_IS_BLANK[byte]
    return (signs == 1) & ~others


def _replies_at(bounds: Ints, places: Ints) -> Ints:
    return np.searchsorted(bounds, places, side="right") - 1
