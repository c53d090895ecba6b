"""`mynah story` and `mynah flip`: what became of one reply, and turning a rule's verdict over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from app.cli.output import emit, json_option, short_time
from app.cli.session import Kind, full_id, service
from store.signals import Signal
from store.story import Story
from store.types import SignalKind, SignalSource

_FLIPPED = {
    (False, True): "you had to ask again",
    (False, False): "nothing was asked again",
    (True, True): "the other answer was better",
    (True, False): "the other answer was no better",
}
"""By whether two answers were compared, and whether the reply was found wanting."""
_reply = click.argument("message", metavar="MESSAGE")


@click.command()
@_reply
@json_option
def story(message: str, as_json: bool) -> None:
    """Tell what became of the reply MESSAGE: signals, verdict, lesson, versions, decisions."""
    mynah = service()
    told = mynah.story(full_id(mynah, Kind.MESSAGE, message))
    emit(_data(told), as_json, lambda: _lines(told))


@click.command()
@_reply
@json_option
def flip(message: str, as_json: bool) -> None:
    """Turn over whether the reply MESSAGE made you ask again, or was left for a better answer.

    A rule that saw a repeated question where there was none teaches something wrong; one that missed it teaches
    nothing. Your word takes its place, and flips back the same way.
    """
    mynah = service()
    reply = full_id(mynah, Kind.MESSAGE, message)
    receipt = mynah.flip(reply)
    compared = receipt.signal.kind is SignalKind.LESSER
    wanting = bool(receipt.signal.value)
    fate = receipt.fate
    data = {
        "message": reply,
        "asked_again": wanting and not compared,
        "another_better": wanting and compared,
        "signal": receipt.signal.id,
        "supersedes": receipt.signal.supersedes,
        "fate": None if fate is None else fate.text,
    }
    said = _FLIPPED[compared, wanting]
    emit(data, as_json, lambda: [said if fate is None else f"{said}: {fate.text}"])


def _lines(told: Story) -> Iterator[str]:
    yield f"reply     {told.reply.id}, {short_time(told.reply.created)}"
    yield f"question  {_short(told.question)}"
    yield f"answer    {_short(told.reply.text)}"
    for signal in told.signals:
        counts = "counts" if signal.id in told.counted else "noted"
        yield f"signal    {_signal(signal)} by {signal.source}, {short_time(signal.created)}, {counts}"
    if told.verdict is not None:
        says = told.seen if told.verdict.source is SignalSource.JUDGE and told.seen else "asked again"
        says = says if told.verdict.asked_again else "not asked again"
        yield f"verdict   {says}, by {told.verdict.source}; `mynah flip {told.reply.id}` turns it over"
    elif told.seen is not None:
        yield f"verdict   not asked again; `mynah flip {told.reply.id}` turns it over"
    if told.compared is not None:
        instead = f" ({told.kept})" if told.kept else ""
        says = f"another answer{instead} was {'better' if told.compared.value > 0 else 'no better'}"
        yield f"verdict   {says}, by {told.compared.source}; `mynah flip {told.reply.id}` turns it over"
    if told.unit is None or told.fate is None:
        yield "lesson    none"
    else:
        yield f"lesson    {told.unit.id}, {told.unit.kind}: {told.fate.text}"
    for use in told.uses:
        yield f"version   v{use.version} ({use.adapter}, {use.state}): {use.use}"
    for decision in told.decisions:
        yield f"decision  {decision.id}, {decision.choice.get('action')} {decision.inputs.get('adapter')}"


def _signal(signal: Signal) -> str:
    if signal.kind is SignalKind.THUMB:
        return "rating taken back" if not signal.value else "thumb up" if signal.value > 0 else "thumb down"
    if signal.kind is SignalKind.REQUERY and not signal.value:
        return "not asked again"
    return str(signal.kind)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 70 else f"{flat[:69]}…"


def _data(told: Story) -> dict[str, Any]:
    unit, verdict = told.unit, told.verdict
    return {
        "message": told.reply.id,
        "conversation": told.reply.conversation,
        "question": told.question,
        "reply": told.reply.text,
        "adapter": told.reply.adapter,
        "signals": [
            {
                "id": signal.id,
                "kind": signal.kind,
                "value": signal.value,
                "text": signal.text,
                "source": signal.source,
                "confidence": signal.confidence,
                "created": signal.created,
                "supersedes": signal.supersedes,
                "counts": signal.id in told.counted,
            }
            for signal in told.signals
        ],
        "verdict": None
        if verdict is None
        else {"asked_again": verdict.asked_again, "source": verdict.source, "signal": verdict.signal},
        "compared": None
        if told.compared is None
        else {
            "another_better": told.compared.value > 0,
            "kept": told.kept,
            "source": told.compared.source,
            "signal": told.compared.signal,
        },
        "seen": told.seen,
        "unit": None
        if unit is None
        else {
            "id": unit.id,
            "kind": unit.kind,
            "state": unit.state,
            "reason": unit.reason,
            "reward": unit.reward,
            "weight": unit.weight,
            "target": unit.target,
            "hint": unit.hint,
        },
        "fate": None if told.fate is None else told.fate.text,
        "versions": [
            {"adapter": use.adapter, "version": use.version, "state": use.state, "use": use.use}
            for use in told.uses
        ],
        "decisions": [
            {"id": each.id, "created": each.created, "kind": each.kind, "choice": each.choice}
            for each in told.decisions
        ],
    }
