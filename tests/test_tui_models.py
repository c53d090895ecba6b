"""The Models screen: what is here, what can be fetched and how far it is, choosing, and that nothing waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from app.model import catalogue
from app.model.fitting import Needs
from app.models import Advice, Choice, Fit, Machine, Phase, Place, Progress
from app.service import ModelFile
from app.tui.models_screen import ModelsScreen
from store import settings
from store.errors import Interrupted, ModelFileError
from store.home import Home
from tests.scripted_service import BASE, Script, ScriptedService
from tests.tui_pilot import Chat, chatting

GIB = 2**30


class ModelService(ScriptedService):
    """Two models here, one afar whose pull goes as the test lets it."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.in_use = "one"
        self.here = ["one", "two"]
        self.may_come = threading.Event()
        self.wrong = False

    def machine(self) -> Machine:
        return Machine(16 * GIB, 2)

    def choices(self, machine: Machine) -> list[Choice]:
        return [
            Choice(
                pick=name,
                name=name,
                place=Place.AFAR
                if name not in self.here
                else Place.IN_USE
                if name == self.in_use
                else Place.HERE,
                size=500_000_000,
                parameters=600_000_000,
                advice=Advice(Needs(GIB, GIB, 5 * GIB), Fit.LEARNS, 32_768),
                what="[/] as it is",
                path=Path(name) if name in self.here else None,
                versions=2 if name == "two" else 0,
            )
            for name in ("one", "two", "three")
        ]

    def pull(
        self, typed: str, told: Callable[[Progress], None], stop: threading.Event, sha256: str | None = None
    ) -> ModelFile:
        told(Progress(Phase.FETCHING, 250_000_000, 500_000_000, 5_000_000))
        while not self.may_come.wait(0.01):
            if stop.is_set():
                raise Interrupted("stopped")
        if self.wrong:
            raise ModelFileError("it has another SHA-256 [/]: nothing of it was kept")
        self.here.append(typed)
        return made(typed)

    def change_model(self, name: str) -> ModelFile:
        self.in_use = name
        return made(name)


def made(name: str) -> ModelFile:
    return catalogue.ModelFile(Path(name), name, "llama", 1, name, Path(name), Path(name))


@pytest.fixture
def service(home: Home) -> Iterator[ModelService]:
    scripted = ModelService(home)
    yield scripted
    scripted.may_come.set()
    scripted.close()


async def opened(chat: Chat) -> OptionList:
    await chat.press("alt+m")
    await chat.until(lambda: isinstance(chat.app.screen, ModelsScreen))
    listing = chat.app.screen.query_one(OptionList)
    await chat.until(lambda: listing.option_count == 3)
    return listing


def row(chat: Chat, place: int) -> str:
    return str(chat.app.screen.query_one(OptionList).get_option_at_index(place).prompt)


async def test_what_is_here_what_is_not_and_what_it_takes(service: ModelService) -> None:
    async with chatting(service) as chat:
        await opened(chat)
        assert "16.0 GiB of memory, 2 cores, no GPU" in chat.seen(".machine")
        assert "in use" in row(chat, 0)
        assert "2 learned" in row(chat, 1)
        assert "to fetch · 500 MB · 2.0 GiB of memory · fits" in row(chat, 2)
        await chat.until(lambda: "[/] as it is" in chat.seen(".advice"))
        assert "up to 32,768 tokens" in chat.seen(".advice")


async def test_one_that_is_here_answers_with_one_key_and_the_host_starts_anew(service: ModelService) -> None:
    async with chatting(service) as chat:
        await chat.until(lambda: chat.host_seen)
        starts = service.host_starts
        await opened(chat)
        await chat.press("down", "enter")
        await chat.until(lambda: "in use" in row(chat, 1))
        await chat.until(lambda: service.host_starts > starts)
        assert "two answers from now on" in chat.toasts


async def test_a_pull_shows_how_far_it_is_and_the_chat_goes_on_meanwhile(service: ModelService) -> None:
    async with chatting(service) as chat:
        await opened(chat)
        await chat.press("end", "enter")
        await chat.until(lambda: "50% of 500 MB, 50 s left" in chat.seen(".fetching"))
        await chat.press("escape")
        await chat.ask("hello")
        assert chat.replies[-1].text == "A short answer."
        await opened(chat)
        await chat.until(lambda: "50% of 500 MB" in chat.seen(".fetching"))
        service.may_come.set()
        await chat.until(lambda: "here" in row(chat, 2))
        assert chat.seen(".fetching") == ""
        assert "three is here" in chat.toasts
        assert service.in_use == "one"


