"""What a model says when it will not or cannot describe a picture. Pure functions.

The rules look for a grammar rather than for phrases, in the model's own voice: the first person, a refusing or missing of
something, and the task or the picture. Beside it stand apologies, notices of a safety system, and pictures that did not arrive.
English is here, other languages in core.filters.phrases_elsewhere.
"""

from __future__ import annotations

import re

from caption_assets.core.filters.phrases_elsewhere import refuses_elsewhere
from caption_assets.core.filters.sentences import without_reported

_PICTURE = r"(?:images?|pictures?|photos?|photographs?|pics?|files?|attachments?|uploads?|screenshots?)"
_FIRST_PERSON = re.compile(r"\b(?:i|i'm|i've|i'd|i'll|me|my|myself|we|we're|our)\b")
_AVERSE = re.compile(
    r"n't\b|\b(?:cannot|not|never|unable|declin\w+|refus\w+|refrain\w*|avoid\w*|abstain\w*|uncomfortable|hesita\w+|reluctan\w+"
    r"|unwilling|rather|prohibited|restricted|"
    r"forbidden|prevented|against|beyond|lack\w*|fail\w*|trouble|difficult\w*|sorry|apologi\w+|apologies|regret\w*|afraid"
    r"|unfortunately|regrettably|stop here|skip this|nothing|"
    r"pass on|limited to|(?:can|may|able to|allowed to) only|only (?:able|allowed|a|an|work|process|help|describe)|no (?:access"
    r"|way|means|ability|capability|permission|visual|"
    rf"information|eyes)|no {_PICTURE}|better not|instead|blind|(?:have|need) to see|concerns?|wrong|inappropriate|unethical"
    rf"|before i can|violat\w+)\b"
)
_TASK = re.compile(
    rf"\b(?:describ\w*|caption\w*|identif\w*|identity|recogni\w*|comment\w*|speculat\w*|{_PICTURE}|imagery|visual\w*|request\w*"
    rf"|questions?|content|contents|descriptions?|"
    r"guidelines?|polic\w+|capabilit\w+|program\w+|assist\w*|help you|help with|analy[sz]\w+|interpret\w*|depict\w*|depiction"
    r"|provid\w+|upload\w*|attached|fulfil\w*|satisfy|"
    r"comply|complete|continue|discuss\w*|answer\w*|generat\w+|eyes|nam(?:e|ing) (?:this|the|him|her|them|that|anyone|people)"
    r"|information|who (?:this|that|the|he|she|they|is|it)|faces?|nudity|explicit|sensitive|tasks?|individuals?|real persons?"
    r"|real people)\b"
)
# An image is what the model does not see, not something in it.
_SEES_NOT = re.compile(r"\b(?:see|spot|notice|observe|detect|find|make out)\b")
_PICTURE_UNSEEN = re.compile(
    rf"\b(?:see|find|make out|observe|detect)\b (?:any |an |the |a |your |this |that |what |one |clearly |what's |who |anything "
    rf"|it )*(?:\w+ )?"
    rf"(?:{_PICTURE}\b|is\b|this\b|that\b|person|people|individual|anyone|anything\W*$|one\W*$|it\W*$)|\bimages\b|\bpictures\b"
)
_IDIOM = re.compile(
    r"\b(?:can't|cannot|can not|couldn't|could not) (?:help (?:but|it|\w+ing)|resist|stop \w+ing|get enough|wait|believe|imagine"
    r"|take my eyes|keep)\b|not only\b"
)
_BARE = re.compile(
    r"(?:no[,.]? |sorry[,.]? (?:but )?)*i(?: really| simply)? (?:can't|cannot|can not|won't|will not|must not|must stop"
    r"|must decline"
    r"|refuse|decline)(?: (?:do|help with|answer|say|write)? ?(?:that|this|it|here)| comply| help| assist"
    r"| do so)?[,.! ]*(?:sorry)?[,.! ]*$"
)
_MODEL = (
    r"(?:ai|a\.i\.|artificial intelligence|large language|language model|text-based|text based|llm|vision-language|visual|virtual"
    r"|chatbot|digital|multimodal)"
)
_APOLOGY = (
    r"(?:(?:i'm|i am) (?:\w+ )?(?:sorry|afraid)|(?:so |very |really )?sorry(?!-|\w)|(?:my |sincere |many )*apologies"
    r"|i (?:sincerely |do )?apologi[sz]e|"
    r"i (?:deeply )?regret|regrettably|unfortunately|sadly|i beg your pardon|pardon me|forgive me)\b"
)
_TOPIC = (
    rf"(?:{_PICTURE}|content|requests?|questions?|captions?|descriptions?|cells?|material|tasks?|imagery|artwork|individuals?"
    rf"|this"
    r"|that|it|link)"
)
_SEND = r"(?:provid|upload|shar|attach|send|sent|resend|re-?upload|includ|paste|supply|submit|forgot|receiv|giv)\w*"
_MESSAGE = r"(?:your|the|our|this|that) (?:message|request|chat|conversation|input|prompt|query|question|submission)"
_RULES = r"(?:polic(?:y|ies)|guidelines?|terms|rules|principles|standards|programming|instructions|ethics|privacy|safety \w+)"
_STOPPED = (
    r"(?:flagged|blocked|removed|withheld|filtered|rejected|declined|denied|refused|moderated|redacted|censored|suppressed"
    r"|prevented|stopped)"
)
_GONE = (
    r"(?:can't|cannot|can not|could not|couldn't|won't|didn't|did not|doesn't|isn't|is not|not|no|unable|violat\w+|against"
    r"|inappropriate|beyond|corrupt\w*|broken|empty|"
    r"blank|missing|too (?:dark|blurry|blurred|small|unclear|large)|unavailable|inaccessible)"
)

