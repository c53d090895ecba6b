"""`mynah memory`, `instructions`, `guards` and `items measure`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app import measuring
from store import conversations, items
from store.db import Store
from store.home import Home
from store.types import ItemKind, ItemState
from tests.cli_helpers import Mynah, runner, talk
from tests.scripted import scripted_host


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def made(mynah: Mynah, *words: str) -> dict[str, Any]:
    ran = mynah(*words, "--json")
    assert ran.code == 0, ran.err
    return dict(json.loads(ran.out))


def test_a_memory_is_added_changed_compared_switched_and_forgotten(mynah: Mynah, store: Store) -> None:
    assert "mynah memory add" in mynah("memory", "list").err
    first = made(mynah, "memory", "add", "I", "live", "in", "Oslo")
    assert (first["topic"], first["state"], first["body"]["value_type"]) == ("home", "active", "fact")
    second = made(mynah, "memory", "edit", first["id"], "I live in Bergen")
    assert (second["version"], second["topic"]) == (2, "home")
    assert [each["id"] for each in json.loads(mynah("memory", "list", "--json").out)] == [second["id"]]
    assert "-I live in Oslo\n+I live in Bergen" in mynah("memory", "diff", second["id"]).out
    assert "+I live in Oslo" in mynah("memory", "diff", first["id"]).out
    shown = mynah("memory", "show", second["id"]).out
    assert "v1 off" in shown
    assert "not measured" in shown
    assert made(mynah, "memory", "off", second["id"])["state"] == "off"
    assert items.active(store) == []
    assert made(mynah, "memory", "on", first["id"])["state"] == "active"
    assert "all its versions" in mynah("memory", "forget", first["id"], "--dry-run").out
    assert mynah("memory", "forget", first["id"], "--yes").code == 0
    assert items.list_(store) == []
    assert mynah("memory", "show", "nothing").code == 3


def test_the_old_way_to_forget_one_works_too(mynah: Mynah, store: Store) -> None:
    first = made(mynah, "instructions", "add", "be brief")
    done = made(mynah, "forget", "memory", first["id"], "--yes")
    assert (done["scope"], done["state"]) == ("memory", "purged")
    assert mynah("forget", "memory", first["id"], "--yes").code == 3


def test_a_memory_may_have_an_end_and_be_a_preference(mynah: Mynah, store: Store) -> None:
    item = made(mynah, "memory", "add", "tea is nice", "--topic", "drinks", "--days", "2", "--preference")
    assert (item["topic"], item["body"]["value_type"]) == ("drinks", "preference")
    assert item["expires"] > item["created"]
    assert "holds until" in mynah("memory", "show", item["id"]).out


def test_guards_take_parameters_and_refuse_what_they_cannot_check(mynah: Mynah) -> None:
    item = made(mynah, "guards", "add", "length", "--set", "sentences=2")
    assert item["body"] == {"template": "length", "interface": 1, "parameters": {"sentences": 2}}
    changed = made(mynah, "guards", "edit", item["id"], "--set", "words=30")
    assert changed["body"]["parameters"] == {"sentences": 2, "words": 30}
    assert '+    "words": 30' in mynah("guards", "diff", changed["id"]).out
    assert made(mynah, "guards", "add", "forbidden", "--set", 'phrases=["as an AI", "delve"]')["version"] == 1
    for words in (
        ("nonsense",),
        ("code", "--set", "source=x"),
        ("length",),
        ("length", "--set", "sentences"),
    ):
        ran = mynah("guards", "add", *words)
        assert (ran.code, ran.out) == (2, "")
    assert "json_schema" in mynah("guards", "templates").out
    assert mynah("memory", "show", item["id"]).code == 3


def test_what_changes_nothing_is_retired_and_what_works_keeps_its_effect(
    mynah: Mynah, home: Home, store: Store
) -> None:
    assert (
        "no recorded questions"
        in mynah("items", "measure", made(mynah, "instructions", "add", "x y")["id"]).err
    )
    for number in range(6):
        talk(store, f"echo One {number}. Two.", "One. Two.")
    rule = items.list_(store, ItemKind.INSTRUCTION)[0]
    held = made(mynah, "guards", "add", "length", "--set", "sentences=1")
    with scripted_host(home):
        idle = made(mynah, "items", "measure", rule.id)
        works = made(mynah, "items", "measure", held["id"], "--cases", "5")
    assert (idle["retired"], idle["state"], idle["effect"]["n"]) == (True, "retired", 6)
    assert (works["retired"], works["state"]) == (False, "active")
    assert (works["effect"]["with"], works["effect"]["without"], works["effect"]["changed"]) == (1.0, 0.0, 5)
    assert "kept to 100% with it, 0% without, on 5 questions" in mynah("guards", "show", held["id"]).out
    assert items.get(store, rule.id).state is ItemState.RETIRED
    # Measuring keeps nothing.
    assert sum(each.messages for each in conversations.list_(store)) == 12
    assert items.uses(store, held["id"]) == []


def test_intervals_are_those_of_wilson() -> None:
    assert [round(bound, 3) for bound in measuring.wilson(5, 10)] == [0.237, 0.763]
    assert [round(bound, 3) for bound in measuring.wilson(0, 8)] == [0.0, 0.324]
    assert measuring.wilson(0, 0) == (0.0, 1.0)
