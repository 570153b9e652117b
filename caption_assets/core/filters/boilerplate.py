"""Words to the reader or about the task in place of the picture, or beside it. Pure functions.

Three signs, each in the model's own voice: a text made of nothing but words about captions and pictures; a sentence about the
caption itself; an address to the reader (an opening such as "Sure! Here is", an offer, a question, "the image you uploaded").
"""

from __future__ import annotations

import re

from caption_assets.core.filters.sentences import Words, word_set, words_of

# Words that say nothing about a picture. With a word of _CORE, a sentence of these is about the caption.
_EMPTY = word_set(
    """
    a an the this that these those it its is are was were be been being am do does did not no none nothing any all each
    every some other another one two three four five first second third fourth fifth last next previous same similar
    identical following above below before after here there as at by for from in into of on only to too with without and or
    but so if then than also just very i i'm i've i'd i'll me my we our you your you're user user's will would should must
    can could may might shall has have had let let's let us please image images picture pictures photo photos photograph
    photographs cell cells slot slots grid visual visually visible elements element details detail detailed content contents
    contain contains contained containing include includes included including show shows shown showing depict depicts
    depicted depicting provide provides provided providing given give gives see seen look looks looking based basis solely
    purely strictly entirely directly derived derive objective objectively factual accurate accurately short brief concise
    simple general specific single sentence sentences word words long longer length maximum minimum line lines paragraph
    english purely focus focuses focused main subject key information context additional further extra more available
    unavailable specified unspecified needed necessary required requested request requests asked ask follow follows followed
    following according accordance adheres adhere avoid avoids avoided speculation speculations speculate assumption
    assumptions assume guess guesses guessing interpretation interpretations interpret personal opinion opinions subjective
    imaginary imagined imagination fictional make made making created create generated generate generates generating
    automatically successfully written write writing produce produced complete completed continue continues continued done
    end ends start begin begins concludes keep kept limited limit limits possible used use uses using text-only purposes
    accessibility reflect reflects reflected capture captures captured convey conveys mention mentions mentioned mentioning
    identify identified identifies identifying analyze analyzed analyse understand understood what which who how where when
    apply applies applied goal aim job step steps think thinking check unknown pending add added insert inserted enter put
    place placeholder blank empty untitled tbd todo na n/a null nil undefined ditto idem sample example listed list lists
    order format formats formatted schema valid ai model limits describing goes go n applicable refer refers about else
    warning background foreground one-sentence introduce supported unclear educated here's per data confirm version versions
    final sounds sound thoughts longer shorter better good best fits fit works work already keys key corresponds correspond
    surroundings missing comes come information source user evidence repeat repeats duplicate duplicates present
    representation represent represents visible
    """
)
_CORE = word_set(
    """
    caption captions captioned captioning caption's description descriptions describe describes described describing
    alt-text summary summaries summarize json answer answers response responses output outputs instruction instructions task
    tasks prompt prompts guideline guidelines result results requirement requirements
    """
)
_ABOUT = _EMPTY | _CORE | frozenset(("object", "objects", "subjects", "thing", "things"))
_PICTURE_OF = re.compile(r"\b(?:picture|image|photo) of an? (?:picture|image|photo)\b")
_SOME_SHARE = 0.9

_PICTURE = r"(?:images?|pictures?|photos?|photographs?|pics?|shots?|cells?|grid|visuals?)"
_TEXT = r"(?:captions?|descriptions?|alt[- ]texts?|summar(?:y|ies))"
_REPLY = r"(?:json|response|answer|output|result)s?"
_GIVEN = (
    r"(?:uploaded|provided|shared|sent|gave|given|attached|posted|supplied|showed|asked|requested|want\w*|mentioned|submitted"
    r"|need\w*)"
)
_PRAISE = (
    r"(?:great|nice|lovely|beautiful|wonderful|amazing|interesting|cool|fantastic|stunning|good|excellent|perfect|fun|gorgeous"
    r"|striking|charming|fascinating|impressive)"
)

