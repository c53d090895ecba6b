"""Learning units: a reply, what was said of it, whether it may teach, and what became of it.

A unit is derived from its reply's signals by a pure function, strongest signal first: the owner's correction,
then a thumb, then a rule that saw the question asked again. Whatever a unit is refused for is written on it.
A unit whose signals change after an adapter learned it gets another content hash and waits again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from store import conversations
from store.db import Store
from store.errors import NotFound
from store.ids import new_id, now
from store.redaction import REDACTION_VERSION as REDACTION_VERSION
from store.redaction import contains_secret
from store.types import (
    AdapterState,
    Consent,
    MessageStatus,
    Role,
    SignalKind,
    SignalSource,
    UnitKind,
    UnitState,
    UnitUse,
)

TRUST: dict[SignalSource, float] = {SignalSource.USER: 1.0, SignalSource.RULE: 0.5, SignalSource.JUDGE: 0.3}
TAKEN_BACK = "the rating was taken back"
NO_CONSENT = "this conversation may not be trained on"
HOLDS_KEY = "it contains what looks like a password or key"


@dataclass(frozen=True)
class Draft:
    """What the signals of a reply come to."""

    kind: UnitKind
    reward: float
    target: str | None
    hint: str | None
    weight: float
    signals: tuple[str, ...]


@dataclass(frozen=True)
class Unit:
    """A stored learning unit. ``reward`` is that of the reply as given: -1 for a corrected one."""

    id: str
    message: str
    conversation: str
    kind: UnitKind
    reward: float
    target: str | None
    hint: str | None
    weight: float
    state: UnitState
    reason: str | None
    content_hash: str
    created: str


@dataclass(frozen=True)
class Use:
    """One adapter that learned a unit, or was tested on it."""

    unit: str
    adapter: str
    version: int
    state: AdapterState
    use: UnitUse


@dataclass(frozen=True)
class Fate:
    """What became of a reply's rating, for people."""

    state: UnitState
    text: str


@dataclass(frozen=True)
class NextState:
    """A reply, the question it answered, and what the owner wrote next: what the judge looks at."""

    reply: str
    question: str
    answer: str
    next_message: str


def draft(signals: Sequence[sqlite3.Row], reply_text: str) -> Draft | None:
    """What a reply's signals come to, oldest first, or None where nothing is left of them."""
    latest: dict[tuple[str, str], sqlite3.Row] = {(row["kind"], row["source"]): row for row in signals}
    hints = [row["text"] for (kind, _), row in latest.items() if kind == SignalKind.HINT and row["text"]]
    hint = hints[-1] if hints else None
    used = tuple(row["id"] for row in latest.values())
    correction = latest.get((SignalKind.CORRECTION, SignalSource.USER))
    if correction is not None and correction["text"] and correction["text"].strip() != reply_text.strip():
        return Draft(
            UnitKind.CORRECTION, -1.0, correction["text"].strip(), hint, TRUST[SignalSource.USER], used
        )
    thumb = latest.get((SignalKind.THUMB, SignalSource.USER))
    if thumb is not None and thumb["value"]:
        kind = UnitKind.THUMB_UP if thumb["value"] > 0 else UnitKind.THUMB_DOWN
        note = thumb["text"] or hint
        return Draft(
            kind,
            float(thumb["value"]),
            None,
            note if kind is UnitKind.THUMB_DOWN else None,
            TRUST[SignalSource.USER],
            used,
        )
    for source in (SignalSource.RULE, SignalSource.JUDGE):
        requery = latest.get((SignalKind.REQUERY, source))
        # The owner's explicit "no opinion" (a cleared thumb) also silences what the rules think they saw.
        if requery is not None and requery["value"] and thumb is None:
            weight = TRUST[source] * float(requery["confidence"])
            return Draft(UnitKind.REQUERY, -1.0, None, requery["text"] or hint, weight, used)
    return None


