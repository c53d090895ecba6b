"""The engine: one thread that makes one reply after another, and lets the more urgent go first.

llama.cpp contexts belong to one thread, and nothing else in the host may wait for a computation, so replies are
made here and the web server's loop is elsewhere; between them are a queue of jobs and each job's sink. A reply is
a row in the store from its first moment, its text is saved every half second, and whatever goes wrong ends as
an event and a closed row, never as a dead thread.

Replies under way form a pile: whoever matters more is put on top and written to its end, and what lies below goes
on from its last token. Each stays on the version it began with; another version serves from the next reply on, in
a lane of its own (benches.py) that is warmed before anybody asks (warming.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.host import warm_files
from app.host.benches import BASE, Bench, Benches, Version
from app.host.events import Failed, Queued, Started, Token, failure_of
from app.host.generation import Place, Produced, reply
from app.host.jobs import FairQueue, Job, Recorder
from app.host.records import done_of, end_of, start_of
from app.host.runtime import Runtime
from app.host.versions import Versions
from app.host.warming import OpenConversations
from store import forgetting
from store.activity import Activity
from store.conversations import ReplyEnd
from store.db import Store
from store.errors import HomeError, HostUnavailable, Interrupted, MynahError
from store.home import Home
from store.types import FinishReason

log = logging.getLogger("mynah.host")

CHECKPOINT_SECONDS = 0.5
_LOOK_SECONDS = 1.0
"""How often the engine looks whether another version should serve, to warm it before it is needed."""


@dataclass(frozen=True)
class EngineStatus:
    """What the engine is doing now. ``contexts``: lanes that hold memory."""

    version: Version
    queue: int
    generating: str | None
    tokens_per_second: float
    contexts: int = 1


@dataclass(frozen=True)
class _Shift:
    """What the engine's thread works with."""

    store: Store
    activity: Activity
    versions: Versions
    open: OpenConversations


@dataclass(eq=False)
class _Run:
    """A reply under way."""

    job: Job
    bench: Bench
    version: Version
    file: Path | None
    out: Produced
    steps: Iterator[str]
    saved: float
    laid_down: float | None = None


