"""What may become of a conversation: three dials that the owner turns, and what each turn does at once.

The dials are kept apart because people expect them to be: a chat may stay in the history and teach nothing, or teach
and not be remembered. They are looked at when a reply is rated and again when a lesson is made of it, so a dial that
is turned in between counts. What an adapter has learned already is not undone by a dial: the lessons are left out of
the next one, and forgetting is what takes them back.

A conversation that is not kept in history must still work while it goes on: a program that resends its transcript
has to find it, a reply must be there to be made anew. So it exists, without being listed, searched or exported,
until an hour after its last message or until the host ends, whichever comes first; then it is deleted to its last
byte. What is to vanish cannot be built on, so it never feeds memory or training. (Incognito is another thing: there
nothing is ever written.) Every turn of a dial is a row in `consents` that cannot be changed.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from store import conversations, settings, units
from store.db import Store
from store.errors import NotFound, UsageError
from store.ids import now
from store.types import AdapterState, Consent, Dial, MessageStatus, UnitState

UNKEPT_SECONDS = 3600.0
"""How long a conversation that is not kept lives on after its last message: a pause for lunch, not a night."""

Dials = dict[Dial, Consent]

_COLUMNS = {Dial.HISTORY: "keep_history", Dial.MEMORY: "feed_memory", Dial.TRAIN: "train"}
_SETTINGS = {
    Dial.HISTORY: settings.KEEP_HISTORY,
    Dial.MEMORY: settings.FEED_MEMORY,
    Dial.TRAIN: settings.TRAIN,
}


class By(StrEnum):
    """Who turned a dial."""

    OWNER = "owner"
    IMPORT = "import"
    PROGRAM = "program"


@dataclass(frozen=True)
class Turn:
    """One turn of one dial, as recorded."""

    dial: Dial
    value: Consent
    by: By
    created: str


@dataclass(frozen=True)
class Change:
    """What turning a dial came to.

    ``along`` are other dials that had to follow; ``refused`` and ``queued`` count learning units that are now left
    out, or wait again; ``taught`` are the adapters that learned from the conversation before, oldest first.
    """

    dials: Dials
    along: tuple[Dial, ...]
    refused: int
    queued: int
    taught: tuple[str, ...]


def of(store: Store, conversation: str) -> Dials:
    """The dials of one conversation.

    Raises:
        NotFound: there is no such conversation.
    """
    row = store.conn.execute(
        f"SELECT {', '.join(_COLUMNS.values())} FROM conversations WHERE id = ?", (conversation,)
    ).fetchone()
    if row is None:
        raise NotFound(f"no conversation has the id {conversation}")
    return {dial: Consent(row[column]) for dial, column in _COLUMNS.items()}


def may_train(store: Store, conversation: str) -> bool:
    """Whether a conversation may be learned from, now."""
    return of(store, conversation)[Dial.TRAIN] is Consent.ALLOW


def denied(store: Store, dial: Dial) -> set[str]:
    """The ids of the conversations whose dial says no."""
    rows = store.conn.execute(
        f"SELECT id FROM conversations WHERE {_COLUMNS[dial]} = ?", (Consent.DENY,)
    ).fetchall()
    return {row["id"] for row in rows}


def turns(store: Store, conversation: str) -> list[Turn]:
    """Every turn of a conversation's dials, oldest first; none where the defaults of its first day still hold."""
    rows = store.conn.execute("SELECT * FROM consents WHERE conversation = ? ORDER BY id", (conversation,))
    return [Turn(Dial(row["dial"]), Consent(row["value"]), By(row["actor"]), row["created"]) for row in rows]


def set_(store: Store, conversation: str, dial: Dial, value: Consent, by: By = By.OWNER) -> Change:
    """Turn one dial of a conversation, in one transaction with all that follows from it.

    Raises:
        NotFound: there is no such conversation.
        UsageError: memory or training were allowed for a conversation that is not kept in history.
    """
    before = of(store, conversation)
    if value is Consent.ALLOW and dial is not Dial.HISTORY and before[Dial.HISTORY] is Consent.DENY:
        raise UsageError(
            f"conversation {conversation} is not kept in history and will be deleted, so it cannot "
            f"{_VERBS[dial]}: turn history on first (--history allow)"
        )
    along = [
        other
        for other in (Dial.MEMORY, Dial.TRAIN)
        if dial is Dial.HISTORY and value is Consent.DENY and before[other] is Consent.ALLOW
    ]
    refused = queued = 0
    with store.write() as connection:
        for each in (dial, *along):
            _turn(connection, conversation, each, value, by)
        after = of(store, conversation)
        if after[Dial.TRAIN] is not before[Dial.TRAIN]:
            refused, queued = _refresh(store, connection, conversation, after[Dial.TRAIN])
        taught = _taught(connection, conversation)
    return Change(after, tuple(along), refused, queued, taught)


