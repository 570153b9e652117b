"""Who speaks in a caption: its sentences without what is quoted, shown or written in the picture. Pure functions.

A model that refuses or chats does so at the beginning of a sentence, in its own voice. The same words on a sign, in a quotation or after
`reads:` are part of the picture. So the filters look at the beginnings of unquoted sentences only.
"""

from __future__ import annotations

import re

QUOTED = re.compile(
    r"\"[^\"]*\"|“[^”\"]*[”\"]|„[^“”\"]*[“”\"]|«[^»]*»|「[^」]*」|『[^』]*』|《[^》]*》|`[^`]*`|(?<!\w)'(?:[^']|'(?=\w))*'(?!\w)"
)
# Words of which every refusal and every chat has one; without any of them a text in Latin letters need not be looked at closely.
_TELLING = frozenset(
    """i i'm i've i'd i'll me my we we're we'll we've our you you're you'd your us unable cannot can't couldn't won't don't doesn't didn't isn't not no nothing
    sorry apologies apologize apologise unfortunately regrettably sadly afraid please ai assistant violates violate sure certainly absolutely course
    definitely okay ok alright understood gladly here here's below above following caption captions description descriptions describe describes described
    describing captioning identifying summary summaries json response user let let's hope thank thanks based judging requested asked instructed per
    ai-generated self-explanatory imaginary question same see refer identical insert add enter put write lorem available text content answer output count
    blocked flagged removed withheld filtered rejected declined denied refused moderated redacted censored suppressed error safety policy policies guidelines
    missing attached uploaded provided failed never lack refuse decline disclaimer away seen would do great nice lovely wonderful amazing interesting cool fantastic stunning good got happy forgive pardon details derived anything else
    leid leider bedauere ki nicht kein keine natürlich gerne sicher hier hoffe lass désolé désolée navré malheureusement regrette peux suis pas bien voici
    espère siento lamento puedo aquí claro supuesto espero como soy não sinto aqui desculpe dispiace purtroppo posso sono ecco certo spero spijt helaas kan
    hoop laat przepraszam przykro niestety mogę oto oczywiście omlouvám bohužel nemohu ledsen tyvärr inte ikke här üzgünüm maalesef işte tabii lỗi thể
    precisar quiser hai bisogno fammi avisar tiếc vâng maaf tidak berikut tentu saya semoga impossible aucune non zie geen sehe veo vejo ninguna nenhuma vedo alcuna nessuna widzę nie nevidím ser valitettavasti sajnálom sajnos nem îmi păcate pot en""".split()
)
_AS_SPACES = str.maketrans({**dict.fromkeys('.,!?:;()"*_`“”«»[]{}<>~#–—…¡¿', " "), "’": "'"})
_OTHER_SCRIPT = re.compile("[\u0370-\u1dff\u2e80-\ud7ff\uf900-\ufdff\uff01-\uffef]")
_FEW_WORDS = 6
_BREAK = re.compile(r"(?<=[.!?…])[)\"'*_]*\s+|(?<=[。！？])|\n+|\s+[—–]\s+")
_ANY_BREAK = re.compile(r"[.!?…。！？\n—–]")
_LABEL = re.compile(
    r"(?:[\W_]*(?:final |short |image |alt )?(?:caption|description|response|answer|output|assistant|ai|image|picture|photo|cell|slot|text|bild|"
    r"imagen|图片?|画像|描述|标题)(?:\s*#?\d+)?[\W_]*[:：])+[\W_]*"
)
_EDGE = " \t\n\"'“”„‘«»「」[](){}<>*_`#-–—~"
_REPORTED = re.compile(r"(?!(?:i|we|error|warning|note|let me)\b)(?:\w\S*\s+){2,}\w\S*\s*[:：]\s.*", re.DOTALL)


def plain_words(text: str) -> list[str]:
    """The words between spaces and punctuation, in lower case."""
    return text.lower().translate(_AS_SPACES).split()


def may_speak(text: str, stock: frozenset[str]) -> bool:
    """Whether a look at the sentences is due. stock: the different plain words of the text."""
    return (
        len(stock) <= _FEW_WORDS
        or not _TELLING.isdisjoint(stock)
        or (not text.isascii() and _OTHER_SCRIPT.search(text) is not None)
    )


def spoken_sentences(text: str) -> list[str]:
    """Lower case, straight apostrophes, without quotations, labels (`Caption:`) and markup around them; empty ones left out."""
    plain = unquoted(text)
    parts = _BREAK.split(plain) if _ANY_BREAK.search(plain) else [plain]
    return [
        sentence
        for part in parts
        if (sentence := (part[m.end() :] if (m := _LABEL.match(part)) else part).lstrip(_EDGE + "¡¿¿ ").rstrip())
    ]


def unquoted(text: str) -> str:
    """Lower case, straight apostrophes; quotation marks around all of it are taken off, quotations within it are left out."""
    plain = text.lower().replace("’", "'").replace("‘", "'").strip(_EDGE)
    return QUOTED.sub('""', plain)


def without_reported(sentences: list[str]) -> list[str]:
    """Without what follows the first colon after some words (`the sign reads: …`), to the end of the text."""
    kept = []
    for sentence in sentences:
        if match := _REPORTED.match(sentence):
            colon = re.search(r"[:：]\s", match[0])
            return [*kept, sentence[: colon.start()] if colon else sentence]
        kept.append(sentence)
    return kept