# Matched at the beginning of a sentence.
_BEGINNINGS = (
    r"(?:sure(?: thing)?|certainly|absolutely|of course|definitely|no problem|okay|ok|alright|all right|gladly|got it|understood"
    r"|my pleasure|right away|"
    r"with pleasure|you got it|happy to help|you're welcome|you are welcome|sounds good|thanks|thank you|wow|enjoy"
    r"|yes,? (?:of course|sure|certainly|absolutely|here\b.*)|"
    r"hopefully this helps)(?:[!,.:]|\s*$)(?! (?:says?|reads?)\b)",
    rf"(?:what an? |that's an? |this is an? |that is an? |such an? )?(?:\w+ )?{_PRAISE}(?: (?:question|choice|one|{_PICTURE}))?!",
    rf"(?:{_PRAISE}|excellent) question\b",
    r"here (?:you go|goes|we go)[!:.]",
    rf"(?:and )?here(?:'s| is| are)\b.{{0,70}}?\b(?:{_TEXT}|{_REPLY}|what (?:i|the {_PICTURE}) (?:see|can see|shows?|depicts?)"
    rf"|(?:one|a|my) way to (?:describe|caption))\b",
    rf"(?:below|above|the following|this|that|these|those|it)(?:'s| is| are) (?:[\w-]+ ){{0,5}}?(?:{_TEXT}|json"
    rf"|response)\b(?! on\b)(?=\W*$| (?:of|for|that|in|you|as|based|with|to|above|below)\b)"
    rf"(?! of an? )",
    rf"(?:the following|the above|the next) {_TEXT}|(?:the )?{_TEXT} (?:above|below)\b(?= (?:is (?!in|written)|are (?!in"
    rf"|written)|was|were|captures?|describes?|reflects?|contains?|includes?))",
    rf"the {_TEXT} (?:for|of) (?:this|the|your|that) (?:\w+ )?{_PICTURE} (?:is|would be|could be|should be)\b(?! (?:in|written"
    rf"|printed|missing|handwritten)\b)",
    rf"(?:the|my|this|these|your|all|each|every|any)(?: [\w-]+){{0,3}} {_TEXT}(?: \w+)?,? (?:is|are|was|were|should|must|will"
    rf"|has|have|would|could|captures?|accurately|reflects?|"
    r"includes?|follows?|focus\w*|avoids?|adheres?|meets?|complies|does|do|mentions?|provides?|highlights?|covers?)\b"
    r"(?! (?:written|printed|carved|painted|missing|faded|hidden|partly|half|next|in (?:violet|red|black|blue|white|gold)"
    r"|handwritten|not (?:legible|readable)))",
    rf"(?:as an? [\w ]{{1,30}}, )?(?:i|we)(?: ?'(?:ll|d|ve|m)| will| would| have| need| should| can| must| am| want| first| now"
    rf"| see| think| tried| made| try)\b.{{0,60}}?\b(?:describ\w+|caption\w*|help|analy\w+|"
    rf"write|provid\w+|look(?:ing|ed)? at|assist|create|generate|upload\w+|shared|output|include|sure)\b.{{0,60}}?\b(?:{_TEXT}"
    rf"|{_REPLY}|{_PICTURE}|it|you|requested|details?|"
    r"instructions?|task|scene)\b",
    rf"i (?:think|believe|suggest|propose|recommend)\b.{{0,30}}?\b{_TEXT}",
    r"(?:i|we)(?: ?'(?:ll|d|m)| would| will| am| are) (?:be )?(?:happy|glad|pleased|delighted) to\b",
    r"let (?:me|us) (?:describ\w+|analy\w+|look|take|provid\w+|write|explain|start|see|break|caption|examine|create|think|begin"
    r"|check|know (?:if|what|whether|should|when|how))",
    r"let's (?:describ\w+|analy\w+|look|take a|see what|start|begin|break|examine|caption|think|write|go (?:through|step|over))",
    rf"(?:first|next|now|wait|hmm+|well|to (?:write|create|describe|caption|answer|provide)\b[^,]{{0,40}}),? (?:i|we"
    rf"|let)\b.{{0,60}}\b(?:{_TEXT}|{_PICTURE}|describe|it)\b",
    r"(?:so |ok(?:ay)?,? |alright,? )*the user (?:wants?|asks?|is asking|requested|requests|has|would like|provided|needs"
    r"|expects|is looking|gave|uploaded)",
    r"thank(?:s| you) (?:so much |very much )?for (?:the|your|this|sharing|uploading|providing|sending|showing)\b",
    r"(?:based|judging|going) (?:up)?(?:on|by) (?:the|your|this|what)\b.{0,30}?\b(?:image|picture|photo|photograph|visual"
    r"|information|provided|shared)\b",
    r"as (?:you )?(?:requested|asked|instructed|specified|per (?:your|the))\b|per your|according to (?:the|your) (?:instructions"
    r"|prompt|request)",
    r"(?:please |just |simply |kindly )*(?:feel free|don't hesitate|do not hesitate|let me know|do let me)\b",
    r"(?:i |we )?(?:really |do )?(?:hope|trust) (?:this|that|it|these|the|my|you)\b.{0,40}?\b(?:help\w*|works?|useful|assist\w*"
    r"|suits?|meets?|like|find|enjoy|clear|fine|answers?)",
    r"(?:hopefully|i hope) (?:this|that|it) (?:helps?|works?|is (?:useful|helpful|clear))",
    rf"(?:would|do|did|should|shall|can|may|does|is|are|how|what|any|anything|something)\b.{{0,40}}?\b(?:you|i|that|this"
    rf"|{_TEXT})\b.{{0,50}}?"
    rf"\b(?:like (?:me|a|an|more|any|the|to)|want|need\w*|prefer|describe|help|provide|sound|work for|do for|to add|else"
    rf"|changes?|okay|enough|more details?|captions?|useful)\b.{{0,50}}?\?",
    r"(?:is there )?(?:anything|something) else\b.{0,60}\?|any other (?:images?|pictures?|questions?)\b.{0,60}\?",
    r"(?:if|should|in case) (?:you(?:'d| would| need| want| have| like| prefer| require|'re| are)?|anything"
    r"|something)\b.{0,80}\b(?:let me|just ask|ask\b|i\b|me\b|send|captions?|descriptions?|provide|tell)",
    r"(?:you (?:can|may)\b.{0,15}\b|please )(?:ask|let me|request)\b|(?:please )?tell me (?:if|what|whether|how)\b",
    r"(?:was|is|were) (?:this|that|it|these)\b.{0,20}\b(?:help\w*|useful|okay|enough|good|clear)\b.{0,12}\?",
    rf"(?:i|we|you)(?:'ve| have) an? {_PICTURE}\b.{{0,40}}\b(?:need|have|must|should)\b",
    rf"(?:source|credit)s?: .{{0,20}}\b(?:{_PICTURE}|user)\b",
    rf"(?:{_TEXT}) (?:is |are |was )?(?:based|generated|written|created) (?:on|by|from|only)\b",
    rf"your (?:{_PICTURE}|request|question|upload|file)\b(?! here\b)",
    rf"(?:you|user) (?:asked|want|wants|requested)\b.{{0,40}}\b(?:{_TEXT}|{_PICTURE}|describe)\b",
    rf"(?:looking|upon (?:looking|examin\w+|inspect\w+|closer)|examining|analy[sz]ing|observing|inspecting)\b.{{0,10}}? (?:the"
    rf"|this|that|your|each)? ?{_PICTURE}\b.{{0,20}}\b(?:i|we|it)\b",
    r"from what (?:i|we) can (?:see|tell)",
    rf"(?:please )?note\b:?.{{0,60}}?\b(?:{_TEXT}|described|i have|i've|visible|assumption\w*|speculation|provided|personal)\b",
    r"(?:please note|disclaimer|translator's note)\b",
    r"(?:caption |description )?(?:word|character|sentence)? ?(?:count|length)\b\W*\d|(?:\d+|one|two|three) (?:words?"
    r"|characters?|sentences?|tokens?)\W*$",
    rf"(?:this|the|an?|it)?(?: is)?(?: an?)? ?(?:ai|automatically|machine)[- ]generated {_TEXT}",
    rf"(?:the |this )?{_PICTURE} (?:is|are|speaks?) (?:self-explanatory|for itself)"
    rf"|.{{0,40}}needs? no (?:further )?(?:description|explanation|caption)",
    rf"(?:the|this|these|such an?) {_PICTURE} (?:can|could|may|might) be (?:described|captioned|summari[sz]ed)",
    rf"(?:my|one|the best|a possible|a suitable|a good|possible|two possible|some possible"
    rf"|a few) (?:[\w-]+ ){{0,4}}?{_TEXT}\b.{{0,40}}\b(?:would be|could be|might be|is as follows|for you|:)",
    r"(?:an? )?(?:quick |short |simple )?(?:caption|description) for you\b",
    r"end of (?:the )?(?:caption|description|json|response|output|answer)|end\W*$",
    r"(?:the )?(?:image|picture|photo|description|caption) (?:does not|doesn't) (?:contain|include) any (?:imaginary|speculat\w+"
    r"|fictional content|assum\w+)",
    r"that(?:'s| is) (?:it|all)\b.{0,40}\b(?:image|picture|photo|cell|see|seen|visible)",
    r"(?:this|that) (?:one )?is the same as|same (?:as )?(?:above|before|cell|image|picture|the (?:previous|first|last|other))\b",
    r"happy captioning|have a (?:great|nice|good|wonderful|lovely) (?:day|time|evening|weekend)\W*$|good luck",
    r"(?:the|my|your|this) (?:instructions?|prompt|task|goal|request|assignment) (?:is|are|was|says?|asks?|requires?"
    r"|wants?) (?:me |us )?(?:to|for|that)\b",
    r"i(?:'d| would) (?:say|go with|call (?:it|this)|title)\b|(?:describing|captioning) (?:the|this|each) (?:image|picture|photo"
    r"|cell)",
    r"please (?:confirm|advise|review|check|verify|respond|reply)\b",
    rf"(?:i|we) (?:have )?(?:described|captioned|summari[sz]ed|wrote|written|kept|avoided)\b.{{0,60}}\b(?:{_TEXT}|{_PICTURE}"
    rf"|visible|saw|see)\b",
    r"(?:here (?:is|are|'s) )?my (?:reasoning|thought|thinking|analysis)(?: process| steps)?\b",
    r"(?:i|we) need to (?:produce|write|create|generate|provide|make|give|describe|output|extract|identify|come up)\b",
    r"lorem ipsum dolor",
    r"(?:enter|insert|write|add|type|put) (?:your |a |the )?(?:\w+ )?(?:caption|description|text)\b(?: here)?",
)

