"""The engine: one thread that owns the model and makes one reply after another.

llama.cpp contexts belong to one thread, and nothing else in the host may wait for a computation, so the model
lives here and the web server's loop elsewhere; between them are a queue of jobs and each job's sink. A reply is
a row in the store from its first moment, its text is saved every half second, and whatever goes wrong ends as
an event and a closed row, never as a dead thread. Adapters change between two replies and nowhere else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from app.host.events import Done, Failed, Queued, Started, Token, TurnEvent, failure_of
from app.host.generation import Produced, evaluate_prompt, reply
from app.host.jobs import FairQueue, Job, Recorder, Serve
from app.host.prefix import PrefixCache
from app.host.runtime import Runtime
from app.host.versions import BASE, Version, Versions
from store.activity import Activity
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.errors import HomeError, HostUnavailable, Interrupted, MynahError
from store.home import Home
from store.types import ErrorClass, FinishReason, MessageStatus

log = logging.getLogger("mynah.host")

CHECKPOINT_SECONDS = 0.5
_LOOK_SECONDS = 1.0
"""How often an idle engine looks whether another version should serve, to warm it before it is needed."""


@dataclass(frozen=True)
class EngineStatus:
    """What the engine is doing now."""

    version: Version
    queue: int
    generating: str | None
    tokens_per_second: float


class _Overtaken(Exception):
    """A reply was asked for while the cache was being warmed."""


class Engine:
    """Makes replies for jobs, in its own thread. All public methods may be called in any thread."""

    def __init__(self, runtime: Runtime, home: Home) -> None:
        self._runtime = runtime
        self._home = home
        self._queue = FairQueue()
        self._cache = PrefixCache(runtime.sequences, runtime.chunk)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._current: Job | None = None
        self._version = BASE
        self._speed = 0.0
        self._last_prompt: list[int] = []
        self._unclosed: list[tuple[Recorder, ReplyEnd]] = []
        self._ended = False
        self._guard = threading.Lock()

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job. Its first event says how many replies come before it; every event goes to its sink."""
        recorder = job.recorder
        with self._guard:
            ahead = self._queue.ahead(job) + (self._current is not None)
            # In this order: once the job is in the queue the engine may begin it at any moment.
            job.sink(Queued(ahead, recorder.conversation, recorder.user_message))
            if not self._ended:
                self._queue.put(job)
                return
        job.sink(_ending())

    def cancel(self, handle: str) -> bool:
        """Stop a reply, waiting or being made, by its job or message; False if there is none."""
        current = self._current
        job = current if current is not None and current.answers_to(handle) else self._queue.find(handle)
        if job is None:
            return False
        job.cancelled.set()
        return True

    def status(self) -> EngineStatus:
        """What the engine is doing now."""
        current = self._current
        return EngineStatus(
            self._version,
            len(self._queue),
            None if current is None else current.message or current.id,
            self._speed,
        )

    def forget(self) -> None:
        """Compute the next prompts from their first token on. Only while nothing is being made."""
        self._cache.forget()

    @property
    def busy(self) -> bool:
        """Whether a reply is being made or waits."""
        return self._current is not None or len(self._queue) > 0

    def close(self, seconds: float) -> None:
        """Stop what is being made, refuse what waits, free the model. Rows are closed before this returns."""
        with self._guard:
            self._ended = True
        for job in self._queue.drain():
            job.sink(_ending())
        current = self._current
        if current is not None:
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
            versions = Versions(store, self._runtime)
            while not self._ended:
                job = self._current = self._queue.get(_LOOK_SECONDS)
                self._close_left_open(store)
                if job is None:
                    _attempt(lambda: self._warm(versions, activity.hold, activity.release))
                    continue
                try:
                    last = self._serve(job, store, versions, activity.hold)
                finally:
                    activity.release()
                    self._current = None
                # Last of all: who hears that a reply has ended finds nothing being made.
                job.sink(last)

    def _serve(self, job: Job, store: Store, versions: Versions, hold: Callable[[], None]) -> TurnEvent:
        """One job, whatever happens in it: returns its last event, and its row, if it got one, is closed."""
        out = Produced(prompt_tokens=len(job.prompt))
        failure = _attempt(lambda: self._begin(job, store, versions, hold))
        if failure is not None:
            return failure
        version = self._version
        failure = _attempt(lambda: self._stream(job, store, version, out, hold))
        out.ended = out.ended or time.monotonic()
        if failure is not None:
            out.finish = FinishReason.ERROR
            # An evaluation that failed half-way leaves the sequences in an unknown state.
            self._cache.forget()
            _attempt(self._runtime.clear)
        self._last_prompt = [*job.prompt, *out.tokens]
        self._speed = out.tokens_per_second or self._speed
        end = self._end_of(job, out, failure)
        unsaved = _attempt(lambda: job.recorder.finish(store, end))
        if unsaved is not None:
            self._unclosed.append((job.recorder, end))
        return failure or unsaved or self._done(job, version, out, end)

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

    def _begin(self, job: Job, store: Store, versions: Versions, hold: Callable[[], None]) -> None:
        if job.cancelled.is_set():
            raise Interrupted("the reply was stopped before it began")
        hold()
        version = self._version = versions.attach(job.serve, job.adapter)
        job.message = job.recorder.begin(store, self._start_of(job, version))
        recorder = job.recorder
        job.sink(
            Started(
                job.id,
                recorder.conversation,
                recorder.user_message,
                job.message,
                version.adapter,
                job.left_out,
            )
        )

    def _start_of(self, job: Job, version: Version) -> ReplyStart:
        return ReplyStart(
            base_hash=self._runtime.info.base_hash,
            adapter=version.adapter,
            scale=version.scale,
            sampler={**asdict(job.sampling), "max_tokens": job.max_tokens},
            template=self._runtime.info.template,
            prompt_tokens=job.prompt,
            left_out=job.left_out,
            context_items=job.context_items,
        )

    def _stream(
        self, job: Job, store: Store, version: Version, out: Produced, hold: Callable[[], None]
    ) -> None:
        saved = time.monotonic()
        try:
            for piece in reply(self._runtime, self._cache, version, job, out, hold):
                job.sink(Token(piece, out.take_scored()))
                if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                    # Where this fails the reply goes on: it is saved whole at its end, or fails there.
                    _attempt(lambda: job.recorder.checkpoint(store, out.text))
                    saved = time.monotonic()
            if out.scored:
                # Tokens of a stop string, whose text is never shown.
                job.sink(Token("", out.take_scored()))
        except Interrupted:
            out.finish = FinishReason.CANCELLED

    def _end_of(self, job: Job, out: Produced, failure: Failed | None) -> ReplyEnd:
        assert out.finish is not None
        return ReplyEnd(
            text=out.text,
            status=_STATUS[out.finish],
            finish_reason=out.finish,
            completion_tokens=out.tokens,
            logprobs=out.logprobs,
            error_class=failure.error_class if failure is not None else _CLASS.get(out.finish),
            error=failure.message if failure is not None else None,
            usage=out.usage(),
            timings=out.timings(job.created),
        )

    def _done(self, job: Job, version: Version, out: Produced, end: ReplyEnd) -> Done:
        conversation = job.recorder.conversation
        return Done(
            conversation,
            job.message,
            out.text,
            version.adapter,
            end.finish_reason.value,
            end.usage,
            end.timings,
        )

    def _warm(self, versions: Versions, hold: Callable[[], None], release: Callable[[], None]) -> None:
        """After a swap, compute the open conversation's prefix on the new version before somebody asks."""
        if not versions.outdated():
            return
        version = self._version = versions.attach(Serve.ACTIVE)
        whole = len(self._last_prompt) // self._runtime.chunk * self._runtime.chunk
        if not whole:
            return

        def between() -> None:
            if self._ended or len(self._queue):
                raise _Overtaken
            hold()

        try:
            # Whole chunks from the start, so that a reply at temperature 0 may use them too.
            evaluate_prompt(
                self._runtime, self._cache, version, self._last_prompt[:whole], exact=False, between=between
            )
        except _Overtaken:
            return
        finally:
            release()


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


_STATUS = {
    FinishReason.STOP: MessageStatus.COMPLETE,
    FinishReason.LENGTH: MessageStatus.COMPLETE,
    FinishReason.CANCELLED: MessageStatus.STOPPED,
    FinishReason.ERROR: MessageStatus.FAILED,
}
_CLASS = {FinishReason.CANCELLED: ErrorClass.CANCELLED}
