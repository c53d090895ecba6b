"""The steps of a conversation: one event each, written with what it is about, joined with what was thought of it."""

from __future__ import annotations

import json
import sqlite3

import pytest

from store import conversations, events, signals, trajectory, units
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.errors import NotFound, UsageError
from store.events import Content
from store.types import (
    ErrorClass,
    EventKind,
    FinishReason,
    MessageStatus,
    ReplayClass,
    Role,
    SignalKind,
    SignalSource,
)
from tests import seed

SAMPLER = {"temperature": 0.4, "top_p": 0.95, "top_k": 40, "repeat_penalty": 1.1, "seed": 7, "max_tokens": 9}
MACHINE = {
    "engine": "scripted 1",
    "mynah": "0.1.0",
    "cpu": "c",
    "threads": {"decode": 1, "batch": 1},
    "evaluated": [[3, 3, 1]],
}


def reply(
    store: Store, conversation: str, parent: str, *, end: ReplyEnd | None = None, sampler: object = None
) -> str:
    start = ReplyStart("b" * 64, "a1", 0.5, dict(sampler or SAMPLER), "tpl", [1, 2, 3], 1, ["memory-4"])  # type: ignore[call-overload]
    row = conversations.begin_reply(store, conversation, parent, start)
    whole = ReplyEnd(
        "Bonjour.",
        MessageStatus.COMPLETE,
        FinishReason.STOP,
        [4, 5],
        [-0.5, -0.25],
        usage={"prompt_tokens": 3},
        timings={"total": 1.5},
        machine=MACHINE,
    )
    return conversations.finish_reply(store, row.id, end or whole).id


def asked(store: Store) -> tuple[str, str]:
    conversation = conversations.create(store, "a talk", "chat")
    return conversation, conversations.append_user(store, conversation, "Say hello in French.", None).id


def test_a_turn_and_its_reactions_are_one_line_of_steps(store: Store):
    conversation, question = asked(store)
    answer = reply(store, conversation, question)
    signals.record(store, answer, SignalKind.THUMB, value=-1.0, text="shorter")
    signals.record(store, answer, SignalKind.THUMB, value=1.0)
    steps = trajectory.read(store, conversation)
    assert [step.kind for step in steps] == [
        EventKind.OWNER_MESSAGE,
        EventKind.MODEL_CALL,
        EventKind.REACTION,
        EventKind.REACTION,
    ]
    assert all(step.id for step in steps)
    call = steps[1]
    assert call.observation == {"parent": question, "prompt_tokens": [1, 2, 3], "left_out": 1}
    assert call.harness == {
        "base_hash": "b" * 64,
        "adapter": "a1",
        "scale": 0.5,
        "template": "tpl",
        "sampler": SAMPLER,
        "items": ["memory-4"],
    }
    assert call.action == {
        "role": "assistant",
        "text": "Bonjour.",
        "tokens": [4, 5],
        "logprobs": [-0.5, -0.25],
    }
    assert call.outcome == {"status": "complete", "finish_reason": "stop"}
    assert call.metadata == {"usage": {"prompt_tokens": 3}, "timings": {"total": 1.5}, **MACHINE}
    assert call.replay is ReplayClass.DETERMINISTIC
    assert [(each.value, each.text, each.superseded) for each in call.rewards] == [
        (-1.0, "shorter", True),
        (1.0, None, False),
    ]
    assert steps[2].action["text"] == "shorter"


def test_what_a_message_says_is_nowhere_in_its_events(store: Store):
    conversation, question = asked(store)
    signals.record(store, reply(store, conversation, question), SignalKind.CORRECTION, text="Salut, toi.")
    rows = store.conn.execute("SELECT * FROM events").fetchall()
    assert len(rows) == 3
    told = json.dumps([tuple(row) for row in rows])
    assert not any(text in told for text in ("French", "Bonjour", "Salut"))


def test_events_cannot_be_changed_and_go_with_their_conversation(store: Store):
    conversation, question = asked(store)
    reply(store, conversation, question)
    events.record(store, conversation, EventKind.MEMORY_WRITE, Content(action={"item": "i1"}))
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        store.conn.execute("UPDATE events SET replay = 'deterministic'")
    conversations.delete(store, conversation)
    assert store.conn.execute("SELECT count(*) FROM events").fetchone()[0] == 0


def test_a_step_is_written_with_its_message_or_not_at_all(store: Store, monkeypatch: pytest.MonkeyPatch):
    conversation, question = asked(store)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the disk")

    monkeypatch.setattr(events, "insert", broken)
    with pytest.raises(RuntimeError):
        conversations.append_user(store, conversation, "again", question)
    with pytest.raises(RuntimeError):
        reply(store, conversation, question)
    monkeypatch.undo()
    assert [
        row["text"] for row in store.conn.execute("SELECT text FROM messages WHERE status = 'complete'")
    ] == ["Say hello in French."]
    assert conversations.recover(store) == 1
    *_, last = trajectory.read(store, conversation)
    assert (last.kind, last.error_class) == (EventKind.MODEL_CALL, ErrorClass.HOST_DOWN)
    assert last.replay is ReplayClass.NOT_REPLAYABLE


