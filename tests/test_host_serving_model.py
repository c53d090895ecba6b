"""Giving way, breaking off, warming and keeping on the real SmolLM2: none of it may change a byte at temperature 0."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest

from app.host.events import Done
from app.host.jobs import Priority
from app.model.llama import BrokenOff, LlamaError
from app.model.renderer import Turn
from store import settings, warm
from store.db import Store
from store.home import Home
from store.types import Role
from tests.host_helpers import Desk
from tests.test_host_model import engine_on, random_adapter

pytestmark = pytest.mark.model

LONG = "Tell me about these words: " + "river bread gravity chess winter " * 40
STORY = "Write one sentence about a cat."


@pytest.fixture
def at(home: Home) -> Iterator[Desk]:
    with Store.open(home) as store:
        made = engine_on(home, store, context=1024)
        yield made
        made.engine.close(30.0)


def alone(at: Desk, text: str, before: tuple[Turn, ...] = (), tokens: int = 10) -> Done:
    at.engine.forget()
    return at.ask(text, before=before, temperature=0.0, max_tokens=tokens, incognito=True).done()


def test_what_was_broken_off_is_computed_again_to_the_same_bits(at: Desk) -> None:
    """In the context itself: an evaluation that an interrupt ends leaves the sequence as it was."""
    context = at.runtime.lane.context
    tokens = at.runtime.fit([Turn(Role.USER, LONG)], 4).tokens[:192]
    for start in (0, 64, 128):
        context.evaluate(tokens[start : start + 64], start, 1)
    whole = context.logits().copy()
    context.truncate(1, 64)
    context.interrupt()
    with pytest.raises(BrokenOff):
        context.evaluate(tokens[64:128], 64, 1)
    context.proceed()
    threading.Timer(0.02, context.interrupt).start()
    with pytest.raises(BrokenOff):
        for _ in range(100):
            context.truncate(1, 64)
            context.evaluate(tokens[64:128], 64, 1)
    context.proceed()
    context.truncate(1, 64)
    for start in (64, 128):
        context.evaluate(tokens[start : start + 64], start, 1)
    assert (context.logits() == whole).all()
    context.truncate(1, 0)


def test_a_reply_that_gave_way_is_the_reply_it_would_have_been(at: Desk) -> None:
    expected = {text: alone(at, text, tokens=24).text for text in (LONG, STORY)}
    at.engine.forget()
    low = at.ask(LONG, temperature=0.0, max_tokens=24, priority=Priority.BACKGROUND, client="p")
    time.sleep(0.15)
    first = at.ask(STORY, temperature=0.0, max_tokens=24, incognito=True).done()
    low.tokens(2)
    second = at.ask(STORY, temperature=0.0, max_tokens=24, incognito=True).done()
    assert first.text == second.text == expected[STORY]
    assert low.done().text == expected[LONG]


def test_a_version_warmed_meanwhile_answers_like_one_started_cold(at: Desk) -> None:
    first = at.ask(LONG, temperature=0.0, max_tokens=8, incognito=True).done()
    history = (Turn(Role.USER, LONG), Turn(Role.ASSISTANT, first.text))
    streaming = at.ask(STORY, before=history, temperature=0.8, max_tokens=300, incognito=True)
    streaming.tokens(1)
    adapter = random_adapter(at.store, at.runtime, seed=3)
    deadline = time.monotonic() + 120.0
    while at.engine.status().contexts < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    streaming.job.cancelled.set()
    streaming.done()
    warm_ = at.ask(STORY, before=history, temperature=0.0, max_tokens=10, incognito=True).done()
    assert warm_.adapter == adapter
    assert warm_.usage["cached_tokens"] > 0
    assert warm_.text == alone(at, STORY, history).text


def test_yesterdays_conversation_opens_warm_and_answers_the_same(home: Home) -> None:
    with Store.open(home) as store:
        settings.put(store, settings.WARM_ON_DISK, True)
        at = engine_on(home, store, context=1024)
        first = at.ask(LONG, temperature=0.0, max_tokens=8).done()
        at.engine.close(30.0)
        assert [file.stat().st_mode & 0o777 for file in warm.directory(home).iterdir()] == [0o600]
        at = engine_on(home, store, context=1024)
        history = (Turn(Role.USER, LONG), Turn(Role.ASSISTANT, first.text))
        warm_ = at.ask(STORY, before=history, temperature=0.0, max_tokens=10, incognito=True).done()
        cold = alone(at, STORY, history)
        at.engine.close(30.0)
    assert warm_.usage["cached_tokens"] > 128
    assert cold.usage["cached_tokens"] == 0
    assert warm_.text == cold.text


def test_a_saved_sequence_of_another_model_is_refused(at: Desk) -> None:
    with pytest.raises(LlamaError, match="another model"):
        at.runtime.lane.context.restore(0, b"nonsense")


JSON = r"""
root ::= "{\"name\": \"" [a-z]+ "\", \"legs\": " [0-9] "}"
"""


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_grammar_is_kept_to(at: Desk, temperature: float) -> None:
    done = at.ask(STORY, temperature=temperature, max_tokens=60, grammar=JSON, incognito=True).done()
    found = json.loads(done.text)
    assert set(found) == {"name", "legs"}
    assert done.finish_reason == "stop"


def test_a_grammar_that_cannot_be_read_is_the_askers_fault(at: Desk) -> None:
    failure = at.ask(STORY, grammar="root ::= nothing-of-the-kind", incognito=True).failed()
    assert "GBNF" in failure.message
    assert failure.exit_code == 2
    assert at.ask(STORY, temperature=0.0, max_tokens=4, incognito=True).done().text