_OTHER_LANGUAGES = (
    r"(?:das|dies) (?:ist|war) (?:die|eine|meine) (?:beschreibung|bildunterschrift)|je vous propose|voilà (?:la|une"
    r"|ma) (?:description|légende)|(?:aquí|este) (?:está|es) el texto solicitado"
    r"|esta (?:es|fue) (?:la|una) descripción|questa è (?:la|una)|以上(?:是|为)对|(?:上記|以上)が[^。]{0,12}(?:説明"
    r"|キャプション)|.{0,12}도움이 되",
    # Chinese: openings, what is said of the description, offers
    r"(?:当然可以|当然|好的|没问题|可以的|没有问题)[!！,，。:：]|(?:以下|下面|这)(?:是|为|就是).{0,14}(?:描述|说明|标题|介绍)"
    r"|(?:以上|上述|所有|全部)(?:就是|是)?.{0,8}(?:描述|内容|信息)(?:.{0,10}(?:基于|根据|来自|是)|$)"
    r"|希望(?:这|以上|对您|能|该)|如果您?(?:需要|有|还)|如(?:有需|需)|根据(?:您|你)提供的|让我(?:来|们)|需要我|我(?:来|会"
    r"|将).{0,12}(?:描述|说明|介绍)|(?:这张|该|此)?(?:图片|图像|照片)的?(?:描述|说明)(?:如下|是|为)",
    # Japanese
    r"(?:はい|承知|もちろん|かしこまり|了解)[^\s]{0,8}?[、。!！]|(?:こちらが|以下[はがに]|これは|次は)[^。]{0,16}(?:説明"
    r"|キャプション|描写)|[^。]{0,12}(?:説明|キャプション)(?:は|を|が)(?:以下|次|上記)|この説明は|お役に立て|ご参考"
    r"|[^。]{0,8}(?:説明文?|キャプション)をここに",
    # Korean
    r"(?:물론입니다|물론이죠|물론|네|예|알겠습니다|좋습니다)[!,.]|.{0,12}(?:설명|캡션)(?:은|는) (?:다음|아래|이미지에)|(?:다음은"
    r"|아래는|이것은|요청하신).{0,16}(?:설명|캡션)|도움이 되",
    # German
    r"(?:natürlich|gerne?|sicher|klar|selbstverständlich|okay|aber gern|kein problem|alles klar)[!,.]|hier (?:ist|sind|kommt"
    r"|folgt|eine?)\b.{0,40}(?:beschreibung|unterschrift|untertitel|bildtext|titel)"
    r"|(?:die|diese|alle|meine)\b.{0,16}(?:beschreibung\w*|bildunterschrift\w*|angaben)\b.{0,20}\b(?:basier|beruh|beschreib"
    r"|enthäl|ist|sind|bezieh)|ich hoffe|lass(?:en sie)? (?:es )?mich",
    # French
    r"(?:bien sûr|certainement|d'accord|avec plaisir|volontiers|absolument|très bien)\s*[!,.:]|voici\b.{0,40}(?:description"
    r"|légende|ce que je vois)|j'espère que|n'hésitez pas"
    r"|(?:cette|la|les|toutes les) (?:description|légende)s?\b.{0,20}\b(?:est|sont|se base|repose|décri)|si vous (?:souhaitez"
    r"|avez|voulez)",
    # Spanish
    r"(?:claro(?: que sí)?|por supuesto|desde luego|con gusto|seguro|de acuerdo|con mucho gusto)\s*[!,.:]|(?:aquí|esta es"
    r"|a continuación|esto es)\b.{0,40}(?:descripción|leyenda|pie de foto)"
    r"|(?:espero que|no dudes|avísame|si necesitas|si deseas)|(?:la|esta|toda la) descripción\b.{0,20}\b(?:se basa|está|es)\b"
    r"|aquí (?:lo )?tienes:",
    # Portuguese
    r"(?:claro|com certeza|certamente|com prazer|é claro|sem problemas)\s*[!,.:]|(?:aqui|esta é|segue"
    r"|abaixo)\b.{0,40}(?:descrição|legenda)|espero que|se (?:precisar|quiser)"
    r"|(?:a|esta) (?:descrição|legenda)\b.{0,20}\b(?:se baseia|é|foi)\b",
    # Italian
    r"(?:certo|certamente|volentieri|naturalmente|ovviamente|va bene|con piacere)\s*[!,.:]|(?:ecco|questa è"
    r"|di seguito)\b.{0,40}(?:descrizione|didascalia)|spero che|.{0,40}fammi sapere|se hai bisogno",
    # Russian
    r"(?:конечно|хорошо|разумеется|безусловно|с удовольствием)\s*[!,.:]|(?:вот|это|ниже)\b.{0,40}(?:описание|подпись)|надеюсь"
    r"|если (?:вам|вы)|(?:это )?описание (?:основано|составлено)",
    # Dutch, Polish, Indonesian, Turkish, Vietnamese, Nordic, Arabic
    r"(?:natuurlijk|zeker|uiteraard|graag|oké)\s*[!,.:]|hier (?:is|zijn|volgt)\b.{0,40}(?:beschrijving|bijschrift)|ik hoop dat"
    r"|laat (?:het )?me weten",
    r"(?:oczywiście|jasne|pewnie|dobrze)\s*[!,.:]|(?:oto|to jest|poniżej)\b.{0,40}(?:opis|podpis)|mam nadzieję",
    r"(?:tentu(?: saja)?|baik|baiklah)\s*[!,.:]|berikut\b.{0,40}(?:deskripsi|keterangan)|semoga (?:ini|deskripsi)",
    r"(?:tabii(?: ki)?|elbette|memnuniyetle)\s*[!,.:]|işte\b.{0,40}(?:açıklama|altyazı|tanım)|umarım",
    r"(?:chắc chắn|tất nhiên|dĩ nhiên|vâng)\s*[!,.:]|(?:dưới đây|đây|sau đây) là\b.{0,40}(?:mô tả|chú thích)|hy vọng",
    r"(?:självklart|visst|javisst|naturligtvis|selvfølgelig|gjerne)\s*[!,.:]|h[äe]r (?:är|er|kommer)\b.{0,40}(?:beskriv\w*"
    r"|bildtext)|jag hoppas",
    r"(?:بالتأكيد|بالطبع|حسن)|(?:إليك|هذا|فيما يلي)\b.{0,30}(?:وصف|تعليق)",
)
_EMPTY_ELSEWHERE = re.compile(
    r"(?:(?:das|des|der|die|ein|eine|keine?|bild|bildes|fotos?|beschreibung|bildunterschrift|bildbeschreibung|verfügbar"
    r"|vorhanden|siehe|oben|wie|zelle|von|für|leer|"
    r"le|la|les|l|de|d|du|une?|aucune?|image|photo|description|légende|disponible|voir|ci|dessus|idem|comme|vide|cellule|pour|"
    r"el|del|las?|los|un|una|sin|ninguna|imagen|foto|descripción|leyenda|igual|que|anterior|véase|arriba|celda|para|no|hay|"
    r"a|o|da|do|uma?|sem|nenhuma|imagem|descrição|legenda|disponível|acima|mesmo|"
    r"dell|della|di|nessuna|immagine|didascalia|descrizione|disponibile|cella|per|"
    r"нет|описания|описание|изображения|фото|подпись|отсутствует|см|выше|как|"
    r"van|geen|beschrijving|bijschrift|beschikbaar|afbeelding|zie|hierboven|brak|opisu?|zdjęcia|obrazu|\d+)(?:\W+|$))+"
    r"|(?:图片|图像|照片|这张|该|的|描述|说明|标题|文字|如下|以下|是|无|没有|暂无|同上|以上|就是|第|格|[一二三四\d]"
    r"|[。.:：，、])+"
    r"|(?:画像|写真|の|説明|文|キャプション|なし|ありません|同上|です|は|以下|この|[。.:：、\d])+"
    r"|(?:이미지|사진|의|설명|캡션|없음|없습니다|위와|같음|동일|은|는|[.:\s\d])+"
)
_PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in _BEGINNINGS))
_FOREIGN_PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in _OTHER_LANGUAGES))
_TO_THE_READER = re.compile(
    rf"(?:[\w,' ]{{0,40}}\b)?(?:you|you've|you have|you had) (?:just |have |had |also )?{_GIVEN}\b.{{0,40}}?(?:\b(?:{_PICTURE}"
    rf"|{_TEXT}|file|shows?|depicts?|is|there|it|me|here)\b|,)"
)
_HEAD_SIGNS = _CORE | word_set("here here's version follows")
_REMARKS = word_set(
    """
    details information visible mentioned provided included specified assumptions assumption context further additional
    speculation confirm request requested generated written described depicted interpretation
    """
)
_INSTRUCTS = re.compile(r"(?:do not|don't|never|always|avoid|ensure|make sure|use only|if (?:the|an?) (?:image|picture|photo))\b")
_NOTHING_ELSE = _EMPTY | _CORE | frozenset(("text", "string"))
_VARIABLE = re.compile(r"[\W_]*(?:%s|\$\w+|\w+_\d+)?[\W_]*")
_CONNECTOR = re.compile(
    r"^(?:(?:in (?:summary|short|conclusion|other words)|overall|finally|so|also|therefore|to sum up|and|but)[,:]? )+"
)
_LETTERS = re.compile(r"[^\W\d_]")


