"""What each knob could be set to for a signature: bodies of items, made of the owner's own words by fixed templates.

A proposal is never written by a model. Where the owner said how replies should be, the words are the rule; where it
was only shown, the rule is one of the few sentences that stand for what code can see. Each offer names the message or
rating it rests on, and the store refuses it where that is not the owner's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.harness import guards
from store import causes, conversations, items, signals
from store.causes import Cause, Signature, Violated
from store.control import Knob
from store.db import Store
from store.deciding import CHECKABLE
from store.evidence import Failure, Request
from store.items import Source
from store.reasons import REASONS, Reason
from store.types import ItemKind, Role, SignalSource

LONGEST = 240
_LOOKED_AT = 3
KINDS: Mapping[Knob, ItemKind] = {
    Knob.MEMORY: ItemKind.MEMORY,
    Knob.INSTRUCTION: ItemKind.INSTRUCTION,
    Knob.GUARD: ItemKind.GUARD,
}

_SHOWN: Mapping[Violated, str] = {
    Violated.TOO_LONG: REASONS[Reason.SHORTER].hint,
    Violated.TOO_SHORT: REASONS[Reason.LONGER].hint,
    Violated.HARD_WORDS: REASONS[Reason.SIMPLER].hint,
    Violated.LIST: REASONS[Reason.NO_LIST].hint,
    Violated.LANGUAGE: REASONS[Reason.OTHER_LANGUAGE].hint,
    Violated.CODE_ALONE: "Where code is asked for, answer with the code alone.",
    Violated.QUESTION: "End each reply with one question.",
    Violated.UNITS: "Use metric units.",
}
_PREFERS = re.compile(r"\b(?:i (?:prefer|like|love|hate|want)|my favou?rite)\b|좋아|싫어|선호", re.IGNORECASE)
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_COUNT = rf"(\d{{1,4}}|{'|'.join(_COUNTS)})"
_NUMBER = re.compile(
    rf"\b{_COUNT}(?: or {_COUNT})? (?:short )?(word|sentence)s?\b(?: or {_COUNT}\b)?", re.IGNORECASE
)
_METRIC = re.compile(r"metric|celsius|met(?:re|er)s|kilograms|\b(?:km|kg|cm)\b|미터법")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_LANGUAGES = {
    "english": "en",
    "korean": "ko",
    "german": "de",
    "french": "fr",
    "spanish": "es",
    "japanese": "ja",
    "chinese": "zh",
    "한국": "ko",
    "영어": "en",
    "일본": "ja",
}


@dataclass(frozen=True)
class Offer:
    """One proposal, ready to be added as an item."""

    knob: Knob
    topic: str
    body: dict[str, Any]
    source: Source
    confidence: float


def of(
    store: Store, signature: Signature, failures: Sequence[Failure], request: Request | None
) -> dict[Knob, Offer]:
    """What could be proposed for a signature; the newest words count."""
    said, source = _words(store, failures, request)
    bodies: dict[Knob, dict[str, Any]] = {}
    if said is not None and len(said) <= LONGEST:
        if signature.cause.of_facts:
            kind = "preference" if _PREFERS.search(said) else "fact"
            bodies[Knob.MEMORY] = {"text": said, "value_type": kind}
        elif signature.cause in (Cause.RULE, Cause.STYLE):
            bodies[Knob.INSTRUCTION] = {"text": said}
    if said is None and signature.cause is Cause.RULE and signature.violated in _SHOWN:
        bodies[Knob.INSTRUCTION] = {"text": _SHOWN[signature.violated]}
    if signature.violated in CHECKABLE and signature.cause is Cause.RULE:
        guard = _guard(
            store, signature, failures, [said or "", *(each.said or "" for each in reversed(failures))]
        )
        if guard is not None:
            bodies[Knob.GUARD] = guard
    if source is None:
        return {}
    topic = f"{signature.violated}-{signature.topic}"
    confidence = 1.0 if request is not None else 0.8 if said is not None else 0.5
    return {knob: Offer(knob, topic, body, source, confidence) for knob, body in bodies.items()}


def _words(
    store: Store, failures: Sequence[Failure], request: Request | None
) -> tuple[str | None, Source | None]:
    """What the owner said last, and where it stands; where nothing was said, the newest that was shown."""
    if request is not None:
        return request.said, items.from_message(store, request.message, request.span)
    for failure in sorted(failures, key=lambda each: (each.said is not None, each.place), reverse=True):
        found = _source(store, failure)
        if found is not None:
            return failure.said, found
    return None, None


def _source(store: Store, failure: Failure) -> Source | None:
    """The rating, correction or next message of the owner's that a failure was read from."""
    owner = [each for each in signals.all_of(store, failure.message) if each.source is SignalSource.USER]
    if owner and (failure.said is None or any(failure.said in (each.text or "") for each in owner)):
        return items.from_signal(store, owner[-1].id)
    for message in conversations.children(store, failure.message):
        if message.role is Role.USER and (failure.said is None or failure.said in message.text):
            return items.from_message(store, message.id)
    return None


