"""Which sentences of a message state a lasting fact or preference of the one who wrote it, in English and in Korean.

Rules and not a model: a small model writes down what was never said, and a rule can be read. They are narrow on
purpose. A memory that is missed is said again; one that is false, or that somebody else put there, is worse than
none. So a statement stands at the beginning of a sentence, is no question, and is not within quotation marks; after a
line that ends with a colon, and in a message that asks for something to be translated, summarised or mended, the rest
is material; and a message longer than people type when they tell of themselves is taken for pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.harness.recall import FACT, PREFERENCE
from app.harness.sentences import sentences
from store.voice import IN_QUOTES, own_lines

MOST = 3
DAY = 86400.0
_STATED, _ASKED, _PREFERRED = 0.9, 1.0, 0.7
_PREFERENCE_SECONDS = 365 * DAY
_SOON_SECONDS = 7 * DAY

_LEAD = (
    r"^(?:(?:hi|hello|hey|ok|okay|well|so|and|also|btw|oh|please|actually|by the way|just so you know|for the record|"
    r"저기|참고로|그리고|아|참)[,!.]?\s+)*"
)
_SHORT = r"[^,.;:!?\n\"“”]{1,60}"
_SOON = re.compile(
    r"\b(?:today|tonight|tomorrow|this (?:week|weekend|morning|afternoon|evening))\b|오늘|내일|모레|이번\s*주"
)
_VAGUE = re.compile(
    r"^(?:the|this|that|it|these|those|them|your|you|how|what|when|to|not|if|all)\b|^(?:그|이|저)(?:것|거|게)?$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Statement:
    """One statement: what it is about, in the words it was made in, and for how long it is likely to hold."""

    topic: str
    text: str
    value_type: str
    confidence: float
    seconds: float | None = None


@dataclass(frozen=True)
class _Rule:
    """``topic`` may name groups of the pattern in braces."""

    pattern: re.Pattern[str]
    topic: str
    value_type: str = FACT
    confidence: float = _STATED


def _rule(pattern: str, topic: str, value_type: str = FACT, confidence: float = _STATED) -> _Rule:
    return _Rule(re.compile(_LEAD + pattern, re.IGNORECASE), topic, value_type, confidence)


_END = r"\s*[.!~。]*\s*$"
_I = r"I(?:'m|’m| am)"
_KO_I = r"(?:저는|나는|전|난|저|나)\s+"
_KO_MY = r"(?:제|내|저의|나의)\s+"
_KO_ONE = r"[^\s,.!?]{1,20}"
_KO_NONE_ELSE = r"(?<![은는이가])"
"""Not another's: a word with the mark of a subject would make it a statement about somebody else."""

_KO_IS = r"(?:입니다|이에요|예요|이예요|에요|이야|야|이라고\s*(?:해요?|합니다)|라고\s*(?:해요?|합니다))"

