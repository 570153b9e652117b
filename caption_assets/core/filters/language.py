"""Whether a text is in the language that was asked for. Offline: by its script, then by the optional package py3langid.

A filter must not cost good captions, so a text is called wrong only where that is plain: names and quotations are left out, short
texts are kept, as is what the detector finds nearly as likely in the language asked for.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from caption_assets.configerrors import ConfigError
from caption_assets.core.filters.sentences import QUOTED, word_set

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# Languages by the first word of their letters' Unicode names. Those that are not named here are written in Latin letters.
_WRITTEN_IN = {
    "CJK": "zh ja ko", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "GREEK": "el", "HEBREW": "he yi", "THAI": "th",
    "LAO": "lo", "KHMER": "km", "MYANMAR": "my", "GEORGIAN": "ka", "ARMENIAN": "hy", "ETHIOPIC": "am", "BENGALI": "bn as",
    "GURMUKHI": "pa", "GUJARATI": "gu", "ORIYA": "or", "TAMIL": "ta", "TELUGU": "te", "KANNADA": "kn", "MALAYALAM": "ml",
    "SINHALA": "si", "TIBETAN": "bo dz", "CYRILLIC": "ru uk be bg mk ky tg ba sr kk uz mn tt az tk ku", "MONGOLIAN": "mn",
    "ARABIC": "ar fa ur ps ug sd pa kk az ku uz", "DEVANAGARI": "hi mr ne sa", "LATIN": "sr kk uz mn tt az tk ku",
}  # fmt: skip
_SPLIT = re.compile(r"(?<=[.!?:])\s+")
_SPACE = re.compile(r"\s+")
_ENGLISH = word_set("the with and by from his her its their this while wearing")
_ENGLISH_TOO = _ENGLISH | word_set("a an of is are at on in to")
_MIN_LETTERS = {"LATIN": 14, "CJK": 4}
_MIN_LETTERS_ELSE = 8
_ENOUGH_OF_SCRIPT = 0.35
_LIKELY = {"LATIN": 0.022, "CYRILLIC": 0.3}
_LIKELY_ELSE = 0.02


def find_wrong_language(text: str, language: str) -> str | None:
    """What the text seems to be instead of `language` (ISO 639-1); None: it is right, or it cannot be told.

    Raises ConfigError for a language that is not known, or if py3langid is missing.
    """
    detector = _detector(language)
    own = _own_words(text)
    letters = _letters(own)
    total = sum(letters.values())
    if not total:
        return None
    main = max(letters, key=lambda s: letters[s])
    if total < _MIN_LETTERS.get(main, _MIN_LETTERS_ELSE):
        return None
    wanted = [script for script, languages in _WRITTEN_IN.items() if language in languages.split()] or ["LATIN"]
    if sum(letters.get(script, 0) for script in wanted) < _ENOUGH_OF_SCRIPT * total:
        return f"{main.lower()} script"
    if main in ("CJK", "HIRAGANA", "KATAKANA", "HANGUL"):
        return _east_asian(letters, total, language)
    if language == "en" and _plainly_english(own):
        return None
    ranked = dict(detector.rank(own))
    best = max(ranked, key=lambda code: ranked[code])
    if best == language or ranked[language] > ranked[best] * _LIKELY.get(main, _LIKELY_ELSE):
        return None
    return f"{best} rather than {language}"


def main_script(text: str) -> str | None:
    """The script of most of its letters (LATIN, CJK, CYRILLIC, …; Japanese kana count as CJK); None without letters."""
    letters = _letters(text)
    for kana in ("HIRAGANA", "KATAKANA"):
        letters["CJK"] = letters.get("CJK", 0) + letters.pop(kana, 0)
    return max(letters, key=lambda script: letters[script]) if any(letters.values()) else None


def _letters(text: str) -> dict[str, int]:
    """How many letters of each script are in it."""
    letters: dict[str, int] = {}
    for character in text:
        if character.isalpha():
            script = _script(character)
            letters[script] = letters.get(script, 0) + 1
    return letters


def _own_words(text: str) -> str:
    """Lower case, without quotations and without capitalised words inside of a sentence, which are names or German nouns."""
    kept: list[str] = []
    for sentence in _SPLIT.split(QUOTED.sub(" ", text.replace("’", "'"))):
        words = sentence.split()
        kept += words[:1] + [word for word in words[1:] if not word[0].isupper()]
    return " ".join(kept).lower()


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    name = unicodedata.name(character, "UNKNOWN").split()[0]
    return "CJK" if name.startswith("CJK") else "LATIN" if name in ("FEMININE", "MASCULINE", "MICRO") else name


def _east_asian(letters: dict[str, int], total: int, language: str) -> str | None:
    kana = letters.get("HIRAGANA", 0) + letters.get("KATAKANA", 0)
    if language == "zh":
        return "kana in a Chinese text" if kana > 0.1 * total or letters.get("HANGUL", 0) > 0.1 * total else None
    if language == "ja":
        return "no kana in a Japanese text" if total >= 8 and not kana else "hangul" if letters.get("HANGUL", 0) > kana else None
    if language == "ko":
        return None if letters.get("HANGUL", 0) > 0.2 * total else "no hangul in a Korean text"
    return None


def _plainly_english(own: str) -> bool:
    words = [word.strip(".,;:!?()'\"") for word in own.split()]
    return not _ENGLISH.isdisjoint(words) and sum(word in _ENGLISH_TOO for word in words) >= 0.25 * len(words)


@lru_cache(maxsize=8)
def _detector(language: str) -> LanguageIdentifier:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise ConfigError(
            "filters.language needs the package py3langid: pip install 'caption-assets[language]', or set language: null"
        ) from None
    detector = _load(LanguageIdentifier, MODEL_FILE)
    if language not in detector.labels:
        known = ", ".join(sorted(code for code in detector.labels if len(code) == 2))
        raise ConfigError(f"filters.language: {language!r} is not known; allowed: {known}")
    return detector


@lru_cache(maxsize=1)
def _load(identifier: type[LanguageIdentifier], model: str) -> LanguageIdentifier:
    return identifier.from_model_file(model, norm_probs=True)
