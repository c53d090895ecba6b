"""The OpenAI chat format as pure functions: requests in, our words out, and back.

The form follows what the official client parses: the role in the first chunk only, the finish reason in a chunk
of its own with an empty delta, usage only where asked for, one id and time for a whole stream. What would change
the meaning of a request and cannot be honoured is refused; what is harmless is ignored; null is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.host.events import Done
from app.host.requests import FieldError, Limits, checked_text, flag, limits, mapping, number, text
from app.model.renderer import Turn
from store.types import FinishReason, Role

_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
_MAX_STOPS = 16
# Each changes what a reply means, and none is supported: the value that asks for nothing passes.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
}


@dataclass(frozen=True)
class Call:
    """One chat request. ``model`` None takes what is served; ``client`` tells callers apart for fairness.

    ``stored`` is False where the caller says ``"store": false``: then nothing of it is ever written.
    """

    model: str | None
    turns: list[Turn]
    limits: Limits
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    client: str | None
    stored: bool = True


@dataclass(frozen=True)
class Head:
    """What all parts of one completion share. ``mynah``: message, conversation and adapter of the reply."""

    id: str
    created: int
    model: str
    fingerprint: str
    mynah: dict[str, str | None]


def call_of(fields: Mapping[str, Any]) -> Call:
    """A chat request, checked.

    Raises:
        FieldError: with the name of the field that cannot be used.
    """
    for name, neutral in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and value not in neutral:
            raise FieldError(name, f"{name} is not supported here: leave it out")
    stream = flag(fields, "stream")
    options = fields.get("stream_options")
    longest = number(fields, "max_completion_tokens", number(fields, "max_tokens", None))
    return Call(
        model=text(fields, "model"),
        turns=_turns(fields.get("messages")),
        limits=limits({**fields, "max_tokens": longest}),
        stops=_stops(fields.get("stop")),
        stream=stream,
        include_usage=options is not None and flag(mapping(options), "include_usage"),
        client=text(fields, "user"),
        stored=fields.get("store") is None or flag(fields, "store"),
    )


def _turns(messages: object) -> list[Turn]:
    if not isinstance(messages, list) or not messages:
        raise FieldError("messages", "messages must be a list with at least one message")
    system: list[str] = []
    turns: list[Turn] = []
    for index, entry in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(entry, dict):
            raise FieldError(where, f"{where} must be an object")
        role = _ROLES.get(str(entry.get("role")))
        if role is None:
            raise FieldError(f"{where}.role", f"{where}.role must be one of {', '.join(_ROLES)}")
        if role is Role.USER and entry.get("content") is None:
            raise FieldError(f"{where}.content", f"{where}.content is missing: there is nothing to answer")
        content = _content(f"{where}.content", entry.get("content"))
        if role is Role.SYSTEM:
            system.append(content)
        else:
            turns.append(Turn(role, content))
    if not turns or turns[-1].role is not Role.USER:
        raise FieldError("messages", "the last message must be the user's")
    # One system message, at the front, wherever the client put them: templates accept no other place.
    return [Turn(Role.SYSTEM, "\n\n".join(system)), *turns] if system else turns


def _content(where: str, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return checked_text(where, content)
    if not isinstance(content, list):
        raise FieldError(where, f"{where} must be a string or a list of parts")
    pieces = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise FieldError(where, f"{where} may hold text parts only: this model reads no images or sounds")
        pieces.append(checked_text(where, part["text"]))
    return "".join(pieces)


def _stops(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    found = [stop] if isinstance(stop, str) else stop
    if (
        not isinstance(found, list)
        or not all(isinstance(each, str) for each in found)
        or len(found) > _MAX_STOPS
    ):
        raise FieldError("stop", f"stop must be a string, or a list of at most {_MAX_STOPS} strings")
    return tuple(each for each in found if each)


def completion(head: Head, done: Done) -> dict[str, Any]:
    """A whole reply."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": done.text, "refusal": None},
        "logprobs": None,
        "finish_reason": finish_reason(done.finish_reason),
    }
    return {
        **_frame(head, "chat.completion"),
        "choices": [choice],
        "usage": usage(done),
        "timings": done.timings,
        "mynah": head.mynah,
    }


def chunk(head: Head, delta: dict[str, str], finish: str | None, include_usage: bool) -> dict[str, Any]:
    """One part of a streamed reply."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    content: dict[str, Any] = {**_frame(head, "chat.completion.chunk"), "choices": [choice]}
    if include_usage:
        content["usage"] = None
    # Where a client finds the message to give feedback on: with the role, and again with the end.
    if "role" in delta or finish is not None:
        content["mynah"] = head.mynah
    return content


def usage_chunk(head: Head, done: Done) -> dict[str, Any]:
    """The chunk after the last, for clients that asked for it."""
    return {**_frame(head, "chat.completion.chunk"), "choices": [], "usage": usage(done)}


def usage(done: Done) -> dict[str, Any]:
    """Token counts."""
    counts = {name: done.usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return {**counts, "prompt_tokens_details": {"cached_tokens": done.usage.get("cached_tokens", 0)}}


def finish_reason(reason: str) -> str:
    """One of the words clients know: a reply that was stopped from elsewhere was cut to a length."""
    return "stop" if reason == FinishReason.STOP else "length"


def error_body(
    message: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error as clients of this interface parse it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def model_object(name: str, created: int) -> dict[str, Any]:
    """One entry of the list of models."""
    return {"id": name, "object": "model", "created": created, "owned_by": "mynah"}


def _frame(head: Head, kind: str) -> dict[str, Any]:
    return {
        "id": head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.fingerprint,
    }