_RULES = (
    _rule(rf"(?P<said>my name is (?P<v>{_SHORT}))", "name"),
    _rule(rf"(?P<said>(?:(?:you can|please) )?call me (?P<v>{_SHORT}))", "name"),
    _rule(r"(?P<said>I live in (?P<v>[^.;:!?\n\"]{1,60}))", "home"),
    _rule(rf"(?P<said>{_I} allergic to (?P<v>[^.;:!?\n\"]{{1,60}}))", "allergy {v}"),
    _rule(
        rf"(?P<said>{_I} (?:an? )?(?P<v>vegetarian|vegan|pescatarian|coeliac|celiac|diabetic|lactose[- ]intolerant))",
        "diet",
    ),
    _rule(
        rf"(?P<said>I (?:don't|don’t|do not|can't|can’t|cannot) (?:eat|drink) (?P<v>{_SHORT}))", "diet {v}"
    ),
    _rule(rf"(?P<said>my birthday is (?:on )?(?P<v>{_SHORT}(?:,\s*\d{{4}})?))", "birthday"),
    _rule(rf"(?P<said>I was born (?:on|in) (?P<v>{_SHORT}(?:,\s*\d{{4}})?))", "born"),
    _rule(r"(?P<said>I work (?:as|at|for) (?P<v>[^.;:!?\n\"]{1,60}))", "work"),
    _rule(rf"(?P<said>my native language is (?P<v>{_SHORT}))", "native language"),
    _rule(
        rf"(?P<said>my (?P<n>(?:\w+(?:['’]s)? )?(?:name|wife|husband|partner|son|daughter|dog|cat|brother|sister|"
        rf"mother|father|boss|doctor|timezone|time zone|city|address|job|hobby)(?:['’]s name)?) is (?:called |named )?"
        rf"(?P<v>{_SHORT}))",
        "my {n}",
    ),
    _rule(
        rf"(?P<said>my fav(?:ou?)rite (?P<n>\w+(?: \w+)?) is (?P<v>{_SHORT}))", "favourite {n}", PREFERENCE
    ),
    _rule(r"(?P<said>I prefer (?P<v>[^.;:!?\n\"]{1,60}))", "prefer {v}", PREFERENCE, _PREFERRED),
    _rule(
        r"(?:please )?(?:remember|don't forget|don’t forget|keep in mind|note) that (?P<said>(?P<v>[^\n]{3,200}?))",
        "note {v}",
        FACT,
        _ASKED,
    ),
    _rule(r"(?:please )?remember(?: this)?:\s*(?P<said>(?P<v>[^\n]{3,200}?))", "note {v}", FACT, _ASKED),
    _rule(rf"(?P<said>{_KO_MY}이름은\s+(?P<v>\S{{1,20}}?){_KO_IS})", "name"),
    _rule(
        rf"(?P<said>(?:{_KO_I}(?:{_KO_ONE}{_KO_NONE_ELSE}\s)?)?(?P<v>{_KO_ONE})에(?:서)?\s+"
        r"(?:살아요?|삽니다|살고\s*있(?:어요?|습니다|어)))",
        "home",
    ),
    _rule(
        rf"(?P<said>(?:{_KO_I})?(?P<v>[^\s,.!?]{{1,20}}?){_KO_NONE_ELSE}(?:에|에는)?\s*(?:알레르기|알러지)가\s*"
        r"있(?:어요?|습니다|다|음))",
        "allergy {v}",
    ),
    _rule(rf"(?P<said>{_KO_MY}생일은\s+(?P<v>[^,.!?\n]{{1,30}}?){_KO_IS})", "birthday"),
    _rule(rf"(?P<said>{_KO_I}(?P<v>채식주의자|비건|당뇨\s*환자){_KO_IS})", "diet"),
    _rule(
        rf"(?P<said>{_KO_I}(?P<v>[^,.!?\n]{{1,30}}?)(?:을|를)\s*(?:못|안)\s*"
        r"(?:먹어요?|먹습니다|마셔요?|마십니다))",
        "diet {v}",
    ),
    _rule(
        rf"(?P<said>{_KO_I}(?P<v>[^,.!?\n]{{1,30}}?)(?:에서|으로|로)\s*일(?:해요?|합니다|하고\s*있(?:어요?|습니다)))",
        "work",
    ),
    _rule(
        rf"(?P<said>{_KO_I}(?P<v>[^,.!?\n]{{1,30}}?)(?:을|를)\s*(?:더\s*)?"
        r"(?:선호해요?|선호합니다|제일\s*좋아해요?|제일\s*좋아합니다))",
        "prefer {v}",
        PREFERENCE,
        _PREFERRED,
    ),
    _rule(r"기억해\s*(?:줘|주세요|둬)\s*[:,]\s*(?P<said>(?P<v>[^\n]{2,120}?))", "note {v}", FACT, _ASKED),
    _rule(
        r"(?P<said>(?P<v>[^\n]{2,120}?))(?:라는|다는|는)\s*(?:걸|것을|거)\s*기억해\s*(?:줘(?:요)?|주세요|둬)",
        "note {v}",
        FACT,
        _ASKED,
    ),
)
_WHOLE = tuple(
    _Rule(
        re.compile(rule.pattern.pattern + _END, re.IGNORECASE), rule.topic, rule.value_type, rule.confidence
    )
    for rule in _RULES
)
_TRIGGER = re.compile(
    r"\bmy\b|\bcall me\b|\bI\b.{0,20}\b(?:live|am|allergic|vegetarian|vegan|don|do|can|was|work|prefer)|\bI['’]m\b|"
    r"\b(?:remember|forget|keep in mind|note that)\b|"
    r"이름|살|알레르기|알러지|생일|채식|비건|당뇨|먹|마|일|선호|좋아|기억",
    re.IGNORECASE,
)


def stated(message: str) -> list[Statement]:
    """What a message states of its writer that is worth remembering, at most three, in its order."""
    if not _TRIGGER.search(message):
        return []
    found: dict[str, Statement] = {}
    for sentence in _sentences(message):
        statement = _statement(sentence)
        if statement is not None:
            found.setdefault(statement.topic, statement)
    return list(found.values())[:MOST]


def _sentences(message: str) -> Iterator[str]:
    """The sentences that are the writer's own voice, with nothing between quotation marks in them."""
    for line in own_lines(message):
        for sentence in sentences(line):
            said = sentence.strip()
            if said and not said.endswith(("?", "？")) and not IN_QUOTES.search(said):
                yield said


def _statement(sentence: str) -> Statement | None:
    for rule in _WHOLE:
        found = rule.pattern.match(sentence)
        if found is None or (rule.confidence != _ASKED and _VAGUE.match(found["v"].strip())):
            continue
        said = found["said"].strip()
        if rule.confidence == _ASKED:
            # What is to be remembered may be one of the things that are known by name.
            inner = _named(said)
            if inner is not None:
                return Statement(
                    inner.topic, said, inner.value_type, _ASKED, _seconds(inner.value_type, said)
                )
        topic = rule.topic.format(**{name: value or "" for name, value in found.groupdict().items()})
        return Statement(topic, said, rule.value_type, rule.confidence, _seconds(rule.value_type, said))
    return None


def _named(said: str) -> Statement | None:
    for rule in _WHOLE:
        found = rule.pattern.match(said) if rule.confidence != _ASKED else None
        if found is not None:
            topic = rule.topic.format(**{name: value or "" for name, value in found.groupdict().items()})
            return Statement(topic, said, rule.value_type, _ASKED)
    return None


def _seconds(value_type: str, said: str) -> float | None:
    if _SOON.search(said):
        return _SOON_SECONDS
    return _PREFERENCE_SECONDS if value_type == PREFERENCE else None
