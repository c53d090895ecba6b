"""Our words in the OpenAI chat format, as pure functions.

The form follows what the official client parses: the role in the first chunk only, the finish reason in a chunk
of its own with an empty delta, usage only where asked for, one id and time for a whole stream. A call is named
in its first delta and identified by its index in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.host.events import Done, Scored
from app.host.openai_tools import Call, call_id
from app.host.reply_parts import Arguments, Called, Part, Said, Thought
from store.types import FinishReason


@dataclass(frozen=True)
class Head:
    """What all parts of one completion share. ``handle`` names the reply, also where it is not kept.

    ``mynah``: message, conversation and adapter of the reply.
    """

    id: str
    created: int
    model: str
    fingerprint: str
    handle: str
    mynah: dict[str, str | None]


@dataclass
class Spoken:
    """The parts of a reply, put together as one message."""

    said: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    arguments: list[list[str]] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Take in one part."""
        if isinstance(part, Said):
            self.said.append(part.text)
        elif isinstance(part, Thought):
            self.thought.append(part.text)
        elif isinstance(part, Called):
            self.names.append(part.name)
            self.arguments.append([])
        else:
            self.arguments[part.index].append(part.text)

    def message(self, head: Head) -> dict[str, Any]:
        """The message; its content is null where it only calls."""
        calls = [
            Call(call_id(head.handle, index), name, "".join(pieces)).as_json()
            for index, (name, pieces) in enumerate(zip(self.names, self.arguments, strict=True))
        ]
        content = "".join(self.said)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if calls:
            message["content"] = content or None
            message["tool_calls"] = calls
        if self.thought:
            message["reasoning_content"] = "".join(self.thought).strip()
        return message


def delta(head: Head, part: Part) -> dict[str, Any]:
    """One part of a reply as the change of a message."""
    if isinstance(part, Said):
        return {"content": part.text}
    if isinstance(part, Thought):
        return {"reasoning_content": part.text}
    if isinstance(part, Called):
        call = Call(call_id(head.handle, part.index), part.name, "")
        return {"tool_calls": [{"index": part.index, **call.as_json()}]}
    assert isinstance(part, Arguments)
    return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}


def completion(head: Head, done: Done, spoken: Spoken, scored: Sequence[Scored] | None) -> dict[str, Any]:
    """A whole reply. ``scored`` None: no log-probabilities were asked for."""
    choice = {
        "index": 0,
        "message": spoken.message(head),
        "logprobs": None if scored is None else logprobs(scored),
        "finish_reason": finish_reason(done.finish_reason, len(spoken.names)),
    }
    return {
        **_frame(head, "chat.completion"),
        "choices": [choice],
        "usage": usage(done),
        "timings": done.timings,
        "mynah": head.mynah,
    }


def chunk(
    head: Head,
    change: dict[str, Any],
    finish: str | None,
    include_usage: bool,
    scored: Sequence[Scored] = (),
) -> dict[str, Any]:
    """One part of a streamed reply."""
    choice = {
        "index": 0,
        "delta": change,
        "logprobs": logprobs(scored) if scored else None,
        "finish_reason": finish,
    }
    content: dict[str, Any] = {**_frame(head, "chat.completion.chunk"), "choices": [choice]}
    if include_usage:
        content["usage"] = None
    # Where a client finds the message to give feedback on: with the role, and again with the end.
    if "role" in change or finish is not None:
        content["mynah"] = head.mynah
    return content


def usage_chunk(head: Head, done: Done) -> dict[str, Any]:
    """The chunk after the last, for clients that asked for it."""
    return {**_frame(head, "chat.completion.chunk"), "choices": [], "usage": usage(done)}


def usage(done: Done) -> dict[str, Any]:
    """Token counts."""
    counts = {name: done.usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return {**counts, "prompt_tokens_details": {"cached_tokens": done.usage.get("cached_tokens", 0)}}


def logprobs(scored: Sequence[Scored]) -> dict[str, Any]:
    """Log-probabilities of tokens; a token that is part of a character reads as a replacement, its bytes do not."""
    content = [
        {
            **_score(token.piece, token.logprob),
            "top_logprobs": [_score(piece, logprob) for piece, logprob in token.likeliest],
        }
        for token in scored
    ]
    return {"content": content, "refusal": None}


def _score(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": piece.decode(errors="replace"), "logprob": logprob, "bytes": list(piece)}


def finish_reason(reason: str, calls: int = 0) -> str:
    """One of the words clients know: a reply that was stopped from elsewhere was cut to a length."""
    if reason != FinishReason.STOP:
        return "length"
    return "tool_calls" if calls else "stop"


def error_body(
    message: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error as clients of this interface parse it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _frame(head: Head, kind: str) -> dict[str, Any]:
    return {
        "id": head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.fingerprint,
    }
