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

from store import conversations, failures, provenance, siblings
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
OVERTURNED = "you said that nothing was asked again"
NO_BETTER = "you said that the answer you went on from was no better"
HOLDS_KEY = "it contains what looks like a password or key"
FEWEST = 2
"""Units that the first run takes: one to learn from, one to test on."""


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
        # Data that was quoted is never a target; a unit without a target is refused with that reason.
        target = provenance.own_correction(correction["text"], reply_text) or None
        return Draft(UnitKind.CORRECTION, -1.0, target, hint, TRUST[SignalSource.USER], used)
    thumb = latest.get((SignalKind.THUMB, SignalSource.USER))
    if thumb is not None and thumb["value"]:
        kind = UnitKind.THUMB_UP if thumb["value"] > 0 else UnitKind.THUMB_DOWN
        note = provenance.own_words(thumb["text"] or hint or "") or None
        return Draft(
            kind,
            float(thumb["value"]),
            None,
            note if kind is UnitKind.THUMB_DOWN else None,
            TRUST[SignalSource.USER],
            used,
        )
    for source in (SignalSource.USER, SignalSource.RULE, SignalSource.JUDGE):
        requery = latest.get((SignalKind.REQUERY, source))
        # The owner's explicit "no opinion" (a cleared thumb) also silences what the rules think they saw.
        if source is SignalSource.USER and requery is not None and not requery["value"]:
            return None
        if requery is not None and requery["value"] and thumb is None:
            weight = TRUST[source] * float(requery["confidence"])
            note = provenance.own_words(requery["text"] or hint or "") or None
            return Draft(UnitKind.REQUERY, -1.0, None, note, weight, used)
    lesser = latest.get((SignalKind.LESSER, SignalSource.USER)) or latest.get(
        (SignalKind.LESSER, SignalSource.RULE)
    )
    if lesser is not None and lesser["value"] and thumb is None:
        weight = TRUST[SignalSource(lesser["source"])] * float(lesser["confidence"])
        return Draft(UnitKind.LESSER, -1.0, None, None, weight, used)
    thanks = latest.get((SignalKind.THANKS, SignalSource.JUDGE))
    if thanks is not None and thanks["value"] and thumb is None:
        weight = TRUST[SignalSource.JUDGE] * float(thanks["confidence"])
        return Draft(UnitKind.THANKS, 1.0, None, None, weight, used)
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
                _set_state(connection, existing["id"], UnitState.REFUSED, _why_nothing_is_left(rows[-1]))
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
            OVERTURNED,
            NO_BETTER,
            siblings.UNCLEAR,
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


def _why_nothing_is_left(last: sqlite3.Row) -> str:
    """What the last signal, after which nothing is left of a reply's unit, means for it."""
    if last["kind"] == SignalKind.LESSER:
        return NO_BETTER if last["source"] == SignalSource.USER else siblings.UNCLEAR
    return OVERTURNED if last["kind"] == SignalKind.REQUERY else TAKEN_BACK


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

    A unit of a run that the gate refused waits on, but would otherwise start the same run for ever. What only
    an adapter held that is tainted now is new again. Thanks alone start none: they say that all is well. Nor does what
    only compares two answers, which is too little.
    """
    rows = store.conn.execute(
        "SELECT * FROM units WHERE state = ? AND kind NOT IN (?, ?) AND NOT EXISTS (SELECT 1 FROM unit_uses "
        "JOIN adapters ON adapters.id = unit_uses.adapter AND adapters.state != ? "
        "WHERE unit_uses.unit = units.id AND unit_uses.content_hash = units.content_hash) ORDER BY units.rowid",
        (UnitState.QUEUED, UnitKind.THANKS, UnitKind.LESSER, AdapterState.TAINTED),
    )
    return [_unit(row) for row in rows]


def make_a_run(store: Store) -> bool:
    """Whether what waits is enough for a run: one to learn from, and one to test on that may be an earlier one."""
    tests = store.conn.execute("SELECT 1 FROM units WHERE state = ?", (UnitState.HELD_OUT,)).fetchone()
    telling = [unit for unit in waiting(store) if not unit.kind.compares]
    return len(telling) >= (FEWEST if tests is None else 1)


def learned(store: Store) -> list[Unit]:
    """Units an earlier round used or held out, oldest first: the ledger that replay is drawn from."""
    return _in_state(store, (UnitState.USED, UnitState.HELD_OUT))


def refused(store: Store, limit: int = -1) -> list[Unit]:
    """Units that will not be learned, with their reasons, newest first; all of them, or the newest ``limit``."""
    rows = store.conn.execute(
        "SELECT * FROM units WHERE state = ? ORDER BY rowid DESC LIMIT ?", (UnitState.REFUSED, limit)
    )
    return [_unit(row) for row in rows]


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
    return [_use(row) for row in rows]


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


def queue_lost(store: Store) -> list[str]:
    """Let what no sound adapter holds any more wait again; returns those units."""
    with store.write() as connection:
        rows = connection.execute(
            "SELECT id FROM units WHERE state IN (?, ?) AND id NOT IN (SELECT unit FROM unit_uses "
            "JOIN adapters ON adapters.id = adapter WHERE adapters.state IN (?, ?))",
            (UnitState.USED, UnitState.HELD_OUT, AdapterState.ACTIVE, AdapterState.RETIRED),
        ).fetchall()
        for row in rows:
            _set_state(connection, row["id"], UnitState.QUEUED, None)
    return [row["id"] for row in rows]


def lessons(store: Store, base_hash: str, last: int) -> list[tuple[Unit, int]]:
    """What the rounds of a base up to version ``last`` taught, in the ledger's order, with the round of each.

    A unit belongs to the first version that went live with it in its present form.
    """
    rows = store.conn.execute(
        "SELECT units.*, min(version) AS round FROM units "
        "JOIN unit_uses ON unit_uses.unit = units.id AND unit_uses.content_hash = units.content_hash "
        "JOIN adapters ON adapters.id = unit_uses.adapter WHERE base_hash = ? AND version <= ? "
        "AND adapters.id IN (SELECT adapter FROM activations) AND units.state != ? "
        "GROUP BY units.id ORDER BY units.rowid",
        (base_hash, last, UnitState.REFUSED),
    )
    return [(_unit(row), row["round"]) for row in rows]


def set_learned(store: Store, learned: Iterable[Unit]) -> None:
    """Note units as learned or held out, as their states say, unless their ratings have changed meanwhile."""
    with store.write() as connection:
        connection.executemany(
            "UPDATE units SET state = ?, reason = NULL, updated = ? WHERE id = ? AND content_hash = ? AND state != ?",
            [(unit.state, now(), unit.id, unit.content_hash, UnitState.REFUSED) for unit in learned],
        )


def fate(store: Store, message: str) -> Fate | None:
    """What became of a reply's rating, in words; None where it was never rated."""
    unit = of_message(store, message)
    return None if unit is None else _fate(unit, uses(store, unit.id))


