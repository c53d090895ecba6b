"""Replies of the real model, drawn and greedy, from an empty cache and a used one, on the base and an adapter.

Each must come out token for token and with the recorded log-probabilities, bit for bit.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from store.types import EventKind, FinishReason, ReplayClass
from tests.endpoint_helpers import mynah as of_ours
from tests.endpoint_helpers import openai_client, say, user
from tests.test_host_model import random_adapter

pytestmark = pytest.mark.model

QUESTIONS = ["Name three rivers in Europe.", "Why is the sky blue?"]


def test_recorded_replies_come_out_again(home: Home, store: Store):
    runtime = LlamaRuntime.load(store)
    client = ensure_host(home)

    asked: list[Done] = []

    def ask(request: TurnRequest, **sampler: float) -> Done:
        *_, last = client.turn(replace(request, sampler={"max_tokens": 16, "temperature": 0.9, **sampler}))
        assert isinstance(last, Done), last
        asked.append(last)
        return last

    conversation = ask(TurnRequest(QUESTIONS[0])).conversation
    warm = ask(TurnRequest(QUESTIONS[1], conversation))
    ask(TurnRequest("More, please.", conversation), temperature=0)
    cut = ask(TurnRequest(regenerate=warm.message))
    while cut.finish_reason != FinishReason.LENGTH:
        # Only what was cut is gone on with, and now and then 16 tokens are enough for an answer.
        assert len(asked) < 20
        cut = ask(TurnRequest(regenerate=warm.message))
    ask(TurnRequest(extend=cut.message))
    adapter = random_adapter(store, runtime, seed=1)
    runtime.close()
    last = ask(TurnRequest(QUESTIONS[0], conversation))
    assert last.adapter == adapter
    assert warm.usage["cached_tokens"] > 0

    mynah = Service(home)
    try:
        calls = [
            step for step in trajectory.read(store, str(conversation)) if step.kind is EventKind.MODEL_CALL
        ]
        assert [step.replay for step in calls] == [ReplayClass.DETERMINISTIC] * len(asked)
        seeds = {step.harness["sampler"]["seed"] for step in calls}
        assert len(seeds) == len(asked), "nobody gave a seed"
        found = list(replays.of_conversation(mynah, str(conversation), replays.RECORDED))
        assert [(each.first_difference, each.largest_difference) for each in found] == [(None, 0.0)] * len(
            asked
        )
        assert [each.changed for each in found] == [[]] * len(asked)
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
