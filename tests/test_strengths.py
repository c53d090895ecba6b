"""How strongly what was learned speaks in one conversation: chosen in two places, kept to by every way in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.host.client import HostClient, TurnRequest
from app.host.events import Done, Failed
from app.host.jobs import AtStrength
from store import conversations, settings, strengths
from store.db import Store
from store.errors import NotFound, UsageError
from store.home import Home
from tests.cli_helpers import Mynah, runner
from tests.endpoint_helpers import openai_client, say, text_of, user
from tests.endpoint_helpers import said as replied
from tests.host_helpers import desk, live_adapter
from tests.scripted import scripted_host
from tests.scripted_service import ScriptedService
from tests.seed import say as spoken
from tests.tui_pilot import chatting


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def answered(client: HostClient, text: str, **fields: Any) -> str:
    *_, last = client.turn(TurnRequest(text=text, **fields))
    assert isinstance(last, Done), last
    return last.text


def test_a_choice_is_kept_taken_back_and_cleared_away(store: Store) -> None:
    one, two = (conversations.create(store, name, "test") for name in ("one", "two"))
    assert strengths.of(store, one) is None
    strengths.choose(store, one, 0.25)
    strengths.choose(store, two, 0.0)
    assert (strengths.of(store, one), strengths.of(store, two)) == (0.25, 0.0)
    strengths.choose(store, one, None)
    assert (strengths.of(store, one), strengths.of(store, two)) == (None, 0.0)
    conversations.delete(store, two)
    strengths.choose(store, one, 0.5)
    kept = store.conn.execute("SELECT key FROM settings WHERE key LIKE 'adapter.strength:%'").fetchall()
    assert [row["key"] for row in kept] == [f"adapter.strength:{one}"]


@pytest.mark.parametrize("wrong", [-0.1, 1.01, float("nan"), float("inf")])
def test_what_is_no_strength_is_refused(store: Store, wrong: float) -> None:
    conversation = conversations.create(store, "one", "test")
    with pytest.raises(UsageError, match="between 0"):
        strengths.choose(store, conversation, wrong)
    with pytest.raises(NotFound):
        strengths.choose(store, "c000", 0.5)


def test_it_takes_the_place_of_the_setting(home: Home) -> None:
    with desk(home) as at:
        adapter = live_adapter(at.store, b"v1")
        settings.put(at.store, settings.ADAPTER_STRENGTH, 0.5)
        assert at.ask("version", serve=AtStrength(0.25)).done().text == f"{adapter}*0.25"
        done = at.ask("version", serve=AtStrength(0.0)).done()
        assert (done.text, done.adapter) == ("base", None)
        assert at.ask("version").done().text == f"{adapter}*0.5"


def test_a_damaged_adapter_is_taken_out_of_service_at_any_strength(home: Home) -> None:
    with desk(home) as at:
        good = live_adapter(at.store, b"v1")
        live_adapter(at.store, b"broken")
        assert at.ask("version", serve=AtStrength(0.5)).done().text == f"{good}*0.5"


def test_every_way_in_keeps_to_it(home: Home, store: Store) -> None:
    adapter = live_adapter(store, b"v1")
    with scripted_host(home) as client, openai_client(client) as program:
        *_, first = client.turn(TurnRequest(text="version"))
        assert isinstance(first, Done)
        assert first.text == f"{adapter}*1"
        here = first.conversation
        strengths.choose(store, str(here), 0.25)
        assert answered(client, "version", conversation=here) == f"{adapter}*0.25"
        assert answered(client, "version", conversation=here, base=True) == "base"
        assert answered(client, "version", conversation=here, strength=0.75) == f"{adapter}*0.75"
        assert answered(client, "version") == f"{adapter}*1", "another conversation"
        begun = [user("version"), replied(f"{adapter}*1")]
        assert text_of(say(program, *begun, user("version"))) == f"{adapter}*0.25"
        assert text_of(say(program, *begun, user("version"), model="mynah@base")) == "base"
        [refused] = client.turn(TurnRequest(text="version", base=True, strength=0.5))
        assert isinstance(refused, Failed)
        assert "no strength" in refused.message


def test_the_command_shows_and_chooses(mynah: Mynah, store: Store) -> None:
    here, *_ = spoken(store, "hi", "hello")
    assert mynah("adapters", "strength").out == "strength 1\n"
    assert mynah("adapters", "strength", "0.5").out == "strength 0.5\n"
    assert mynah("adapters", "strength", "-c", here[:6]).out == "strength 0.5, as everywhere\n"
    assert mynah("adapters", "strength", "0", "-c", here).out == f"strength 0 in {here}, 0.5 elsewhere\n"
    assert json.loads(mynah("adapters", "strength", "-c", here, "--json").out) == {
        "strength": 0.0,
        "everywhere": 0.5,
        "conversation": here,
    }
    assert mynah("adapters", "strength", "-c", here, "--unset").out == "strength 0.5, as everywhere\n"
    assert mynah("adapters", "strength", "--unset").out == "strength 1\n"
    assert mynah("adapters", "strength", "2").code == 2
    assert mynah("adapters", "strength", "1", "--unset").code == 2
    assert mynah("adapters", "strength", "1", "-c", "c999").code == 3


async def test_it_is_typed_in_the_chat(service: ScriptedService) -> None:
    async with chatting(service) as chat:

        async def typed(line: str, toast: str) -> None:
            chat.composer.put(line)
            await chat.press("enter")
            await chat.until(lambda: toast in chat.toasts)

        await typed("/base", "no conversation yet")
        await chat.ask("hello")
        here = str(chat.view.conversation)
        await typed("/base", "The base model answers here")
        assert service.strength(here) == 0.0
        await typed("/base", "as everywhere (100%)")
        assert service.strength(here) is None
        await typed("/strength 40%", "speaks here at 40%")
        assert service.strength(here) == 0.4
        await typed("/strength loud", "takes a number")
        await typed("/strength default", "as everywhere")
        assert service.strength(here) is None
        assert service.strength() == 1.0
