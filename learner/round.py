"""One learning run from ledger to live adapter, as a sequence of steps that can be begun again at any point.

Nothing a run does before its last step changes what is served: files are made in the scratch place, moved in by
one rename, entered as a candidate, tested, and made live by one transaction. A learner that dies anywhere leaves
a run that the next one begins again; only a run that died between going live and saying so is not repeated but
reported. What a round makes follows from the content of its lesson alone, to the bit, its seed included: an adapter
made anew without a forgotten unit is the one that would be there had the unit never been. What takes seconds to
import (torch, transformers, peft) is imported when there is something to learn, and not before.
"""

from __future__ import annotations

import gc
import logging
import statistics
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.model import catalogue, convert
from app.model.catalogue import ModelFile
from app.model.llama import LlamaModel
from app.model.renderer import Renderer
from learner import device, endpoint, examples, hints, ledger, precision, stronger, words
from learner.contexts import load_served
from learner.demonstrations import Demonstrator
from learner.endpoint import Endpoint
from learner.examples import Example
from learner.precision import Precision
from learner.taught import Teaches
from learner.teacher import Teacher
from learner.yielding import Yielding, decoder_layers
from store import adapters, consent, forgetting, runs, settings, units
from store.adapters import Adapter
from store.db import Store
from store.redaction.training import redactor_of
from store.runs import Run
from store.types import AdapterState, Dial, RunOutcome, RunState, Trigger, UnitState, UnitUse
from store.units import Unit

if TYPE_CHECKING:
    from learner.device import Device
    from learner.gate import Verdict
    from learner.trainer import Metrics

log = logging.getLogger("mynah.learner")

RECIPE = "combined-3"
_TOO_FEW = "one rating alone cannot be learned and tested: it waits for another one"
_NO_EVIDENCE = "there is nothing to learn beside what must be held out to test it"

# Where each step begins on the run's scale from 0 to 1; training is most of the time.
_SCALE: dict[RunState, tuple[float, float]] = {
    RunState.PREPARING: (0.0, 0.12),
    RunState.TRAINING: (0.12, 0.8),
    RunState.EXPORTING: (0.8, 0.83),
    RunState.GATING: (0.83, 0.98),
    RunState.PUBLISHING: (0.98, 1.0),
}


@dataclass(frozen=True)
class Lesson:
    """What a run is made of: units with their examples, by use."""

    train: list[tuple[Unit, Example]]
    replay: list[tuple[Unit, Example]]
    held_out: list[tuple[Unit, Example]]
    practice: list[Example] = field(default_factory=list)

    @property
    def uses(self) -> list[tuple[Unit, UnitUse]]:
        return [
            *((unit, UnitUse.TRAINED) for unit, _ in self.train),
            *((unit, UnitUse.REPLAYED) for unit, _ in self.replay),
            *((unit, UnitUse.HELD_OUT) for unit, _ in self.held_out),
        ]

    @property
    def tests(self) -> list[Example]:
        """What decides: the new held-out units, else the earlier ones. Tastes change, and the last word counts."""
        new = [example for unit, example in self.held_out if unit.state is UnitState.QUEUED]
        return new or [example for _, example in self.held_out]

    @property
    def examples(self) -> list[Example]:
        return [example for _, example in (*self.train, *self.replay)]

    @property
    def corrections(self) -> list[Example]:
        """The owner's own texts, the newest first: what the model is shown when it practises."""
        return [
            example
            for example in reversed(self.examples)
            if example.chosen is not None and not example.kind.compares
        ]


def _needs_teacher(example: Example) -> bool:
    """A hint alone says what is wanted and not how: where the owner wrote the reply, nobody else needs to."""
    return example.hinted is not None and example.chosen is None


