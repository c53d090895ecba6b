"""What is asked for, and what happens during a reply: the one vocabulary of engine, wire and client.

Five kinds of event, typed on both ends, so that a field that is renamed is a type error and not a silent blank
in the chat. A stream is ``Queued Started Token* (Done | Failed)``; where nothing could start, ``Failed`` comes at
once or after ``Queued``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from store.errors import MynahError
from store.failures import class_of
from store.types import ErrorClass


@dataclass(frozen=True)
class TurnRequest:
    """What to answer. Exactly one of: a ``text``, a reply to ``regenerate`` or ``extend``, a message to answer again.

    ``continue_from`` alone answers that user message; with ``text`` it is the message under which the text is
    put, which makes a branch. ``edit`` is the owner's message that ``text`` is put beside. ``extend`` names a reply
    that was cut: the new one beside it begins with the same tokens and goes on. ``sampler`` may hold temperature,
    top_p, top_k, the three penalties, seed and max_tokens; the rest is the host's default. With ``incognito`` nothing
    is kept, so the earlier turns come along with the request. ``base`` or an ``adapter`` id answers with that instead
    of what serves, and ``strength`` (0 to 1) at that instead of the owner's choice; ``aside`` lets every other request
    go first. ``items`` are the ids of the memories, rules and guards that hold for this turn, in the place of those
    that are active, of which none do for ``base``, an ``adapter`` or an ``aside``, and no memory does in incognito.
    ``typed``: the text came from a keyboard, so that what it states of its writer may be remembered, but for what was
    ``pasted`` into it. ``source`` names the kind of client (chat, cli) that a new conversation is listed with.
    """

    text: str | None = None
    conversation: str | None = None
    regenerate: str | None = None
    continue_from: str | None = None
    edit: str | None = None
    extend: str | None = None
    sampler: dict[str, float | int] | None = None
    incognito: bool = False
    incognito_turns: list[dict[str, str]] = field(default_factory=list)
    base: bool = False
    adapter: str | None = None
    strength: float | None = None
    aside: bool = False
    source: str = "chat"
    items: list[str] | None = None
    typed: bool = True
    pasted: list[str] = field(default_factory=list)

    def resumed(self, seen: Queued | Started | None) -> TurnRequest:
        """The same request for a new host, once the question itself is known to be saved."""
        if seen is None or seen.user_message is None or self.regenerate or self.extend:
            return self
        fields = {**asdict(self), "conversation": seen.conversation, "continue_from": seen.user_message}
        return TurnRequest(**{**fields, "text": None, "edit": None})


@dataclass(frozen=True)
class Queued:
    """The question is saved and waits for ``ahead`` replies of others; None where nothing is kept."""

    ahead: int
    conversation: str | None = None
    user_message: str | None = None


@dataclass(frozen=True)
class Started:
    """The reply begins. ``message`` is its row, and ``job`` its handle for `stop`, also when nothing is kept.

    ``left_out``: earlier messages that did not fit, the first ``summarised`` of which the model was told in short.
    """

    job: str
    conversation: str | None
    user_message: str | None
    message: str | None
    adapter: str | None
    left_out: int = 0
    summarised: int = 0


@dataclass(frozen=True)
class Scored:
    """One sampled token: its bytes and natural log-probability, and the same of the likeliest in its place."""

    piece: bytes
    logprob: float
    likeliest: tuple[tuple[bytes, float], ...] = ()


@dataclass(frozen=True)
class Token:
    """A piece of text: whole characters, one or more tokens. ``scored``: these tokens, where a job asks for them."""

    text: str
    scored: tuple[Scored, ...] = ()


@dataclass(frozen=True)
class Done:
    """The reply ended, by itself, at its length or stopped: the object `mynah ask --json` prints.

    ``notes``: what a guard found wrong with it and could not put right. ``left_out``, ``summarised``: see `Started`.
    ``remembered``: ``id`` and ``text`` of what is known of the owner from now on, because of this question.
    ``usage``: prompt_tokens, completion_tokens, total_tokens, cached_tokens. ``timings``: seconds ``queued``,
    ``prompt`` (until the prompt is evaluated), ``first_token`` (from the request), ``total``; and
    ``tokens_per_second`` of decoding.
    """

    conversation: str | None
    message: str | None
    text: str
    adapter: str | None
    finish_reason: str
    usage: dict[str, int]
    timings: dict[str, float]
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    summarised: int = 0
    remembered: list[dict[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """As it is printed; of notes, of what was left out and what is remembered only where there is some."""
        content = asdict(self)
        return {name: value for name, value in content.items() if value or name not in _ONLY_WHERE_SO}


_ONLY_WHERE_SO = ("notes", "left_out", "summarised", "remembered")


@dataclass(frozen=True)
class Failed:
    """No reply, or no whole one: why, for the owner, and the exit code that says the same to a script."""

    error_class: ErrorClass
    message: str
    exit_code: int = 1


TurnEvent = Queued | Started | Token | Done | Failed

_NAMES: dict[type[TurnEvent], str] = {
    Queued: "queued",
    Started: "start",
    Token: "token",
    Done: "done",
    Failed: "error",
}
_TYPES: dict[str, type[TurnEvent]] = {name: kind for kind, name in _NAMES.items()}


def to_wire(event: TurnEvent) -> str:
    """An event as one line of JSON."""
    # Our own clients ask for no scores; and copying a token field by field would cost more than sending it.
    if isinstance(event, Token):
        content: dict[str, Any] = {"text": event.text}
    else:
        content = event.as_json() if isinstance(event, Done) else asdict(event)
    if isinstance(event, Failed):
        content["class"] = content.pop("error_class")
    return json.dumps({"event": _NAMES[type(event)], **content}, ensure_ascii=False, separators=(",", ":"))


def from_wire(line: str) -> TurnEvent | None:
    """The event a line holds; None for a kind that this version does not know.

    Raises:
        ValueError: the line is not an event.
    """
    found: dict[str, Any] = json.loads(line)
    kind = _TYPES.get(str(found.pop("event", "")))
    if kind is None:
        return None
    if kind is Failed:
        found["error_class"] = _error_class(found.pop("class", None))
    known = {each.name: found[each.name] for each in fields(kind) if each.name in found}
    try:
        return kind(**known)
    except TypeError as error:
        raise ValueError(f"not an event: {error}") from error


def _error_class(value: object) -> ErrorClass:
    try:
        return ErrorClass(str(value))
    except ValueError:
        return ErrorClass.UNKNOWN


def failure_of(error: BaseException) -> Failed:
    """The event for an exception: ours keep their words and exit code, others are named by their type."""
    kind = class_of(error)
    if isinstance(error, MynahError):
        return Failed(kind, str(error), error.exit_code)
    return Failed(
        kind, f"the model host failed ({type(error).__name__}: {error}): see `mynah locate` for its log"
    )
