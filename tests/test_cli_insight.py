"""From the command line: the story of a reply, flipping a verdict, what changed, and sorting conversations."""

from __future__ import annotations

import json

import pytest

from store import conversations, signals, units
from store.conversations import ReplyEnd
from store.db import Store
from store.home import Home
from store.types import FinishReason, MessageStatus, SignalKind, SignalSource, UnitState
from tests import seed
from tests.cli_helpers import Mynah, runner, talk, teach
from tests.host_helpers import live_adapter
from tests.scripted import scripted_host


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def test_the_story_of_a_reply_from_signal_to_decision(mynah: Mynah, store: Store) -> None:
    reply = talk(store, "How long?", "Ten hours.")
    signals.record(store, reply.id, SignalKind.CORRECTION, text="Ten minutes.")
    unit = units.of_message(store, reply.id)
    assert unit is not None
    adapter = teach(store, "one", unit)
    told = mynah("story", reply.id).out
    for line in (
        "question  How long?",
        "signal    correction by user",
        "used in v1",
        f"version   v1 ({adapter}",
    ):
        assert line in told
    data = json.loads(mynah("story", reply.id[:6], "--json").out)
    assert data["fate"] == "used in v1"
    assert data["signals"][0]["counts"] is True
    assert data["decisions"][0]["choice"]["action"] == "promote"
    assert data["unit"]["target"] == "Ten minutes."


def test_a_story_of_a_question_or_of_nothing_is_refused(mynah: Mynah, store: Store) -> None:
    reply = talk(store, "How long?", "Ten hours.")
    assert reply.parent is not None
    ran = mynah("story", reply.parent)
    assert ran.code == 2
    assert "only replies have a story" in ran.err
    assert mynah("story", "m0nothing").code == 3


def test_a_verdict_is_flipped_and_flipped_back(mynah: Mynah, store: Store) -> None:
    reply = talk(store, "How long?", "Ten hours.")
    ran = mynah("flip", reply.id)
    assert ran.code == 2
    assert "nothing was said after this reply" in ran.err
    talk(store, "I meant minutes", "Ten minutes.", reply.conversation)
    signals.record(
        store, reply.id, SignalKind.REQUERY, value=1.0, text="hint", source=SignalSource.RULE, confidence=0.9
    )
    flipped = json.loads(mynah("flip", reply.id, "--json").out)
    assert flipped["asked_again"] is False
    assert flipped["supersedes"] == signals.all_of(store, reply.id)[0].id
    assert flipped["fate"] == "not used: you said that nothing was asked again"
    back = mynah("flip", reply.id)
    assert back.out == "you had to ask again: queued\n"
    unit = units.of_message(store, reply.id)
    assert unit is not None
    assert (unit.state, unit.weight, unit.hint) == (UnitState.QUEUED, 1.0, "I meant minutes")


def test_a_verdict_on_which_answer_was_kept_is_told_and_flipped(mynah: Mynah, store: Store) -> None:
    conversation, question, first = seed.say(store, "How long?", "Ten hours.")
    signals.record(store, first, SignalKind.REGENERATE, value=1.0)
    second = conversations.begin_reply(store, conversation, question, seed.START).id
    conversations.finish_reply(
        store, second, ReplyEnd("Ten minutes.", MessageStatus.COMPLETE, FinishReason.STOP)
    )
    seed.say(store, "and a soft one?", "Four.", conversation, second)
    signals.record(store, first, SignalKind.LESSER, value=1.0, source=SignalSource.RULE, confidence=0.5)
    told = mynah("story", first).out
    assert f"verdict   another answer ({second}) was better, by rule; `mynah flip {first}`" in told
    assert "lesson    u" in told
    assert ", lesser: queued" in told
    assert json.loads(mynah("story", first, "--json").out)["compared"]["kept"] == second
    flipped = json.loads(mynah("flip", first, "--json").out)
    assert (flipped["asked_again"], flipped["another_better"]) == (False, False)
    assert flipped["fate"] == f"not used: {units.NO_BETTER}"
    assert mynah("flip", first).out == "the other answer was better: queued\n"


