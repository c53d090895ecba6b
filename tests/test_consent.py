"""The three dials: what they allow, what turning one does at once, and what is not to be kept."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest

from app.cli.main import run
from app.host.capture import match, save
from app.model.renderer import Renderer, Turn
from app.service import Service
from learner import examples
from learner.examples import Example, Refusal
from learner.round import Round
from learner.yielding import Yielding
from store import adapters, consent, conversations, runs, search, settings, signals, units
from store.activity import Activity
from store.consent import By
from store.db import Store
from store.errors import NotFound, UsageError
from store.exchange import export, records
from store.exchange.export import Format, Request, Tally
from store.home import Home
from store.redaction import Redactor
from store.types import Consent, Dial, Role, SignalKind, Trigger, UnitState, UnitUse
from tests.scripted import ByteVocab, scripted_host
from tests.seed import START, adapter, corrected, say, unit_of

ALLOW, DENY = Consent.ALLOW, Consent.DENY
OPEN = {Dial.HISTORY: ALLOW, Dial.MEMORY: ALLOW, Dial.TRAIN: ALLOW}
SHUT = {Dial.HISTORY: DENY, Dial.MEMORY: DENY, Dial.TRAIN: DENY}


def built(store: Store, unit: units.Unit) -> Example | Refusal:
    return examples.build(store, Renderer(ByteVocab(), None), unit, Redactor([]))


class TestDials:
    def test_they_are_open_and_unrecorded_at_first(self, store: Store) -> None:
        conversation, _, _ = say(store, "Q", "A")
        assert consent.of(store, conversation) == OPEN
        assert consent.turns(store, conversation) == []

    def test_each_turn_is_a_row_that_stays(self, store: Store) -> None:
        conversation, _, _ = say(store, "Q", "A")
        consent.set_(store, conversation, Dial.MEMORY, DENY)
        consent.set_(store, conversation, Dial.MEMORY, DENY)
        consent.set_(store, conversation, Dial.MEMORY, ALLOW)
        turned = consent.turns(store, conversation)
        assert [(each.dial, each.value, each.by) for each in turned] == [
            (Dial.MEMORY, DENY, By.OWNER),
            (Dial.MEMORY, ALLOW, By.OWNER),
        ]
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            store.conn.execute("UPDATE consents SET value = 'deny'")

    def test_new_conversations_take_the_defaults_whoever_starts_them(self, store: Store) -> None:
        consent.set_default(store, Dial.TRAIN, DENY)
        save(store, match(store, [Turn(Role.USER, "from a program")]))
        conversations.create(store, "chat", "chat")
        for each in conversations.list_(store):
            assert consent.of(store, each.id) == {**OPEN, Dial.TRAIN: DENY}, each.source
        assert {each.source for each in conversations.list_(store)} == {"api", "chat"}

    def test_defaults_leave_old_conversations_alone(self, store: Store) -> None:
        conversation, _, _ = say(store, "Q", "A")
        consent.set_default(store, Dial.HISTORY, DENY)
        assert consent.of(store, conversation) == OPEN
        assert consent.defaults(store) == SHUT
        with pytest.raises(UsageError, match="turn history on first"):
            consent.set_default(store, Dial.TRAIN, ALLOW)
        assert consent.set_default(store, Dial.HISTORY, ALLOW) == OPEN

    def test_no_such_conversation(self, store: Store) -> None:
        with pytest.raises(NotFound):
            consent.set_(store, "c0", Dial.TRAIN, DENY)

    def test_the_service_of_the_chat_turns_them_too(self, home: Home) -> None:
        mynah = Service(home)
        conversation, _, _ = say(mynah.store, "Q", "A")
        change = mynah.set_consent(conversation, Dial.TRAIN, DENY)
        assert change.dials == mynah.consent(conversation) == {**OPEN, Dial.TRAIN: DENY}
        mynah.set_default_consent(Dial.MEMORY, DENY)
        assert mynah.consent() == {**OPEN, Dial.MEMORY: DENY}
        mynah.close()


class TestTraining:
    def test_off_refuses_what_waits_and_on_brings_it_back(self, store: Store) -> None:
        unit = corrected(store, "Q", "A", "B")
        change = consent.set_(store, unit.conversation, Dial.TRAIN, DENY)
        assert (change.refused, change.queued) == (1, 0)
        assert units.waiting(store) == []
        assert unit_of(store, unit.message).reason == units.NO_CONSENT
        change = consent.set_(store, unit.conversation, Dial.TRAIN, ALLOW)
        assert (change.refused, change.queued) == (0, 1)
        assert [(each.id, each.target, each.reason) for each in units.waiting(store)] == [
            (unit.id, "B", None)
        ]

    def test_on_brings_nothing_back_that_was_refused_for_more(self, store: Store) -> None:
        unit = corrected(store, "Q", "A", "the password: hunter2horse")
        assert unit_of(store, unit.message).reason == units.HOLDS_KEY
        consent.set_(store, unit.conversation, Dial.TRAIN, DENY)
        assert consent.set_(store, unit.conversation, Dial.TRAIN, ALLOW).queued == 0
        assert unit_of(store, unit.message).reason == units.HOLDS_KEY

    def test_what_was_learned_stays_used_and_is_left_out_of_the_next_lesson(self, store: Store) -> None:
        unit, other = corrected(store, "Q", "A", "B"), corrected(store, "Q2", "A2", "B2")
        live = adapter(store, b"one", [(unit, UnitUse.TRAINED), (other, UnitUse.HELD_OUT)])
        adapters.publish(store, live.id, {"passed": True})
        change = consent.set_(store, unit.conversation, Dial.TRAIN, DENY)
        assert (change.refused, change.taught) == (0, (live.id,))
        assert unit_of(store, unit.message).state is UnitState.USED
        refused = built(store, unit)
        assert isinstance(refused, Refusal)
        assert refused.reason == units.NO_CONSENT
        assert isinstance(built(store, other), Example)

    def test_consent_is_asked_again_when_the_lesson_is_made(self, store: Store) -> None:
        """A dial turned behind the units' back, as a restored or edited store might have it."""
        unit = corrected(store, "Q", "A", "B")
        store.conn.execute("UPDATE conversations SET train = 'deny'")
        assert [each.id for each in units.waiting(store)] == [unit.id]
        assert isinstance(built(store, unit), Refusal)

    @pytest.mark.parametrize("use", [UnitUse.TRAINED, UnitUse.REPLAYED, UnitUse.HELD_OUT])
    def test_consent_taken_back_during_a_run_keeps_its_adapter_from_going_live(
        self, store: Store, use: UnitUse
    ) -> None:
        unit = corrected(store, "Q", "A", "B")
        if use is UnitUse.REPLAYED:
            earlier = adapter(store, b"old", [(unit, UnitUse.TRAINED)])
            adapters.publish(store, earlier.id, {"passed": True})
        candidate = adapter(store, b"new", [(unit, use)])
        with Activity(store.home) as lease:
            under_way = Round(store, runs.request(store, Trigger.MANUAL), Yielding(lease))
            assert not under_way._taken_back(candidate)
            consent.set_(store, unit.conversation, Dial.TRAIN, DENY)
            assert under_way._taken_back(candidate)

    def test_nobody_judges_what_follows(self, store: Store) -> None:
        conversation, _, reply = say(store, "Q one two three", "A")
        conversations.append_user(store, conversation, "No, I meant Q", reply)
        assert len(units.unjudged(store)) == 1
        consent.set_(store, conversation, Dial.TRAIN, DENY)
        assert units.unjudged(store) == []