def refresh(store: Store, message: str) -> Unit | None:
    """Bring a reply's unit in line with its signals; returns it, or None where it never had one."""
    reply = conversations.get_message(store, message)
    with store.write() as connection:
        rows = connection.execute(
            "SELECT * FROM signals WHERE message = ? ORDER BY rowid", (message,)
        ).fetchall()
        existing = connection.execute("SELECT * FROM units WHERE message = ?", (message,)).fetchone()
        made = draft(rows, reply.text)
        if made is None:
            if existing is not None:
                _set_state(connection, existing["id"], UnitState.REFUSED, TAKEN_BACK)
            return None if existing is None else get(store, existing["id"])
        consent = conversations.get(store, reply.conversation).train
        refusal = _refusal(store, reply, made, consent)
        content = _content_hash(store, reply, made)
        if refusal == HOLDS_KEY:
            made = replace(made, target=None, hint=None)
        if existing is None:
            unit = new_id("u")
            state = UnitState.REFUSED if refusal else UnitState.QUEUED
            connection.execute(
                "INSERT INTO units (id, message, conversation, kind, reward, target, hint, weight, state, reason, "
                "signals, content_hash, redaction, created, updated) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    unit,
                    message,
                    reply.conversation,
                    made.kind,
                    made.reward,
                    made.target,
                    made.hint,
                    made.weight,
                    state,
                    refusal,
                    json.dumps(made.signals),
                    content,
                    REDACTION_VERSION,
                    now(),
                    now(),
                ),
            )
            return get(store, unit)
        unchanged = existing["content_hash"] == content and existing["reason"] not in (
            TAKEN_BACK,
            HOLDS_KEY,
            NO_CONSENT,
        )
        state = (
            UnitState.REFUSED if refusal else UnitState(existing["state"]) if unchanged else UnitState.QUEUED
        )
        connection.execute(
            "UPDATE units SET kind = ?, reward = ?, target = ?, hint = ?, weight = ?, state = ?, reason = ?, "
            "signals = ?, content_hash = ?, redaction = ?, updated = ? WHERE id = ?",
            (
                made.kind,
                made.reward,
                made.target,
                made.hint,
                made.weight,
                state,
                refusal if refusal else existing["reason"] if unchanged else None,
                json.dumps(made.signals),
                content,
                REDACTION_VERSION,
                now(),
                existing["id"],
            ),
        )
        return get(store, existing["id"])


def get(store: Store, unit: str) -> Unit:
    """One unit by its id."""
    row = store.conn.execute("SELECT * FROM units WHERE id = ?", (unit,)).fetchone()
    if row is None:
        raise NotFound(f"no learning unit has the id {unit}")
    return _unit(row)


def waiting(store: Store) -> list[Unit]:
    """Units that wait to be learned, oldest first."""
    return _in_state(store, (UnitState.QUEUED,))


def fresh(store: Store) -> list[Unit]:
    """Waiting units that no run has tried yet in their present form: what may start a run by itself.

    A unit of a run that the gate refused waits on, but would otherwise start the same run for ever.
    """
    tried = {
        (row["unit"], row["content_hash"])
        for row in store.conn.execute("SELECT unit, content_hash FROM unit_uses")
    }
    return [unit for unit in waiting(store) if (unit.id, unit.content_hash) not in tried]


def learned(store: Store) -> list[Unit]:
    """Units an earlier round used or held out, oldest first: the ledger that replay is drawn from."""
    return _in_state(store, (UnitState.USED, UnitState.HELD_OUT))


def refused(store: Store) -> list[Unit]:
    """Units that will not be learned, with their reasons, newest first."""
    return _in_state(store, (UnitState.REFUSED,))[::-1]


def of_message(store: Store, message: str) -> Unit | None:
    """The unit of a reply, if it has one."""
    row = store.conn.execute("SELECT * FROM units WHERE message = ?", (message,)).fetchone()
    return None if row is None else _unit(row)


def uses(store: Store, unit: str) -> list[Use]:
    """The adapters whose runs saw a unit, oldest first."""
    rows = store.conn.execute(
        "SELECT unit, adapter, version, state, use FROM unit_uses JOIN adapters ON adapters.id = unit_uses.adapter "
        "WHERE unit = ? ORDER BY version",
        (unit,),
    )
    return [
        Use(row["unit"], row["adapter"], row["version"], AdapterState(row["state"]), UnitUse(row["use"]))
        for row in rows
    ]


def used_by(store: Store, adapter: str) -> list[tuple[Unit, UnitUse]]:
    """What an adapter learned from and was tested on."""
    rows = store.conn.execute(
        "SELECT units.*, unit_uses.use FROM units JOIN unit_uses ON unit_uses.unit = units.id "
        "WHERE unit_uses.adapter = ? ORDER BY units.rowid",
        (adapter,),
    )
    return [(_unit(row), UnitUse(row["use"])) for row in rows]


def refuse(store: Store, unit: str, reason: str) -> None:
    """Say that a unit will not be learned, and why."""
    with store.write() as connection:
        _set_state(connection, unit, UnitState.REFUSED, reason)


def record_uses(store: Store, adapter: str, uses_of: Iterable[tuple[Unit, UnitUse]]) -> None:
    """Note which units an adapter's run saw, in the form they had then."""
    with store.write() as connection:
        connection.executemany(
            'INSERT INTO unit_uses (unit, adapter, "use", content_hash) VALUES (?, ?, ?, ?)',
            [(unit.id, adapter, use, unit.content_hash) for unit, use in uses_of],
        )