def test_a_reply_that_ends_twice_is_one_step(store: Store):
    conversation, question = asked(store)
    answer = reply(store, conversation, question)
    conversations.finish_reply(store, answer, ReplyEnd("late", MessageStatus.FAILED, FinishReason.ERROR))
    assert len(trajectory.read(store, conversation)) == 2


def test_tools_memory_and_guards_hold_their_own_content(store: Store):
    conversation, question = asked(store)
    tool = Content(
        observation={"result": "4"},
        harness={"tool": "calc@1"},
        action={"arguments": {"sum": "2 + 2"}},
        outcome={"exit": 0},
        metadata={"latency": 0.1, "pure": True},
    )
    events.record(store, conversation, EventKind.TOOL_CALL, tool, message=question)
    events.record(
        store,
        conversation,
        EventKind.TOOL_CALL,
        Content(action={"arguments": {}}),
        error_class=ErrorClass.TIMEOUT,
    )
    events.record(store, conversation, EventKind.GUARD_VERDICT, Content(outcome={"passed": False}))
    events.record(store, conversation, EventKind.MEMORY_WRITE, Content(action={"item": "i1"}))
    _, *steps = trajectory.read(store, conversation)
    assert (steps[0].observation, steps[0].action) == (tool.observation, tool.action)
    assert steps[0].message == question
    assert steps[1].error_class is ErrorClass.TIMEOUT
    assert [step.replay for step in steps] == [
        ReplayClass.DETERMINISTIC,
        ReplayClass.APPROXIMATE,
        ReplayClass.DETERMINISTIC,
        ReplayClass.NOT_REPLAYABLE,
    ]
    with pytest.raises(UsageError):
        events.record(store, conversation, EventKind.MODEL_CALL, Content())
    other, _ = asked(store)
    with pytest.raises(NotFound):
        events.record(store, other, EventKind.TOOL_CALL, tool, message=question)


def test_a_tools_message_is_a_tool_call_with_its_text(store: Store):
    conversation, question = asked(store)
    conversations.append(store, conversation, Role.TOOL, "22 degrees", question)
    *_, step = trajectory.read(store, conversation)
    assert (step.kind, step.action["text"]) == (EventKind.TOOL_CALL, "22 degrees")


def test_what_was_written_before_events_were_kept_reads_as_steps(store: Store):
    conversation, question = asked(store)
    answer = reply(store, conversation, question)
    signals.record(store, answer, SignalKind.THUMB, value=1.0)
    before = trajectory.read(store, conversation)
    store.conn.execute("DROP TRIGGER events_append_only")
    store.conn.execute("DELETE FROM events")
    after = trajectory.read(store, conversation)
    assert [step.id for step in after] == [None, None, None]
    for old, new in zip(before, after, strict=True):
        assert (new.kind, new.action, new.harness, new.rewards) == (
            old.kind,
            old.action,
            old.harness,
            old.rewards,
        )
    # How it was computed is not known any more.
    assert after[1].replay is ReplayClass.APPROXIMATE
    signals.record(store, answer, SignalKind.THUMB, value=0.0)
    assert [step.id is None for step in trajectory.read(store, conversation)] == [True, True, True, False]


def test_a_verdict_of_the_judge_is_a_reward_too(store: Store):
    conversation, question = asked(store)
    answer = reply(store, conversation, question)
    units.mark_judged(store, answer, "phrase")
    signals.record(store, answer, SignalKind.REQUERY, value=1.0, source=SignalSource.RULE, confidence=0.9)
    call = trajectory.read(store, conversation)[1]
    assert call.outcome["judged"] == "phrase"
    assert [(each.source, each.confidence) for each in call.rewards] == [("rule", 0.9)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ReplayClass.DETERMINISTIC),
        ({"machine": {}}, ReplayClass.APPROXIMATE),
        ({"machine": {**MACHINE, "evaluated": None}}, ReplayClass.APPROXIMATE),
        ({"sampler": {**SAMPLER, "seed": None}}, ReplayClass.APPROXIMATE),
        ({"tokens": ()}, ReplayClass.NOT_REPLAYABLE),
    ],
)
def test_the_class_of_a_reply_follows_from_what_was_recorded(
    store: Store, change: dict[str, object], expected: ReplayClass
):
    conversation, question = asked(store)
    end = ReplyEnd(
        "x",
        MessageStatus.COMPLETE,
        FinishReason.STOP,
        change.get("tokens", (4,)),  # type: ignore[arg-type]
        machine=change.get("machine", MACHINE),  # type: ignore[arg-type]
    )
    given = {name: value for name, value in dict(change.get("sampler", SAMPLER)).items() if value is not None}  # type: ignore[call-overload]
    reply(store, conversation, question, end=end, sampler=given)
    assert trajectory.read(store, conversation)[1].replay is expected


def test_a_conversation_that_is_not_there(store: Store):
    with pytest.raises(NotFound):
        trajectory.read(store, "c0000000000")


def test_seeded_turns_have_events(store: Store):
    conversation, _, _ = seed.say(store, "Hello?", "Hello.")
    assert len(trajectory.read(store, conversation)) == 2
