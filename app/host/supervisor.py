"""When the learner should work, and that it does: a pure decision, and a process that is looked after.

Learning is a process of its own because it must be killable, niced and measured apart from the chat, and
because a training library has no business in the process that owns the model. What starts a run by itself is a
function of a few facts, so that it can be read and tested; the run itself is a row in the store, so that a
learner that dies, or a host that does, loses nothing but time. A learner that keeps dying is started again
after ever longer waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.control.rehearsing import Rehearsal
from app.control.step import Controller
from app.host.processes import holder
from store import aftercare, cipher, consent, purging, runs, settings, signals, textindex, units
from store.db import Store
from store.errors import MynahError
from store.home import Home
from store.types import Trigger

log = logging.getLogger("mynah.host")

SETTLE_SECONDS = 45.0
"""Ratings come in bursts: a run that began at the fourth of eight corrections would learn half of the lesson."""

LEARNER_COMMAND = (sys.executable, "-m", "learner")
_LOOK_SECONDS = 2.0
_FIRST_WAIT_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 300.0
_END_SECONDS = 5.0
_SWEEP_SECONDS = 60.0
_TIDY_SECONDS = 30.0
"""So long must nobody have asked anything. A look merges for some 25 ms, which keeps no disk busy, and a host that
has nothing else to do ends all the same: a later one goes on."""


@dataclass(frozen=True)
class Facts:
    """What the decision is made from.

    ``news``: the owner has said something since the last run began; ``fresh``: waiting units no run has tried;
    ``makes_a_run``: what waits, tried or not, is enough to learn from and to test on;
    ``quiet``: seconds without a turn; ``settled``: seconds without a rating or correction.
    """

    paused: bool
    open_runs: int
    news: bool
    fresh: int
    min_units: int
    unjudged: int
    makes_a_run: bool
    quiet: float
    quiet_needed: float
    settled: float


def due(facts: Facts) -> Trigger | None:
    """Whether a learning run should be asked for now, and why.

    Enough new units start one as soon as the owner has stopped rating for a moment. Fewer, or messages nobody has
    looked at yet, wait until the owner stops talking; one that cannot be tested on another waits for it. Without news
    a run would come to what the last one came to: a unit that waits, or a fault, would start one after the other for
    ever.
    """
    if facts.paused or facts.open_runs or not facts.news:
        return None
    learns = facts.fresh > 0 and facts.makes_a_run
    if learns and facts.fresh >= facts.min_units and facts.settled >= SETTLE_SECONDS:
        return Trigger.ENOUGH_UNITS
    if facts.quiet >= facts.quiet_needed and (learns or facts.unjudged):
        return Trigger.IDLE
    return None


class Backoff:
    """How long to wait before a process that died is started again: doubling, and forgotten after a good end."""

    def __init__(self) -> None:
        self._wait = 0.0
        self._not_before = 0.0

    def died(self, now: float) -> None:
        """It ended badly."""
        self._wait = min(max(self._wait * 2, _FIRST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
        self._not_before = now + self._wait

    def ended(self) -> None:
        """It ended well."""
        self._wait = self._not_before = 0.0

    def over(self, now: float) -> bool:
        """Whether it may be started."""
        return now >= self._not_before


class Supervisor:
    """Looks every two seconds, in a thread of its own, whether to ask for a run and whether a learner is there.

    ``rehearsal`` makes what the controller rehearses with, of what is to be called when a reply is there.
    """

    def __init__(
        self,
        home: Home,
        quiet: Callable[[], float],
        command: Sequence[str] = LEARNER_COMMAND,
        rehearsal: Callable[[Callable[[], None]], Rehearsal] | None = None,
    ) -> None:
        self._home = home
        self._quiet = quiet
        self._command = list(command)
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff()
        self._controller = Controller(None if rehearsal is None else rehearsal(self.wake))
        # The host sweeps when it starts.
        self._swept = time.monotonic()
        self._tidying: str | None = None
        self._watched: int | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def wake(self) -> None:
        """Look now."""
        self._woken.set()

    @property
    def learner_pid(self) -> int | None:
        """The learner that runs on this home, whoever started it."""
        process = self._process
        if process is not None and process.poll() is None:
            return process.pid
        return holder(self._home.learner_lock)

    def close(self) -> None:
        """End the learner: asked first, then killed. Its run is taken up again by the next one."""
        self._ended.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)
        pid = self.learner_pid
        if pid is None:
            return
        for step in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, step)
            deadline = time.monotonic() + _END_SECONDS
            while time.monotonic() < deadline:
                if self.learner_pid != pid:
                    return
                time.sleep(0.02)

    def _run(self) -> None:
        with Store.open(self._home) as store:
            while not self._ended.is_set():
                try:
                    self.look(store)
                except MynahError as error:
                    log.warning("the supervisor could not look: %s", error)
                except Exception:
                    log.exception("the supervisor met a fault")
                self._woken.wait(_LOOK_SECONDS)
                self._woken.clear()

    def look(self, store: Store) -> None:
        """Ask for a run if one is due, and see to it that a learner carries out what is asked for."""
        self._note_end()
        if time.monotonic() - self._swept >= _SWEEP_SECONDS:
            self._swept = time.monotonic()
            consent.sweep(store)
        self._forget(store)
        self._after(store)
        self._control(store)
        facts = gather(store, self._quiet())
        trigger = due(facts)
        run = None if trigger is None else self._controller.request(store, trigger)
        if run is not None:
            log.info("asked for learning run %s (%s)", run.id, trigger)
        wanted = run is not None or facts.open_runs > 0
        free = self.learner_pid is None and self._backoff.over(time.monotonic())
        if wanted and free and not facts.paused and not self._ended.is_set():
            self._process = self._start()
        if self._quiet() >= _TIDY_SECONDS:
            self._tidying = textindex.tidy(store, self._tidying)

    def _forget(self, store: Store) -> None:
        """Go on with requests to forget that were broken off or waited for a run; a fault there stops nothing else."""
        try:
            purging.proceed_all(store)
        except MynahError as error:
            log.warning("forgetting waits: %s", error)

    def _after(self, store: Store) -> None:
        """Watch what the gate made live, where anything was written since the last look."""
        if store.data_version == self._watched:
            return
        self._watched = store.data_version
        for said in aftercare.look(store):
            log.warning("%s", said)

    def _control(self, store: Store) -> None:
        """Decide what else than learning is to be done about what went wrong; a fault there stops nothing else."""
        try:
            self._controller.look(store)
        except MynahError as error:
            log.warning("the controller could not do what it decided: %s", error)

    def _note_end(self) -> None:
        process = self._process
        if process is None or process.poll() is None:
            return
        self._process = None
        if process.returncode == 0:
            self._backoff.ended()
        else:
            log.warning(
                "the learner ended with %d: see %s", process.returncode, self._home.logs / "learner.log"
            )
            self._backoff.died(time.monotonic())

    def _start(self) -> subprocess.Popen[bytes]:
        descriptor = os.open(
            self._home.logs / "learner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            with cipher.handed_down(self._home.db) as (environment, descriptors):
                return subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=descriptor,
                    stderr=descriptor,
                    env={**environment, "MYNAH_HOME": str(self._home.root)},
                    pass_fds=descriptors,
                    cwd=Path(__file__).resolve().parents[2],
                    # A Ctrl-C meant for the host must not cut a learning run off.
                    start_new_session=True,
                )
        finally:
            os.close(descriptor)


def gather(store: Store, quiet: float) -> Facts:
    """The facts of this moment."""
    last = next(iter(runs.list_(store, 1)), None)
    return Facts(
        paused=bool(settings.get(store, settings.LEARNING_PAUSED)),
        open_runs=len(runs.open_(store)),
        news=last is None or signals.owner_active_since(store, last.started or last.created),
        fresh=len(units.fresh(store)),
        min_units=int(settings.get(store, settings.MIN_UNITS)),
        unjudged=len(units.unjudged(store, 1)),
        makes_a_run=units.make_a_run(store),
        quiet=quiet,
        quiet_needed=float(settings.get(store, settings.IDLE_LEARN_SECONDS)),
        settled=signals.seconds_since_last(store),
    )
