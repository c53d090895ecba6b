"""Replies of the real model, drawn and greedy, from an empty cache and a used one, on the base and an adapter.

Each must come out token for token and with the recorded log-probabilities, bit for bit.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app import replays
from app.host.client import HostClient, TurnRequest, ensure_host, stop_host
from app.host.events import Done, Token
from app.host.llama_runtime import LlamaRuntime
from app.service import Service
from store import conversations, settings, trajectory
from store.db import Store
from store.home import Home
from store.types import EventKind, ReplayClass
from tests.endpoint_helpers import mynah as of_ours
from tests.endpoint_helpers import openai_client, say, user
from tests.test_host_model import random_adapter

pytestmark = pytest.mark.model

QUESTIONS = ["Name three rivers in Europe.", "Why is the sky blue?"]


def test_recorded_replies_come_out_again(home: Home, store: Store):
    runtime = LlamaRuntime.load(store)
    client = ensure_host(home)

    def ask(text: str, conversation: str | None, **sampler: float) -> Done:
        asked = TurnRequest(text=text, conversation=conversation, sampler={"max_tokens": 16, **sampler})
        *_, last = client.turn(asked)
        assert isinstance(last, Done), last
        return last

    conversation = ask(QUESTIONS[0], None, temperature=0.9).conversation
    warm = ask(QUESTIONS[1], conversation, temperature=0.9)
    ask("More, please.", conversation, temperature=0)
    again = TurnRequest(regenerate=warm.message, sampler={"max_tokens": 16, "temperature": 0.9})
    assert isinstance([*client.turn(again)][-1], Done)
    longer = TurnRequest(extend=warm.message, sampler={"max_tokens": 16, "temperature": 0.9})
    assert isinstance([*client.turn(longer)][-1], Done)
    adapter = random_adapter(store, runtime, seed=1)
    runtime.close()
    last = ask(QUESTIONS[0], conversation, temperature=0.9)
    assert last.adapter == adapter
    assert warm.usage["cached_tokens"] > 0

    mynah = Service(home)
    try:
        calls = [
            step for step in trajectory.read(store, str(conversation)) if step.kind is EventKind.MODEL_CALL
        ]
        assert [step.replay for step in calls] == [ReplayClass.DETERMINISTIC] * 6
        assert len({step.harness["sampler"]["seed"] for step in calls}) == 6, "nobody gave a seed"
        found = list(replays.of_conversation(mynah, str(conversation), replays.RECORDED))
        assert [(each.first_difference, each.largest_difference) for each in found] == [(None, 0.0)] * 6
        assert [each.changed for each in found] == [[]] * 6
        other = replays.of_message(mynah, str(last.message), replays.BASE)
        assert other.first_difference is not None
        assert other.recorded.text == conversations.get_message(store, str(last.message)).text
    finally:
        mynah.close()


def drawn(client: HostClient, text: str, conversation: str | None = None, *, aside: bool = False) -> Done:
    sampler = {"max_tokens": 16, "temperature": 0.9}
    *_, last = client.turn(TurnRequest(text=text, conversation=conversation, sampler=sampler, aside=aside))
    assert isinstance(last, Done), last
    return last


def test_so_do_those_that_gave_way_or_kept_to_a_grammar_or_began_where_yesterday_ended(
    home: Home, store: Store
):
    settings.put(store, settings.WARM_ON_DISK, True)
    long = "Read this: " + "the cat sat on the mat and the dog sat on the cat. " * 12 + QUESTIONS[0]
    client = ensure_host(home)
    first = drawn(client, long)
    assert stop_host(home)
    client = ensure_host(home)
    warm = drawn(client, QUESTIONS[1], first.conversation)
    assert warm.usage["cached_tokens"] > first.usage["prompt_tokens"] - 8
    with ThreadPoolExecutor(1) as pool:
        aside = pool.submit(drawn, client, "Again. " + long, aside=True)
        while client.status()["generating"] is None:
            assert not aside.done()
        for event in client.turn(TurnRequest(text=QUESTIONS[0], sampler={"max_tokens": 8})):
            assert not isinstance(event, Token) or not aside.done(), "it did not give way"
        gave_way = aside.result()
    with openai_client(client) as program:
        asked: dict[str, Any] = {
            "model": "mynah",
            "response_format": {"type": "json_object"},
            "max_tokens": 16,
            "temperature": 0.9,
        }
        kept_to_grammar = of_ours(say(program, user("An apple in JSON, please."), **asked))["message"]

    mynah = Service(home)
    try:
        for message in (first.message, warm.message, gave_way.message, kept_to_grammar):
            found = replays.of_message(mynah, str(message), replays.RECORDED)
            assert (found.replay, found.identical) == (ReplayClass.DETERMINISTIC, True), found
    finally:
        mynah.close()
