"""Reads ATIF trajectories: our own exports into the same trees, those of other agents into lines of messages.

Our exports say under the key "mynah" of `extra` which message each step was and whose child. The branches of one
conversation are lines that follow one another; together they are one draft. A foreign trajectory has no branches:
each step is a message, and what a step observed is a tool's message after it.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

from store.exchange import steps
from store.exchange.atif import NAMESPACE
from store.exchange.drafts import (
    BadEntry,
    Draft,
    DraftMessage,
    Occurrences,
    Source,
    clean,
    line,
    moment,
    one_line,
    text_or_none,
)
from store.types import ErrorClass, FinishReason, MessageStatus, Role, SignalKind, SignalSource

_TEXT_FACTS = ("base_hash", "adapter", "template", "error")
_JSON_FACTS: dict[str, type] = {"sampler": dict, "context_items": list, "usage": dict, "timings": dict}
_OURS = re.compile("[cms][0-9a-z]{10}")
_ROLES = {"system": Role.SYSTEM, "user": Role.USER, "agent": Role.ASSISTANT}


def ours(entry: Mapping[str, Any]) -> str | None:
    """The conversation of ours that a trajectory is a branch of, or None for another program's."""
    mark = (entry.get("extra") or {}).get(NAMESPACE) if isinstance(entry.get("extra"), dict) else None
    session = entry.get("session_id")
    return (
        session if isinstance(mark, dict) and isinstance(session, str) and _OURS.fullmatch(session) else None
    )


def read_branches(entries: list[Mapping[str, Any]]) -> Draft:
    """The branches of one conversation of ours. Raises BadEntry with the reason."""
    told = entries[0]["extra"][NAMESPACE]
    found: dict[str, tuple[int, DraftMessage]] = {}
    try:
        for entry in entries:
            for step in _steps(entry):
                mark = step["extra"][NAMESPACE]
                found.setdefault(mark["message"], (int(mark["index"]), _restored(step, mark)))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadEntry(f"one of its steps is not as Mynah writes them ({error!r})") from error
    messages = tuple(message for _, message in sorted(found.values(), key=lambda pair: pair[0]))
    before: set[str] = set()
    for message in messages:
        if message.parent is not None and message.parent not in before:
            raise BadEntry(f"its message {message.key} comes before the one it answers")
        before.add(message.key)
    session = str(entries[0]["session_id"])
    client = told.get("client")
    return Draft(
        space=NAMESPACE,
        key=session,
        messages=messages,
        client=one_line(client) or Source.ATIF,
        title=clean(told["title"]) if isinstance(told.get("title"), str) else None,
        created=moment(told.get("created")),
        updated=moment(told.get("updated")),
        head=told["head"] if isinstance(told.get("head"), str) else None,
        wanted=session,
    )


def read_foreign(entry: Mapping[str, Any], seen: Occurrences) -> Draft:
    """Another agent's trajectory. Raises BadEntry with the reason."""
    turns = [turn for step in _steps(entry) for turn in _turns(step)]
    draft = line(Source.ATIF, seen.key(entry.get("session_id"), turns), turns, Source.ATIF)
    stamps = [moment(step.get("timestamp")) for step in _steps(entry) for _ in _turns(step)]
    agent = entry.get("agent")
    default = agent.get("model_name") if isinstance(agent, dict) else None
    models = [step.get("model_name") or default for step in _steps(entry) for _ in _turns(step)]
    messages = tuple(
        DraftMessage(
            message.key,
            message.parent,
            message.role,
            message.text,
            created=stamp,
            model=text_or_none(model) if message.role is Role.ASSISTANT else None,
        )
        for message, stamp, model in zip(draft.messages, stamps, models, strict=True)
    )
    return Draft(draft.space, draft.key, messages, draft.client, created=stamps[0], updated=stamps[-1])