class TestHistory:
    def test_off_takes_the_others_along_and_on_does_not_bring_them_back(self, store: Store) -> None:
        unit = corrected(store, "Q", "A", "B")
        change = consent.set_(store, unit.conversation, Dial.HISTORY, DENY)
        assert (change.dials, change.along) == (SHUT, (Dial.MEMORY, Dial.TRAIN))
        assert change.refused == 1
        for dial in (Dial.MEMORY, Dial.TRAIN):
            with pytest.raises(UsageError, match="not kept in history"):
                consent.set_(store, unit.conversation, dial, ALLOW)
        consent.set_(store, unit.conversation, Dial.HISTORY, ALLOW)
        assert consent.of(store, unit.conversation) == {**SHUT, Dial.HISTORY: ALLOW}
        assert consent.set_(store, unit.conversation, Dial.TRAIN, ALLOW).queued == 1

    def test_it_is_not_listed_found_or_exported(self, store: Store) -> None:
        conversation, _, _ = say(store, "the blue giraffe", "A")
        kept, _, _ = say(store, "another giraffe", "A")
        consent.set_(store, conversation, Dial.HISTORY, DENY)
        assert [each.id for each in conversations.list_(store)] == [kept]
        assert {hit.conversation for hit in search.search(store, "giraffe")} == {kept}
        request = Request(Format.ATIF, records.UNREDACTED, "0")
        assert "blue giraffe" not in "".join(export.lines(store, request, Tally()))

    def test_it_goes_on_working_while_it_is_used(self, store: Store) -> None:
        """A program that resends its transcript must find it, or each turn would start a conversation."""
        settings.put(store, settings.KEEP_HISTORY, DENY)
        first = save(store, match(store, [Turn(Role.USER, "hi")]))
        reply = conversations.begin_reply(store, first.conversation, first.user_message, START)
        assert consent.unkept(store) == []
        assert consent.sweep(store, 0.0) == 0
        conversations.recover(store)
        text = conversations.get_message(store, reply.id).text
        transcript = [Turn(Role.USER, "hi"), Turn(Role.ASSISTANT, text), Turn(Role.USER, "more")]
        assert match(store, transcript).conversation == first.conversation

    def test_it_is_deleted_after_an_idle_hour_to_its_last_byte(self, store: Store) -> None:
        conversation, _, _ = say(store, "zebrafish in a wardrobe", "A")
        kept, _, _ = say(store, "keep me", "A")
        consent.set_(store, conversation, Dial.HISTORY, DENY)
        assert consent.sweep(store) == 0
        assert consent.of(store, conversation) == SHUT
        store.conn.execute("UPDATE conversations SET updated = '2020-01-01T00:00:00.000000+00:00'")
        assert consent.sweep(store) == 1
        with pytest.raises(NotFound):
            conversations.get(store, conversation)
        assert [each.id for each in conversations.list_(store)] == [kept]
        assert_nowhere(b"zebrafish", store.home.root)

    def test_what_taught_an_adapter_is_hidden_and_not_half_deleted(self, store: Store) -> None:
        unit = corrected(store, "Q", "A", "B")
        adapter(store, b"one", [(unit, UnitUse.TRAINED)])
        consent.set_(store, unit.conversation, Dial.HISTORY, DENY)
        assert consent.sweep(store, 0.0) == 0
        assert len(conversations.path(store, unit.message)) == 2

    def test_the_end_of_the_host_is_the_end_of_it(self, home: Home) -> None:
        with Store.open(home) as store:
            conversation, _, _ = say(store, "zebrafish in a wardrobe", "A")
        with scripted_host(home), Store.open(home) as store:
            consent.set_(store, conversation, Dial.HISTORY, DENY)
        deadline = time.monotonic() + 120.0
        while b"zebrafish" in home.db.read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert_nowhere(b"zebrafish", home.root)


