"""After a version went live: the sequential test and its error rates, taking back, and the drift that asks."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from app.host.supervisor import Supervisor
from app.service import Service
from app.tui import timeline_words, wording
from store import adapters, aftercare, conversations, decisions, sequential, settings, signals, timeline
from store.adapters import Adapter
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.home import Home
from store.sequential import Finding
from store.timeline import Happening
from store.types import FinishReason, MessageStatus, SignalKind, UnitUse
from tests import seed


def test_nine_objections_in_a_row_are_enough_and_eight_are_not():
    assert sequential.watch((2, 18), [True] * 8).finding is Finding.UNDECIDED
    found = sequential.watch((2, 18), [True] * 20)
    assert (found.finding, found.replies, found.objections) == (Finding.RISEN, 9, 9)


def test_a_version_that_is_as_good_is_settled():
    assert sequential.watch((2, 18), [False] * 40).finding is Finding.NOT_RISEN
    late = sequential.watch((2, 18), [False] * 40 + [True] * 40)
    assert late.finding is Finding.NOT_RISEN


def test_where_everything_was_objected_to_no_rise_is_seen():
    assert sequential.watch((8, 8), [True] * 50).finding is Finding.UNTESTABLE


def test_the_error_rates_are_those_that_were_chosen():
    chance = random.Random(7)

    def taken_back(rate: float) -> float:
        risen = 0
        for _ in range(1000):
            found = sequential.watch((18, 98), [chance.random() < rate for _ in range(400)])
            risen += found.finding is Finding.RISEN
        return risen / 1000

    assert taken_back(0.19) <= 0.005
    assert taken_back(0.39) >= 1 - 1.5 * sequential.MISSED
    assert taken_back(0.05) == 0.0


@pytest.mark.parametrize(
    ("values", "beyond"),
    [
        ([0.05, 0.15, 0.25], True),
        ([0.05, 0.06, 0.07], False),
        ([0.25, 0.26], False),
        ([0.28, 0.2, 0.29], False),
        ([0.9, 0.1, 0.18, 0.27], False),
        ([0.01, 0.1, 0.19, 0.28], True),
        ([], False),
    ],
)
def test_a_drift_that_keeps_growing_is_seen_before_it_is_too_much(values: list[float], beyond: bool):
    assert sequential.next_beyond(values, 0.3) is beyond


def reply(store: Store, adapter: str | None, number: int) -> str:
    conversation = conversations.create(store, f"q{number}", "cli")
    asked = conversations.append_user(store, conversation, f"question {number}", None)
    begun = conversations.begin_reply(
        store, conversation, asked.id, ReplyStart(seed.BASE, adapter, 1.0, {}, "t", [1])
    )
    conversations.finish_reply(
        store, begun.id, ReplyEnd("answer", MessageStatus.COMPLETE, FinishReason.STOP, [2], [-0.1])
    )
    return begun.id


def liked(store: Store, adapter: str | None, count: int, value: int = 1) -> None:
    for number in range(count):
        signals.record(store, reply(store, adapter, number), SignalKind.THUMB, value=value)


def live(store: Store, content: bytes, kl: float = 0.1) -> Adapter:
    unit = seed.corrected(store, f"Why {content!r}?", "Because it is so.", "Because.")
    adapter = seed.adapter(store, content, [(unit, UnitUse.TRAINED)])
    check = {"name": "reference_kl", "value": kl, "limit": 0.3, "passed": True, "detail": ""}
    adapters.publish(store, adapter.id, {"passed": True, "checks": [check]})
    return adapters.get(store, adapter.id)


def test_a_version_that_is_objected_to_is_taken_back_and_says_so(home: Home):
    with Store.open(home) as store:
        first = live(store, b"one")
        liked(store, first.id, 20)
        second = live(store, b"two")
        assert aftercare.look(store) == []
        liked(store, second.id, 30, value=-1)
        said = aftercare.look(store)
        serving = adapters.active(store, seed.BASE)
        assert serving.adapter is not None
        assert serving.adapter.id == first.id
        assert said == [serving.why]
        assert "you objected to 100% of its replies" in said[0]
        decision = decisions.list_(store, 1)[0]
        assert (decision.kind, decision.choice["action"], decision.choice["to"]) == (
            "watch",
            "roll back",
            first.id,
        )
        assert decision.inputs["test"]["finding"] == Finding.RISEN
        assert decisions.broken_at(store) is None
        assert aftercare.look(store) == []
        last = timeline.moments(store, seed.BASE)[-1]
        assert (last.happening, last.adapter) == (Happening.TAKEN_BACK, adapters.get(store, first.id))
        assert timeline_words.event(last) == "back on v1 by itself"
        assert wording.went_live(serving) == f"v1 answers again: {serving.why}. F3 shows the versions."


def test_an_attempt_that_a_guard_refused_is_no_reply_that_was_liked(home: Home, monkeypatch):
    monkeypatch.setattr(aftercare, "SILENCE_SECONDS", -60.0)
    with Store.open(home) as store:
        made = live(store, b"one")
        liked(store, made.id, 3, value=-1)
        attempt = conversations.get_message(store, reply(store, made.id, 3))
        start = replace(
            seed.START, adapter=made.id, sampler={"temperature": 0.0, conversations.INSTEAD_OF: attempt.id}
        )
        shown = conversations.begin_reply(store, attempt.conversation, attempt.parent, start)
        end = ReplyEnd("answer", MessageStatus.COMPLETE, FinishReason.STOP, [2], [-0.1])
        conversations.finish_reply(store, shown.id, end)
        found = aftercare.watched(store, seed.BASE)
        assert found is not None
        assert (found.replies, found.objections) == (4, 3)


def test_the_host_looks_by_itself_and_only_where_something_was_written(home: Home, monkeypatch):
    looks = []
    real = aftercare.look

    def counted(store: Store) -> list[str]:
        looks.append(store)
        return real(store)

    monkeypatch.setattr(aftercare, "look", counted)
    with Store.open(home) as store, Store.open(home) as elsewhere:
        first = live(elsewhere, b"one")
        liked(elsewhere, first.id, 20)
        second = live(elsewhere, b"two")
        settings.put(elsewhere, settings.LEARNING_PAUSED, True)
        supervisor = Supervisor(home, lambda: 0.0, ["false"])
        supervisor.look(store)
        supervisor.look(store)
        assert len(looks) == 1
        liked(elsewhere, second.id, 30, value=-1)
        supervisor.look(store)
        assert len(looks) == 2
        serving = adapters.active(store, seed.BASE).adapter
        assert serving is not None
        assert serving.id == first.id


def test_the_base_answers_where_there_was_no_version_before(home: Home):
    with Store.open(home) as store:
        liked(store, None, 20)
        only = live(store, b"one")
        liked(store, only.id, 30, value=-1)
        assert len(aftercare.look(store)) == 1
        serving = adapters.active(store, seed.BASE)
        assert serving.adapter is None
        assert wording.went_live(serving).startswith("The base model answers again: took back v1")


def test_what_the_owner_chose_or_pinned_stays(home: Home):
    with Store.open(home) as store:
        first = live(store, b"one")
        liked(store, first.id, 20)
        second = live(store, b"two")
        settings.put(store, settings.PINNED, second.id)
        liked(store, second.id, 30, value=-1)
        assert aftercare.look(store) == []
        settings.put(store, settings.PINNED, None)
        adapters.use(store, seed.BASE, second.id)
        liked(store, second.id, 30, value=-1)
        assert aftercare.look(store) == []


def test_replies_nobody_has_reacted_to_yet_are_no_evidence(home: Home):
    with Store.open(home) as store:
        first = live(store, b"one")
        liked(store, first.id, 20)
        second = live(store, b"two")
        for number in range(30):
            reply(store, second.id, number)
        found = aftercare.watched(store, seed.BASE)
        assert found is not None
        assert found.replies == 0


def test_objections_that_were_taken_back_are_none(home: Home):
    with Store.open(home) as store:
        first = live(store, b"one")
        liked(store, first.id, 20)
        second = live(store, b"two")
        for number in range(30):
            message = reply(store, second.id, number)
            signals.record(store, message, SignalKind.THUMB, value=-1)
            signals.record(store, message, SignalKind.THUMB, value=0)
        assert aftercare.look(store) == []


def test_a_growing_drift_stops_learning_and_asks_once(home: Home):
    with Store.open(home) as store:
        for number, kl in enumerate((0.1, 0.17)):
            live(store, bytes([number]), kl)
        assert aftercare.look(store) == []
        live(store, b"third", 0.25)
        said = aftercare.look(store)
        assert len(said) == 1
        assert "to 0.25 of the 0.3 allowed in v3" in said[0]
        assert settings.get(store, settings.LEARNING_PAUSED) is True
        assert decisions.list_(store, 1)[0].choice["action"] == "stop learning and ask"
    service = Service(home)
    assert service.learning().asks == said[0]
    service.pause_learning(False)
    assert service.learning().asks is None
    assert aftercare.look(service.store) == []
    assert service.learning().paused is False
    service.close()
    assert wording.asks("so?") == "Learning has stopped: so?"


def test_a_steady_drift_asks_nothing(home: Home):
    with Store.open(home) as store:
        for number, kl in enumerate((0.2, 0.21, 0.2, 0.22)):
            live(store, bytes([number]), kl)
        assert aftercare.look(store) == []
        assert settings.get(store, settings.LEARNING_PAUSED) is False
