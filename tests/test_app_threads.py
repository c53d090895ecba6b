"""A conversation as it is shown: everything known of each message, in as many questions however long it is."""

from __future__ import annotations

from app import threads
from app.threads import ThreadMessage
from store import conversations, signals, units, verdicts
from store.db import Store
from store.types import Role, SignalKind, SignalSource, UnitUse
from tests import seed


def statements(store: Store, conversation: str) -> int:
    """How many statements it takes to read a conversation."""
    asked: list[str] = []
    store.conn.set_trace_callback(asked.append)
    threads.thread(store, conversation)
    store.conn.set_trace_callback(None)
    return len(asked)


def shown(store: Store, conversation: str) -> dict[str, ThreadMessage]:
    return {each.message.id: each for each in threads.thread(store, conversation).messages}


def test_all_that_is_known_stands_beside_its_message(store: Store) -> None:
    conversation, question, first = seed.say(store, "one", "first")
    signals.record(store, first, SignalKind.THUMB, value=-1.0)
    signals.record(store, first, SignalKind.CORRECTION, text="better")
    unit = seed.unit_of(store, first)
    adapter = seed.adapter(store, b"one", [(unit, UnitUse.TRAINED)])
    again = conversations.begin_reply(store, conversation, question, seed.START)
    _, _, second = seed.say(store, "two", "second", conversation, first)
    seed.say(store, "elsewhere", "other", None)
    signals.record(store, second, SignalKind.THUMB, value=1.0)
    signals.record(store, second, SignalKind.THUMB, value=0.0)
    _, _, third = seed.say(store, "three", "third", conversation, second)
    signals.record(store, second, SignalKind.REQUERY, value=0.9, source=SignalSource.JUDGE, confidence=0.9)
    units.mark_judged(store, second, verdicts.PUT_RIGHT)
    fourth = conversations.append(store, conversation, Role.ASSISTANT, "said by a client", third).id

    found = shown(store, conversation)
    assert [each.message.text for each in found.values()] == [
        *("one", "first", "two", "second", "three", "third", "said by a client")
    ]
    assert found[question].siblings == [question]
    assert (found[first].siblings, found[first].sibling) == ([first, again.id], 0)
    assert (found[first].rating, found[first].corrected) == (-1.0, True)
    assert found[first].fate == units.fate(store, first)
    assert adapter.version == 1
    # Taken back: no rating, and the lesson is refused.
    assert found[second].rating is None
    assert found[second].fate == units.fate(store, second)
    assert found[second].verdict is not None
    assert found[second].seen == verdicts.PUT_RIGHT
    assert (found[third].rating, found[third].fate, found[third].verdict) == (None, None, None)
    assert found[fourth].elsewhere == "a program"
    assert found[third].elsewhere is None
    # One message by itself is shown as in its conversation.
    for message, entry in found.items():
        assert threads.message(store, message) == entry


def test_a_long_conversation_takes_no_more_questions_than_a_short_one(store: Store) -> None:
    conversation, _, reply = seed.say(store, "question", "answer")
    signals.record(store, reply, SignalKind.THUMB, value=-1.0)
    short = statements(store, conversation)
    for number in range(30):
        _, _, reply = seed.say(store, f"question {number}", "answer", conversation, reply)
        signals.record(store, reply, SignalKind.THUMB, value=-1.0)
    assert len(shown(store, conversation)) == 62
    assert statements(store, conversation) == short


def test_only_the_messages_of_the_conversation_are_read(store: Store) -> None:
    conversation, _, _ = seed.say(store, "question", "answer")
    plans = []
    asked: list[str] = []
    store.conn.set_trace_callback(asked.append)
    threads.thread(store, conversation)
    store.conn.set_trace_callback(None)
    for statement in asked:
        rows = store.conn.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        plans += [row["detail"] for row in rows]
    # A scan of what the query itself made (the path upwards) is no scan of a table.
    tables = ("messages", "signals", "units", "unit_uses", "judged", "origins")
    assert not [plan for plan in plans for table in tables if plan.startswith(f"SCAN {table}")], plans
    assert any("SEARCH messages" in plan for plan in plans)
