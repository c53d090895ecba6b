"""What a failure was about: its cause, what was violated, and its topic, read from the owner's words by fixed rules.

A decision must come out the same when it is made again from what is stored, so nothing here asks a model: failures
cluster by equality of three words (the form of Self-Harness, arXiv 2606.09498). What the owner said and what the
owner's own version shows are two ways of reading one failure, so both end in one signature; whether a rule was said or
has to be guessed is kept with the failure (`said`), as a rule that was guessed costs more when it is wrong. What nobody
can name is unclear, and no rule is ever made of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from store.provenance import own_words
from store.reasons import REASONS, Reason
from store.types import UnitKind
from store.voice import of_others, own_sentences


class Cause(StrEnum):
    """Why a reply was not what the owner wanted."""

    OWN_FACT = "own_fact"
    WORLD_FACT = "world_fact"
    UNKNOWN_FACT = "unknown_fact"
    RULE = "rule"
    STYLE = "style"
    UNCLEAR = "unclear"

    @property
    def of_facts(self) -> bool:
        """Whether it is about one question rather than about all replies."""
        return self in (Cause.OWN_FACT, Cause.WORLD_FACT, Cause.UNKNOWN_FACT)


class Violated(StrEnum):
    """What the reply went against."""

    TOO_LONG = "too_long"
    TOO_SHORT = "too_short"
    LIST = "list"
    HARD_WORDS = "hard_words"
    LANGUAGE = "language"
    FORMAT = "format"
    CODE_ALONE = "code_alone"
    PHRASE = "phrase"
    ENDING = "ending"
    QUESTION = "question"
    UNITS = "units"
    SPELLING = "spelling"
    FACT = "fact"
    WORDING = "wording"
    UNSAID = "unsaid"


@dataclass(frozen=True, order=True)
class Signature:
    """What failures have in common. ``topic`` is a kind of text (prose, code), or the words a question is about."""

    cause: Cause
    violated: Violated
    topic: str

    @property
    def key(self) -> str:
        """The signature as one word."""
        return f"{self.cause}/{self.violated}/{self.topic}"

    @classmethod
    def parse(cls, key: str) -> Signature:
        """The signature of a key; one that was forgotten keeps none of its words."""
        if key.count("/") < 2:
            return cls(Cause.UNCLEAR, Violated.UNSAID, "forgotten")
        cause, violated, topic = canonical(key).split("/", 2)
        return cls(Cause(cause), Violated(violated), topic)


def canonical(key: str) -> str:
    """A signature's key as it is written now: what only corrections had shown once had a cause of its own."""
    cause, _, rest = key.partition("/")
    guessed = cause == Cause.STYLE and not rest.startswith(f"{Violated.WORDING}/")
    return f"{Cause.RULE}/{rest}" if guessed else key


@dataclass(frozen=True)
class Reading:
    """A failure, or a standing request, as it was read. ``said`` are the owner's words that a rule can be made of."""

    signature: Signature
    said: str | None = None


PROSE, CODE = "prose", "code"

