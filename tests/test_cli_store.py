"""The commands that need no model: exact output, exit codes, and nothing changed by a wrong command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from store import adapters, conversations, signals, units
from store.adapters import GGUF_NAME
from store.db import Store
from store.home import Home
from store.types import SignalKind, UnitUse
from tests import seed, tiny_gguf
from tests.cli_helpers import Mynah, base_hash, runner, talk, teach, written


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def shape(text: str) -> str:
    """Output with what differs from run to run left out: ids, times, and the width of columns."""
    text = re.sub(r"\b[cmurs][0-9a-z]{10}\b", "ID", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "HASH", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", text)
    return re.sub(r" {2,}", "  ", text)


class TestRate:
    def test_up_says_what_becomes_of_it(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        ran = mynah("rate", reply.id, "up")
        assert (ran.code, ran.out, ran.err) == (0, "rated up: queued\n", "")

    def test_json(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        data = json.loads(mynah("rate", reply.id[:7], "down", "--reason", "shorter", "--json").out)
        signal = signals.all_of(store, reply.id)[-1]
        assert data == {
            "message": reply.id,
            "rating": "down",
            "signal": signal.id,
            "state": "queued",
            "fate": "queued",
        }
        assert (signal.value, signal.text) == (-1.0, "Answer in one or two short sentences.")

    def test_note_wins_over_reason(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        mynah("rate", reply.id, "down", "--reason", "wrong", "--note", "Greet me by name.")
        assert signals.all_of(store, reply.id)[-1].text == "Greet me by name."

    def test_clear_takes_back(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        mynah("rate", reply.id, "up")
        assert mynah("rate", reply.id, "clear").out == "rating cleared: not used: the rating was taken back\n"

    @pytest.mark.parametrize(
        "words", [("sideways",), ("up", "--note", "x"), ("clear", "--reason", "wrong"), ()]
    )
    def test_wrong_words(self, mynah: Mynah, store: Store, words: tuple[str, ...]) -> None:
        reply = talk(store, "hi", "hello")
        ran = mynah("rate", reply.id, *words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert signals.all_of(store, reply.id) == []

    def test_questions_cannot_be_rated(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        assert reply.parent is not None
        ran = mynah("rate", reply.parent, "up")
        assert ran.code == 2
        assert "is not a reply" in ran.err

    def test_unknown_message(self, mynah: Mynah) -> None:
        ran = mynah("rate", "mnone", "up")
        assert (ran.code, ran.out, ran.err) == (3, "", "mynah: no message has the id 'mnone'\n")


class TestCorrect:
    def test_words(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        assert mynah("correct", reply.id, "Good", "day.").out == "corrected: queued\n"
        signal = signals.all_of(store, reply.id)[-1]
        assert (signal.kind, signal.text) == (SignalKind.CORRECTION, "Good day.")

    def test_standard_input_and_json(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        data = json.loads(mynah("correct", reply.id, "-", "--json", stdin="Grüezi\n世界\n").out)
        assert data["message"] == reply.id
        assert data["state"] == "queued"
        assert signals.all_of(store, reply.id)[-1].text == "Grüezi\n世界"

    @pytest.mark.parametrize("text", ["hello", " hello ", ""])
    def test_no_correction(self, mynah: Mynah, store: Store, text: str) -> None:
        reply = talk(store, "hi", "hello")
        ran = mynah("correct", reply.id, text)
        assert (ran.code, ran.out) == (2, "")
        assert signals.all_of(store, reply.id) == []


class TestConversations:
    def test_list(self, mynah: Mynah, store: Store) -> None:
        talk(store, "first question", "yes")
        talk(store, "二つ目", "no")
        ran = mynah("conversations", "list")
        assert shape(ran.out) == (
            "ID  LAST USED  MESSAGES  TITLE\nID  TIME  2  二つ目\nID  TIME  2  first question\n"
        )

    def test_list_says_when_it_left_some_out(self, mynah: Mynah, store: Store) -> None:
        for number in range(3):
            talk(store, f"question {number}", "yes")
        ran = mynah("conversations", "list", "--limit", "2", "--json")
        assert [each["title"] for each in json.loads(ran.out)] == ["question 2", "question 1"]
        assert ran.err == "(there are more: --limit 4)\n"

    def test_nothing_yet(self, mynah: Mynah) -> None:
        ran = mynah("conversations", "list")
        assert (ran.code, ran.out, ran.err) == (0, "", "there are no conversations yet\n")
        assert mynah("conversations", "list", "--json").out == "[]\n"

    def test_show(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        mynah("correct", reply.id, "Good day.")
        ran = mynah("conversations", "show", reply.conversation)
        assert shape(ran.out) == "hi  (ID)\n\nyou · ID\nhi\n\nmynah (base) · ID · corrected · queued\nhello\n"

    def test_show_json(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        data = json.loads(mynah("conversations", "show", reply.conversation, "--json").out)
        assert [(each["role"], each["text"]) for each in data["messages"]] == [
            ("user", "hi"),
            ("assistant", "hello"),
        ]
        assert data["messages"][1]["fate"] is None

    def test_search(self, mynah: Mynah, store: Store) -> None:
        talk(store, "what is C++?", "A language: C++ it is.")
        ran = mynah("conversations", "search", "C++")
        assert shape(ran.out).splitlines()[1:] == [
            "ID  ID  mynah  A language: C++ it is.",
            "ID  ID  you  what is C++?",
        ]
        none = mynah("conversations", "search", "AND OR \"'")
        assert (none.code, none.out, none.err) == (0, "", "nothing found\n")

    def test_rename_and_delete(self, mynah: Mynah, store: Store) -> None:
        conversation = talk(store, "hi", "hello").conversation
        assert shape(mynah("conversations", "rename", conversation, "A", "greeting").out) == (
            "ID is now called: A greeting\n"
        )
        assert shape(mynah("conversations", "delete", conversation[:5]).out) == "deleted ID: A greeting\n"
        assert conversations.list_(store) == []
        assert mynah("conversations", "delete", conversation).code == 3

    def test_export(self, mynah: Mynah, store: Store, tmp_path: Path) -> None:
        conversation = talk(store, "hi", "hello").conversation
        whole = "# hi\n\n## you\n\nhi\n\n## mynah\n\nhello\n"
        assert mynah("conversations", "export", conversation).out == whole
        out = tmp_path / "talk.md"
        assert mynah("conversations", "export", conversation, "--out", str(out)).code == 0
        assert written(out) == whole
        again = mynah("conversations", "export", conversation, "--out", str(out), "--format", "json")
        assert again.code == 2
        assert written(out) == whole


class TestLearn:
    def test_nothing_to_learn(self, mynah: Mynah) -> None:
        ran = mynah("learn", "now", "--wait", "--json")
        assert (ran.code, ran.err) == (0, "")
        assert json.loads(ran.out) == {
            "outcome": "nothing-to-learn",
            "adapter": None,
            "used": [],
            "held_out": [],
            "skipped": [],
            "gate": {},
            "seconds": 0.0,
        }

    def test_pause_holds_runs_off(self, mynah: Mynah, store: Store) -> None:
        mynah("correct", talk(store, "hi", "hello").id, "Good day.")
        assert mynah("learn", "pause").out == "learning is paused; `mynah learn resume` takes it up again\n"
        ran = mynah("learn", "now")
        assert (ran.code, ran.err) == (2, "mynah: learning is paused: `mynah learn resume` first\n")
        assert shape(mynah("learn", "status").out) == (
            "learning is paused\n1 waiting\n  ID  correction  of message ID\n"
        )
        assert json.loads(mynah("learn", "resume", "--json").out) == {"paused": False}
        assert mynah("learn", "status").out.startswith("1 waiting; 3 more start a run by themselves\n")

    def test_status_says_why_not(self, mynah: Mynah, store: Store) -> None:
        reply = talk(store, "hi", "hello")
        mynah("rate", reply.id, "up")
        mynah("rate", reply.id, "clear")
        assert shape(mynah("learn", "status").out) == (
            "0 waiting; 4 more start a run by themselves\n"
            "not used: ID  of message ID: the rating was taken back\n"
        )

    def test_what_was_tried_in_vain_is_not_counted_twice(self, mynah: Mynah, store: Store) -> None:
        learned = [seed.corrected(store, f"q{number}", "a", "better") for number in range(2)]
        adapter = seed.adapter(store, b"v1", [(unit, UnitUse.TRAINED) for unit in learned])
        adapters.reject(store, adapter.id, {}, "worse")
        assert mynah("learn", "status").out.startswith(
            "2 waiting, none of them new; 4 new ones start a run by themselves\n"
        )
        seed.corrected(store, "q3", "a", "better")
        said = mynah("learn", "status").out
        assert said.startswith("3 waiting, 1 of them new; 3 more new ones start a run by themselves\n")
        assert json.loads(mynah("learn", "status", "--json").out)["new"] == 1

    def test_history(self, mynah: Mynah) -> None:
        assert mynah("learn", "history").err == "there was no run yet\n"
        mynah("learn", "now")
        assert shape(mynah("learn", "history").out).splitlines()[1] == (
            "ID  TIME  manual  nothing-to-learn  -  0  0"
        )


class TestAdapters:
    def lesson(self, store: Store) -> units.Unit:
        reply = talk(store, "hi", "hello")
        signals.record(store, reply.id, SignalKind.CORRECTION, text="Good day.")
        unit = units.of_message(store, reply.id)
        assert unit is not None
        return unit

    def test_none_yet(self, mynah: Mynah) -> None:
        ran = mynah("adapters", "list")
        assert (ran.code, ran.out) == (0, "")
        assert ran.err == "nothing has been learned yet: the base model answers\n"
        assert mynah("adapters", "rollback").code == 2

    def test_list_is_the_contract(self, mynah: Mynah, store: Store) -> None:
        unit = self.lesson(store)
        first = teach(store, "one", unit)
        second = teach(store, "two", unit)
        refused = teach(store, "three", unit, passed=False)
        rows = json.loads(mynah("adapters", "list", "--json").out)
        assert [(row["id"], row["state"], row["parent"], row["active"]) for row in rows] == [
            (refused, "rejected", second, False),
            (second, "active", first, True),
            (first, "retired", None, False),
        ]
        assert rows[1]["units"] == [unit.id]
        assert set(rows[0]) >= {"id", "state", "created", "parent", "units", "active"}
        assert shape(mynah("adapters", "list").out).splitlines()[1:] == [
            "v3  HASH  rejected  TIME  1  kl is too high",
            "v2  HASH  active  TIME  1  passed",
            "v1  HASH  retired  TIME  1  passed",
        ]

    def test_show_says_what_it_learned_from(self, mynah: Mynah, store: Store) -> None:
        teach(store, "one", self.lesson(store))
        assert shape(mynah("adapters", "show", "v1").out) == (
            "v1  HASH  active, live, made TIME\n"
            "gate:\n"
            "  passed  kl: drift 0.125 of 0.5\n"
            "learned from:\n"
            "  ID  correction, trained\n"
            "  asked:  hi\n"
            "  replied: hello\n"
            "  better:  Good day.\n"
        )

    def test_use_and_roll_back(self, mynah: Mynah, store: Store) -> None:
        unit = self.lesson(store)
        first, second = teach(store, "one", unit), teach(store, "two", unit)
        ran = mynah("adapters", "rollback")
        assert ran.out == f"took back v2 ({second}); v1 ({first}) answers now\n"
        assert json.loads(mynah("adapters", "rollback", "--json").out) == {
            "rolled_back": first,
            "adapter": None,
            "scale": 1.0,
        }
        assert mynah("adapters", "use", "v2", "--scale", "0.5").out == (
            f"v2 ({second}) answers now at scale 0.5\n"
        )
        assert mynah("adapters", "use", "base").out == "the base model answers now\n"
        assert adapters.active(store, base_hash(store.home)).adapter is None

    def test_refused_adapters_cannot_serve(self, mynah: Mynah, store: Store) -> None:
        refused = teach(store, "one", self.lesson(store), passed=False)
        ran = mynah("adapters", "use", refused)
        assert ran.code == 2
        assert ran.err == f"mynah: adapter {refused} is rejected and cannot serve: kl is too high\n"

    def test_pin(self, mynah: Mynah, store: Store) -> None:
        assert mynah("adapters", "pin").code == 2
        adapter = teach(store, "one", self.lesson(store))
        assert json.loads(mynah("adapters", "pin", "--json").out) == {"pinned": adapter}
        assert "active, pinned" in mynah("adapters", "list").out
        assert mynah("adapters", "pin", "--off").out == "new adapters go live again\n"

    def test_export_and_delete(self, mynah: Mynah, store: Store, tmp_path: Path) -> None:
        adapter = teach(store, "one", self.lesson(store))
        out = tmp_path / "copy"
        assert mynah("adapters", "export", adapter, "--out", str(out)).out == f"wrote {out}\n"
        assert written(out / GGUF_NAME) == "one"
        assert mynah("adapters", "export", adapter, "--out", str(out)).code == 2
        nowhere = mynah("adapters", "export", adapter, "--out", "/proc/nowhere")
        assert (nowhere.code, nowhere.err.count("\n")) == (2, 1)
        assert mynah("adapters", "delete", adapter).code == 2
        mynah("adapters", "use", "base")
        assert mynah("adapters", "delete", adapter).out == f"deleted {adapter}\n"
        gone = mynah("adapters", "use", adapter)
        assert (gone.code, gone.err.count("\n")) == (1, 1)

    @pytest.mark.parametrize("name", ["v9", "ffff", ""])
    def test_unknown(self, mynah: Mynah, name: str) -> None:
        ran = mynah("adapters", "show", name)
        assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)


class TestModels:
    def test_list(self, mynah: Mynah, home: Home) -> None:
        row, *afar = json.loads(mynah("models", "list", "--json").out)
        assert {each["place"] for each in afar} == {"to fetch"}
        assert (row["name"], row["active"], row["base"]) == ("smollm2-135m-instruct", True, base_hash(home))

    def test_no_model(self, mynah: Mynah, tmp_path: Path) -> None:
        no_model = tmp_path / "notes.gguf"
        no_model.write_text("shopping list", encoding="utf-8")
        for name in (str(no_model), str(tmp_path / "absent.gguf"), str(tmp_path)):
            ran = mynah("models", "use", name)
            assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1), name
        assert mynah("models", "use", "default").out == "smollm2-135m-instruct answers now\n"

    def test_a_chosen_file_that_is_gone_keeps_nobody_from_choosing_another(
        self, mynah: Mynah, home: Home, tmp_path: Path
    ) -> None:
        tiny = tmp_path / "tiny.gguf"
        tiny_gguf.write_base(tiny)
        assert mynah("models", "use", str(tiny)).code == 0
        tiny.unlink()
        row = json.loads(mynah("models", "list", "--json").out)[0]
        assert (row["name"], row["active"]) == ("smollm2-135m-instruct", False)
        assert mynah("models", "use", "default").code == 0
        assert json.loads(mynah("models", "list", "--json").out)[0]["active"]