class Engine:
    """Makes replies for jobs, in its own thread. All public methods may be called in any thread."""

    def __init__(self, runtime: Runtime, home: Home, clock: Callable[[], float] = time.monotonic) -> None:
        self._runtime = runtime
        self._home = home
        self._clock = clock
        self._queue = FairQueue()
        self.benches = Benches(runtime, clock)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._runs: list[_Run] = []
        self._next_look = 0.0
        self._forgotten: str | None = None
        self._version = BASE
        self._speed = 0.0
        self._unclosed: list[tuple[Recorder, ReplyEnd]] = []
        self._taken: Job | None = None
        self._ended = False
        self._guard = threading.Lock()

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job. Its first event says how many replies come before it; every event goes to its sink."""
        recorder = job.recorder
        with self._guard:
            under_way = sum(other.priority <= job.priority for other in self._under_way())
            # In this order: once the job is in the queue the engine may begin it at any moment.
            job.sink(Queued(self._queue.ahead(job) + under_way, recorder.conversation, recorder.user_message))
            if not self._ended:
                self._queue.put(job)
                job.cancelled.tell(lambda: self._break_off(lambda running: running.job is job))
                self._break_off(lambda running: running.job.priority > job.priority)
                return
        job.sink(_ending())

    def _break_off(self, concerned: Callable[[_Run], bool]) -> None:
        """End the evaluation under way if the reply on top is concerned; the engine then looks what there is to do."""
        for running in self._runs[-1:]:
            if concerned(running):
                running.bench.lane.interrupt()

    def _under_way(self) -> list[Job]:
        taken = self._taken
        return [run.job for run in self._runs] + ([] if taken is None else [taken])

    def cancel(self, handle: str) -> bool:
        """Stop a reply, waiting or being made, by its job or message; False if there is none."""
        found = next((job for job in self._under_way() if job.answers_to(handle)), None)
        job = found or self._queue.find(handle)
        if job is None:
            return False
        job.cancelled.set()
        return True

    def status(self) -> EngineStatus:
        """What the engine is doing now."""
        current = next(iter(reversed(self._under_way())), None)
        return EngineStatus(
            self._version,
            len(self._queue),
            None if current is None else current.message or current.id,
            self._speed,
            len(self.benches.all),
        )

    def forget(self) -> None:
        """Compute the next prompts from their first token on. Only while nothing is being made."""
        self.benches.forget()

    @property
    def busy(self) -> bool:
        """Whether a reply is being made or waits."""
        return bool(self._under_way()) or len(self._queue) > 0

    def close(self, seconds: float) -> None:
        """Stop what is being made, refuse what waits, free the model. Rows are closed before this returns."""
        with self._guard:
            self._ended = True
        for job in self._queue.drain():
            job.sink(_ending())
        for current in self._under_way():
            current.cancelled.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        fault = _attempt(self._work)
        if fault is not None:
            log.critical("the engine cannot go on: %s", fault.message)
        with self._guard:
            self._ended = True
        for job in self._queue.drain():
            job.sink(fault or _ending())
        self._runtime.close()

    def _work(self) -> None:
        with Store.open(self._home) as store, Activity(self._home) as activity:
            versions = Versions(store, self._runtime.info.base_hash, self.benches)
            open_ = OpenConversations(self._runtime, self.benches, activity.hold)
            shift = _Shift(store, activity, versions, open_)
            # What lies on the disk was looked through for what has been forgotten by now.
            self._forgotten = forgetting.latest(store)
            _attempt(lambda: warm_files.load(store, self._runtime, versions))
            while self._runs or not self._ended:
                self._close_left_open(store)
                self._turn(shift)
                _attempt(lambda: self._look(shift))
            open_.collect(versions)
            _attempt(lambda: warm_files.save(store, self._runtime, self.benches, versions))

    def _turn(self, shift: _Shift) -> None:
        """Between two evaluations: hear who is new and who is gone, then do one step of what matters most."""
        top = self._runs[-1] if self._runs else None
        if top is not None:
            # First this, then look: whoever interrupts after it is heard by the next evaluation.
            top.bench.lane.proceed()
        for job in self._queue.take_cancelled():
            job.sink(failure_of(_stopped_waiting()))
        gone = [run for run in self._runs if run.job.cancelled.is_set()]
        for run in gone:
            run.out.finish = FinishReason.CANCELLED
            self._end(run, shift, None)
        if gone:
            return
        following = self._next(top)
        if following is not None:
            self._begin(following, shift)
        elif top is not None:
            self._step(top, shift)

    def _look(self, shift: _Shift) -> None:
        if self._clock() < self._next_look and not shift.open.pending:
            return
        self._next_look = self._clock() + _LOOK_SECONDS
        self._forget_what_is_gone(shift)
        serving = shift.open.look(shift.versions)
        if serving is not None and not self._runs:
            self._version = serving

    def _forget_what_is_gone(self, shift: _Shift) -> None:
        """Once the owner has had something forgotten, nothing that was computed before it is used again."""
        moment = forgetting.latest(shift.store)
        if moment != self._forgotten and not self._runs:
            self._forgotten = moment
            shift.open.forget(shift.versions)
            self.forget()

    def _next(self, top: _Run | None) -> Job | None:
        """A job to begin now; waits for one where there is nothing else to do."""
        if top is not None:
            self._taken = self._queue.get(0.0, before=top.job.priority)
        else:
            self._taken = self._queue.get(_LOOK_SECONDS)
        return self._taken

    def _step(self, run: _Run, shift: _Shift) -> None:
        """One evaluation of a reply, and what it brought."""
        if run.laid_down is not None:
            if run.out.first_token:
                run.out.paused += self._clock() - run.laid_down
            run.laid_down = None
        shift.activity.hold()
        failure = _attempt(lambda: self._advance(run, shift.store))
        if failure is not None:
            run.out.finish = FinishReason.ERROR
        if run.out.finish is not None and failure is None:
            failure = _attempt(lambda: self._rest(run))
            run.out.finish = FinishReason.ERROR if failure is not None else run.out.finish
        if run.out.finish is not None:
            self._end(run, shift, failure)

    def _advance(self, run: _Run, store: Store) -> None:
        run.bench.attach(run.version, run.file)
        self._send(run, next(run.steps, ""))
        if self._clock() - run.saved >= CHECKPOINT_SECONDS:
            # Where this fails the reply goes on: it is saved whole at its end, or fails there.
            _attempt(lambda: run.job.recorder.checkpoint(store, run.out.text))
            run.saved = self._clock()

    def _rest(self, run: _Run) -> None:
        """What a reply that has reached its end still held back."""
        for piece in run.steps:
            self._send(run, piece)
        if run.out.scored:
            # Tokens of a stop string, whose text is never shown.
            run.job.sink(Token("", run.out.take_scored()))

    def _send(self, run: _Run, piece: str) -> None:
        if piece:
            run.job.sink(Token(piece, run.out.take_scored()))

    def _begin(self, job: Job, shift: _Shift) -> None:
        """Put a job's reply on top of the pile; one that cannot begin hears why."""
        shift.activity.hold()
        begun: list[_Run] = []
        failure = _attempt(lambda: begun.append(self._opened(job, shift)))
        if failure is None:
            for below in self._runs[-1:]:
                below.laid_down = self._clock()
            self._runs += begun
            if self._ended:
                # The host began to end while this one was on its way from the queue.
                job.cancelled.set()
        elif not self._runs:
            shift.activity.release()
        self._taken = None
        if failure is not None:
            job.sink(failure)

    def _opened(self, job: Job, shift: _Shift) -> _Run:
        if job.cancelled.is_set():
            raise _stopped_waiting()
        versions = shift.versions
        shift.open.make_way(versions, job.serve)
        bench = versions.bench(job.serve)
        version = self._version = bench.version
        file = versions.file(version)
        job.message = job.recorder.begin(shift.store, start_of(self._runtime.info, job, version))
        recorder = job.recorder
        job.sink(
            Started(
                job.id,
                recorder.conversation,
                recorder.user_message,
                job.message,
                version.adapter,
                job.left_out,
                job.summarised,
            )
        )
        bench.users += 1
        out = Produced(prompt_tokens=len(job.prompt))
        place = Place(self._runtime, bench.lane, bench.cache, version)
        steps = reply(place, job, out, self._clock)
        shift.open.note(job, version)
        return _Run(job, bench, version, file, out, steps, self._clock())

    def _end(self, run: _Run, shift: _Shift, failure: Failed | None) -> None:
        """Close a reply, whatever became of it."""
        job, out = run.job, run.out
        # Closing the iterator frees its sampler and its slot.
        failure = _attempt(lambda: _close(run.steps)) or failure
        out.ended = self._clock()
        if failure is not None:
            out.finish = FinishReason.ERROR
            if not any(other is not run and other.bench is run.bench for other in self._runs):
                # An evaluation that failed half-way leaves the sequences in an unknown state.
                run.bench.cache.forget()
                _attempt(run.bench.lane.clear)
        shift.open.note(job, run.version, out.tokens)
        self._speed = out.tokens_per_second or self._speed
        end = end_of(self._runtime.info, job, out, failure)
        unsaved = _attempt(lambda: job.recorder.finish(shift.store, end))
        if unsaved is not None:
            self._unclosed.append((job.recorder, end))
        self._runs.remove(run)
        run.bench.users -= 1
        if not self._runs:
            shift.activity.release()
        # Last of all: who hears that a reply has ended finds nothing being made.
        job.sink(failure or unsaved or done_of(job, run.version, out, end))

    def _close_left_open(self, store: Store) -> None:
        """Save what could not be saved at its time (a full disk): an open row would block its conversation for good."""
        waiting, self._unclosed = self._unclosed, []
        for recorder, end in waiting:
            try:
                recorder.finish(store, end)
            except HomeError:
                self._unclosed.append((recorder, end))
            except Exception:
                log.exception("a reply could not be closed")


def _close(steps: Iterator[str]) -> None:
    close = getattr(steps, "close", None)
    if close is not None:
        close()


def _stopped_waiting() -> Interrupted:
    return Interrupted("the reply was stopped before it began")


def _ending() -> Failed:
    return failure_of(HostUnavailable("the model host is ending: ask again"))


def _attempt(work: Callable[[], None]) -> Failed | None:
    """Do something that may fail; the failure as an event, logged. The text of a conversation is never logged."""
    try:
        work()
    except MynahError as error:
        log.warning("a reply failed: %s", error)
        return failure_of(error)
    except Exception as error:
        log.exception("a reply failed")
        return failure_of(error)
    return None
