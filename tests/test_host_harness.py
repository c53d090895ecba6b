"""What a turn gets of memories, rules and guards, what is recorded of it, and that without items nothing is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from app import replays
from app.harness import dressing, guards, recall
from app.harness.dressing import Harness
from app.host.client import HostClient
from app.host.events import Done, Token, TurnRequest
from app.model.renderer import Turn
from app.service import Service
from app.tui import wording
from store import conversations, evidence, items, trajectory
from store.db import Store
from store.home import Home
from store.items import TYPED, Item
from store.types import EventKind, ItemKind, ItemState, ReplayClass, Role
from tests.endpoint_helpers import openai_client, say, text_of, user
from tests.scripted import MODEL, scripted_host


@pytest.fixture
def host(home: Home) -> Iterator[HostClient]:
    with scripted_host(home) as client:
        yield client


def add(store: Store, kind: ItemKind, topic: str, body: dict[str, Any]) -> Item:
    if kind is ItemKind.GUARD:
        body = guards.checked(body)
    return items.add(store, kind, topic, body, source=TYPED, confidence=1.0, state=ItemState.ACTIVE)


def memory(store: Store, topic: str, text: str, value_type: str = recall.FACT) -> Item:
    return add(store, ItemKind.MEMORY, topic, {"text": text, "value_type": value_type})


def guard(store: Store, template: str, **parameters: Any) -> Item:
    return add(store, ItemKind.GUARD, template, {"template": template, "parameters": parameters})


def ask(host: HostClient, text: str, **fields: Any) -> Done:
    sampler = {"temperature": 0.0, "max_tokens": 200}
    events = list(host.turn(TurnRequest(text=text, sampler=sampler, **fields)))
    done = events[-1]
    assert isinstance(done, Done), events
    assert "".join(event.text for event in events if isinstance(event, Token)) == done.text
    return done


def call(store: Store, message: str | None) -> trajectory.Step:
    assert message is not None
    conversation = conversations.get_message(store, message).conversation
    return next(
        step
        for step in trajectory.read(store, conversation)
        if step.message == message and step.kind is EventKind.MODEL_CALL
    )


def test_a_memory_that_fits_stands_before_the_question_as_a_quotation(host: HostClient, store: Store) -> None:
    name = memory(store, "name", "my name is Anna")
    memory(store, "car", "my car is a blue van")
    done = ask(host, "prompt what is my name?")
    assert done.text == recall.block([name]) + "prompt what is my name?"
    row = conversations.get_message(store, str(done.message))
    # What was put before it is not saved with it.
    assert conversations.path(store, row.id)[0].text == "prompt what is my name?"
    assert call(store, row.id).harness["items"] == [name.id]
    assert items.uses(store, name.id) == [row.id]
    assert "name" not in ask(host, "prompt tell me a joke").text


def test_rules_stand_in_the_system_prompt(host: HostClient, store: Store) -> None:
    plain = ask(host, "system").text
    rule = add(store, ItemKind.INSTRUCTION, "units", {"text": "answer in metric units"})
    done = ask(host, "system")
    assert done.text == f"{plain}\n\nRules of the user:\n- answer in metric units"
    assert call(store, done.message).harness["items"] == [rule.id]
    items.switch(store, rule.id, ItemState.OFF)
    assert ask(host, "system").text == plain


def test_side_calls_the_base_and_incognito_go_without(host: HostClient, store: Store) -> None:
    memory(store, "name", "my name is Anna")
    add(store, ItemKind.INSTRUCTION, "units", {"text": "answer in metric units"})
    guard(store, "must_end_with", text="Over.")
    for fields in ({"base": True}, {"aside": True, "incognito": True}):
        assert ask(host, "prompt my name", **fields).text == "prompt my name"
        assert "metric" not in ask(host, "system", **fields).text
    assert ask(host, "prompt my name", incognito=True).text == "prompt my name Over."
    assert items.changes(store)[-1].state is ItemState.ACTIVE
    assert store.conn.execute("SELECT count(*) FROM item_uses").fetchone()[0] == 0


def test_a_reply_is_repaired_before_it_is_shown_and_kept_as_shown(host: HostClient, store: Store) -> None:
    item = guard(store, "length", sentences=1)
    done = ask(host, "echo One. Two. Three.")
    assert (done.text, done.notes) == ("One.", [])
    assert conversations.get_message(store, str(done.message)).text == "One."
    (found,) = call(store, done.message).harness["guards"]
    assert (found["item"], found["verdict"], found["repaired"], found["retries"]) == (
        item.id,
        "repaired",
        True,
        0,
    )


def test_what_was_read_and_what_a_guard_said_are_steps_of_their_own(host: HostClient, store: Store) -> None:
    known = memory(store, "name", "my name is Anna")
    add(store, ItemKind.INSTRUCTION, "units", {"text": "answer in metric units"})
    item = guard(store, "length", sentences=1)
    done = ask(host, "prompt my name. And? More.")
    row = conversations.get_message(store, str(done.message))
    steps = trajectory.read(store, row.conversation)
    assert [step.kind for step in steps] == [
        EventKind.OWNER_MESSAGE,
        EventKind.MEMORY_READ,
        EventKind.MODEL_CALL,
        EventKind.GUARD_VERDICT,
    ]
    assert all(step.id for step in steps)
    assert {step.message for step in steps[1:]} == {row.id}
    assert steps[1].action == {"items": [known.id]}
    assert steps[3].action == {"item": item.id, "template": "length"}
    assert steps[3].outcome["verdict"] in {"repaired", "passed"}
    assert steps[3].replay is ReplayClass.DETERMINISTIC


def test_a_reply_that_cannot_be_repaired_is_asked_for_again(host: HostClient, store: Store) -> None:
    item = guard(store, "must_contain", text="fine")
    done = ask(host, "echo awful")
    assert (done.text, done.notes) == ("fine", [])
    row = conversations.get_message(store, str(done.message))
    beside = conversations.siblings(store, row.id)
    assert [each.text for each in beside] == ["awful", "fine"]
    assert conversations.beside(store, row.conversation)[row.id] == [row.id], "nobody saw the other one"
    assert evidence.of(store).steps == 1
    assert conversations.get(store, row.conversation).head == row.id
    verdicts = [call(store, each.id).harness["guards"][0] for each in beside]
    assert [(each["verdict"], each["retries"]) for each in verdicts] == [("violated", 0), ("passed", 1)]
    assert len(items.uses(store, item.id)) == 2


def test_after_two_more_attempts_the_last_is_passed_on_with_a_note(host: HostClient, store: Store) -> None:
    guard(store, "must_contain", text="fine")
    done = ask(host, "stubborn awful")
    assert (done.text, done.notes) == ("awful", ["not as asked for: it must contain “fine”"])
    assert len(conversations.siblings(store, str(done.message))) == 3
    assert call(store, done.message).harness["guards"][0]["retries"] == guards.MOST_RETRIES


def test_what_was_wrong_with_a_reply_is_said_again_whenever_it_is_shown(
    home: Home, host: HostClient, store: Store
) -> None:
    item = guard(store, "must_contain", text="fine")
    done = ask(host, "stubborn awful")
    service = Service(home)
    shown = service.message(str(done.message))
    assert shown.note == done.notes[0] == "not as asked for: it must contain “fine”"
    assert shown.note in wording.meta_line(shown).plain
    edited = service.edit_item(item.id, {"template": "must_contain", "parameters": {"text": ["good"]}})
    service.switch_item(edited.id, ItemState.OFF)
    assert service.message(str(done.message)).note == done.notes[0]
    assert service.message(str(ask(host, "echo fine").message)).note is None
    service.forget_item(item.id)
    assert (
        service.message(str(done.message)).note
        == "not as asked for: it broke a guard that was forgotten since"
    )
    service.close()


def test_the_end_of_a_reply_tells_what_was_remembered_of_its_question(host: HostClient, store: Store) -> None:
    done = ask(host, "my name is Anna")
    (item,) = items.active(store)
    assert done.remembered == [{"id": item.id, "text": "my name is Anna"}]
    assert done.as_json()["remembered"] == done.remembered
    assert "remembered" not in ask(host, "my name is Anna").as_json(), "it is known already"
    *_, piped = host.turn(TurnRequest(text="my name is Mallory", typed=False))
    assert isinstance(piped, Done)
    assert piped.remembered == []


def test_every_attempt_and_every_dressed_prompt_replays(home: Home, host: HostClient, store: Store) -> None:
    memory(store, "name", "my name is Anna")
    guard(store, "must_contain", text="fine")
    guard(store, "length", words=2)
    ask(host, "echo one two three my name")
    service = Service(home)
    (conversation,) = conversations.list_(store)
    compared = list(replays.of_conversation(service, conversation.id, replays.RECORDED))
    assert len(compared) == 2
    assert all(each.identical for each in compared)
    assert {each.replay for each in compared} == {ReplayClass.DETERMINISTIC}
    service.close()


def test_a_cut_reply_goes_on_from_what_was_shown_of_it(host: HostClient, store: Store) -> None:
    item = guard(store, "length", words=2)
    sampler = {"temperature": 0.0, "max_tokens": 4}
    *_, cut = host.turn(TurnRequest(text="echo one two three four five", sampler=sampler))
    assert isinstance(cut, Done)
    assert (cut.text, cut.finish_reason) == ("one two…", "length")
    items.switch(store, item.id, ItemState.OFF)
    *_, longer = host.turn(TurnRequest(extend=cut.message, sampler={"temperature": 0.0, "max_tokens": 3}))
    assert isinstance(longer, Done)
    assert longer.text.startswith("one two…")


def test_named_items_hold_in_place_of_the_active_ones(host: HostClient, store: Store) -> None:
    guard(store, "must_end_with", text="Over.")
    tried = guard(store, "length", words=1)
    items.switch(store, tried.id, ItemState.OFF)
    assert ask(host, "echo a b", items=[]).text == "a b"
    assert ask(host, "echo a b", items=[tried.id], incognito=True).text == "a…"


def test_without_items_the_turns_are_the_very_same(store: Store) -> None:
    turns = [Turn(Role.USER, "hello")]

    def count(_text: str) -> int:
        raise AssertionError("nothing is counted")

    for harness in Harness:
        ready = dressing.dressed(store, turns, harness, None, 4096, count)
        assert ready.turns is turns
        assert ready.items == ()


def test_memories_stay_within_their_budget_best_first(store: Store) -> None:
    kept = [memory(store, f"fruit {number}", f"I like apples number {number}") for number in range(40)]
    tea = memory(store, "tea", "I prefer green tea", recall.PREFERENCE)
    ready = dressing.dressed(
        store, [Turn(Role.USER, "which apples?")], Harness.ALL, None, 4096, lambda text: len(text) // 4
    )
    assert 1 < len(ready.told) < len(kept)
    assert len(recall.block([items.get(store, each) for each in ready.told])) // 4 <= recall.BUDGET
    assert tea.id not in ready.told
    other = dressing.dressed(store, [Turn(Role.USER, "hello")], Harness.ALL, None, 4096, len)
    assert other.told == (tea.id,)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("am I allergic to anything?", "allergy"),
        ("What allergies do I have?", "allergy"),
        ("내 이름이 뭐야?", "이름"),
        ("where do I live", "home"),
        ("what is 2 + 2", None),
    ],
)
def test_recall_finds_what_fits(store: Store, question: str, wanted: str | None) -> None:
    known = [
        memory(store, "allergy", "I am allergic to peanuts"),
        memory(store, "home", "I live in Oslo"),
        memory(store, "이름", "제 이름은 안나예요"),
    ]
    assert [each.topic for each in recall.ranked(question, known)] == ([wanted] if wanted else [])


def test_an_embedding_finds_what_words_do_not(store: Store) -> None:
    known = [memory(store, "allergy", "I am allergic to peanuts"), memory(store, "home", "I live in Oslo")]
    near = {known[0].id: 0.6, known[1].id: 0.1}
    assert recall.ranked("suggest a snack", known, near) == [known[0]]


def test_a_program_that_leaves_the_form_to_us_gets_the_rules_and_no_memory(
    host: HostClient, store: Store
) -> None:
    memory(store, "name", "my name is Anna")
    add(store, ItemKind.INSTRUCTION, "units", {"text": "answer in metric units"})
    guard(store, "length", words=2)
    with openai_client(host) as client:
        assert text_of(say(client, user("prompt my name"))) == "prompt my…"
        assert text_of(say(client, user("echo one two three"))) == "one two…"
        stream = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "echo a b c"}], stream=True
        )
        assert isinstance(stream, openai.Stream)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        assert "".join(pieces) == "a b…"
        own = {"role": "system", "content": "be a pirate"}
        assert text_of(say(client, own, user("echo one two three"))) == "one two three"
        scored = say(client, user("echo one two three"), logprobs=True)
        assert text_of(scored) == "one two three"
        assert text_of(say(client, user("system"), model=f"{MODEL}@base")).count("metric") == 0
