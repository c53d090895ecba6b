"""Runs from ledger to live adapter: what is quick, what is begun again, what is refused, and one on the real model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from app.model import catalogue, convert
from app.model.llama import ContextSettings, LlamaModel, SamplerSettings, generate
from app.model.renderer import Renderer, Turn
from learner import __main__ as entry
from learner import loop
from learner.round import Round
from learner.yielding import MAX_THREADS, Yielding
from store import adapters, runs, signals, units
from store.db import Store
from store.errors import HomeLocked, LearnerError
from store.home import Home, locked
from store.runs import Run
from store.types import AdapterState, Role, RunOutcome, RunState, SignalKind, Trigger, UnitState, UnitUse
from tests import seed
from tests.leases import Free

RESULT_KEYS = {"outcome", "adapter", "used", "held_out", "skipped", "gate", "seconds", "cpu_seconds"}


def claimed(store: Store) -> Run:
    runs.request(store, Trigger.MANUAL)
    run = runs.claim(store, os.getpid())
    assert run is not None
    return run


def test_with_nothing_to_learn_the_training_library_is_not_loaded(home):
    with Store.open(home) as store:
        run = runs.request(store, Trigger.MANUAL)
    code = (
        "import sys; from store.home import Home; from learner.loop import work; "
        "work(Home.default().open(), linger=0.0); "
        "print([name for name in ('torch', 'transformers', 'peft') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with Store.open(home) as store:
        ended = runs.get(store, run.id)
    assert (ended.state, ended.outcome) == (RunState.DONE, RunOutcome.NOTHING_TO_LEARN)
    assert set(ended.result) == RESULT_KEYS
    assert ended.result["adapter"] is None


def test_a_run_that_died_after_going_live_is_reported_and_not_repeated(home):
    with Store.open(home) as store:
        unit = seed.corrected(store, "Why?", "Because it is so.", "Because.")
        run = claimed(store)
        adapter = seed.adapter(store, b"x", [(unit, UnitUse.TRAINED)], run.id)
        adapters.publish(store, adapter.id, {"passed": True})
        assert Round(store, run, Yielding(Free())).carry_out() is RunOutcome.PROMOTED
        result = runs.get(store, run.id).result
        assert (result["adapter"], result["used"]) == (adapter.id, [unit.id])


def test_a_candidate_of_a_broken_off_attempt_is_closed(home):
    with Store.open(home) as store:
        unit = seed.corrected(store, "Why?", "Because it is so.", "Because.")
        run = claimed(store)
        adapter = seed.adapter(store, b"x", [(unit, UnitUse.TRAINED)], run.id)
        signals.record(store, unit.message, SignalKind.CORRECTION, text="")
        assert Round(store, run, Yielding(Free())).carry_out() is RunOutcome.NOTHING_TO_LEARN
        assert adapters.get(store, adapter.id).state is AdapterState.REJECTED


def test_a_fault_closes_the_run_and_not_the_learner(home, monkeypatch):
    def broken(*_: object) -> None:
        raise LearnerError("no such model")

    monkeypatch.setattr(loop, "carry_out", broken)
    with Store.open(home) as store:
        run = runs.request(store, Trigger.MANUAL)
        loop.work(home, linger=0.0)
        ended = runs.get(store, run.id)
        assert (ended.state, ended.error) == (RunState.FAILED, "no such model")

        def bug(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(loop, "carry_out", bug)
        run = runs.request(store, Trigger.MANUAL)
        loop.work(home, linger=0.0)
        assert "ZeroDivisionError: a bug" in str(runs.get(store, run.id).error)


def test_a_dead_learners_run_is_begun_again_and_its_scratch_is_gone(home, monkeypatch):
    with Store.open(home) as store:
        run = claimed(store)
        (home.scratch / "adapter-half").mkdir()
        seen: list[Run] = []

        def note(store: Store, run: Run, _yielding: Yielding) -> None:
            seen.append(run)
            runs.fail(store, run.id, "x")

        monkeypatch.setattr(loop, "carry_out", note)
        loop.work(home, linger=0.0)
        assert [(again.id, again.attempts) for again in seen] == [(run.id, 2)]
        assert list(home.scratch.iterdir()) == []


def test_there_is_one_learner_per_home(home):
    with locked(home.learner_lock, "learner"), pytest.raises(HomeLocked):
        loop.work(home, linger=0.0)


def test_a_paused_learner_takes_no_run(home, monkeypatch):
    from store import settings

    monkeypatch.setattr(loop, "carry_out", lambda *_: pytest.fail("it worked"))
    with Store.open(home) as store:
        settings.put(store, settings.LEARNING_PAUSED, True)
        run = runs.request(store, Trigger.MANUAL)
        loop.work(home, linger=0.0)
        assert runs.get(store, run.id).state is RunState.QUEUED


def test_the_process_stands_below_everything_and_leaves_when_asked(home):
    process = subprocess.Popen([sys.executable, "-m", "learner"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120.0
        while not _holds_lock(home) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_threads_are_bounded_and_nothing_may_ask_the_network(monkeypatch):
    for name in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "OMP_WAIT_POLICY",
        "KMP_BLOCKTIME",
    ):
        monkeypatch.setenv(name, "99")
    entry.bound_threads()
    assert 1 <= int(os.environ["OMP_NUM_THREADS"]) <= MAX_THREADS
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["HF_HUB_OFFLINE"] == "1"


TAUGHT = {
    "What do cows drink?": "Cows drink water.",
    "Where does bread come from?": "Bread is baked from flour.",
    "When is it dark outside?": "It is dark at night.",
    "Who flies a plane?": "A pilot flies a plane.",
    "Why do people wear coats?": "Coats keep people warm.",
    "How do fish move?": "Fish move with their fins.",
    "What is a chair for?": "A chair is for sitting.",
    "What colour is snow?": "Snow is white.",
}
UNSEEN = ["What is a spoon for?", "Why do birds sing?", "How do I boil water?", "What is the moon?"]

_WORK_ONCE = (
    "from learner.__main__ import bound_threads; bound_threads(); "
    "from learner.loop import work; from store.home import Home; work(Home.default().open(), linger=0.0)"
)


@pytest.mark.model
def test_eight_corrections_change_unseen_replies(home):
    with Store.open(home) as store:
        for question, answer in TAUGHT.items():
            seed.corrected(
                store, question, f"That depends. {answer} There is more to say.", f"Ahoy! {answer}"
            )
        run = runs.request(store, Trigger.MANUAL)
        # In a process of its own: OpenMP reads its settings once, and spinning threads triple the time.
        subprocess.run([sys.executable, "-c", _WORK_ONCE], check=True)
        ended = runs.get(store, run.id)
        result = ended.result
        assert ended.outcome is RunOutcome.PROMOTED, result["gate"]
        assert set(result) == RESULT_KEYS
        assert (len(result["used"]), len(result["held_out"])) == (7, 1)
        base = catalogue.resolve(home, None)
        serving = adapters.active(store, base.base_hash)
        assert serving.adapter is not None
        assert serving.adapter.id == result["adapter"]
        assert {unit.state for unit in units.learned(store)} == {UnitState.USED, UnitState.HELD_OUT}
        openings = _openings(home, adapters.files(store, serving.adapter.id))
    assert sum(opening.startswith("Ahoy") for opening in openings) >= 3, openings


def _openings(home: Home, adapter_files) -> list[str]:
    base = catalogue.resolve(home, None)
    with closing(LlamaModel.load(convert.served_form(base))) as model:
        renderer = Renderer(model.vocab, model.chat_template)
        context = model.context(ContextSettings(n_ctx=256))
        context.set_adapter(model.load_adapter(adapter_files / adapters.GGUF_NAME))
        found = []
        for question in UNSEEN:
            prompt = renderer.prompt([Turn(Role.USER, question)])
            made = generate(
                context, prompt, SamplerSettings(temperature=0.0), 6, renderer.stop_ids, between=lambda: None
            )
            found.append(model.vocab.text([token.id for token in made]))
    return found


def _holds_lock(home: Home) -> bool:
    try:
        with locked(home.learner_lock, "test"):
            return False
    except HomeLocked:
        return True
