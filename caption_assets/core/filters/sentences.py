"""Who speaks in a caption: its sentences without what is quoted, shown or written in the picture. Pure functions.

A model that refuses or chats does so in its own voice, mostly at the beginning of a sentence. The same words on a sign, in a
quotation or after `reads:` are part of the picture. So the filters look at unquoted sentences only.
"""

from __future__ import annotations

import re
from typing import NamedTuple


def word_set(words: str) -> frozenset[str]:
    """The words of a text, such as a long literal."""
    return frozenset(words.split())


QUOTED = re.compile(
    r"\"[^\"]*\"|“[^”\"]*[”\"]|„[^“”\"]*[“”\"]|«[^»]*»|「[^」]*」|『[^』]*』|《[^》]*》|`[^`]*`|(?<!\w)'(?:[^']|'(?=\w))*'(?!\w)"
)
# A refusal or a chat has a word of _ANYWHERE, or begins a sentence with one of _FIRST, or is in another language and has one of
# _ELSEWHERE. The filters look closely only then: nearly all captions have none.
_ANYWHERE = word_set(
    """
    i i'm i've i'd i'll me my we we're we'll we've our you you're you've you'd your us let's ai ai-generated assistant json user
    unable sorry apologies apologize apologise unfortunately regrettably sadly afraid violates violate violating policy policies
    guidelines safety inappropriate flagged blocked withheld filtered rejected moderated redacted censored suppressed error
    uploaded provided attached supplied included received missing captioned described processed loaded analyzed opened accessed
    interpreted caption captions captioning description descriptions describe describes describing summary summaries alt
    response responses instruction instructions requested instructed speculation assumption assumptions imaginary
    self-explanatory hope hopefully helps disclaimer identify comment generate depict answer output lorem details available
    can't cannot can’t couldn't didn't don't won't isn't explanation words count problem loading attachment course anything else
    assist
    """
)
_FIRST = word_set(
    """
    sure certainly absolutely definitely no okay ok alright gladly got understood right happy sounds thanks thank wow enjoy yes
    great nice lovely beautiful wonderful amazing interesting cool fantastic stunning good excellent perfect fun here here's
    below above following first next now wait hmm well based judging going according per please just simply kindly feel would do
    did should shall can may does how what any anything something if looking upon examining observing note word sentence end
    same have insert enter write add type put see refer identical similar duplicate ditto repeat not nothing failed without
    where could identifying naming was were being speaking tell let that's
    """
)
_ELSEWHERE = word_set(
    """
    imagen immagine imagem afbeelding gambar obraz tengo estoy leid leider entschuldigung entschuldigen verzeihung bedauere
    bedauerlicherweise ich ki nicht kein keine natürlich gern gerne sicher klar hier hoffe lass bild foto désolé désolée navré
    navrée malheureusement regrette m'excuse excuses je peux bien voici espère n'hésitez cette aucune siento lamento
    lamentablemente desafortunadamente disculpa disculpe disculpas perdón puedo podré aquí claro supuesto espero dudes veo
    ninguna temo soy como sinto muito infelizmente desculpe desculpa posso consigo não aqui espero certeza dispiace spiace
    purtroppo spiacente scusa riesco sono vedo alcuna nessuna ecco certo spero volentieri spijt helaas excuses ik geen kan hoop
    laat natuurlijk zeker przepraszam przykro niestety mogę potrafię nie oto oczywiście jasne brak opis omlouvám bohužel
    promiňte nemohu nemůžu ledsen tyvärr förlåt beklager beklagar desværre dessverre undskyld jag jeg här üzgünüm maalesef
    dilerim kusura yapay işte elbette tabii lỗi tiếc tôi vâng đây maaf sayangnya saya berikut tentu semoga valitettavasti
    pahoillani anteeksi sajnálom sajnos elnézést îmi păcate pot precisar quiser avisar hai fammi beschreibung descripción
    descrição descrizione didascalia légende bildunterschrift beschrijving siehe sin sem oben igual idem
    """
)
_TELLING = _ANYWHERE | _ELSEWHERE
_STRAIGHT = (("’", "'"), ("“", '"'), ("”", '"'), ("…", "."), ("—", "."), ("–", "."), ("¿", "."), ("¡", "."))
# One character for what a sentence may begin after, a space for other punctuation.
_BEFORE_SENTENCES, _OTHER_MARKS = b'.!?:;\n("*_[{<', b",)`]}>~#"
_PUNCTUATION = bytes.maketrans(_BEFORE_SENTENCES + _OTHER_MARKS, b"\1" * len(_BEFORE_SENTENCES) + b" " * len(_OTHER_MARKS))
_OTHER_SCRIPT = re.compile("[\u0100-\u1fff\u2e80-\ud7ff\uf900-\ufdff\uff01-\uffef]")
_FEW_WORDS = 3
_BREAK = re.compile(r"(?<=[.!?…])[)\"'*_]*\s+|(?<=[。！？])|\n+|\s+[—–]\s+")
_ANY_BREAK = re.compile(r"[.!?…。！？\n—–]")
_LABEL = re.compile(
    r"(?:[\W_]*(?:final |short |image |alt )?(?:caption|description|response|answer|output|assistant|ai|image|picture|photo|cell"
    r"|slot|text|bild|"
    r"imagen|图片?|画像|描述|标题)(?:\s*#?\d+)?[\W_]*[:：])+[\W_]*"
)
_EDGE = " \t\n\"'“”„‘«»「」[](){}<>*_`#-–—~"
_REPORTED = re.compile(r"(?!(?:i|we|error|warning|note|let me)\b)(?:\w\S*\s+){2,}\w\S*\s*[:：]\s.*", re.DOTALL)


