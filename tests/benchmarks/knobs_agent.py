"""Mynah with some of its knobs fixed, as a person of `knobs` meets it: a host, a service, and time that is not waited for.

The controller is the host's own. It looks when it is woken, as it would two seconds later; what follows from a verdict
is seen at the second look, and the next session waits until what it rehearses has been rehearsed, as it is within a minute
of a person's pause. What rehearsals read and compute counts as spent. A learning run is asked for by the rules that the host asks by, once enough lessons wait.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil

from app.control.step import Controller
from app.host.processes import holder
from store import decisions, runs, settings, units
from store.control import CONTROL, ROUND, Action, Knob
from store.decisions import Decision
from store.runs import Run
from store.types import Trigger
from tests.benchmarks.knobs import Arm, Spent
from tests.benchmarks.personas.plan import Method
from tests.benchmarks.personas.subject import Mynah as Subject

APPROVALS = {
    Knob.MEMORY: settings.APPROVE_MEMORY,
    Knob.INSTRUCTION: settings.APPROVE_INSTRUCTION,
    Knob.GUARD: settings.APPROVE_GUARD,
    Knob.WEIGHTS: settings.APPROVE_WEIGHTS,
}
_LOOKS = 2
_LOOK_SECONDS = 1.0
"""Some fifty times what a look takes."""
_RESTED = 2
"""Looks at the queue between which what follows from a rehearsal would have been asked for."""
_REHEARSED = r"rehearsed: (\d+) prompt tokens"


class Mynah(Subject):
    """One home with one arm's settings."""

    def __init__(self, root: Path, arm: Arm) -> None:
        super().__init__(root, Method.COMBINED)
        self._arm = arm
        self._seconds: dict[int, float] = {}
        for knob, approval in arm.approvals.items():
            settings.put(self._service.store, APPROVALS[knob], approval)
        settings.put(self._service.store, settings.MIN_UNITS, settings.DEFAULTS[settings.MIN_UNITS])

    def __enter__(self) -> Mynah:
        return self

    def settle(self) -> None:
        """Let the controller look, and a run that is due end."""
        for _ in range(_LOOKS):
            self._service.host().learn()
            self._until_at_rest()
        store = self._service.store
        enough = len(units.fresh(store)) >= int(settings.get(store, settings.MIN_UNITS))
        if Knob.WEIGHTS in self._arm.knobs and enough and not runs.open_(store):
            Controller().request(store, Trigger.ENOUGH_UNITS)
        for run in runs.open_(store):
            self._service.wait(run.id, self._look)
        self._look()

    def _until_at_rest(self) -> None:
        """Let a look take place, and what it asks the model for."""
        rested = 0
        while rested < _RESTED:
            time.sleep(_LOOK_SECONDS)
            status = self._service.host().status()
            rested = 0 if status["queue"] or status["generating"] else rested + 1

    def spent(self) -> Spent:
        """What it came to so far."""
        self._look()
        store = self._service.store
        read = store.conn.execute(
            "SELECT coalesce(sum(length(prompt_tokens)), 0) / 4 FROM messages WHERE role = 'assistant'"
        ).fetchone()[0]
        made = [_named(each) for each in decisions.of_kinds(store, (CONTROL, ROUND))]
        log = (self._home.logs / "host.log").read_text(encoding="utf-8", errors="replace")
        read += sum(map(int, re.findall(_REHEARSED, log)))
        return Spent(int(read), round(sum(self._seconds.values()), 1), tuple(name for name in made if name))

    def _look(self, _run: Run | None = None) -> None:
        """Processor seconds of the host and of the learner, read while they live."""
        for lock in (self._home.host_lock, self._home.learner_lock):
            pid = holder(lock)
            if pid is None:
                continue
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            self._seconds[pid] = times.user + times.system


def _named(decision: Decision) -> str | None:
    """What a decision turned, or what it came to; None where nothing was done."""
    action = decision.choice["action"]
    if action == Action.TRAIN:
        return str(Knob.WEIGHTS) if decision.kind == ROUND else None
    if action == Action.PROPOSE:
        return str(decision.choice["knob"])
    return str(action) if action in (Action.ROLLBACK, Action.GIVE_UP) else None