def settle(store: Store, adapter: str) -> None:
    """After an adapter went live: its new units are used, or held out."""
    with store.write() as connection:
        for unit, use in used_by(store, adapter):
            if use is UnitUse.REPLAYED:
                continue
            seen = connection.execute(
                "SELECT content_hash FROM unit_uses WHERE unit = ? AND adapter = ?", (unit.id, adapter)
            ).fetchone()
            # The owner may have changed the rating while the run went on: then the new one waits.
            if seen["content_hash"] == unit.content_hash and unit.state is not UnitState.REFUSED:
                _set_state(
                    connection,
                    unit.id,
                    UnitState.HELD_OUT if use is UnitUse.HELD_OUT else UnitState.USED,
                    None,
                )


def fate(store: Store, message: str) -> Fate | None:
    """What became of a reply's rating, in words; None where it was never rated."""
    unit = of_message(store, message)
    if unit is None:
        return None
    if unit.state is UnitState.REFUSED:
        return Fate(unit.state, f"not used: {unit.reason}")
    seen = uses(store, unit.id)
    if unit.state is UnitState.QUEUED:
        tried = [use for use in seen if use.state is AdapterState.REJECTED]
        return Fate(
            unit.state, f"queued (v{tried[-1].version} was refused by the gate)" if tried else "queued"
        )
    verb = "used in" if unit.state is UnitState.USED else "held out to test"
    wanted = UnitUse.HELD_OUT if unit.state is UnitState.HELD_OUT else UnitUse.TRAINED
    versions = [use.version for use in seen if use.use is wanted and use.state is not AdapterState.REJECTED]
    return Fate(unit.state, f"{verb} v{versions[-1]}" if versions else unit.state.replace("_", " "))


def unjudged(store: Store, limit: int = 200) -> list[NextState]:
    """Replies that were followed by a message of the owner's which nobody has looked at yet."""
    rows = store.conn.execute(
        """
        SELECT reply.id, question.text AS question, reply.text AS answer, next.text AS next_message
        FROM messages AS reply
        JOIN messages AS question ON question.id = reply.parent AND question.role = 'user'
        JOIN messages AS next ON next.parent = reply.id AND next.role = 'user'
        JOIN conversations ON conversations.id = reply.conversation AND conversations.train = ?
        LEFT JOIN judged ON judged.message = reply.id
        WHERE reply.role = ? AND reply.status IN (?, ?) AND judged.message IS NULL
        GROUP BY reply.id HAVING next.rowid = min(next.rowid)
        ORDER BY reply.rowid LIMIT ?
        """,
        (Consent.ALLOW, Role.ASSISTANT, MessageStatus.COMPLETE, MessageStatus.STOPPED, limit),
    )
    return [NextState(row["id"], row["question"], row["answer"], row["next_message"]) for row in rows]


def mark_judged(store: Store, reply: str, verdict: str) -> None:
    """Note that a reply's next state has been looked at, and what was seen."""
    with store.write() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO judged (message, created, verdict) VALUES (?, ?, ?)",
            (reply, now(), verdict),
        )


def _refusal(store: Store, reply: conversations.Message, made: Draft, consent: Consent) -> str | None:
    if consent is Consent.DENY:
        return NO_CONSENT
    if reply.status is MessageStatus.FAILED and made.kind is not UnitKind.CORRECTION:
        return "the reply was cut off by a fault of the program, not by the model"
    if not reply.text.strip() and made.kind is not UnitKind.CORRECTION:
        return "the reply is empty"
    question = "" if reply.parent is None else conversations.get_message(store, reply.parent).text
    if any(map(contains_secret, (question, reply.text, made.target or "", made.hint or ""))):
        return HOLDS_KEY
    return None


def _content_hash(store: Store, reply: conversations.Message, made: Draft) -> str:
    context = [[str(message.role), message.text] for message in conversations.path(store, reply.id)]
    content = [context, made.kind, made.reward, made.target, made.hint]
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()


def _set_state(connection: sqlite3.Connection, unit: str, state: UnitState, reason: str | None) -> None:
    connection.execute(
        "UPDATE units SET state = ?, reason = ?, updated = ? WHERE id = ?", (state, reason, now(), unit)
    )


def _in_state(store: Store, states: tuple[UnitState, ...]) -> list[Unit]:
    marks = ", ".join("?" * len(states))
    rows = store.conn.execute(f"SELECT * FROM units WHERE state IN ({marks}) ORDER BY rowid", states)
    return [_unit(row) for row in rows]


def _unit(row: sqlite3.Row) -> Unit:
    return Unit(
        row["id"],
        row["message"],
        row["conversation"],
        UnitKind(row["kind"]),
        row["reward"],
        row["target"],
        row["hint"],
        row["weight"],
        UnitState(row["state"]),
        row["reason"],
        row["content_hash"],
        row["created"],
    )
