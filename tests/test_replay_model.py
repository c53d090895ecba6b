"""Replies of the real model, drawn and greedy, from an empty cache and a used one, on the base and an adapter.

Each must come out token for token and with the recorded log-probabilities, bit for bit.
"""

from __future__ import annotations

import pytest

from app import replays
from app.host.client import TurnRequest, ensure_host
from app.host.events import Done
from app.host.llama_runtime import LlamaRuntime
from app.service import Service
from store import conversations, trajectory
from store.db import Store
from store.home import Home
from store.types import EventKind, ReplayClass
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
