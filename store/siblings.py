"""Which of several answers to one question the owner went on from, and what that says of the others: a little.

Asking for another answer and going on from one of them is a choice, but a quiet one: most people stay with the newest,
whatever it says. So it teaches only where nothing else can be meant. Exactly one of the answers was gone on from; the
others were asked to be replaced, or were what one was replaced by; all came whole, from the same model; what was said
next found nothing wanting; and nothing was said of either with a word, for a word outweighs it. An answer that was
copied was of use, so that it is not the lesser one; one that was stopped was not read to its end, and may have been
stopped for its length, its slowness or a ringing door. Neither says anything by itself: people copy what they complain
about, and stop what they have understood. A copy of the kept answer makes the choice surer, and so does going back to
an earlier one. How sure was chosen, not measured; in any case it weighs less than half of a thumb.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from store import conversations
from store.conversations import Message
from store.db import Store
from store.types import FinishReason, MessageStatus, SignalKind, UnitKind, UnitState

STAYED, CHOSE = 0.5, 0.7
"""How sure it is that the kept answer was the better: where it was the newest, and where it was chosen or copied."""
UNCLEAR = "it is no longer clear which of the answers was kept"


@dataclass(frozen=True)
class Lesser:
    """An answer that another one was preferred to, and how sure that is, 0 to 1."""

    reply: str
    confidence: float


@dataclass(frozen=True)
class Choice:
    """The answer that was gone on from, and those that were not."""

    kept: Message
    lesser: tuple[Lesser, ...]

    def over(self, reply: str) -> bool:
        """Whether this answer is one of the lesser ones."""
        return any(each.reply == reply for each in self.lesser)


def choice(store: Store, reply: str) -> Choice | None:
    """What the owner chose among a reply and those beside it; None where nothing is said by it."""
    answers = conversations.siblings(store, reply)
    if len(answers) < 2 or answers[0].parent is None:
        return None
    gone_on = _gone_on_from(store, answers)
    if len(gone_on) != 1:
        return None
    (place,) = (number for number, each in enumerate(answers) if each.id in gone_on)
    kept, said = answers[place], _said(store, answers)
    if not _whole(kept) or _rated(store, kept.id, UnitKind.THANKS):
        return None
    lesser = []
    for number, other in enumerate(answers):
        replaced = kept if number > place else other
        if number == place or SignalKind.REGENERATE not in said[replaced.id] or not _comparable(kept, other):
            continue
        if SignalKind.COPY in said[other.id] or _rated(store, other.id, UnitKind.LESSER):
            continue
        sure = number > place or SignalKind.COPY in said[kept.id]
        lesser.append(Lesser(other.id, CHOSE if sure else STAYED))
    return Choice(kept, tuple(lesser)) if lesser else None


def kept_over(store: Store, reply: str) -> Message | None:
    """The answer that was kept instead of a reply, or None."""
    made = choice(store, reply)
    return made.kept if made is not None and made.over(reply) else None


def _whole(reply: Message) -> bool:
    """Whether a model here wrote it to its end."""
    ended = reply.status is MessageStatus.COMPLETE and reply.finish_reason is FinishReason.STOP
    return ended and reply.base_hash is not None and bool(reply.text.strip())


def _comparable(kept: Message, other: Message) -> bool:
    one, two = kept.text.strip(), other.text.strip()
    return (
        _whole(other)
        and kept.base_hash == other.base_hash
        # One that begins with the other is it, gone on with.
        and not one.startswith(two)
        and not two.startswith(one)
    )


def _gone_on_from(store: Store, answers: Sequence[Message]) -> set[str]:
    rows = store.conn.execute(
        "SELECT DISTINCT parent FROM messages WHERE parent IN (SELECT value FROM json_each(?))",
        (_ids(answers),),
    )
    return {row["parent"] for row in rows}


def _said(store: Store, answers: Sequence[Message]) -> dict[str, set[str]]:
    """The kinds of signals of each answer."""
    found: dict[str, set[str]] = {each.id: set() for each in answers}
    for row in store.conn.execute(
        "SELECT DISTINCT message, kind FROM signals WHERE message IN (SELECT value FROM json_each(?))",
        (_ids(answers),),
    ):
        found[row["message"]].add(row["kind"])
    return found


def _rated(store: Store, reply: str, besides: UnitKind) -> bool:
    """Whether something that counts was said of a reply, besides one kind."""
    row = store.conn.execute(
        "SELECT 1 FROM units WHERE message = ? AND kind != ? AND state != ?",
        (reply, besides, UnitState.REFUSED),
    ).fetchone()
    return row is not None


def _ids(answers: Sequence[Message]) -> str:
    return json.dumps([each.id for each in answers])