class Round:
    """Carries one claimed run out."""

    def __init__(self, store: Store, run: Run, yielding: Yielding) -> None:
        self._store = store
        self._run = run
        self._yielding = yielding
        self._skipped: list[dict[str, str]] = []
        self.seconds: dict[RunState, float] = {}
        """Seconds of each step so far."""
        self._told = 0.0
        self._processor = time.process_time()
        self._relearned: list[Unit] = []
        self._ledger = ""
        self._seed = 0
        self._precision = Precision.FLOAT32
        self._taught_by = "base"

    def carry_out(self) -> RunOutcome:
        """Do it. Raises MynahError where the run cannot be carried out; that says nothing about the units."""
        published = self._published_before()
        if published is not None:
            return self._finish(RunOutcome.PROMOTED, published)
        waiting = units.waiting(self._store)
        if not waiting:
            return self._nothing([])
        base = catalogue.resolve(self._store.home, settings.get(self._store, settings.MODEL))
        earlier = units.learned(self._store)
        self._precision = precision.chosen(self._store)
        if self._run.trigger is Trigger.FORGETTING:
            again = self._again(base)
            if again is None:
                return self._nothing([])
            waiting, earlier = again.waiting, again.learned
            self._relearned = earlier
        with closing(load_served(convert.served_form(base))) as served:
            system_prompt = settings.get(self._store, settings.SYSTEM_PROMPT)
            renderer = Renderer(served.vocab, served.chat_template, system_prompt)
            with self._step(RunState.PREPARING):
                lesson = self._prepare(base, renderer, waiting, earlier)
            if not lesson.train or not lesson.held_out:
                return self._nothing(waiting)
            with self._step(RunState.PREPARING):
                lesson = self._practise(served, renderer, self._teach(served, renderer, lesson))
            return self._learn(base, served, renderer, lesson)

    def _again(self, base: ModelFile) -> ledger.Again | None:
        """The last lesson without what was forgotten; None where what serves has learned it already."""
        last = forgetting.last_round(self._store, base.base_hash)
        again = None if last is None else ledger.play_over(units.lessons(self._store, base.base_hash, last))
        serving = adapters.active(self._store, base.base_hash).adapter
        return None if again is None or (serving is not None and serving.version >= again.number) else again

    def _prepare(
        self, base: ModelFile, renderer: Renderer, waiting: list[Unit], learned: list[Unit]
    ) -> Lesson:
        """Refuse what cannot be an example, and divide the rest."""
        made: dict[str, Example] = {}
        redactor = redactor_of(self._store)

        def reason_against(unit: Unit) -> str | None:
            built = examples.build(self._store, renderer, unit, redactor)
            if not isinstance(built, Example):
                return built.reason
            made[unit.id] = built
            return None

        usable = []
        for unit in waiting:
            reason = reason_against(unit)
            if reason is None:
                usable.append(unit)
            else:
                units.refuse(self._store, unit.id, reason)
                self._skipped.append({"unit": unit.id, "reason": reason})
        denied = consent.denied(self._store, Dial.TRAIN)
        earlier = [unit for unit in learned if unit.conversation not in denied]
        self._ledger = ledger.digest(usable, earlier)
        self._seed = ledger.seed(self._ledger, self._refused_before(base))
        division = ledger.split(usable, earlier, self._seed, lambda unit: reason_against(unit) is None)
        return Lesson(
            [(unit, made[unit.id]) for unit in division.train],
            [(unit, made[unit.id].replayed()) for unit in division.replay],
            [(unit, made[unit.id]) for unit in division.held_out],
        )

    def _teach(self, served: LlamaModel, renderer: Renderer, lesson: Lesson) -> Lesson:
        """Let the hinted base, or whom the owner named, write better replies."""

        def taught(pairs: list[tuple[Unit, Example]], start: float) -> list[tuple[Unit, Example]]:
            asked = [place for place, (_, example) in enumerate(pairs) if _needs_teacher(example)]
            done = list(pairs)
            if elsewhere is not None:
                for place in asked:
                    unit, example = pairs[place]
                    endpoint.record(self._store, unit, elsewhere, endpoint.messages(example))
            results = teacher.teach(
                [pairs[place][1] for place in asked],
                self._seed,
                lambda share: self._tell(RunState.PREPARING, 0.5 * (start + share / 3), "asking the teacher"),
            )
            for place, result in zip(asked, results, strict=True):
                unit = pairs[place][0]
                done[place] = (unit, result.example)
                accepted = len(result.example.accepted) + (result.example.chosen is not None)
                log.info("unit %s: %d accepted, %s", unit.id, accepted, words.refused(result.refused))
                if result.dropped is not None:
                    hints.record(self._store, unit, result.dropped)
            return done

        elsewhere = endpoint.chosen(self._store)
        with closing(self._teacher(served, renderer, elsewhere)) as teacher:
            return Lesson(
                taught(lesson.train, 0.0), taught(lesson.replay, 1 / 3), taught(lesson.held_out, 2 / 3)
            )

    def _teacher(self, served: LlamaModel, renderer: Renderer, elsewhere: Endpoint | None) -> Teaches:
        """Whom the owner named, or the base."""
        if elsewhere is not None:
            self._taught_by = elsewhere.place
            return endpoint.EndpointTeacher(elsewhere, renderer, self._yielding.border)
        file = stronger.chosen(self._store)
        if file is not None:
            self._taught_by = file.name
            return stronger.StrongerTeacher(file, served, renderer, self._yielding)
        return Teacher(served, renderer, self._yielding)

    def _practise(self, served: LlamaModel, renderer: Renderer, lesson: Lesson) -> Lesson:
        """Let the base that is shown the corrections answer everyday questions like them."""
        self._tell(RunState.PREPARING, 0.5, "practising on everyday questions", force=True)
        demonstrator = Demonstrator(served, renderer, self._yielding)
        practice = demonstrator.practise(lesson.corrections, self._seed)
        log.info("practice: %d answers, %s", len(practice.examples), words.refused(practice.refused))
        return replace(lesson, practice=practice.examples)

    def _learn(self, base: ModelFile, served: LlamaModel, renderer: Renderer, lesson: Lesson) -> RunOutcome:
        """Train, export, test, and publish or refuse."""
        with device.chosen(self._store) as place, self._yielding.on(place):
            candidate, verdict = self._train_and_test(place, base, served, renderer, lesson)
            gc.collect()
        with self._step(RunState.PUBLISHING):
            return self._decide(candidate, verdict)

    def _train_and_test(
        self, place: Device, base: ModelFile, served: LlamaModel, renderer: Renderer, lesson: Lesson
    ) -> tuple[Adapter, Verdict]:
        """The part that needs the training libraries and gigabytes; all of them end with it."""
        with self._step(RunState.TRAINING):
            from learner import export, gate, reference, weights
            from learner.trainer import ADAPTER, Trainer, TrainSettings

            recipe = replace(TrainSettings(), seed=self._seed)
            self._tell(RunState.TRAINING, 0.0, "loading the weights")
            anchors = [served.vocab.encode(text, special=False) for text in reference.ANCHOR_PASSAGES]
            told = partial(self._tell, RunState.TRAINING)
            network = place.place(weights.load_base(base, self._precision))
            trainer = Trainer(network, recipe, anchors, self._yielding, told, place.room)
            serving = adapters.active(self._store, base.base_hash)
            held_out = lesson.tests
            with self._yielding.inside(decoder_layers(trainer.model)):
                before = self._before(trainer.model, held_out, serving.adapter)
                # When to stop is measured from the base, where the round starts: what is trained must not depend on
                # what happens to serve meanwhile.
                start = before if serving.adapter is None else self._before(trainer.model, held_out, None)

            def gains(since: list[float]) -> list[float]:
                now = [gate.preference(trainer.model, example) for example in held_out]
                return [new - old for new, old in zip(now, since, strict=True)]

            metrics = trainer.run(
                [*lesson.examples, *lesson.practice], lambda: statistics.fmean(gains(start))
            )
        with self._step(RunState.EXPORTING):
            recipe_used = {**asdict(recipe), "precision": str(self._precision)}
            manifest = self._manifest(base, lesson, recipe_used, metrics, reference.digest())
            made = export.write(self._store.home, trainer.model, ADAPTER, recipe.alpha, base, manifest)
            candidate = self._install(made, base, manifest, lesson)
        with self._step(RunState.GATING), self._yielding.inside(decoder_layers(trainer.model)):
            passages = [served.vocab.encode(text, special=False) for text in reference.GATE_PASSAGES]
            current = f"v{serving.adapter.version}" if serving.adapter else "the base"
            checks = [gate.held_out_check(gains(before), current)]
            checks += gate.drift_checks(gate.measure_drift(trainer.model, passages, self._yielding.border))
            self._tell(RunState.GATING, 0.4, "letting it answer")
            checks += self._health(base, served, renderer, candidate, lesson)
        return candidate, gate.Verdict(tuple(checks))

    def _before(self, model: Any, held_out: list[Example], active: Adapter | None) -> list[float]:
        """The held-out units under what serves now: the active adapter's PEFT form, or the base."""
        from learner import gate, scoring

        if active is None:
            with scoring.as_base(model):
                return [gate.preference(model, example) for example in held_out]
        model.load_adapter(adapters.files(self._store, active.id), "serving", is_trainable=False)
        try:
            with scoring.as_adapter(model, "serving"):
                return [gate.preference(model, example) for example in held_out]
        finally:
            model.delete_adapter("serving")

    def _install(self, made: Path, base: ModelFile, manifest: dict[str, Any], lesson: Lesson) -> Adapter:
        adapter = adapters.install(self._store, made)
        return adapters.add_candidate(
            self._store,
            adapter,
            base_hash=base.base_hash,
            run=self._run.id,
            manifest=manifest,
            uses=lesson.uses,
        )

    def _health(
        self, base: ModelFile, served: LlamaModel, renderer: Renderer, candidate: Adapter, lesson: Lesson
    ) -> list[Any]:
        from learner import gate

        usual = gate.base_health(base, lambda: gate.measure_health(served, renderer, None, self._yielding))
        path = adapters.files(self._store, candidate.id) / adapters.GGUF_NAME
        with closing(served.load_adapter(path)) as adapter:
            health = gate.measure_health(served, renderer, adapter, self._yielding)
        return gate.health_checks(health, usual, gate.wanted_language(lesson.examples))

    def _decide(self, candidate: Adapter, verdict: Verdict) -> RunOutcome:
        report = verdict.as_dict()
        with self._store.write():
            lost = self._taken_back(candidate)
            if lost:
                report["summary"] = (
                    "kept back: a rating, or the consent to learn from it, was taken back meanwhile"
                )
            elif verdict.passed and self._frozen():
                report["summary"] = "kept back: it passed, but the owner froze everything meanwhile"
            elif verdict.passed:
                if adapters.publish(self._store, candidate.id, report):
                    units.set_learned(self._store, self._relearned)
                    return self._finish(RunOutcome.PROMOTED, adapters.get(self._store, candidate.id))
                report["summary"] = "kept back: it passed, but another version is pinned"
            adapters.reject(self._store, candidate.id, report, report["summary"])
            return self._finish(RunOutcome.REJECTED, adapters.get(self._store, candidate.id))

    def _frozen(self) -> bool:
        """Whether nothing may be changed by itself any more; what the owner ordered is not by itself."""
        ordered = self._run.trigger in (Trigger.MANUAL, Trigger.FORGETTING)
        return not ordered and bool(settings.get(self._store, settings.FROZEN))

    def _taken_back(self, candidate: Adapter) -> bool:
        """Whether a rating, the consent to learn from it, or what it was given for is not there any more."""
        tainted = adapters.get(self._store, candidate.id).state is AdapterState.TAINTED
        return tainted or any(
            unit.state is UnitState.REFUSED or not consent.may_train(self._store, unit.conversation)
            for unit, _ in units.used_by(self._store, candidate.id)
        )

    def _published_before(self) -> Adapter | None:
        """The adapter an earlier attempt of this run made live before it could say so; others are closed."""
        for adapter in adapters.list_(self._store):
            if adapter.run != self._run.id:
                continue
            if adapter.state in (AdapterState.ACTIVE, AdapterState.RETIRED):
                return adapter
            if adapter.state is AdapterState.CANDIDATE:
                adapters.reject(self._store, adapter.id, {}, "its run was broken off and begun again")
        return None

    def _nothing(self, waiting: list[Unit]) -> RunOutcome:
        refused = {entry["unit"] for entry in self._skipped}
        left = [unit for unit in waiting if unit.id not in refused]
        reason = _TOO_FEW if len(left) == 1 else _NO_EVIDENCE
        self._skipped += [{"unit": unit.id, "reason": reason} for unit in left]
        return self._finish(RunOutcome.NOTHING_TO_LEARN, None)

    def _finish(self, outcome: RunOutcome, adapter: Adapter | None) -> RunOutcome:
        """Close the run with the contract's object."""
        uses = units.used_by(self._store, adapter.id) if adapter else []
        known = {entry["unit"] for entry in self._skipped}
        skipped = self._skipped + [
            {"unit": unit.id, "reason": unit.reason or ""}
            for unit in units.refused(self._store)
            if unit.id not in known
        ]
        began = datetime.fromisoformat(self._run.created)
        result = {
            "outcome": outcome,
            "adapter": adapter.id if adapter and outcome is RunOutcome.PROMOTED else None,
            "used": [unit.id for unit, use in uses if use is not UnitUse.HELD_OUT],
            "held_out": [unit.id for unit, use in uses if use is UnitUse.HELD_OUT],
            "skipped": skipped,
            "gate": adapter.gate if adapter else {},
            "seconds": round((datetime.now(UTC) - began).total_seconds(), 2),
            "cpu_seconds": round(time.process_time() - self._processor, 2),
        }
        runs.finish(self._store, self._run.id, outcome, result)
        log.info(
            "run %s ended: %s. Its steps: %s", self._run.id, outcome, words.by_step(self.seconds) or "none"
        )
        return outcome

    def _manifest(
        self, base: ModelFile, lesson: Lesson, recipe: dict[str, Any], metrics: Metrics, sets: str
    ) -> dict[str, Any]:
        return {
            "base": {"hash": base.base_hash, "name": base.name},
            "run": self._run.id,
            "recipe": RECIPE,
            "settings": recipe,
            "reference_sets": sets,
            "redaction": units.REDACTION_VERSION,
            "units": [
                {"unit": unit.id, "hash": unit.content_hash, "use": str(use)} for unit, use in lesson.uses
            ],
            "ledger": self._ledger,
            "practice": len(lesson.practice),
            "teacher": self._taught_by,
            "metrics": metrics.as_dict(),
            "seconds": self.seconds,
            "waited": round(self._yielding.waited, 2),
        }

    def _refused_before(self, base: ModelFile) -> int:
        """How often the gate has refused this very lesson: asked for again, it begins with other numbers."""
        return sum(
            each.state is AdapterState.REJECTED
            and each.run != self._run.id
            and each.manifest.get("ledger") == self._ledger
            for each in adapters.list_(self._store, base.base_hash)
        )

    @contextmanager
    def _step(self, state: RunState) -> Iterator[None]:
        self._tell(state, 0.0, "", force=True)
        began = time.monotonic()
        try:
            yield
        finally:
            spent = time.monotonic() - began
            self.seconds[state] = round(self.seconds.get(state, 0.0) + spent, 2)

    def _tell(self, state: RunState, share: float, note: str, *, force: bool = False) -> None:
        """Write progress, twice a second at most: each is a transaction."""
        if force or time.monotonic() - self._told > 0.5:
            self._told = time.monotonic()
            start, end = _SCALE[state]
            runs.progress(self._store, self._run.id, state, start + share * (end - start), note)