def _guard(
    store: Store, signature: Signature, failures: Sequence[Failure], said: Sequence[str]
) -> dict[str, Any] | None:
    """A guard's body; ``said``: what the owner said of it, the newest first."""
    words = " ".join(said).lower()
    match signature.violated:
        case Violated.TOO_LONG:
            return {"template": "length", "parameters": _binding(store, failures, _length(failures, said))}
        case Violated.LIST:
            return {"template": "no_list", "parameters": {}}
        case Violated.CODE_ALONE:
            return {"template": "code_only", "parameters": {"without_code": "passed"}}
        case Violated.FORMAT if not words.strip() or "json" in words:
            return {"template": "json_schema", "parameters": {"schema": {}}}
        case Violated.PHRASE:
            quoted = causes.QUOTED.search(said[0])
            phrase = quoted[1] if quoted is not None else signature.topic.replace("-", " ")
            return {"template": "forbidden", "parameters": {"phrases": [phrase]}}
        case Violated.ENDING:
            return _ending(signature, failures, said)
        case Violated.QUESTION:
            return {"template": "ends_with_question", "parameters": {}}
        case Violated.UNITS if not words.strip() or _METRIC.search(words):
            return {"template": "units", "parameters": _variant(words)}
        case Violated.SPELLING if _variant(words):
            return {"template": "spelling", "parameters": _variant(words)}
        case Violated.LANGUAGE:
            code = next((code for name, code in _LANGUAGES.items() if name in words), None)
            if code is None and any(_HANGUL.search(each.target or "") for each in failures):
                code = "ko"
            return None if code is None else {"template": "language", "parameters": {"language": code}}
        case _:
            return None


def _variant(words: str) -> dict[str, str]:
    """The spelling that is named, as a parameter; nothing where none is or both are."""
    named = [
        name for name in ("british", "american") if f"{name} spelling" in words or f"{name} english" in words
    ]
    return {"variant": named[0]} if len(named) == 1 else {}


def _ending(signature: Signature, failures: Sequence[Failure], said: Sequence[str]) -> dict[str, Any] | None:
    """The words that stand at the end, on a line of their own where they do in the owner's versions."""
    named = (found[1] for each in said for found in causes.QUOTED.finditer(each))
    phrase = next((each for each in named if causes.topic_of(each) == signature.topic), None)
    if phrase is None:
        return None
    shown = [each.target.rstrip() for each in failures if each.target]
    own_line = any(each.endswith("\n" + phrase) for each in shown) or any("line" in each for each in said)
    return {"template": "must_end_with", "parameters": {"text": "\n" + phrase if own_line else phrase}}


def _binding(store: Store, failures: Sequence[Failure], limits: dict[str, int]) -> dict[str, int]:
    """Limits that the replies which were too long go beyond; half of the shortest in words where they do not."""
    replies = [conversations.get_message(store, each.message).text for each in failures[-_LOOKED_AT:]]
    check = guards.TEMPLATES["length"].check
    if all(check(reply, limits) is not None for reply in replies):
        return limits
    return {**limits, "words": max(1, min(len(reply.split()) for reply in replies) // 2)}


def _length(failures: Sequence[Failure], said: Sequence[str]) -> dict[str, int]:
    """Bounds from the owner's words, and a third above the longest that the owner wrote instead."""
    limits: dict[str, int] = {}
    named = next(filter(None, map(_NUMBER.search, said)), None)
    if named is not None:
        numbers = [_COUNTS.get(found.lower()) or int(found) for found in named.group(1, 2, 4) if found]
        limits[f"{named[3].lower()}s"] = max(1, *numbers)
    lengths = [len(each.target.split()) for each in failures if each.target]
    if lengths:
        limits.setdefault("words", round(max(lengths) * 4 / 3))
    return limits or {"sentences": 2}