# In front of words like these, what follows is what the picture says.
_SHOWN = re.compile(
    r"\b(?:signs?|says?|said|saying|reads?|reading|words?|wording|captioned|shirts?|posters?|written|writes|shouts?|whispers"
    r"|labell?ed|titled|chat|screen|"
    r"screenshot|letter|notes?|notice|memes?|phrases?|quotes?|print|printed|bubble|subtitles?|placard|banner|button|dialog"
    r"|replies|asks|stating|states|mug|cup|book)\b"
)
_SHOWN_AFTER = re.compile(
    r",? (?:says|said|reads|is (?:written|printed|painted|carved)|(?:a |the )?\w+ (?:says|reads|shouts|asks|seems to say))\b"
)

# Matched at the beginning of a sentence.
_BEGINNINGS = (
    rf"{_APOLOGY}.{{0,80}}?\b{_TOPIC}\b.{{0,60}}?\b{_GONE}\b|{_APOLOGY}.{{0,60}}?\b{_GONE}\b.{{0,60}}?\b(?:{_PICTURE}|content"
    rf"|requests?|captions?|descriptions?|task)\b",
    rf"{_APOLOGY}[^,.]{{0,8}}?[,.!]*\s*(?:but )?i\b.{{0,30}}?\b(?:must|have to|don't|can't|cannot|won't|will) (?:\w+ )?(?:stop"
    rf"|do|decline|pass|say|help|go)",
    rf"(?:no|not an?|not any) {_PICTURE} (?:was|were|is|are|has been|have been|appears? to be|seems? to (?:be"
    rf"|have been))? ?{_SEND}",
    rf"nothing (?:was|is|has been|seems to be|appears to be) {_SEND}.{{0,10}}? {_MESSAGE}",
    rf"(?:(?:the|your|this|that|an?) )?(?:link to the |link of the )?{_PICTURE}\b.{{0,40}}?\b(?:missing from {_MESSAGE}|(?:seems"
    rf"|appears) to be (?:missing|broken|corrupt\w*)|"
    rf"did(?: not|n't) (?:come|load|arrive|get|go|upload|open)|failed to (?:load|open|upload))",
    rf"(?:(?:the|your|this|that) )?{_PICTURE}\b.{{0,40}}?\b(?:can't|cannot|can not|could not|couldn't|won't) be (?:described"
    rf"|captioned|processed|loaded|displayed|"
    r"analy[sz]ed|opened|rendered|accessed|interpreted|retrieved)",
    rf"(?:your |this |the |that |my )?(?:\w+ )?(?:{_PICTURE}|content|request|response|output|caption|prompt|description|answer"
    rf"|safety (?:system|filter)s?|content filter)s? "
    rf"(?:was |is |has |have |been |were |had |to |be )*{_STOPPED}\b.{{0,40}}?\b(?:safety|filter\w*|{_RULES}|system|reasons?"
    rf"|moderation|inappropriate|because|description|caption|{_PICTURE})",
    rf"error\b.{{0,30}}?\b(?:{_PICTURE}|request|content)\b.{{0,40}}?\b(?:not|n't|fail\w*|unable|invalid)|error\W+no {_PICTURE}"
    rf"|error\W+(?:unable|could not|failed)",
    rf"there (?:was|is|seems to be|appears to be) (?:an? )?(?:problem|error|issue|trouble) .{{0,20}}?(?:loading|opening"
    rf"|processing|with) .{{0,10}}?{_PICTURE}",
    r"(?:describing|identifying|captioning|naming|recogni[sz]ing|commenting|discussing)\b.{0,80}?\b(?:isn't|is not|not something"
    r"|goes? against|beyond|would|could|violates?|"
    r"is something i|can't|cannot|is against)",
    rf"(?:this|that|it|such|your|the)\b.{{0,40}}?(?:'s|\bviolat\w+|\bbreach\w*|\bgo(?:es)? (?:against|beyond)|\b(?:is"
    rf"|are) (?:against|beyond|outside)|\bfalls? outside)\b.{{0,30}}?"
    rf"\b(?:my|our|the|what i|usage|content|community|privacy|safety|any)\b.{{0,30}}?\b(?:{_RULES}|capabilit\w+|abilit\w+|able"
    rf"|may|scope|limits?)\b",
    rf"(?:my|our|the|these|current) (?:\w+ )?{_RULES}\b.{{0,10}}?\b(?:don't|do not|does not|doesn't|prevents?|prohibits?"
    rf"|forbids?|won't|keep)\b",
    r"(?:it|that|this)(?:'s| is| would| wouldn't| isn't| would not| may| might)\b.{0,30}?\b(?:not|wouldn't|isn't|against"
    r"|inappropriate|unethical|irresponsible|"
    rf"wrong|improper|impossible)\b.{{0,30}}?\b(?:to (?:describe|caption|identify|name|comment|provide|assist|answer|continue"
    rf"|generate|write|discuss|speculate|disclose)\b|{_RULES})",
    rf"(?:unable|not able|not allowed|not permitted|cannot|can't|can not|failed) (?:to )?(?:describe|caption|identify"
    rf"|recogni[sz]e|comply|process|provide|generate|assist|help|analy[sz]e|"
    rf"fulfil\w*|create|complete|answer|determine|load|open|view|interpret)\b(?=.{{0,40}}?\b(?:{_TOPIC}|individuals?|people"
    rf"|persons?|captions?)\b|[ .:!]*$|:)",
    rf"(?:please|kindly) (?:try )?(?:again |to )?{_SEND} .{{0,40}}?\b{_PICTURE}(?! of)",
    rf"(?:could|can|would) you (?:please |kindly )?{_SEND} .{{0,40}}?\b(?:{_PICTURE}|it|again|once more)\b",
    rf"you (?:haven't|have not|didn't|did not|forgot|seem to have)\b.{{0,40}}?{_PICTURE}",
    rf"(?:if|once|when|as soon as) you (?:can |could )?(?:{_SEND}|describe) .{{0,40}}?(?:{_PICTURE}|it)\b.{{0,40}}?\bi\b",
    rf"without (?:the|an|any|your|seeing) .{{0,20}}?{_PICTURE}.{{0,20}}\bi\b",
    rf"where is (?:the|your) {_PICTURE}\?",
    rf"(?:i|we) (?:see|received|got|have|found|find) no {_PICTURE}(?! of)",
    rf"(?:it|there|this) (?:looks|seems|appears|doesn't|does not|isn't|is|was|were|may be)\b.{{0,40}}?(?:no|any|an|the|your"
    rf"|that) {_PICTURE}\b.{{0,30}}?"
    rf"(?:{_SEND}|c[oa]me through|in {_MESSAGE}|didn't|did not|failed|loaded)",
    rf"it (?:looks|seems|appears) .{{0,20}}?you .{{0,20}}?{_SEND}",
    rf"i(?:'m| am) (?:ready|waiting|happy|glad) .{{0,60}}(?:don't|do not|once|when|please|as soon)\b.{{0,20}}(?:see|{_SEND}"
    rf"|{_PICTURE}|you)",
    r"i(?:'m| am) (?:designed|programmed|trained|built|made|meant|required) (?:to|not)\b",
    r"i(?:'d| would) (?:be )?(?:glad|happy|love|like|want)\b.{0,60}\b(?:without (?:identify|naming)|but\b)",
    r"(?:as|being|speaking as) an? (?:\w+,? ){0,2}?(?:ai|artificial intelligence|language model|llm)\b",
    r"(?:that|this|it)(?:'s| is)(?: not|n't)? something (?:that )?i\b.{0,20}?\b(?:can't|cannot|not|able|can|won't|do)\b",
    r"no can do\b|for (?:safety|privacy|legal|policy|ethical) reasons\b.{0,30}?\b(?:no|not|n't|i)\b",
    rf"your (?:request|question|prompt|{_PICTURE})\b.{{0,30}}?(?:can't|cannot|could not|couldn't|can not|was|is"
    rf"|has been) (?:not |be )?(?:be )?(?:fulfilled|answered|processed|completed|"
    r"handled|denied|rejected|declined|refused|possible|accepted|supported)",
    r"(?:it's|it is) (?:best|better)\b.{0,20}\bi\b.{0,12}\b(?:not|n't|don't)\b|(?:i(?:'m| am) )?(?:so |very "
    r"|really )?sorry(?: about (?:that|this))?[,.! ]*(?:but )?(?:no)?[.! ]*$",
)
_SELF = re.compile(
    rf"\bas an? (?:\w+,? ){{0,4}}?(?:{_MODEL}|assistant)\b.{{0,60}}\b(?:i|my|me)\b|\bi(?:'m| am) (?:just |only |merely "
    rf"|simply )?an? (?:\w+,? ){{0,3}}?(?:{_MODEL}|assistant)\b"
    r"|\bfor me to (?:describe|caption|identify|see|view|comment|analy[sz]e|interpret|work with|process|name|say|look at)\b"
    r"|\b(?:so )?i(?:'ll| will| must| have to| need to) (?:\w+ )?(?:decline|refuse|stop here|pass|skip)\b"
)
_AT_START = re.compile("|".join(f"(?:{pattern})" for pattern in _BEGINNINGS))
_GREETING = re.compile(
    r"(?:(?:hello|hi|hey|oh|oops|hmm+|well|ok|okay|honestly|however|but|and|so|also|please note that|note that|content warning"
    r"|warning|answer|let me be clear|i have to be honest)"
    r"(?: there| no)?[!,.:]*\s+)+"
)


def find_refusal(sentences: list[str], foreign: bool = True) -> str | None:
    """The sentence in which the model refuses or says that it cannot see the picture; None: it does not.

    sentences: as of core.filters.sentences.spoken_sentences. foreign: whether languages other than English are looked for.
    """
    for sentence in without_reported(sentences):
        own = sentence[greeting.end() :] if (greeting := _GREETING.match(sentence)) else sentence
        if _AT_START.match(own) or _first_person(own) or (foreign and refuses_elsewhere(own)):
            return sentence[:120]
    return None


def _first_person(sentence: str) -> bool:
    first = _FIRST_PERSON.search(sentence)
    if first is None or _SHOWN.search(sentence, 0, first.start()) or _SHOWN_AFTER.search(sentence, first.end()):
        return False
    if _BARE.match(sentence) or _SELF.search(sentence):
        return True
    plain = _IDIOM.sub("", sentence)
    averse = _AVERSE.search(plain)
    if averse is None or not _TASK.search(plain):
        return False
    seen = _SEES_NOT.search(plain, averse.end(), averse.end() + 24)
    return seen is None or _PICTURE_UNSEEN.search(plain) is not None