def _steps(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    steps = entry.get("steps")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
        raise BadEntry("it has no list of steps")
    return steps


def _turns(step: Mapping[str, Any]) -> Iterator[tuple[Role, str]]:
    role = _ROLES.get(str(step.get("source")))
    if role is None:
        raise BadEntry(f"its step {step.get('step_id')} has no source that is known")
    text = _text(step.get("message"))
    calls = step.get("tool_calls")
    if not text and calls:
        text = json.dumps(calls, ensure_ascii=False)
    if text:
        yield role, text
    observation = step.get("observation")
    for result in (observation.get("results") or ()) if isinstance(observation, dict) else ():
        if isinstance(result, dict) and (seen := _text(result.get("content"))):
            yield Role.TOOL, seen


def _text(message: object) -> str:
    if isinstance(message, str):
        return message
    parts = message if isinstance(message, list) else []
    return "\n\n".join(
        str(part.get("text") or f"[{part.get('type')}]") for part in parts if isinstance(part, dict)
    )


def _restored(step: Mapping[str, Any], mark: Mapping[str, Any]) -> DraftMessage:
    role = Role(mark["role"])
    text = step["observation"]["results"][0]["content"] if role is Role.TOOL else step["message"]
    created = moment(step["timestamp"])
    if not isinstance(text, str) or not _OURS.fullmatch(mark["message"]) or created is None:
        raise ValueError("text, message id or time")
    parent, model = mark["parent"], mark.get("model")
    return DraftMessage(
        key=mark["message"],
        parent=str(parent) if parent is not None else None,
        role=role,
        text=clean(text),
        created=created,
        model=text_or_none(model),
        record=_record(step, mark),
        signals=tuple(_signal(signal) for signal in (mark.get("reward") or {}).get("signals", ())),
        steps=steps.checked(mark),
    )


def _record(step: Mapping[str, Any], mark: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `messages` that say how a reply came about, each checked for its kind."""
    metrics = step.get("metrics") or {}
    status = MessageStatus(mark["status"])
    if status is MessageStatus.GENERATING:
        raise ValueError("a reply that is still being written")
    record: dict[str, Any] = {
        "status": status,
        "finished": moment(mark.get("finished")),
        "left_out": _count(mark.get("left_out")),
        "scale": _number(mark.get("scale")),
        "finish_reason": FinishReason(mark["finish_reason"]) if mark.get("finish_reason") else None,
        "error_class": ErrorClass(mark["error_class"]) if mark.get("error_class") else None,
        "prompt_tokens": _packed("i", metrics.get("prompt_token_ids")),
        "completion_tokens": _packed("i", metrics.get("completion_token_ids")),
        "logprobs": _packed("f", metrics.get("logprobs")),
    }
    for name in _TEXT_FACTS:
        record[name] = clean(mark[name]) if isinstance(mark.get(name), str) else None
    for name in _JSON_FACTS:
        if mark.get(name) and not isinstance(mark[name], _JSON_FACTS[name]):
            raise ValueError(f"{name} is not what it should be")
        record[name] = json.dumps(mark[name], sort_keys=True, allow_nan=False) if mark.get(name) else None
    return record


def _count(value: object) -> int:
    """A number that fits a column."""
    if not isinstance(value, (int, type(None))) or not 0 <= (value or 0) < 2**31:
        raise ValueError(f"{value!r} is not a count")
    return value or 0


def _number(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _packed(code: str, values: object) -> bytes | None:
    if not isinstance(values, list):
        return None
    packed = array(code, values)
    # A number that 32 bits do not hold becomes infinite here, and nothing could be exported with it again.
    if not all(map(math.isfinite, packed)):
        raise ValueError("numbers")
    return packed.tobytes()


def _signal(signal: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `signals`, each value checked for its kind."""
    text, supersedes, confidence = signal.get("text"), signal.get("supersedes"), _number(signal["confidence"])
    created = moment(signal["created"])
    if not _OURS.fullmatch(signal["id"]) or created is None or confidence is None:
        raise ValueError("signal")
    return {
        "id": signal["id"],
        "kind": SignalKind(signal["kind"]),
        "value": _number(signal.get("value")),
        "text": None if text is None else clean(str(text)),
        "source": SignalSource(signal["source"]),
        "confidence": confidence,
        "created": created,
        "supersedes": None if supersedes is None else clean(str(supersedes)),
    }