def test_an_import_records_who_shut_the_dials_when_it_grows(store: Store, tmp_path: Path) -> None:
    from store.exchange.intake import import_file

    path = tmp_path / "file.json"
    turns = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]

    def chatgpt(count: int) -> None:
        nodes = {
            str(n): {
                "id": str(n),
                "parent": str(n - 1) if n else None,
                "children": [str(n + 1)] if n + 1 < count else [],
                "message": {
                    "id": str(n),
                    "author": {"role": turns[n % 2]["role"]},
                    "content": {"content_type": "text", "parts": [turns[n % 2]["content"]]},
                    "create_time": 1.0 + n,
                },
            }
            for n in range(count)
        }
        whole = {
            "id": "x",
            "title": "t",
            "mapping": nodes,
            "current_node": str(count - 1),
            "create_time": 1.0,
        }
        path.write_text(json.dumps([whole]))

    chatgpt(2)
    import_file(store, path)
    [found] = conversations.list_(store)
    assert consent.of(store, found.id) == {**SHUT, Dial.HISTORY: ALLOW}
    consent.set_(store, found.id, Dial.TRAIN, ALLOW)
    chatgpt(4)
    import_file(store, path)
    assert [(each.value, each.by) for each in consent.turns(store, found.id)] == [
        (ALLOW, By.OWNER),
        (DENY, By.IMPORT),
    ]


