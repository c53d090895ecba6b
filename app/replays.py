"""Recorded replies computed once more and compared: does it come out again, and what would another version say.

With the recorded adapter it is a check of the record itself: a deterministic reply that comes out otherwise means that
something changed which nobody wrote down. With another one it shows what a version changed, token by token, on the
very prompt that was asked. Nothing is written.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.service import Service
from store import adapters, conversations, trajectory
from store.errors import UsageError
from store.trajectory import Step
from store.types import EventKind, FinishReason, ReplayClass

RECORDED = "recorded"
BASE = "base"
_WHOLE = (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(frozen=True)
class Side:
    """One of the two replies that are compared. ``logprobs``: natural, at temperature 1, one per token."""

    adapter: str | None
    scale: float
    text: str
    tokens: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class Comparison:
    """A reply as it was recorded and as it came out now.

    ``first_difference`` is the index of the first token that differs, None where none does. ``mean_difference`` and
    ``largest_difference`` are of log-probabilities (now minus then, absolute) over the drawn tokens before the first
    that differs; None where there is none. ``changed`` names what of the machine is not as
    it was.
    """

    message: str
    replay: ReplayClass
    recorded: Side
    now: Side
    first_difference: int | None
    mean_difference: float | None
    largest_difference: float | None
    changed: list[str]

    @property
    def identical(self) -> bool:
        """Whether all tokens and all log-probabilities are the recorded ones."""
        return self.first_difference is None and not self.largest_difference


def of_conversation(mynah: Service, conversation: str, adapter: str) -> Iterator[Comparison]:
    """Each reply of a conversation that can be replayed, in the order they were made."""
    steps = [step for step in trajectory.read(mynah.store, conversation) if _replayable(step)]
    if not steps:
        raise UsageError(f"conversation {conversation} holds no reply whose tokens were recorded")
    return (_replayed(mynah, step, adapter) for step in steps)


def of_message(mynah: Service, message: str, adapter: str) -> Comparison:
    """One reply, compared.

    Raises:
        UsageError: it is no reply of the model here, or cannot be replayed.
    """
    conversation = conversations.get_message(mynah.store, message).conversation
    step = next(
        (
            step
            for step in trajectory.read(mynah.store, conversation)
            if step.message == message and step.kind is EventKind.MODEL_CALL
        ),
        None,
    )
    if step is None:
        raise UsageError(f"{message} was not written by the model here: only its replies can be replayed")
    if not _replayable(step):
        raise UsageError(f"{message} cannot be replayed: its tokens were not recorded")
    return _replayed(mynah, step, adapter)


def _replayable(step: Step) -> bool:
    return step.kind is EventKind.MODEL_CALL and step.replay is not ReplayClass.NOT_REPLAYABLE


def _replayed(mynah: Service, step: Step, choice: str) -> Comparison:
    then = Side(
        step.harness["adapter"],
        step.harness["scale"] or 0.0,
        step.action["text"],
        step.action["tokens"],
        step.action.get("logprobs", []),
    )
    adapter, scale = _chosen(mynah, then, choice, step.harness["base_hash"])
    given = int(step.harness["sampler"].get("opening_tokens", 0))
    answer = mynah.host().replay(_call(step, given, adapter, scale))
    now = Side(adapter, scale, answer["text"], answer["tokens"], _as_kept(answer["logprobs"]))
    first = first_difference(then.tokens, now.tokens)
    common = len(then.tokens) if first is None else first
    apart = [
        abs(a - b) for a, b in zip(then.logprobs[given:common], now.logprobs[given:common], strict=False)
    ]
    assert step.message is not None
    return Comparison(
        message=step.message,
        replay=step.replay,
        recorded=then,
        now=now,
        first_difference=first,
        mean_difference=sum(apart) / len(apart) if apart else None,
        largest_difference=max(apart, default=None),
        changed=_changed(step.metadata, answer["machine"]),
    )


def _chosen(mynah: Service, then: Side, choice: str, base_hash: str) -> tuple[str | None, float]:
    """The adapter and scale to compute with. Raises UsageError where the choice cannot be had."""
    if choice == BASE:
        return None, 0.0
    if choice != RECORDED:
        if adapters.get(mynah.store, choice).base_hash != base_hash:
            raise UsageError(f"adapter {choice} is of another model than this reply")
        return choice, 1.0
    if then.adapter is None:
        return None, 0.0
    # Rows that came in by import may name an adapter that never was here.
    known = any(each.id == then.adapter for each in adapters.list_(mynah.store))
    if not known or not (adapters.files(mynah.store, then.adapter) / adapters.GGUF_NAME).exists():
        raise UsageError(
            f"the adapter of this reply ({then.adapter}) is gone: replay it with --adapter base, or another one"
        )
    return then.adapter, then.scale


def _call(step: Step, given: int, adapter: str | None, scale: float) -> dict[str, Any]:
    """What the host is asked. ``given``: how many of its tokens the reply took over from the one it went on with."""
    sampler = dict(step.harness["sampler"])
    if step.outcome.get("finish_reason") not in _WHOLE:
        # It was broken off from outside: what would have come later is nobody's record.
        sampler["max_tokens"] = len(step.action["tokens"])
    return {
        "base_hash": step.harness["base_hash"],
        "prompt": step.observation["prompt_tokens"],
        "opening": step.action["tokens"][:given],
        "sampler": sampler,
        "evaluated": step.metadata.get("evaluated"),
        "adapter": adapter,
        "scale": scale,
    }


def first_difference(then: Sequence[int], now: Sequence[int]) -> int | None:
    """Index of the first token that differs, one that only one side has included; None where all are equal."""
    for index, (one, other) in enumerate(zip(then, now, strict=False)):
        if one != other:
            return index
    return None if len(then) == len(now) else min(len(then), len(now))


def _as_kept(logprobs: Sequence[float]) -> list[float]:
    """Rounded to 32 bits, as the record is."""
    return list(array("f", logprobs))


def _changed(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [
        name for name in ("engine", "mynah", "cpu", "threads") if name in then and then[name] != now[name]
    ]
