"""States that must be loud: stale ratings, hints that say nothing, padded numbers, a judge that hangs."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.model import catalogue, convert
from app.model.llama import LlamaModel
from app.model.renderer import Renderer, Turn
from learner import examples, hints, judge, loop, objectives, staleness, watchdog
from learner.examples import Example, Refusal, Target
from learner.teacher import Teacher
from learner.yielding import Yielding
from store import adapters, runs, signals, story
from store.db import Store
from store.errors import LearnerError
from store.redaction.training import redactor_of
from store.types import Role, RunState, SignalKind, Trigger, UnitKind, UnitUse
from store.units import Unit
from tests import seed
from tests.leases import Free
from tests.scripted import ByteVocab


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(ByteVocab(), None)


def versions(store: Store, count: int) -> None:
    for number in range(count):
        unit = seed.corrected(store, f"Why {number}?", "Because it is so.", "Because.")
        adapter = seed.adapter(store, bytes([number]), [(unit, UnitUse.TRAINED)])
        adapters.publish(store, adapter.id, {"passed": True})


def rated(store: Store, text: str | None = None) -> Unit:
    _, _, reply = seed.say(store, "How?", "So.")
    signals.record(store, reply, SignalKind.THUMB, value=-1, text=text)
    return seed.unit_of(store, reply)


@pytest.mark.parametrize(("live", "weight"), [(0, 1.0), (2, 1.0), (3, 0.5), (4, 0.5)])
def test_a_bare_rating_counts_half_past_two_versions(home, renderer, live: int, weight: float):
    with Store.open(home) as store:
        unit = rated(store)
        versions(store, live)
        made = examples.build(store, renderer, unit, redactor_of(store))
        assert isinstance(made, Example)
        assert made.weight == weight


def test_a_bare_rating_is_dropped_past_four_versions_with_its_reason(home, renderer):
    with Store.open(home) as store:
        unit = rated(store)
        versions(store, 5)
        made = examples.build(store, renderer, unit, redactor_of(store))
        assert isinstance(made, Refusal)
        assert made.reason == staleness.TOO_OLD.format(5, 4)


def test_what_says_what_is_wanted_does_not_age(home, renderer):
    with Store.open(home) as store:
        hinted = rated(store, "shorter, please")
        corrected = seed.corrected(store, "When?", "At some time or other.", "Now.")
        versions(store, 6)
        for unit in (hinted, corrected):
            made = examples.build(store, renderer, unit, redactor_of(store))
            assert isinstance(made, Example)
            assert made.weight == 1.0


def test_versions_that_were_refused_or_tainted_make_nothing_older(home, renderer):
    with Store.open(home) as store:
        unit = rated(store)
        versions(store, 5)
        adapters.taint(store, [adapters.list_(store)[0].id], "forgotten")
        made = examples.build(store, renderer, unit, redactor_of(store))
        assert isinstance(made, Example)
        assert made.weight == 0.5


@pytest.mark.parametrize(
    ("hint", "says"), [("...", False), ("", False), ("?!", False), ("no", True), ("짧게", True)]
)
def test_a_hint_needs_letters(hint: str, says: bool):
    assert hints.says_something(hint) is says


def test_the_shift_is_the_divergence_the_hint_makes():
    even = np.zeros(4, dtype=np.float32)
    sure = np.array([50.0, 0.0, 0.0, 0.0], dtype=np.float32)
    assert hints.shift([even], [even]) == 0.0
    assert hints.shift([sure, even], [even, even]) == pytest.approx(np.log(4) / 2, abs=1e-4)
    with pytest.raises(ValueError):
        hints.shift([], [])
    with pytest.raises(ValueError):
        hints.shift([even], [even, even])


def test_a_hint_that_was_left_out_is_on_the_replys_story(home):
    with Store.open(home) as store:
        unit = rated(store, "...hm")
        hints.record(store, unit, hints.NO_WORDS)
        decision = story.of(store, unit.message).decisions[-1]
        assert (decision.kind, decision.choice["reason"]) == ("hint", hints.NO_WORDS)


def test_without_its_hint_an_example_is_a_bare_thumb():
    example = Example(
        "u", UnitKind.THUMB_DOWN, -1.0, 1.0, "q", "r", "hm", [1], Target([2], [1.0]), None, [1, 5], ([3],)
    )  # fmt: skip
    left = hints.without_hint(example)
    assert (left.hint, left.hinted, left.accepted) == (None, None, ())
    assert left.reply == example.reply
    assert staleness.ages(left)


@pytest.mark.model
def test_the_teacher_leaves_out_a_hint_that_changes_nothing(home):
    with closing(LlamaModel.load(convert.served_form(catalogue.resolve(home, None)))) as model:
        renderer = Renderer(model.vocab, model.chat_template)
        turns = [Turn(Role.USER, "How do I boil an egg?")]
        said = renderer.completion("To boil an egg, put it into a pot of cold water and heat it up.")
        useful = "Answer in Spanish, please."
        example = Example(
            "u", UnitKind.THUMB_DOWN, -1.0, 1.0, turns[0].content, "To boil an egg …", useful,
            renderer.prompt(turns), Target(said, [1.0] * len(said)), None,
            renderer.prompt(examples.with_hint(turns, useful)),
        )  # fmt: skip
        with closing(Teacher(model, renderer, Yielding(Free()))) as teacher:
            assert teacher.teach([], 1) == []
            taught, same, silent = teacher.teach(
                [
                    example,
                    replace(example, hint="hm", hinted=example.prompt),
                    replace(example, hint="..."),
                ],
                1,
            )
            assert taught.dropped is None
            assert len(taught.example.accepted) + len(taught.refused) >= 2
            assert same.dropped == hints.NO_CHANGE.format(0.0, hints.MIN_SHIFT)
            assert same.example.hinted is None
            assert silent.dropped == hints.NO_WORDS


def test_a_number_too_many_or_too_few_is_refused():
    logits = torch.zeros(3, 5)
    for count in (1, 2, 4):
        with pytest.raises(ValueError, match="for 3 positions"):
            objectives.token_logprobs(logits, torch.zeros(count, dtype=torch.long))
    with pytest.raises(ValueError, match="1 weights for 3 positions"):
        objectives.weighted_nll(torch.zeros(3), torch.ones(1))


@pytest.mark.parametrize("reward", [1.0, -1.0])
def test_a_uniform_batch_has_a_gradient(reward: float):
    policy = torch.zeros(4, requires_grad=True)
    objectives.apo_zero_unpaired(policy, torch.zeros(4), torch.full((4,), reward), 0.1).mean().backward()
    assert policy.grad is not None
    assert bool((policy.grad * reward < 0).all())


def test_a_reply_without_a_reward_is_no_silent_zero():
    with pytest.raises(ValueError, match="without a reward"):
        objectives.apo_zero_unpaired(torch.zeros(2), torch.zeros(2), torch.tensor([1.0, 0.0]), 0.1)


def test_a_judge_that_hangs_ends_the_run_with_its_reason(home, monkeypatch):
    def hang(*_: object) -> None:
        time.sleep(30)

    monkeypatch.setattr(judge, "judge_waiting", hang)
    monkeypatch.setattr(loop, "JUDGE_SECONDS", 0.05)
    with Store.open(home) as store:
        run = runs.request(store, Trigger.MANUAL)
        loop.work(home, linger=0.0)
        ended = runs.get(store, run.id)
    assert ended.state is RunState.FAILED
    assert "the judge has been silent" in str(ended.error)


def test_the_alarm_hears_and_is_put_back():

    before = signal.getsignal(signal.SIGALRM)
    with watchdog.bounded(600.0, "hung") as heard:
        time.sleep(0.05)
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        heard()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > left
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
    with pytest.raises(LearnerError, match="hung"), watchdog.bounded(0.02, "hung"):
        time.sleep(5)


def test_outside_the_main_thread_nothing_is_bounded():
    done = []

    def work() -> None:
        with watchdog.bounded(0.01, "hung") as heard:
            heard()
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_waiting_for_the_owners_reply_is_no_hanging(home, monkeypatch):
    wound_up: list[bool] = []

    def slow(_store: object, _similarity: object, _reader: object, pause: object) -> object:
        assert callable(pause)
        time.sleep(0.05)
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        pause()
        wound_up.append(signal.getitimer(signal.ITIMER_REAL)[0] > left > 0.0)
        return judge.Judged()

    monkeypatch.setattr(judge, "judge_waiting", slow)
    with Store.open(home) as store:
        run = runs.request(store, Trigger.MANUAL)
        loop.carry_out(store, runs.claim(store, 1) or run, Yielding(Free()))
        assert runs.get(store, run.id).state is RunState.DONE
    assert wound_up == [True]