QUOTED = re.compile(r"(?<!\w)[\"'“‘]([^\"'”’\n]{2,60})[\"'”’]")
"""Words that are named as words, of which the mark that opens them follows no letter."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_STOP = frozenset(
    "a about all also am an and any are as at be been but by can could did do does for from had has have he her here "
    "his how i if in into is it its just know like me much my no not of on or our out please s she should so tell than "
    "that the their them then there these they this to too up us was we were what when where which who whom whose why "
    "will with would you your many is's what's who's it's called name named".split()
)
_HINTS = {text.hint: reason for reason, text in REASONS.items() if text.hint}
_OF_REASON = {
    Reason.SHORTER: Violated.TOO_LONG,
    Reason.LONGER: Violated.TOO_SHORT,
    Reason.SIMPLER: Violated.HARD_WORDS,
    Reason.NO_LIST: Violated.LIST,
    Reason.WRONG: Violated.FACT,
    Reason.OTHER_LANGUAGE: Violated.LANGUAGE,
}
_KEYWORDS: tuple[tuple[Violated, re.Pattern[str]], ...] = (
    (
        Violated.PHRASE,
        re.compile(
            r"(?:don'?t|don’t|do\s+not|never|stop)\s+(?:say|saying|write|writing|use|using|begin\w*\s+with|"
            r"start\w*\s+with|open\w*\s+with|end\w*\s+with|finish\w*\s+with|clos\w*\s+with|sign\w*\s+(?:off\s+)?with)\s+[\"'“‘]([^\"'”’]+)[\"'”’]",
            re.IGNORECASE,
        ),
    ),
    (
        Violated.ENDING,
        re.compile(
            r"^(?!.*\b(?:don['’]?t|do not|never|stop|without)\b)"
            r".*\b(?:sign(?:ed|-off)?|finish|end|close|last line)\b.{0,40}?" + QUOTED.pattern,
            re.IGNORECASE,
        ),
    ),
    (
        Violated.QUESTION,
        re.compile(
            r"\b(?:end|finish|close)\b.{0,30}\bquestion\b|\bask me (?:something|anything|back)\b|"
            r"\bwould you ask me\b|되물어|질문으로 끝",
            re.IGNORECASE,
        ),
    ),
    (
        Violated.CODE_ALONE,
        re.compile(
            r"\b(?:only|just) (?:the )?code\b|\bcode (?:only|alone)\b|\bno (?:prose|explanations?)\b|"
            r"\bdon['’]?t (?:need|want) (?:the|an|any) explanations?\b|코드만",
            re.IGNORECASE,
        ),
    ),
    (Violated.FORMAT, re.compile(r"\b(?:json|yaml|csv|markdown table)\b", re.IGNORECASE)),
    (
        Violated.LIST,
        re.compile(r"\b(?:lists?|bullets?|bullet points?|numbered|enumerat\w*)\b|목록|나열", re.IGNORECASE),
    ),
    (
        Violated.TOO_LONG,
        re.compile(
            r"\b(?:shorter|short|brief(?:ly)?|concise(?:ly)?|too long|less text|too much text|one sentence|"
            r"two sentences|(?:in|to) a sentence|quick answer|at most \d+ (?:words|sentences))\b|"
            r"짧게|간단히|너무 길|간결",
            re.IGNORECASE,
        ),
    ),
    (
        Violated.TOO_SHORT,
        re.compile(r"\b(?:longer|more detail\w*|in detail|too short|elaborate)\b|자세히|길게", re.IGNORECASE),
    ),
    (
        Violated.HARD_WORDS,
        re.compile(
            r"\b(?:simpl\w+|plain (?:words|english)|jargon|everyday words)\b|쉽게|쉬운", re.IGNORECASE
        ),
    ),
    (
        Violated.LANGUAGE,
        re.compile(
            r"\b(?:in|use|speak|to)\s+(?:english|korean|german|french|spanish|japanese|chinese)\b|"
            r"(?:한국어|한국말|영어|일본어)로|same language",
            re.IGNORECASE,
        ),
    ),
    (
        Violated.UNITS,
        re.compile(
            r"\b(?:metric|imperial|celsius|fahrenheit|(?:kilo|centi|milli)?met(?:re|er)s|kilograms|"
            r"in (?:km|kg|cm|miles|pounds)|24[- ]hour)\b|미터법",
            re.IGNORECASE,
        ),
    ),
    (Violated.SPELLING, re.compile(r"\b(?:british|american) (?:spelling|english)\b", re.IGNORECASE)),
)
_OWN_FACT = re.compile(
    r"\b(?:my\s+[\w\s'’-]{1,40}?\s+(?:is|are|was|were)\s+\S|call me\b|i(?:'m|’m| am)\s+(?:a|an|called|from|based|"
    r"allergic|vegetarian|vegan|left-handed|\d+)\b"
    r"|i\s+(?:live|work|was born|moved|study|drive|have a|have two|grew up)\b)"
    r"|(?:내|제|우리)\s*\S{1,12}(?:은|는|이|가)\s|저는\s\S+|나는\s\S+",
    re.IGNORECASE,
)
_TOLD_ANSWER = re.compile(
    r"^\W*(?:no\W+)?(?:actually\W+)?(?:it(?:'s|’s|\s+is|\s+was)|that(?:'s|’s|\s+is)|the\s+(?:right\s+|correct\s+)?"
    r"(?:answer|\w+)\s+(?:is|was)|they\s+are|정답은|답은)\s+(?!not\b|wrong\b|incorrect\b|too\b|still\b)\S",
    re.IGNORECASE,
)
_WRONG = re.compile(r"\b(?:wrong|incorrect|not true|not right|false|mistake)\b|틀렸|틀린|아니", re.IGNORECASE)
_MARKED = re.compile(r"^\s*(?:[-*•+]|\d+[.)])\s+", re.MULTILINE)
_FENCE = re.compile(
    r"^ {0,3}(?:```|~~~)[^\n]*\n.*?(?:^ {0,3}(?:```|~~~)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_IMPERIAL = re.compile(
    r"\b(?:miles?|mph|feet|foot|inch(?:es)?|yards?|pounds?|lbs?|ounces?|gallons?|fahrenheit)\b|°\s?F\b",
    re.IGNORECASE,
)
_SPELT = (("or", "our"), ("er", "re"), ("iz", "is"), ("yz", "ys"), ("gray", "grey"), ("l", "ll"))
"""American and British, as letters within a word."""
_METRIC = re.compile(
    r"\b(?:(?:kilo|centi|milli)?met(?:re|er)s?|km(?:/h)?|cm|mm|kg|kilograms?|grams?|lit(?:re|er)s?|celsius)\b|°\s?C\b|"
    r"\d\s?(?:m|g|l)\b",
    re.IGNORECASE,
)
_ABOUT_YOU = re.compile(
    r"^\W*(?:your\b.{1,40}?\b(?:is|are|was|were)\b|you(?:['’]re|\s+(?:are|live|work|like|love|prefer|were|study|drive|"
    r"moved|grew|have(?!\s+to\b)))\b)|^\W*(?:당신|너)(?:의|는|은)?\s",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\b(?:please|answer|reply|write|say|speak|use|be|keep|give|want|wish|prefer|like|rather|always|never)\b|"
    r"주세요|해\s?줘|하세요|해요\b|바랍니다",
    re.IGNORECASE,
)
_OF_FORM = (Violated.LANGUAGE, Violated.FORMAT, Violated.LIST, Violated.CODE_ALONE)
_KIN = {Violated.UNITS: (Violated.UNITS, Violated.SPELLING)}
"""What is complained of in one breath."""
_SHORT_FACT = 12
"""Words of a sentence that tells the owner one thing about themselves."""
_SHORT_TEXT = 40
"""Words of an answer that is about one fact."""
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_MINE = re.compile(r"\b(?:my|mine|i|me)\b|(?:내|제|나|저)(?:\s|는|가|의|를)", re.IGNORECASE)
_CHANGES = re.compile(r"\d|[A-Z\uac00-\ud7a3]")


@lru_cache(maxsize=4096)
def topic_of(question: str) -> str:
    """The words a question is about: at most three, the longest first picked, in alphabetical order."""
    words = {word.lower() for word in _WORD.findall(own_words(question)[:400])} - _STOP
    return "-".join(sorted(sorted(words, key=lambda word: (-len(word), word))[:3])) or "something"


def keys_of(text: str) -> set[str]:
    """How keys of signatures end that may hold words of a text: to find them when it is forgotten."""
    pieces = {text, *re.split(r"[.!?\n。]+", text), *re.findall(r"[\"'“‘]([^\"'”’]+)[\"'”’]", text)}
    named = {topic_of(piece) for piece in pieces if piece.strip()} - {"something"}
    return {
        f"{each}/{topic}" for topic in named for each in (Violated.FACT, Violated.WORDING, Violated.PHRASE)
    }


def text_kind(reply: str) -> str:
    """Whether a reply is code or prose: what is too long in one may be right in the other."""
    return CODE if "```" in reply else PROSE


def of_failure(kind: UnitKind, question: str, reply: str, target: str | None, hint: str | None) -> Reading:
    """What went wrong with a reply, from what the owner said of it and from the owner's own version of it."""
    if kind is UnitKind.REQUERY:
        return _of_following(question, reply, hint or "")
    words = own_words(hint or "")
    reading = of_words(words, question, reply) if words else None
    corrected = target if kind is UnitKind.CORRECTION else None
    if reading is not None and not (corrected and reading.said is None):
        return reading
    if corrected:
        wrong = reading is not None and reading.signature.cause is Cause.UNKNOWN_FACT
        if wrong and len(corrected.split()) <= _SHORT_TEXT and _shape(reply, corrected) not in _OF_FORM:
            return _fact(question, corrected)
        return _of_correction(question, reply, corrected, words if _ASKS.search(words) else None)
    if words and kind is UnitKind.THUMB_DOWN:
        return Reading(Signature(Cause.RULE, Violated.WORDING, topic_of(words)), words)
    return Reading(Signature(Cause.UNCLEAR, Violated.UNSAID, text_kind(reply)))