class TestCommands:
    def test_one_conversation(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        unit = corrected(store, "Q", "A", "B")
        assert run(["conversations", "consent", unit.conversation, "--train", "deny"]) == 0
        said = capsys.readouterr()
        assert said.out.splitlines() == [
            "history  allow  kept in history",
            "memory   allow  may feed memory",
            "train    deny   may be trained on: no",
        ]
        assert said.err == "1 rating or correction will not be learned\n"
        assert run(["conversations", "consent", unit.conversation[:6], "--train", "allow", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "conversation": unit.conversation,
            "history": "allow",
            "memory": "allow",
            "train": "allow",
            "refused": 0,
            "queued": 1,
            "taught": [],
        }

    def test_it_says_what_the_dial_cannot_undo(
        self, store: Store, capsys: pytest.CaptureFixture[str]
    ) -> None:
        unit = corrected(store, "Q", "A", "B")
        live = adapter(store, b"one", [(unit, UnitUse.TRAINED)])
        adapters.publish(store, live.id, {"passed": True})
        assert run(["conversations", "consent", unit.conversation, "--train", "deny"]) == 0
        assert f"`mynah forget conversation {unit.conversation}`" in capsys.readouterr().err

    def test_both_at_once_and_what_cannot_be(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        conversation, _, reply = say(store, "Q", "A")
        signals.record(store, reply, SignalKind.THUMB, value=1)
        assert run(["conversations", "consent", conversation, "--history", "deny"]) == 0
        said = capsys.readouterr().err
        assert "deleted an hour after its last message" in said
        assert "memory and train went off with it" in said
        assert run(["conversations", "consent", conversation, "--train", "allow"]) == 2
        assert capsys.readouterr().err.startswith("mynah: ")
        assert run(["conversations", "consent", conversation, "--train", "allow", "--history", "allow"]) == 0
        assert consent.of(store, conversation) == {**OPEN, Dial.MEMORY: DENY}
        assert "it is kept; off are still memory (--memory allow)" in capsys.readouterr().err
        assert run(["conversations", "consent", "c0nothing"]) == 3
        assert run(["conversations", "consent", conversation, "--train", "maybe"]) == 2

    def test_defaults(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["consent", "--memory", "deny", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"history": "allow", "memory": "deny", "train": "allow"}
        assert run(["consent"]) == 0
        said = capsys.readouterr()
        assert "memory   deny   may feed memory: no" in said.out
        assert "mynah conversations consent ID" in said.err
        assert consent.of(store, conversations.create(store, "t", "cli"))[Dial.MEMORY] is DENY


def assert_nowhere(text: bytes, root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            assert text not in path.read_bytes(), path