async def test_a_pull_is_stopped_with_one_key_and_goes_on_with_another(service: ModelService) -> None:
    async with chatting(service) as chat:
        await opened(chat)
        await chat.press("end", "enter")
        await chat.until(lambda: "50%" in chat.seen(".fetching"))
        await chat.press("s")
        await chat.until(lambda: "What has come is kept" in chat.toasts)
        await chat.until(lambda: chat.seen(".fetching") == "")
        service.may_come.set()
        await chat.press("end", "enter")
        await chat.until(lambda: "here" in row(chat, 2))


async def test_a_file_that_is_wrong_is_one_line(service: ModelService) -> None:
    service.wrong = True
    service.may_come.set()
    async with chatting(service) as chat:
        await opened(chat)
        await chat.press("end", "enter")
        await chat.until(lambda: "another SHA-256 [/]" in chat.toasts)
        assert "to fetch" in row(chat, 2)


async def test_any_address_can_be_fetched(service: ModelService) -> None:
    service.may_come.set()
    async with chatting(service) as chat:
        await opened(chat)
        await chat.press("a", *"a/b/c.gguf", "enter")
        await chat.until(lambda: "a/b/c.gguf is here" in chat.toasts)


async def test_context_and_gpu_are_set_here_and_the_host_starts_anew(service: ModelService) -> None:
    async with chatting(service, (100, 30)) as chat:
        await chat.until(lambda: chat.host_seen)
        starts = service.host_starts
        await opened(chat)
        assert "It sees 4,096 tokens of a conversation; on a GPU: none here" in chat.seen(".machine")
        await chat.press("c")
        await chat.until(lambda: chat.app.screen.query(Input))
        chat.app.screen.query_one(Input).value = "8192"
        await chat.press("enter")
        await chat.until(lambda: "It sees 8,192 tokens" in chat.seen(".machine"))
        await chat.until(lambda: service.host_starts > starts)
        assert settings.get(service.store, settings.CONTEXT) == 8192
        await chat.press("g", "0", "enter")
        await chat.until(lambda: "on a GPU: no layers" in chat.seen(".machine"))
        # Nothing is the default again, and what does not fit is said and changes nothing.
        await chat.press("g", "backspace", "enter")
        await chat.until(lambda: "on a GPU: none here" in chat.seen(".machine"))
        await chat.press("c", *"99999999", "enter")
        await chat.until(lambda: "takes a whole number" in chat.toasts)
        assert settings.get(service.store, settings.CONTEXT) == 8192
        await chat.press("c", "escape")
        assert "It sees 8,192 tokens" in chat.seen(".machine")


async def test_a_reply_is_not_cut_off_by_another_context(service: ModelService) -> None:
    may_end = threading.Event()
    service.scripts = [Script(["half"], may_end=may_end)]
    async with chatting(service) as chat:
        await chat.send("hello")
        await chat.until(lambda: chat.view.turn and chat.view.turn.text)
        await opened(chat)
        await chat.press("c")
        await chat.until(lambda: "A reply is being written" in chat.seen(".advice"))
        assert not chat.app.screen.query(Input)
        may_end.set()


class TwoBases(ModelService):
    """Whichever model is in use has a base of its own."""

    def base_hash(self) -> str:
        return {"one": BASE, "two": "c" * 64}[self.in_use]


async def test_each_model_keeps_its_own_versions(home: Home) -> None:
    service = TwoBases(home)
    for number in range(2):
        _, reply = service.say(f"question {number}", "wrong")
        service.correct(reply, "right")
    first = service.learned()
    service.use(first.id, 0.5)
    service.pin(first.id)
    async with chatting(service, (100, 30)) as chat:
        await chat.until(lambda: "v1 at 50%" in chat.seen("StatusLine"))
        await opened(chat)
        await chat.press("down", "enter", "escape")
        await chat.until(lambda: "v1" not in chat.seen("StatusLine") and "base" in chat.seen("StatusLine"))
        assert service.adapters() == []
        assert service.pinned() is None
        await opened(chat)
        await chat.press("home", "enter", "escape")
        await chat.until(lambda: "v1 at 50%" in chat.seen("StatusLine"))
        assert [each.id for each in service.adapters()] == [first.id]
        assert service.pinned() == first.id
    service.close()
