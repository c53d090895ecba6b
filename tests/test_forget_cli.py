"""`mynah forget`: says what it will undo, does it, and keeps a receipt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import service as services
from app.cli.main import run
from store import adapters, conversations, runs, settings
from store.db import Store
from store.home import Home
from store.types import RunOutcome, Scope, Trigger, UnitUse
from tests import seed
from tests.seed import say


def test_a_dry_run_changes_nothing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    taught = seed.corrected(store, "a question", "a reply", "better")
    made = seed.adapter(store, b"1", [(taught, UnitUse.TRAINED)])
    adapters.publish(store, made.id, {"passed": True})
    assert run(["forget", "conversation", taught.conversation, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["messages"], planned["ratings"], planned["adapters"]) == (2, 1, [made.id])
    assert (planned["serving_moves"], planned["serving"], planned["retrain"]) == (True, None, True)
    assert run(["forget", "message", taught.message[:6], "--dry-run"]) == 0
    assert "deleted with it, because they saw it: v1" in capsys.readouterr().out
    assert conversations.get(store, taught.conversation).messages == 2


def test_a_script_is_taken_at_its_word_and_gets_a_receipt(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation, _, _ = say(store, "a question", "a reply")
    assert run(["forget", "conversation", conversation, "--wait", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["state"], done["receipt"]["messages"]) == ("purged", 2)
    assert run(["forget", "show", done["request"]]) == 0
    assert f"conversation {conversation}: purged" in capsys.readouterr().out
    assert run(["forget", "list", "--json"]) == 0
    assert [each["request"] for each in json.loads(capsys.readouterr().out)] == [done["request"]]
    assert run(["forget", "conversation", conversation]) == 3


def test_paused_learning_does_not_keep_the_command_waiting(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.put(store, settings.LEARNING_PAUSED, True)
    taught = seed.corrected(store, "a question", "a reply", "better")
    other = seed.corrected(store, "another question", "a reply", "better")
    uses = [(taught, UnitUse.TRAINED), (other, UnitUse.HELD_OUT)]
    adapters.publish(store, seed.adapter(store, b"1", uses).id, {"passed": True})
    assert run(["forget", "conversation", taught.conversation, "--wait", "--json"]) == 0
    out, err = capsys.readouterr()
    done = json.loads(out)
    assert (done["state"], done["receipt"]) == ("serving_clean", None)
    assert done["erased"] is not None
    assert "mynah learn resume" in err


def test_a_memory_that_is_not_there_cannot_be_forgotten(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["forget", "memory", "x1"]) == 3
    assert "no memory" in capsys.readouterr().err


def test_a_person_is_asked_and_may_say_no(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation, _, _ = say(store, "a question", "a reply")
    monkeypatch.setattr("app.cli.forget.sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("app.cli.forget.sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("app.cli.forget.click.confirm", lambda *_, **__: False)
    assert run(["forget", "conversation", conversation]) == 130
    assert "erases 2 messages" in capsys.readouterr().err
    assert conversations.get(store, conversation).messages == 2


def test_backups_are_announced(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "saved.tar.gz"
    assert run(["backup", str(saved)]) == 0
    assert run(["forget", "all", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"backup {saved} is deleted" in out
    assert "kept: settings" in out


def test_the_service_previews_and_forgets(home: Home, store: Store) -> None:
    conversation, question, _ = say(store, "a question", "a reply")
    mynah = services.Service(home)
    assert mynah.forget_preview(Scope.MESSAGE, question).messages == 2
    assert mynah.forget(Scope.CONVERSATION, conversation).receipt is not None
    assert mynah.conversations() == []
    mynah.close()


def test_wait_follows_the_run_and_prints_the_receipt(
    home: Home, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taught = seed.corrected(store, "a question", "a reply", "better")
    other = seed.corrected(store, "another question", "a reply", "better")
    uses = [(taught, UnitUse.TRAINED), (other, UnitUse.HELD_OUT)]
    adapters.publish(store, seed.adapter(store, b"1", uses).id, {"passed": True})

    class Host:
        """Carries a run out as soon as it is woken."""

        def learn(self) -> None:
            with Store.open(home) as mine:
                run = runs.claim(mine, 1)
                assert run is not None
                assert run.trigger is Trigger.FORGETTING
                runs.finish(mine, run.id, RunOutcome.PROMOTED, {"outcome": "promoted", "adapter": "abc"})

    monkeypatch.setattr(services.Service, "host", lambda _self: Host())
    assert run(["forget", "conversation", taught.conversation, "--wait", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["state"] == "purged"
    assert done["receipt"]["retraining"]["adapter"] == "abc"
