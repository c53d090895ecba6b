"""Whether the owner had to ask again, as the rules saw it, and as the owner says.

A rule can err, and what it saw teaches. So its verdict stands on the message it concerns, and the owner can turn
it over: a signal of the owner's that supersedes the rule's, since signals are never changed. The other way round it
works too: a repeated question that no rule noticed becomes one by the owner's word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store import conversations, signals
from store.db import Store
from store.errors import UsageError
from store.signals import Signal
from store.types import Role, SignalKind, SignalSource

PUT_RIGHT = "put it right"
OTHERWISE = "wanted it otherwise"
"""What a reader notes of a next message that is no repeated question, and yet finds the reply wanting."""


@dataclass(frozen=True)
class Verdict:
    """Who says that a reply was found wanting (``value`` above 0), or that it was not (0)."""

    source: SignalSource
    value: float
    signal: str
    hint: str | None

    @property
    def asked_again(self) -> bool:
        """What it comes to."""
        return self.value > 0


def standing(of_reply: Sequence[Signal]) -> Verdict | None:
    """The verdict that counts, from a reply's signals, oldest first: the owner's, else a rule's, else the judge's."""
    return _latest(of_reply, SignalKind.REQUERY)


def beside(of_reply: Sequence[Signal]) -> Verdict | None:
    """The verdict that counts on whether another answer to the same question was kept instead of a reply."""
    return _latest(of_reply, SignalKind.LESSER)


def _latest(of_reply: Sequence[Signal], kind: SignalKind) -> Verdict | None:
    latest = {each.source: each for each in of_reply if each.kind is kind}
    for source in SignalSource:
        found = latest.get(source)
        if found is not None:
            return Verdict(source, found.value or 0.0, found.id, found.text)
    return None


def noted(store: Store, message: str) -> str | None:
    """What was seen in the message after a reply; None where nobody has looked at one."""
    row = store.conn.execute("SELECT verdict FROM judged WHERE message = ?", (message,)).fetchone()
    return None if row is None else str(row["verdict"])


def noted_in(store: Store, conversation: str) -> dict[str, str]:
    """What was seen in the messages after the replies of a conversation, by reply."""
    rows = store.conn.execute(
        "SELECT message, verdict FROM messages CROSS JOIN judged ON judged.message = messages.id "
        "WHERE conversation = ? AND verdict IS NOT NULL",
        (conversation,),
    )
    return {row["message"]: str(row["verdict"]) for row in rows}


def followed(store: Store, message: str) -> bool:
    """Whether something was said after a reply, so that a verdict on it can be turned over."""
    return any(each.role is Role.USER for each in conversations.children(store, message))


def flip(store: Store, message: str) -> Signal:
    """Turn the standing verdict over: that on what was said next, else that on which answer was kept.

    Raises:
        UsageError: nothing followed this reply, so nothing can be said of it.
    """
    with store.write():
        said = signals.all_of(store, message)
        verdict, compared = standing(said), beside(said)
        if verdict is None and compared is not None:
            value = 0.0 if compared.value > 0 else 1.0
            return signals.record(store, message, SignalKind.LESSER, value=value, supersedes=compared.signal)
        if verdict is not None and verdict.asked_again:
            return _say(store, message, 0.0, None, verdict)
        following = next(
            (each for each in conversations.children(store, message) if each.role is Role.USER), None
        )
        if following is None:
            raise UsageError("nothing was said after this reply yet, so there is no verdict to turn over")
        return _say(store, message, 1.0, following.text, verdict)


def _say(store: Store, message: str, value: float, hint: str | None, before: Verdict | None) -> Signal:
    return signals.record(
        store,
        message,
        SignalKind.REQUERY,
        value=value,
        text=hint,
        supersedes=None if before is None else before.signal,
    )