def fates(store: Store, conversation: str) -> dict[str, Fate]:
    """What became of the ratings of a conversation's replies, by reply."""
    # CROSS JOIN: the few messages of one conversation lead, never all units.
    rows = store.conn.execute(
        "SELECT units.* FROM messages CROSS JOIN units ON units.message = messages.id "
        "WHERE messages.conversation = ?",
        (conversation,),
    ).fetchall()
    seen: dict[str, list[Use]] = {}
    for row in store.conn.execute(
        "SELECT unit, unit_uses.adapter, version, adapters.state, use FROM messages "
        "CROSS JOIN units ON units.message = messages.id CROSS JOIN unit_uses ON unit_uses.unit = units.id "
        "CROSS JOIN adapters ON adapters.id = unit_uses.adapter "
        "WHERE messages.conversation = ? ORDER BY version",
        (conversation,),
    ):
        seen.setdefault(row["unit"], []).append(_use(row))
    return {row["message"]: _fate(_unit(row), seen.get(row["id"], [])) for row in rows}


def _fate(unit: Unit, every_use: list[Use]) -> Fate:
    if unit.state is UnitState.REFUSED:
        return Fate(unit.state, f"not used: {unit.reason}")
    seen = [use for use in every_use if use.state is not AdapterState.TAINTED]
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
        FROM unjudged
        CROSS JOIN messages AS reply ON reply.id = unjudged.message AND reply.status IN (?, ?)
        JOIN conversations ON conversations.id = reply.conversation AND conversations.train = ?
        JOIN messages AS question ON question.id = reply.parent
        JOIN messages AS next ON next.rowid =
          (SELECT min(rowid) FROM messages WHERE parent = reply.id AND role = 'user')
        LEFT JOIN origins ON origins.message = next.id
        WHERE origins.message IS NULL AND reply.error_class IS NULL
        ORDER BY unjudged.seq LIMIT ?
        """,
        (MessageStatus.COMPLETE, MessageStatus.STOPPED, Consent.ALLOW, limit),
    )
    return [NextState(row["id"], row["question"], row["answer"], row["next_message"]) for row in rows]


def still_follows(store: Store, state: NextState) -> bool:
    """Whether a reply and what followed it are still there as they were read: either may be forgotten meanwhile."""
    row = store.conn.execute(
        "SELECT text FROM messages WHERE parent = ? AND role = ? ORDER BY rowid LIMIT 1",
        (state.reply, Role.USER),
    ).fetchone()
    return row is not None and row["text"] == state.next_message


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
    if made.kind is UnitKind.REQUERY and not failures.counts_as_quality(reply.error_class):
        return "the reply was broken off, so what was asked next says nothing about it"
    if made.kind is UnitKind.CORRECTION and made.target is None:
        return provenance.ONLY_QUOTED
    if made.kind is not UnitKind.CORRECTION and reply.base_hash is None and not _imported(store, reply.id):
        return provenance.NOT_MADE_HERE
    if not reply.text.strip() and made.kind is not UnitKind.CORRECTION:
        return "the reply is empty"
    question = "" if reply.parent is None else conversations.get_message(store, reply.parent).text
    if any(map(contains_secret, (question, reply.text, made.target or "", made.hint or ""))):
        return HOLDS_KEY
    return None


def _imported(store: Store, message: str) -> bool:
    """Whether a file brought it: then the conversation's dial decides, which the owner has to turn on."""
    return store.conn.execute("SELECT 1 FROM origins WHERE message = ?", (message,)).fetchone() is not None


def _content_hash(store: Store, reply: conversations.Message, made: Draft) -> str:
    context = [[str(message.role), message.text] for message in conversations.path(store, reply.id)]
    content = [context, made.kind, made.reward, made.target, made.hint]
    if made.kind.compares:
        # The kept answer is half of the lesson, and no part of the unit: its text belongs to its own message.
        kept = siblings.kept_over(store, reply.id)
        content.append(None if kept is None else kept.text)
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


def _use(row: sqlite3.Row) -> Use:
    return Use(row["unit"], row["adapter"], row["version"], AdapterState(row["state"]), UnitUse(row["use"]))
