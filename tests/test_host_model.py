"""The host on the real SmolLM2: what only real arithmetic can show. Replies at temperature 0 are compared bytewise."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openai
import pytest

from app.host.client import HostClient, TurnRequest, ensure_host, stop_host
from app.host.engine import Engine
from app.host.events import Done
from app.host.llama_runtime import LlamaRuntime
from app.model import adapter_file, gguf_info
from app.model.llama import ContextSettings, Sampler
from app.model.renderer import Turn
from store import adapters, conversations, settings
from store.db import Store
from store.home import Home
from store.types import Role
from tests.host_helpers import Desk

pytestmark = pytest.mark.model

RANK = 4
QUESTIONS = ["Name three rivers in Europe.", "Why is the sky blue?", "Write one sentence about a cat."]


def random_adapter(store: Store, runtime: LlamaRuntime, seed: int) -> str:
    """A live adapter of random numbers, large enough to change every reply; returns its id."""
    base = gguf_info.read(runtime.model.path)
    width = base.tensors["blk.0.attn_q.weight"].shape[1]
    rng = np.random.default_rng(seed)
    pairs = {
        f"model.layers.{layer}.self_attn.q_proj": (
            rng.normal(0, 0.3, (RANK, width)).astype(np.float32),
            rng.normal(0, 0.3, (width, RANK)).astype(np.float32),
        )
        for layer in range(base.number(f"{base.architecture}.block_count"))
    }
    made = store.home.scratch / f"random{seed}"
    made.mkdir()
    adapter_file.write_gguf_adapter(
        made / adapters.GGUF_NAME, pairs, float(RANK), base, runtime.info.base_hash
    )
    name = adapters.install(store, made)
    adapters.add_candidate(store, name, base_hash=runtime.info.base_hash, run="r1", manifest={}, uses=[])
    adapters.publish(store, name, {"passed": True})
    return name


def engine_on(home: Home, store: Store, context: int = 2048) -> Desk:
    settings.put(store, settings.CONTEXT, context)
    runtime = LlamaRuntime.load(store)
    engine = Engine(runtime, home)
    engine.start()
    return Desk(home, store, engine, runtime)


@pytest.fixture
def at(home: Home) -> Iterator[Desk]:
    with Store.open(home) as store:
        made = engine_on(home, store)
        yield made
        made.engine.close(30.0)


def talk(at: Desk, temperature: float = 0.0, max_tokens: int = 12) -> list[str]:
    """Three turns of one conversation; the replies."""
    history: list[Turn] = []
    for question in QUESTIONS:
        done = at.ask(
            question, before=history, temperature=temperature, max_tokens=max_tokens, incognito=True
        ).done()
        history += [Turn(Role.USER, question), Turn(Role.ASSISTANT, done.text)]
    return [turn.content for turn in history if turn.role is Role.ASSISTANT]


def test_base_adapter_base_is_byte_identical_and_equal_to_a_cold_start(home: Home) -> None:
    with Store.open(home) as store:
        at = engine_on(home, store)
        first = talk(at)
        adapter = random_adapter(store, at.runtime, seed=1)
        with_adapter = talk(at)
        adapters.rollback(store, at.runtime.info.base_hash)
        # Whatever else fills the caches must not matter.
        talk(at, temperature=0.9)
        third = talk(at)
        adapters.use(store, at.runtime.info.base_hash, adapter)
        with_adapter_again = talk(at)
        at.engine.close(30.0)
        cold = engine_on(home, store)
        cold_adapter = talk(cold)
        cold.engine.close(30.0)
        adapters.rollback(store, at.runtime.info.base_hash)
        cold = engine_on(home, store)
        cold_base = talk(cold)
        cold.engine.close(30.0)
    assert first == third == cold_base
    assert with_adapter == with_adapter_again == cold_adapter
    assert first != with_adapter


def test_exact_replies_do_not_depend_on_what_is_cached(at: Desk) -> None:
    """Replies at temperature 0 amid random others, each against the same question on an empty cache."""
    rng = random.Random(7)
    history: list[Turn] = []
    for round_ in range(5):
        question = QUESTIONS[round_ % 3] + " please" * rng.randrange(12)
        at.ask(question, before=history, temperature=0.8, max_tokens=5, incognito=True).done()
        warm = at.ask(question, before=history, temperature=0.0, max_tokens=12, incognito=True).done()
        at.engine.forget()
        cold = at.ask(question, before=history, temperature=0.0, max_tokens=12, incognito=True).done()
        assert cold.usage["cached_tokens"] == 0
        assert warm.text == cold.text, round_
        history = [*history, Turn(Role.USER, question), Turn(Role.ASSISTANT, warm.text)]


def test_recorded_log_probabilities_are_the_models_own(at: Desk) -> None:
    done = at.ask("What is a mynah?", temperature=0.7, max_tokens=40).done()
    tokens = conversations.tokens(at.store, str(done.message))
    assert len(tokens.completion) == len(tokens.logprobs) == done.usage["completion_tokens"]
    model = at.runtime.model
    with_all = [*tokens.prompt, *tokens.completion]
    context = model.context(ContextSettings(n_ctx=512))
    logits = context.score(with_all)
    context.close()
    expected = [
        Sampler.logprob(logits[len(tokens.prompt) - 1 + index], token)
        for index, token in enumerate(tokens.completion)
    ]
    assert tokens.logprobs == pytest.approx(expected, abs=0.02)
    assert model.vocab.text(tokens.completion) == done.text


def test_a_reply_that_never_ends_stops_at_the_window(home: Home) -> None:
    with Store.open(home) as store:
        at = engine_on(home, store, context=256)
        done = at.ask("Count from one to a million.", temperature=0.0, max_tokens=10_000).done()
        text = at.ask("Hello.", temperature=0.0, max_tokens=5).done().text
        at.engine.close(30.0)
    assert done.usage["total_tokens"] <= at.runtime.info.context + 1
    assert done.finish_reason in ("length", "stop")
    assert text


def test_stop_and_ask_again_many_times(at: Desk) -> None:
    rng = random.Random(3)
    for _ in range(20):
        answer = at.ask("Tell me a long story.", temperature=0.8, incognito=True)
        answer.started()
        if rng.random() < 0.7:
            answer.tokens(rng.randrange(1, 4))
        answer.job.cancelled.set()
        answer.done()
    assert at.ask("Say hello.", temperature=0.0, max_tokens=8).done().text


def test_whole_host_with_the_openai_client(home: Home) -> None:
    """Cold start, two streams at once, and the same bytes from a second cold start."""
    client = ensure_host(home)
    url = f"http://127.0.0.1:{client.endpoint.port}/v1"
    name = str(client.status()["model"])
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as program:

        def stream(question: str) -> str:
            chunks = program.chat.completions.create(
                model=name,
                messages=[{"role": "user", "content": question}],
                temperature=0,
                max_tokens=20,
                stream=True,
            )
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

        with ThreadPoolExecutor(2) as pool:
            texts = list(pool.map(stream, QUESTIONS[:2]))
    assert all(texts)
    assert stop_host(home)
    fresh = ensure_host(home)
    again = [_reply(fresh, question) for question in QUESTIONS[:2]]
    assert again == texts
    log = (home.logs / "host.log").read_text()
    assert "Traceback" not in log


def _reply(client: HostClient, question: str) -> str:
    *_, last = client.turn(TurnRequest(text=question, sampler={"temperature": 0, "max_tokens": 20}))
    assert isinstance(last, Done)
    return last.text