def test_a_correction_outweighs_any_verdict(mynah: Mynah, store: Store) -> None:
    reply = talk(store, "How long?", "Ten hours.")
    talk(store, "I meant minutes", "Ten minutes.", reply.conversation)
    signals.record(store, reply.id, SignalKind.CORRECTION, text="Ten minutes.")
    assert "queued" in mynah("flip", reply.id).out
    assert "queued" in mynah("flip", reply.id).out
    unit = units.of_message(store, reply.id)
    assert unit is not None
    assert unit.target == "Ten minutes."


def test_what_changed_since_a_day(mynah: Mynah, store: Store) -> None:
    reply = talk(store, "How long?", "Ten hours.")
    signals.record(store, reply.id, SignalKind.CORRECTION, text="Ten minutes.")
    unit = units.of_message(store, reply.id)
    assert unit is not None
    teach(store, "one", unit)
    said = mynah("learn", "changes").out
    assert "1 replies, 0% left as they were: 1 corrected" in said
    assert "v1 went live: all checks passed" in said
    data = json.loads(mynah("learn", "changes", "--since", "7d", "--json").out)
    assert [event["what"] for event in data["events"]] == ["live"]
    assert data["left_alone"] == 0.0
    assert "no replies" in mynah("learn", "changes", "--since", "2199-01-01").out
    wrong = mynah("learn", "changes", "--since", "tomorrow")
    assert wrong.code == 2
    assert "a date as in" in wrong.err


def test_conversations_are_pinned_archived_and_tagged(mynah: Mynah, store: Store) -> None:
    first = talk(store, "first thing", "1").conversation
    second = talk(store, "second thing", "2").conversation
    assert mynah("conversations", "pin", first).code == 0
    assert [each["id"] for each in json.loads(mynah("conversations", "list", "--json").out)] == [
        first,
        second,
    ]
    assert "* first thing" in mynah("conversations", "list").out
    assert json.loads(mynah("conversations", "unpin", first, "--json").out)["pinned"] is None
    assert mynah("conversations", "archive", first).code == 0
    assert [each["id"] for each in json.loads(mynah("conversations", "list", "--json").out)] == [second]
    archived = json.loads(mynah("conversations", "list", "--archived", "--json").out)
    assert [each["id"] for each in archived] == [first]
    assert first in mynah("conversations", "search", "first").out
    assert mynah("conversations", "unarchive", first).code == 0
    assert mynah("conversations", "list", "--archived").err == "no conversation is archived\n"
    assert "#home #work" in mynah("conversations", "tag", first, "Work", "#home").out
    assert conversations.get(store, first).tags == ("home", "work")
    assert first in mynah("conversations", "search", "tag:work").out
    assert json.loads(mynah("conversations", "tag", first, "work", "--off", "--json").out)["tags"] == ["home"]
    assert "no tags" in mynah("conversations", "tag", first, "--off").out
    assert mynah("conversations", "tag", first).code == 2
    assert mynah("conversations", "tag", first, "two words").code == 2


def test_search_takes_filters(mynah: Mynah, store: Store) -> None:
    reply = talk(store, "an egg", "ten hours")
    signals.record(store, reply.id, SignalKind.THUMB, value=-1)
    talk(store, "an egg again", "ten minutes")
    found = json.loads(mynah("conversations", "search", "rated:down", "--json").out)
    assert [hit["message"] for hit in found] == [reply.id]
    wrong = mynah("conversations", "search", "egg", "rated:sideways")
    assert wrong.code == 2
    assert "rated: takes up or down" in wrong.err


def test_two_versions_answer_the_same_question_and_nothing_is_kept(
    home: Home, mynah: Mynah, store: Store
) -> None:
    with scripted_host(home):
        first, second = live_adapter(store, b"one"), live_adapter(store, b"two")
        ran = mynah("adapters", "compare", first, "version", "--json")
        replies = json.loads(ran.out)["replies"]
        assert [(each["adapter"], each["text"]) for each in replies] == [
            (None, "base"),
            (first, f"{first}*1"),
        ]
        ran = mynah("adapters", "compare", second[:8], "version", "--against", first)
        assert ran.out == f"{first}:\n{first}*1\n\n{second[:8]}:\n{second}*1\n"
        assert mynah("adapters", "compare", "nosuch", "version").code == 3
        assert mynah("adapters", "compare", first, "fail 2").code == 1
    assert conversations.list_(store) == []
