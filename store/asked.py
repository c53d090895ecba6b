"""What the owner asks for in so many words, once and for good: "remember that …", "always …", "from now on …".

Such a sentence needs no statistics: one is enough, and it is meant to hold from the next reply on. Precision comes
first all the same, because a rule that nobody asked for is worse than one that has to be asked for twice: the marker
must open the sentence, or be one that means nothing else, a question asks for nothing, and only what sounds like the
owner's own voice is read (`store.voice`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from store.causes import PROSE, Cause, Reading, Signature, Violated, of_words, topic_of
from store.voice import IN_QUOTES, of_others, own_sentences

NOTED, ABOUT = "asked", "about"
"""Under what a step of a conversation holds where in its message a request stands, and its signature."""

_REMEMBER = re.compile(
    r"^\W*(?:(?:and|also|please|oh)\W+)*(?:remember|keep in mind|don'?t forget|note|for the record)\b[\s,:]*"
    r"(?:that\b)?\s*(.+)"
    r"|^(.+?)[,.]?\s*(?:기억해|기억해\s*(?:줘|두\S*|주\S*)|잊지\s*마\S*)\W*$",
    re.IGNORECASE,
)
_ORDER = (
    r"(?:(?:and|also|please|so|ok|okay|no|thanks)\W+)*(?:you\s+(?:should|must)\s+)?(?:always|never)\s+"
    r"(?!mind\b|heard\b|\w+ed\b|been\b|had\b|knew\b|thought\b|saw\b|again\b|ever\b|a\b|an\b|the\b|in\b|on\b|at\b)\w"
)
_STANDING = re.compile(
    rf"^\W*{_ORDER}|\b(?:from now on|from here on|whenever you (?:answer|reply|write)|(?:every|each) time you)\b|"
    r"^\W*in (?:the )?future\b|^\W*(?:every|each) time i (?:ask|write|say)\b|"
    r"^\W*(?:앞으로|이제부터|다음부터)(?:는|도)?\s|(?:항상|언제나|절대)\s.*(?:해|해줘|줘|세요|하세요|마|마세요|말아\S*)\W*$",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"^\W*(?:(?:and|but|so|well|ok|okay)\W+)*(?:i|we|he|she|they|it|there|my|our|his|her|their|this|that|"
    r"the (?!answers?\b|repl|respon))\b(?!.*\b(?:you|answers?|reply|replies|want)\b)"
    r"|\b(?:from now on|from here on|in (?:the )?future)\W+(?:i|we|he|she|they|it|there|every(?:one|body)|people|"
    r"no ?body|no one|my|our|his|her|their|this|that|the (?!answers?\b|repl|respon)|all (?!answers\b|repl))\b",
    re.IGNORECASE,
)
"""What is told of somebody or something, and asks the one who reads it for nothing."""


@dataclass(frozen=True)
class Request:
    """One standing request: what it is about, and where in the message it stands, in characters."""

    reading: Reading
    span: tuple[int, int]


def standing(text: str) -> Request | None:
    """The first standing request of a message of the owner's, or None."""
    if not _any(text):
        return None
    for sentence in own_sentences(text):
        reading = _read(sentence)
        start = text.find(reading.said) if reading is not None and reading.said else -1
        if reading is not None and reading.said and start >= 0:
            return Request(reading, (start, start + len(reading.said)))
    return None


def _any(text: str) -> bool:
    """A cheap look: nearly every message has none of these."""
    return _MARKERS.search(text) is not None


_MARKERS = re.compile(
    r"remember|keep in mind|forget|note|record|always|never|from now on|from here on|future|every time|each time|"
    r"whenever|앞으로|이제부터|다음부터|항상|언제나|절대|기억|잊지",
    re.IGNORECASE,
)


def _read(sentence: str) -> Reading | None:
    remembered = _REMEMBER.match(sentence)
    if remembered is not None:
        fact = (remembered[1] or remembered[2]).strip()
        if re.match(r"(?:to|when|how|the time)\b", fact, re.IGNORECASE):
            # "Remember to answer in Korean" is a rule; "remember when we …" is talk.
            return _rule(fact[3:].strip()) if fact.lower().startswith("to ") else None
        as_rule = of_words(fact)
        if as_rule is not None and as_rule.signature.cause is Cause.RULE:
            return Reading(as_rule.signature, fact)
        if IN_QUOTES.search(fact):
            return None
        return Reading(Signature(Cause.OWN_FACT, Violated.FACT, topic_of(fact)), fact)
    return _rule(sentence) if _orders(sentence) else None


def _orders(sentence: str) -> bool:
    """Whether a sentence orders something for good, in its own words: what it only quotes or tells does not."""
    bare = IN_QUOTES.sub('""', sentence)
    marker = _STANDING.search(bare)
    if marker is None or _TELLS.search(bare) or of_others(bare):
        return False
    return not {":", "："} & set(bare[: marker.start()])


def _rule(sentence: str) -> Reading:
    known = of_words(sentence)
    if known is not None and known.signature.cause is Cause.RULE:
        return Reading(known.signature, sentence)
    return Reading(Signature(Cause.RULE, Violated.WORDING, topic_of(sentence) or PROSE), sentence)