class Words(NamedTuple):
    """A text in lower case, its words, the different ones; marked: without punctuation, a mark where a sentence may begin."""

    low: str
    plain: list[str]
    stock: frozenset[str]
    marked: str

    def first(self) -> list[str]:
        """Words that a sentence may begin with."""
        return [begin[0] for part in self.marked.split("\1") if (begin := part.split(None, 1))]


def words_of(text: str) -> Words:
    low = text.lower()
    bare = low
    if not low.isascii():
        for fancy, straight in _STRAIGHT:
            bare = bare.replace(fancy, straight)
    bare = bare.encode("utf-8", "replace").translate(_PUNCTUATION).decode()
    plain = bare.replace("\1", " ").split()
    return Words(low, plain, frozenset(plain), bare)


def may_speak(words: Words) -> bool:
    """Whether a look at the sentences is due."""
    return (
        not _TELLING.isdisjoint(words.stock)
        or (not _FIRST.isdisjoint(words.stock) and not _FIRST.isdisjoint(words.first()))
        or len(words.stock) <= _FEW_WORDS
        or (not words.low.isascii() and _OTHER_SCRIPT.search(words.low) is not None)
    )


def may_be_foreign(words: Words) -> bool:
    """Whether patterns of other languages than English are worth a try."""
    return not _ELSEWHERE.isdisjoint(words.stock) or (not words.low.isascii() and _OTHER_SCRIPT.search(words.low) is not None)


def spoken_sentences(low: str) -> list[str]:
    """Sentences of a text in lower case, without quotations, labels (`Caption:`) and markup around them; empty ones left out."""
    plain = unquoted(low)
    parts = _BREAK.split(plain) if _ANY_BREAK.search(plain) else [plain]
    return [
        sentence
        for part in parts
        if (sentence := (part[m.end() :] if (m := _LABEL.match(part)) else part).lstrip(_EDGE + "¡¿¿ ").rstrip())
    ]


def unquoted(text: str) -> str:
    """With straight apostrophes; quotation marks around all of it are taken off, quotations within it are left out."""
    plain = text.replace("’", "'").replace("‘", "'").strip(_EDGE)
    if '"' in plain or "'" in plain or "`" in plain or not plain.isascii():
        return QUOTED.sub('""', plain)
    return plain


def without_reported(sentences: list[str]) -> list[str]:
    """Without what follows the first colon after some words (`the sign reads: …`), to the end of the text."""
    kept: list[str] = []
    for sentence in sentences:
        if (":" in sentence or "：" in sentence) and (match := _REPORTED.match(sentence)):
            colon = re.search(r"[:：]\s", match[0])
            return [*kept, sentence[: colon.start()] if colon else sentence]
        kept.append(sentence)
    return kept