def defaults(store: Store) -> Dials:
    """What a new conversation may be used for."""
    chosen = {dial: Consent(settings.get(store, key)) for dial, key in _SETTINGS.items()}
    if chosen[Dial.HISTORY] is Consent.DENY:
        chosen[Dial.MEMORY] = chosen[Dial.TRAIN] = Consent.DENY
    return chosen


def set_default(store: Store, dial: Dial, value: Consent) -> Dials:
    """Choose what new conversations may be used for; those that exist stay as they are. Returns all defaults.

    Raises:
        UsageError: memory or training were allowed while new conversations are not kept in history.
    """
    if value is Consent.ALLOW and dial is not Dial.HISTORY and defaults(store)[Dial.HISTORY] is Consent.DENY:
        raise UsageError(
            f"new conversations are not kept in history, so they cannot {_VERBS[dial]}: "
            "turn history on first (--history allow)"
        )
    settings.put(store, _SETTINGS[dial], value.value)
    return defaults(store)


def unkept(store: Store, idle_seconds: float = 0.0) -> list[str]:
    """Conversations that are not kept in history and were last used so long ago. One being answered is in use."""
    before = (datetime.now(UTC) - timedelta(seconds=idle_seconds)).isoformat(timespec="microseconds")
    rows = store.conn.execute(
        "SELECT id FROM conversations WHERE keep_history = ? AND updated <= ? AND NOT EXISTS "
        "(SELECT 1 FROM messages WHERE conversation = conversations.id AND status = ?)",
        (Consent.DENY, before, MessageStatus.GENERATING),
    )
    return [row["id"] for row in rows]


def sweep(store: Store, idle_seconds: float = UNKEPT_SECONDS) -> int:
    """Delete what is not to be kept and was not used for so long; returns how many conversations went.

    One that taught an adapter stays, out of sight: deleting its text alone would not take that back.
    """
    gone = 0
    for conversation in unkept(store, idle_seconds):
        # Refused where an adapter learned from it.
        with suppress(UsageError):
            conversations.delete(store, conversation)
            gone += 1
    return gone


_VERBS = {Dial.MEMORY: "feed memory", Dial.TRAIN: "be trained on"}


def _turn(connection: sqlite3.Connection, conversation: str, dial: Dial, value: Consent, by: By) -> None:
    """Turn a dial and record it, unless it stands there already."""
    column = _COLUMNS[dial]
    changed = connection.execute(
        f"UPDATE conversations SET {column} = ? WHERE id = ? AND {column} != ?", (value, conversation, value)
    )
    if changed.rowcount:
        connection.execute(
            "INSERT INTO consents (conversation, dial, value, actor, created) VALUES (?, ?, ?, ?, ?)",
            (conversation, dial, value, by, now()),
        )


def _refresh(
    store: Store, connection: sqlite3.Connection, conversation: str, train: Consent
) -> tuple[int, int]:
    """Refuse the units that wait, or bring those back that only waited for this; returns the numbers of both.

    A unit that an adapter learned keeps its state: that it was used stays true. It is left out of later lessons.
    """
    if train is Consent.DENY:
        condition, values = "state = ?", (conversation, UnitState.QUEUED.value)
    else:
        condition, values = "state = 'refused' AND reason = ?", (conversation, units.NO_CONSENT)
    rows = connection.execute(
        f"SELECT message FROM units WHERE conversation = ? AND {condition} ORDER BY rowid", values
    ).fetchall()
    states = [unit.state for row in rows if (unit := units.refresh(store, row["message"])) is not None]
    refused = states.count(UnitState.REFUSED) if train is Consent.DENY else 0
    return refused, states.count(UnitState.QUEUED)


def _taught(connection: sqlite3.Connection, conversation: str) -> tuple[str, ...]:
    """The adapters that saw a conversation and may be served."""
    rows = connection.execute(
        "SELECT DISTINCT adapters.id FROM unit_uses JOIN units ON units.id = unit_uses.unit "
        "JOIN adapters ON adapters.id = unit_uses.adapter WHERE units.conversation = ? "
        "AND adapters.state IN (?, ?, ?) ORDER BY version",
        (conversation, AdapterState.CANDIDATE, AdapterState.ACTIVE, AdapterState.RETIRED),
    )
    return tuple(row["id"] for row in rows)
