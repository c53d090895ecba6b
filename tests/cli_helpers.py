"""Running a command in this process, and homes with something in them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.cli.main import run
from app.model import catalogue
from store import adapters, conversations
from store.conversations import Message, ReplyEnd, ReplyStart
from store.db import Store
from store.home import Home
from store.types import FinishReason, MessageStatus, UnitUse
from store.units import Unit


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


Mynah = Callable[..., Ran]


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    """A function that runs one command line, with standard input if it needs any."""

    def mynah(*words: str, stdin: str | None = None) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin) if stdin is not None else Untouchable())
        capsys.readouterr()
        code = run(list(words))
        written = capsys.readouterr()
        return Ran(code, written.out, written.err)

    return mynah


class Untouchable(io.StringIO):
    """A standard input that nobody may read: a command that does would hang on an idle pipe."""

    def read(self, size: int | None = -1) -> str:
        raise AssertionError("the command read standard input without being told to")


def talk(store: Store, question: str, answer: str, conversation: str | None = None) -> Message:
    """Save a question and its whole reply; returns the reply."""
    if conversation is None:
        conversation = conversations.create(store, conversations.title_from(question), "cli")
    head = conversations.get(store, conversation).head
    asked = conversations.append_user(store, conversation, question, head)
    start = ReplyStart("base", None, 1.0, {}, "template", [1, 2, 3])
    reply = conversations.begin_reply(store, conversation, asked.id, start)
    end = ReplyEnd(answer, MessageStatus.COMPLETE, FinishReason.STOP, [4, 5], [-0.5, -0.25])
    return conversations.finish_reply(store, reply.id, end)


def teach(store: Store, name: str, unit: Unit, *, passed: bool = True) -> str:
    """Enter an adapter that learned one unit, and put it through a gate; returns its id. Its file holds its name."""
    made = store.home.scratch / name
    made.mkdir()
    (made / adapters.GGUF_NAME).write_bytes(name.encode())
    adapter = adapters.install(store, made)
    base = base_hash(store.home)
    uses = [(unit, UnitUse.TRAINED)]
    adapters.add_candidate(store, adapter, base_hash=base, run="r0", manifest={"rank": 8}, uses=uses)
    check = {"name": "kl", "value": 0.125, "limit": 0.5, "passed": passed, "detail": "drift 0.125 of 0.5"}
    gate = {
        "passed": passed,
        "checks": [check],
        "summary": "all checks passed" if passed else "kl is too high",
    }
    if passed:
        adapters.publish(store, adapter, gate)
    else:
        adapters.reject(store, adapter, gate, "kl is too high")
    return adapter


def base_hash(home: Home) -> str:
    """The identity of the default model."""
    return catalogue.resolve(home, None).base_hash


def written(path: Path) -> str:
    return path.read_text(encoding="utf-8")