def find_boilerplate(words: Words, sentences: list[str], foreign: bool = True) -> str | None:
    """What in a caption is no description: a placeholder, or a sentence to the reader or about the task; None: nothing.

    sentences: of core.filters.sentences.spoken_sentences, or none if no look at them is due; foreign: whether other languages
    than English are looked for too.
    """
    low, plain = words.low, words.plain
    if len(low) < 200 and (foreign or len(plain) < 7 or plain[-1] in _NOTHING_ELSE) and _is_empty(words, foreign):
        return low[:120]
    if not sentences:
        return None
    about, remarks = not _CORE.isdisjoint(words.stock), not _REMARKS.isdisjoint(words.stock)
    for sentence in sentences:
        own = _CONNECTOR.sub("", sentence, count=1)
        if _PATTERN.match(own) or ("you" in own and _TO_THE_READER.match(own)):
            return sentence[:120]
        if ((about or ":" in own) and _is_about_captions(own)) or (
            (remarks or own[-1] == "?" or _INSTRUCTS.match(own)) and _asks_or_adds(own)
        ):
            return sentence[:120]
        if foreign and _FOREIGN_PATTERN.match(own):
            return sentence[:120]
    return None


def _is_empty(words: Words, foreign: bool) -> bool:
    """Whether the whole text says nothing about any picture."""
    low = words.low
    if len(words.plain) < 3 and _VARIABLE.fullmatch(low):
        return True
    if all(word in _NOTHING_ELSE or word.isdecimal() for word in words.stock):
        return not _says_no_text(words.stock) and not _PICTURE_OF.search(low) and _LETTERS.search(low) is not None
    return (foreign or len(words.plain) < 7) and _EMPTY_ELSEWHERE.fullmatch(low.strip(" \"'*_`[](){}<>-—.!?:")) is not None