def still_wrong(signature: Signature, reply: str, again: str, target: str | None) -> bool | None:
    """Whether a reply made again is wrong as the first was, by the eye that read the first; None: it cannot tell.

    ``target``: the owner's own version of the first.
    """
    if signature.violated is Violated.ENDING:
        last = again.strip().rsplit("\n", 1)[-1]
        return topic_of(last) != signature.topic
    if not target:
        return None
    if signature.violated is Violated.FACT:
        return not _told(reply, again, target)
    named = _KIN.get(signature.violated, (signature.violated,))
    shown = [each for each in named if each in _DIFFERS and _DIFFERS[each](reply, target)]
    if not shown and signature.violated in _DIFFERS:
        shown = [each for each in [_shape(reply, target)] if each in _DIFFERS]
    if not shown:
        # Nothing of it can be seen but that the very same was said again.
        return True if again.strip() == reply.strip() else None
    return any(_DIFFERS[each](again, target) for each in shown)


def _of_following(question: str, reply: str, following: str) -> Reading:
    """What the message that followed says of a reply: it was written to go on, and may hold anything.

    So only a sentence in the owner's own voice counts, and one that asks for the same thing again in other words
    ("a short list of rivers, please") is no rule for other replies.
    """
    asked = set(_WORD.findall(question.lower())) - _STOP
    for sentence in own_sentences(following):
        reading = of_words(sentence, question, reply)
        if reading is None:
            continue
        again = bool(asked & (set(_WORD.findall(sentence.lower())) - _STOP))
        if reading.signature.cause is not Cause.RULE or not (again or of_others(sentence)):
            return reading
    return Reading(Signature(Cause.UNCLEAR, Violated.UNSAID, text_kind(reply)))


