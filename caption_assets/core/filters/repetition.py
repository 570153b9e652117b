"""Texts that run in a loop: a character, word, phrase or sentence again and again. Pure functions.

What a picture shows may be repeated in its description (stripes, rows, quotations), so the number of rounds, their length and
the share of the text that they take all count.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from itertools import pairwise

from caption_assets.core.filters.sentences import Words

_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|[^\w\s]|_+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_SENTENCE = re.compile(r"[^.!?…。！？\n]+")
_CHARACTER_RUN = re.compile(
    r"([^\W\d_])\1{14,}|([^\w.\-_=~*•·\s])\2{11,}|([\d.\-_=~*•·])\3{29,}|(\s)\4{29,}|(.)\5{59,}", re.DOTALL
)
_SHORT_LOOP = re.compile(r"(\S{2,8}?)\1{9,}|(\S{9,40}?)\2{4,}")
_MAX_UNIT = 40
# Descriptions of this length shrink to 0.3 to 0.5 of it.
_COMPRESSIBLE_BYTES, _COMPRESSIBLE = 800, 0.18
_MARKUP = re.compile(r"(<[^<>\s]{1,20}>|\[[A-Z]{1,12}\])(?:\s*\1){7,}")


def may_loop(words: Words) -> bool:
    """Whether a look is due.

    Longer texts repeat more words by nature. Pairs of words that come back are rare in any text but a loop.
    """
    plain = words.plain
    count = len(plain)
    letters = len("".join(plain))
    if count < 4 or len(words.low) - letters > 1.5 * count + 20 or (letters > 5.3 * count and len(max(plain, key=len)) > 24):
        return True
    if count - len(words.stock) < count * min(0.2 + 0.0015 * count, 0.5):
        return False
    return count - len(set(pairwise(plain))) > max(3, 0.08 * count)


def find_loop(text: str) -> str | None:
    """The loop in words, None if there is none."""
    for pattern in (_CHARACTER_RUN, _SHORT_LOOP, _MARKUP):
        if match := pattern.search(text):
            return f"{match[0][:24]!r} runs for {len(match[0])} characters"
    words = _words(text)
    return _tandem(words) or _numbered_loop(words) or _repeated_sentences(text, words)


def _words(text: str) -> list[str]:
    """Words in lower case and punctuation marks; single characters in scripts without spaces."""
    text = text.lower()
    if _UNSPACED.search(text):
        text = _UNSPACED.sub(r"\g<0> ", text)
    return _TOKEN.findall(text)


def _tandem(words: list[str]) -> str | None:
    """A unit of words that follows upon itself."""
    n = len(words)
    for size in range(1, min(_MAX_UNIT, n // 3) + 1):
        run = 0
        for at in range(size, n + 1):
            if at < n and words[at] == words[at - size]:
                run += 1
                continue
            if run and _too_often(words[at - run - size : at], size, n, at == n):
                unit = " ".join(words[at - run - size : at - run])
                return f"{unit[:60]!r} {1 + run // size} times in a row"
            run = 0
    return None


def _numbered_loop(words: list[str]) -> str | None:
    """`1. a dog 2. a dog 3. a dog …`: a loop but for its numbers."""
    if sum(w.isdigit() for w in words) < 8:
        return None
    words = ["0" if w.isdigit() else w for w in words]
    for size in range(3, 13):
        same = 0
        for at in range(size, len(words)):
            same = same + 1 if words[at] == words[at - size] else 0
            if same >= 7 * size and sum(w[0].isalpha() for w in words[at - size : at]) >= 2:
                return f"{' '.join(words[at - size : at])[:60]!r} with other numbers, 8 times in a row"
    return None


def _too_often(looped: list[str], size: int, total: int, to_the_end: bool) -> bool:
    """looped: the words from the first round to the end of the last, maybe unfinished one; total: words of the text;
    to_the_end: whether the text ends in the loop."""
    unit = [w for w in looped[:size] if w[0].isalnum()]
    length, rounds, share = len(unit), len(looped) / size, len(looped) / total
    if length >= 6 and rounds > 2.3 and to_the_end:  # the model did not find out of it
        return True
    if not unit or (length == 1 and unit[0].isdigit()):
        return rounds >= (30 if looped[0].isascii() else 10)  # dotted lines and digits, or emoji
    if all(len(w) == 1 and w.isascii() for w in unit) or all(w.isdigit() for w in unit):
        return rounds >= 10  # letters and digits as on keyboards, plates and boards
    if length == 1:
        return rounds >= 6 or (rounds >= 5 and share > 0.7)
    if length <= 4:
        return rounds >= 5 or (rounds >= 4 and share > 0.6)
    return rounds >= 3 or (rounds > 2.5 and share > 0.7)


def _repeated_sentences(text: str, words: list[str]) -> str | None:
    """Sentences that come back with others between them; many words out of a small stock."""
    sentences = Counter(
        s for part in _SENTENCE.findall(text.lower()) if len((s := " ".join(part.split())).split()) >= 3 or len(s) >= 12
    )
    total = sum(sentences.values())
    if total >= 3:
        sentence, times = sentences.most_common(1)[0]
        again = total - len(sentences)
        if times >= 3 and (again / total > 0.4 or len(sentence) * times > len(text) / 2):
            return f"{sentence[:60]!r} {times} times"
    plain = [w for w in words if w[0].isalnum()]
    if len(plain) >= 30:
        grams = Counter(zip(plain, plain[1:], plain[2:], plain[3:], strict=False))
        if sum(c for c in grams.values() if c >= 3) > 0.6 * len(plain):
            return f"{len(plain)} words made of the same few phrases"
    raw = text.encode("utf-8", "replace")
    if len(raw) >= _COMPRESSIBLE_BYTES and len(zlib.compress(raw)) < _COMPRESSIBLE * len(raw):
        return f"{len(text)} characters that say little"
    return None