def _says_no_text(words: frozenset[str]) -> bool:
    """`No text is visible in the image.` describes it; `text for cell 1` does not."""
    return "text" in words and ("no" in words or "not" in words) and _CORE.isdisjoint(words)


def _is_about_captions(sentence: str) -> bool:
    """Whether nearly all words of a sentence, or all in front of its colon, are about captions and not about a picture."""
    head, colon, _ = sentence.partition(":")
    if colon and _is_head(words_of(head).plain):
        return True
    words = words_of(sentence).plain
    if len(words) < 3 or _CORE.isdisjoint(words[:8]):
        return False
    return sum(word in _ABOUT or word.isdecimal() for word in words) >= _SOME_SHARE * len(words)


def _is_head(words: list[str]) -> bool:
    """`Here is a longer version:`, `A possible caption would be:`; not `In the second picture:`."""
    return 2 <= len(words) <= 14 and all(word in _ABOUT for word in words) and not _HEAD_SIGNS.isdisjoint(words)


def _asks_or_adds(sentence: str) -> bool:
    """A question or a remark of empty words only: `Is this what you were looking for?`, `No further details were visible.`"""
    words = words_of(sentence).plain
    if len(words) < 3 or not all(word in _ABOUT for word in words):
        return False
    return sentence.endswith("?") or _INSTRUCTS.match(sentence) is not None or len(_REMARKS.intersection(words)) >= 2