def of_words(words: str, question: str = "", reply: str = "") -> Reading | None:
    """What the owner's words ask for; None where they name nothing."""
    place = text_kind(reply)
    reason = _HINTS.get(words)
    if reason is Reason.WRONG:
        return Reading(Signature(Cause.UNKNOWN_FACT, Violated.FACT, topic_of(question)))
    if reason is not None:
        return Reading(Signature(Cause.RULE, _OF_REASON[reason], place), words)
    for violated, pattern in _KEYWORDS:
        found = pattern.search(words)
        if found is not None:
            topic = topic_of(found[1]) if violated in (Violated.PHRASE, Violated.ENDING) else place
            return Reading(Signature(Cause.RULE, violated, topic), words)
    if _OWN_FACT.search(words):
        return Reading(Signature(Cause.OWN_FACT, Violated.FACT, topic_of(question or words)), words)
    if question and _TOLD_ANSWER.search(words):
        return Reading(Signature(Cause.WORLD_FACT, Violated.FACT, topic_of(question)), words)
    if question and _WRONG.search(words) and len(_WORD.findall(words)) <= 6:
        return Reading(Signature(Cause.UNKNOWN_FACT, Violated.FACT, topic_of(question)))
    return None


def _of_correction(question: str, reply: str, target: str, words: str | None) -> Reading:
    """``words``: what was asked for with it, in which no fault is named."""
    place = text_kind(reply)
    told = _MINE.search(question) and _ABOUT_YOU.search(target) and len(target.split()) <= _SHORT_FACT
    if place == PROSE and (told or _fact_put_right(reply, target)):
        return _fact(question, target)
    opening = _opening_dropped(reply, target)
    if opening is not None:
        return Reading(Signature(Cause.RULE, Violated.PHRASE, topic_of(opening)), words)
    shape = _shape(reply, target)
    return Reading(Signature(Cause.STYLE if shape is Violated.WORDING else Cause.RULE, shape, place), words)


