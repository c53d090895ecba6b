"""What clients send, checked once at the door: everything behind it works with values that are right.

An absent field and an explicit null are the same, as clients of the OpenAI interface expect; a field of the
wrong kind is named in the refusal. Text must be encodable: JSON can carry half a surrogate pair, SQLite cannot.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.host.events import TurnRequest
from app.host.jobs import DEFAULT_MAX_TOKENS, Sampling
from app.model.renderer import Turn
from store.errors import UsageError
from store.types import Role


class FieldError(UsageError):
    """A field of a request cannot be used; ``field`` is its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Limits:
    """How a reply is sampled, and its longest length in tokens."""

    sampling: Sampling
    max_tokens: int


def turn_request(body: object) -> TurnRequest:
    """The request of our own clients.

    Raises:
        UsageError: a field is of the wrong kind, or nothing is asked.
    """
    fields = mapping(body)
    request = TurnRequest(
        text=text(fields, "text"),
        conversation=text(fields, "conversation"),
        regenerate=text(fields, "regenerate"),
        continue_from=text(fields, "continue_from"),
        edit=text(fields, "edit"),
        extend=text(fields, "extend"),
        sampler=mapping(fields["sampler"]) if fields.get("sampler") is not None else None,
        incognito=flag(fields, "incognito"),
        incognito_turns=_plain_turns(fields.get("incognito_turns")),
        base=flag(fields, "base"),
        adapter=text(fields, "adapter"),
        strength=None if fields.get("strength") is None else _within(fields, "strength", 1.0, 0.0, 1.0),
        aside=flag(fields, "aside"),
        source=text(fields, "source") or "chat",
        items=_names(fields, "items"),
        typed=fields.get("typed") is None or flag(fields, "typed"),
        pasted=_names(fields, "pasted") or [],
    )
    if request.text is not None and not request.text.strip():
        raise FieldError("text", "the message is empty")
    if request.edit is not None and request.text is None:
        raise FieldError("text", "an edited message needs its new text")
    if not any((request.text, request.regenerate, request.continue_from, request.extend)):
        raise FieldError("text", "there is nothing to answer: give a text, or a message to answer again")
    if request.base and request.strength is not None:
        raise FieldError("strength", "the base model has no strength: leave out base, or strength")
    if request.incognito and request.text is None:
        raise FieldError("text", "an incognito request needs its text")
    return request


def limits(fields: Mapping[str, Any]) -> Limits:
    """Sampler settings by name: those of `Sampling`, and max_tokens. Absent ones have defaults.

    Raises:
        FieldError: not a number, or out of range.
    """
    plain = Sampling()
    seed = number(fields, "seed", None)
    sampling = Sampling(
        temperature=_within(fields, "temperature", plain.temperature, 0.0, 2.0),
        top_p=_within(fields, "top_p", plain.top_p, 0.0, 1.0),
        top_k=int(_within(fields, "top_k", plain.top_k, 0, 1_000_000)),
        repeat_penalty=_within(fields, "repeat_penalty", plain.repeat_penalty, 1.0, 2.0),
        presence_penalty=_within(fields, "presence_penalty", plain.presence_penalty, -2.0, 2.0),
        frequency_penalty=_within(fields, "frequency_penalty", plain.frequency_penalty, -2.0, 2.0),
        # Any integer is a seed; llama.cpp takes 32 bits of it.
        seed=secrets.randbits(32) if seed is None else int(seed) % 2**32,
    )
    return Limits(sampling, int(_within(fields, "max_tokens", DEFAULT_MAX_TOKENS, 1, 10_000_000)))


def mapping(value: object) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise FieldError("body", "the request must be a JSON object")
    return value


def text(fields: Mapping[str, Any], name: str) -> str | None:
    """A string field, or None."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise FieldError(name, f"{name} must be a string")
    return checked_text(name, value)


def checked_text(name: str, value: str) -> str:
    """The text itself, if it can be stored."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldError(name, f"{name} holds half a character (an unpaired surrogate)") from None
    return value


def flag(fields: Mapping[str, Any], name: str) -> bool:
    """A boolean field; absent is False."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise FieldError(name, f"{name} must be true or false")
    return bool(value)


def number(fields: Mapping[str, Any], name: str, default: float | None) -> float | None:
    """A finite number, or the default."""
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise FieldError(name, f"{name} must be a number")
    return value


def _names(fields: Mapping[str, Any], name: str) -> list[str] | None:
    """A list of strings, or None."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise FieldError(name, f"{name} must be a list of strings")
    return value


def _finite(value: float) -> bool:
    """Whether it is a number that others can work with; JSON can carry integers that no float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _within(fields: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = number(fields, name, default)
    assert value is not None
    if not low <= value <= high:
        raise FieldError(name, f"{name} must be between {low:g} and {high:g}, not {value:g}")
    return value


def _plain_turns(value: object) -> list[dict[str, str]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError("incognito_turns", "incognito_turns must be a list")
    turns = []
    for entry in value:
        fields = mapping(entry)
        turns.append({"role": text(fields, "role") or "", "content": text(fields, "content") or ""})
    return turns


def turns_of(plain: list[dict[str, str]]) -> list[Turn]:
    """Turns by role and content.

    Raises:
        FieldError: a role nobody has.
    """
    roles = {role.value: role for role in (Role.SYSTEM, Role.USER, Role.ASSISTANT)}
    for turn in plain:
        if turn["role"] not in roles:
            raise FieldError("role", f"a turn's role is system, user or assistant, not {turn['role']!r}")
    return [Turn(roles[turn["role"]], turn["content"]) for turn in plain]
