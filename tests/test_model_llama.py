"""llama.cpp on the real default model: adapters come and go without a trace, contexts do not disturb each other."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from app.model import adapter_file, catalogue, convert, gguf_info, memory
from app.model.llama import (
    BrokenOff,
    ContextSettings,
    LlamaError,
    LlamaModel,
    Sampler,
    SamplerSettings,
    generate,
    generate_together,
)
from app.model.renderer import Renderer, Turn
from store.errors import AdapterFileError, ContextOverflow, ModelFileError
from store.home import Home
from store.types import Role

pytestmark = pytest.mark.model

SMALL = ContextSettings(n_ctx=512, n_seq=3)
GREEDY = SamplerSettings(temperature=0)


@pytest.fixture(scope="module")
def served():
    return convert.served_form(catalogue.resolve(Home.default(), None))


@pytest.fixture(scope="module")
def model(served):
    with LlamaModel.load(served) as loaded:
        yield loaded


@pytest.fixture
def context(model):
    made = model.context(SMALL)
    yield made
    made.close()


@pytest.fixture(scope="module")
def adapter_path(served, tmp_path_factory):
    """An adapter of random numbers of the size that a round of training gives them."""
    random = np.random.default_rng(3)
    base = gguf_info.read(served)
    sizes = {
        f"model.layers.{layer}.self_attn.{name}": base.tensors[f"blk.{layer}.{stored}.weight"].shape
        for layer in range(base.number("llama.block_count"))
        for name, stored in (("q_proj", "attn_q"), ("v_proj", "attn_v"))
    }
    pairs = {
        name: (
            random.normal(0, 0.02, (8, width)).astype(np.float32),
            random.normal(0, 0.02, (rows, 8)).astype(np.float32),
        )
        for name, (rows, width) in sizes.items()
    }
    path = tmp_path_factory.mktemp("adapter") / "adapter.gguf"
    adapter_file.write_gguf_adapter(path, pairs, 16.0, base, "")
    adapter_file.verify(path, base)
    return path


@pytest.fixture(scope="module")
def prompt(model):
    render = Renderer(model.vocab, model.chat_template)
    return render.prompt([Turn(Role.USER, "What is the capital of France?")])


def logits_of(context, tokens, seq=0):
    context.truncate(seq, 0)
    context.evaluate(tokens, 0, seq)
    return context.logits().copy()


def reply(context, prompt, settings=GREEDY, limit=12):
    return list(generate(context, prompt, settings, limit, frozenset(), between=lambda: None))


def test_an_adapter_taken_out_leaves_no_trace(model, context, adapter_path, prompt):
    first = logits_of(context, prompt)
    adapter = model.load_adapter(adapter_path)
    context.set_adapter(adapter, 1.0)
    changed = logits_of(context, prompt)
    context.set_adapter(None)
    assert not np.array_equal(changed, first)
    np.testing.assert_array_equal(logits_of(context, prompt), first)
    adapter.close()
    np.testing.assert_array_equal(logits_of(context, prompt), first)


def test_the_scale_is_a_strength(model, context, adapter_path, prompt):
    base = logits_of(context, prompt)
    adapter = model.load_adapter(adapter_path)
    distances = []
    for scale in (0.0, 0.5, 1.0):
        context.set_adapter(adapter, scale)
        distances.append(float(np.abs(logits_of(context, prompt) - base).mean()))
    adapter.close()
    assert distances[0] == 0.0 < distances[1] < distances[2]


def test_closing_an_adapter_takes_it_out_of_every_context(model, context, adapter_path, prompt):
    base = logits_of(context, prompt)
    other = model.context(SMALL)
    adapter = model.load_adapter(adapter_path)
    context.set_adapter(adapter)
    other.set_adapter(adapter)
    adapter.close()
    adapter.close()
    assert context.adapter is None
    assert other.adapter is None
    np.testing.assert_array_equal(logits_of(other, prompt), base)
    other.close()
    with pytest.raises(AdapterFileError, match="was closed"):
        context.set_adapter(adapter)


def test_two_contexts_at_once_give_what_each_gives_alone(model, adapter_path, prompt):
    adapter = model.load_adapter(adapter_path)
    contexts = {"base": model.context(SMALL), "adapter": model.context(SMALL)}
    contexts["adapter"].set_adapter(adapter)
    alone = {name: (reply(one, prompt), one.score(prompt)) for name, one in contexts.items()}
    together = {}

    def work(name, one):
        together[name] = (reply(one, prompt), one.score(prompt))

    threads = [threading.Thread(target=work, args=pair) for pair in contexts.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, one in contexts.items():
        assert together[name][0] == alone[name][0]
        np.testing.assert_array_equal(together[name][1], alone[name][1])
        one.close()
    assert not np.array_equal(alone["base"][1], alone["adapter"][1])
    adapter.close()


def test_an_adapter_may_be_loaded_while_another_thread_decodes(model, context, adapter_path, prompt):
    expected = reply(context, prompt, limit=24)
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(reply(context, prompt, limit=24)))
    thread.start()
    for _ in range(5):
        other = model.context(SMALL)
        adapter = model.load_adapter(adapter_path)
        other.set_adapter(adapter)
        logits_of(other, prompt)
        adapter.close()
        other.close()
    thread.join()
    assert seen == expected


def test_sequences_do_not_disturb_each_other(context, prompt):
    alone = logits_of(context, prompt)
    for seq in (1, 2):
        np.testing.assert_array_equal(logits_of(context, prompt, seq), alone)
    np.testing.assert_array_equal(logits_of(context, prompt), alone)


def test_a_copied_prefix_is_the_prefix(context, prompt):
    logits_of(context, prompt)
    context.truncate(0, 20)
    context.evaluate(prompt[20:], 20)
    expected = context.logits().copy()
    logits_of(context, prompt, 2)
    context.copy_prefix(0, 2, 20)
    context.evaluate(prompt[20:], 20, 2)
    np.testing.assert_array_equal(context.logits(), expected)
    context.copy_prefix(0, 0, 20)
    context.evaluate(prompt[20:], 20)
    np.testing.assert_array_equal(context.logits(), expected)


def test_score_is_the_logits_of_every_position(context, prompt):
    text = (prompt * 4)[:100]
    paused = []
    scores = context.score(text, between=lambda: paused.append(1))
    assert scores.shape == (100, context.model.vocab.size)
    assert len(paused) == 2
    # One row or 64 go through the last matrix in another order of additions: 6e-5 apart, no more.
    context.evaluate(text[:64], 0)
    np.testing.assert_allclose(context.logits(), scores[63], rtol=0, atol=1e-3)
    context.evaluate(text[64:], 64)
    np.testing.assert_allclose(context.logits(), scores[99], rtol=0, atol=1e-3)


def test_greedy_takes_the_most_likely_token_with_its_log_probability(context, prompt):
    first = logits_of(context, prompt).astype(np.float64)
    tokens = reply(context, prompt)
    assert tokens[0].id == first.argmax()
    expected = first.max() - np.log(np.exp(first - first.max()).sum()) - first.max()
    assert math.isclose(tokens[0].logprob, expected, abs_tol=1e-5)
    assert reply(context, prompt) == tokens


def test_a_seed_is_a_reply(context, prompt):
    warm = [SamplerSettings(temperature=1.5, top_k=0, top_p=1.0, seed=seed) for seed in (1, 1, 2)]
    first, same, other = [[token.id for token in reply(context, prompt, one)] for one in warm]
    assert first == same != other


def test_sampler_settings_limit_the_choice(context, prompt):
    best = [token.id for token in reply(context, prompt)]
    for narrow in (
        SamplerSettings(temperature=2.0, top_k=1),
        SamplerSettings(temperature=2.0, top_k=0, top_p=1e-6),
        SamplerSettings(temperature=2.0, top_k=0, top_p=1.0, min_p=1.0),
    ):
        assert [token.id for token in reply(context, prompt, narrow)] == best


def test_replies_written_together_are_those_written_alone(model, context):
    renderer = Renderer(model.vocab, model.chat_template)
    questions = ["What is the capital of France?", "How many days are in a week?", "What colour is grass?"]
    prompts = [renderer.prompt([Turn(Role.USER, question)]) for question in questions]
    stops = renderer.stop_ids

    def written_alone(prompt):
        made = generate(context, prompt, GREEDY, 10, stops, between=lambda: None)
        return [token.id for token in made]

    alone = [written_alone(prompt) for prompt in prompts]
    together = generate_together(context, prompts, [GREEDY] * 3, 10, stops, between=lambda: None)
    assert together == alone
    again = generate_together(context, prompts[:2], [GREEDY] * 2, 10, stops, between=lambda: None)
    assert again == alone[:2]


def test_a_repeat_penalty_changes_a_loop(context, model):
    looped = model.vocab.encode("one one one one one one one one", special=False)
    penalty = SamplerSettings(temperature=0, repeat_penalty=5.0)
    tokens = [token.id for token in reply(context, looped, penalty)]
    assert len(set(tokens)) == len(tokens)
    assert len({token.id for token in reply(context, looped)}) < len(tokens)


def test_generate_ends_at_a_stop_token_and_asks_before_every_evaluation(context, prompt):
    third = reply(context, prompt)[2].id
    asked = []
    out = list(generate(context, prompt, GREEDY, 12, frozenset({third}), between=lambda: asked.append(1)))
    assert out[-1].id == third
    assert len(out) <= 3
    assert len(asked) == math.ceil(len(prompt) / SMALL.n_batch) + len(out) - 1


def test_tokens_and_text_round_trip(model):
    text = "Grüße, 世界! 🙂\r\n\tdef f(): pass\x00 end"
    tokens = model.vocab.encode(text, special=False)
    assert model.vocab.text(tokens) == text
    assert b"".join(map(model.vocab.piece, tokens)) == text.encode()
    assert model.vocab.encode("", special=True) == []


def test_what_a_window_cannot_hold_is_refused(context, prompt):
    context.truncate(0, 0)
    with pytest.raises(ContextOverflow, match="longer than the window of 512"):
        context.evaluate(prompt, 500)
    with pytest.raises(ValueError, match="one evaluation takes"):
        context.evaluate([1] * 65, 0)
    context.evaluate(prompt, 0)
    with pytest.raises(LlamaError, match="could not evaluate"):
        context.evaluate(prompt, 0)


def test_no_memory_is_one_clear_line(model, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    with pytest.raises(LlamaError, match="not enough memory for 64 windows of 8192 tokens"):
        model.context(ContextSettings(n_ctx=8192, n_seq=64))
    model.context(ContextSettings(n_ctx=1024)).close()


def test_the_size_of_the_cache_is_the_one_that_llama_cpp_reports(model):
    # 45 MiB in its own words, for 2 sequences of 1024 tokens.
    assert model.cache_shape.bytes(2048) == 45 * 2**20


def test_a_window_is_never_longer_than_the_model_was_trained_for(model, monkeypatch):
    monkeypatch.setattr(memory, "fits", lambda needed: needed == 45 * 2**22)
    context = model.context(ContextSettings(n_ctx=1_000_000))
    assert context.n_ctx == 8192
    context.close()


def test_files_that_cannot_be_loaded(model, tmp_path, served):
    foreign = tmp_path / "notes.gguf"
    foreign.write_text("not a model")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(served.read_bytes()[:5_000_000])
    for path, says in ((foreign, "not a GGUF"), (cut, "cut short"), (tmp_path / "none", "there is no file")):
        with pytest.raises(ModelFileError, match=says):
            LlamaModel.load(path)
    for path in (foreign, cut, served, tmp_path / "none"):
        with pytest.raises(AdapterFileError):
            model.load_adapter(path)


def test_a_context_that_gives_way_waits_and_computes_the_same(context, prompt):
    usual = logits_of(context, prompt)
    signal = ctypes.create_string_buffer(2)
    waited = []
    context.give_way(ctypes.addressof(signal), lambda: waited.append(1))
    assert np.array_equal(logits_of(context, prompt), usual)
    assert not waited
    signal[0] = b"\x40"
    # The byte stays, as after a holder that died: each evaluation gives way once and is then computed.
    assert np.array_equal(logits_of(context, prompt), usual)
    assert waited


def test_what_is_closed_says_so_and_may_be_closed_again(served):
    model = LlamaModel.load(served)
    context = model.context(SMALL)
    sampler = Sampler(GREEDY, model.vocab)
    sampler.close()
    sampler.close()
    model.close()
    model.close()
    context.close()
    with pytest.raises(LlamaError, match="closed"):
        context.evaluate([1], 0)
    with pytest.raises(LlamaError, match="closed"):
        context.logits()
    with pytest.raises(LlamaError, match="closed"):
        model.context(SMALL)
    with pytest.raises(LlamaError, match="closed"):
        model.vocab.encode("x", special=False)


def test_only_the_vocabulary_can_be_loaded(served, model):
    with LlamaModel.load(served, vocab_only=True) as light:
        assert light.vocab.encode("Hello", special=False) == model.vocab.encode("Hello", special=False)
        assert (light.architecture, light.n_ctx_train, light.chat_template) == (
            "llama",
            8192,
            model.chat_template,
        )


UNCLOSED = """
import sys
from pathlib import Path
from app.model.llama import ContextSettings, LlamaModel, Sampler, SamplerSettings
model = LlamaModel.load(Path(sys.argv[1]))
context = model.context(ContextSettings(n_ctx=256))
context.set_adapter(model.load_adapter(Path(sys.argv[2])))
context.evaluate([1, 2, 3], 0)
Sampler(SamplerSettings(), model.vocab).sample(context)
try:
    LlamaModel.load(Path("/etc/hostname"))
except Exception as error:
    assert "GGUF" in str(error), error
"""


def test_a_program_that_closes_nothing_ends_cleanly_and_silently(served, adapter_path):
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, str(served), str(adapter_path)],
        cwd=Path(__file__).parent.parent,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_native_messages_go_to_the_log_and_not_to_the_terminal(served, caplog, capfd):
    with caplog.at_level(logging.DEBUG, logger="mynah.llama"), LlamaModel.load(served, vocab_only=True):
        pass
    assert any("general.architecture" in record.message for record in caplog.records)
    assert capfd.readouterr() == ("", "")


def test_an_evaluation_that_is_broken_off_is_no_error_in_the_log(context, prompt, caplog):
    context.interrupt()
    with caplog.at_level(logging.INFO, logger="mynah.llama"):
        with pytest.raises(BrokenOff):
            context.evaluate(prompt, 0)
        assert caplog.records == []
        context.proceed()
        context.evaluate(prompt, 0)
        with pytest.raises(LlamaError):
            context.evaluate(prompt, len(prompt) + 5)
    assert [record.levelname for record in caplog.records if "failed to decode" in record.message] == [
        "ERROR"
    ]