def _fact(question: str, target: str) -> Reading:
    """What is right, in the owner's words; a topic of the owner's own is theirs."""
    cause = Cause.OWN_FACT if _MINE.search(question) else Cause.WORLD_FACT
    return Reading(Signature(cause, Violated.FACT, topic_of(question)), target)


def _fact_put_right(reply: str, target: str) -> bool:
    """Whether two short texts say the same but for names or numbers."""
    before, after = reply.split(), target.split()
    if not before or max(len(before), len(after)) > _SHORT_TEXT:
        return False
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < 0.5:
        return False
    changed = [(before[i:j], after[k:m]) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]
    new = [word for _, words in changed for word in words]
    return bool(new) and len(new) <= 4 and all(_CHANGES.search(word) for word in new)


def _opening_dropped(reply: str, target: str) -> str | None:
    """The first words of a reply, where the correction is the reply without them."""
    head, mark, rest = reply.strip().partition(" ")
    while mark and len(head) <= 60:
        if head.rstrip()[-1:] in ".!,:" and rest.strip() and target.strip().lower() == rest.strip().lower():
            return head
        more, mark, rest = rest.partition(" ")
        head = f"{head} {more}"
    return None


def _told(reply: str, again: str, target: str) -> bool:
    """Whether what a correction tells and the reply did not is in another reply."""
    known = {word.lower() for word in _WORD.findall(reply)} | _STOP
    new = [word for word in _WORD.findall(target) if word.lower() not in known]
    named = [word for word in new[1:] or new if _CHANGES.search(word)] or sorted(new, key=len)[-1:]
    return all(word.lower() in again.lower() for word in named)


def _shape(reply: str, target: str) -> Violated:
    """What differs most between a reply and its correction that code can see."""
    seen = (violated for violated, differs in _DIFFERS.items() if differs(reply, target))
    return next(seen, Violated.WORDING)


def _too_long(reply: str, target: str) -> bool:
    before, after = len(reply.split()), len(target.split())
    return before >= 20 and after <= 0.6 * before


def _unconverted(reply: str, target: str) -> bool:
    return bool(_IMPERIAL.search(reply) and not _IMPERIAL.search(target) and _METRIC.search(target))


def _around_code(text: str) -> bool:
    """Whether a text holds code between fences, and words around it."""
    return "```" in text and bool(_FENCE.sub("", text).strip())


def _respelt(reply: str, target: str) -> bool:
    """Whether a word of a reply stands in its correction in the other spelling."""
    before = {word.lower() for word in _WORD.findall(reply)}
    after = {word.lower() for word in _WORD.findall(target)}
    gone = before - after
    return any(
        word.replace(one, other) in after - before
        for word in gone
        for pair in _SPELT
        for one, other in (pair, pair[::-1])
        if one in word
    )


_DIFFERS: Mapping[Violated, Callable[[str, str], bool]] = {
    Violated.FORMAT: lambda reply, target: (
        target.lstrip()[:1] in ("{", "[") and reply.lstrip()[:1] not in ("{", "[")
    ),
    Violated.LANGUAGE: lambda reply, target: bool(_HANGUL.search(reply)) != bool(_HANGUL.search(target)),
    Violated.CODE_ALONE: lambda reply, target: _around_code(reply) and not _around_code(target),
    Violated.LIST: lambda reply, target: len(_MARKED.findall(reply)) >= 2 and not _MARKED.search(target),
    Violated.QUESTION: lambda reply, target: (
        target.rstrip().endswith("?") and not reply.rstrip().endswith("?")
    ),
    Violated.UNITS: _unconverted,
    Violated.TOO_LONG: _too_long,
    Violated.TOO_SHORT: lambda reply, target: _too_long(target, reply),
    Violated.SPELLING: _respelt,
}
"""Whether a reply is unlike its correction in what code can see, what weighs most first."""
