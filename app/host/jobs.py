"""The one queue in front of the model: people first, then programs, then what nobody waits for; clients in turn.

Replies are written one after another, because two at once on two cores each get less than half, and because
that is what makes a reply exact and stoppable. So fairness is a matter of order: a client that sends a hundred
requests gets every second reply while another has one waiting. A reply that is being written gives way at its
next token to one that matters more, and goes on when that has ended: a person never waits for a program.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol

from app.host.events import TurnEvent
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store

DEFAULT_MAX_TOKENS = 512


class Priority(IntEnum):
    """Who is served first; lower goes first."""

    INTERACTIVE = 0
    PROGRAM = 1
    BACKGROUND = 2


class Serve(StrEnum):
    """Which weights a reply wants."""

    ACTIVE = "active"
    BASE = "base"


@dataclass(frozen=True)
class Exactly:
    """Weights that were named: this adapter at this scale, or the base alone for None."""

    adapter: str | None
    scale: float


@dataclass(frozen=True)
class AtStrength:
    """What serves now, at this strength and not at the owner's setting; at 0 it is the base."""

    strength: float


Weights = Serve | Exactly | AtStrength
"""What a reply may ask to be made with."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Temperature 0 takes the likeliest token, and then the same prompt gives the same bytes.

    The penalty weakens the reply's own last 64 tokens: without one a small model says a sentence again and again
    (measured in tests/benchmarks/README.md).
    """

    temperature: float = 0.4
    top_p: float = 0.95
    top_k: int = 40
    repeat_penalty: float = 1.1
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether the reply must not depend on what happens to be cached."""
        return self.temperature <= 0.0


class Cancellation(threading.Event):
    """Says that a reply is not wanted any more, and tells the engine at once: it may be in a long evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self._told: Callable[[], None] | None = None

    def tell(self, told: Callable[[], None]) -> None:
        """Call this when it is set; now, if it is."""
        self._told = told
        if self.is_set():
            told()

    def set(self) -> None:
        super().set()
        if self._told is not None:
            self._told()


class Recorder(Protocol):
    """Where a reply is kept while it is made, in the engine's thread. One that keeps nothing serves incognito."""

    @property
    def conversation(self) -> str | None:
        """The conversation it is kept in."""

    @property
    def user_message(self) -> str | None:
        """The message that is answered."""

    def begin(self, store: Store, start: ReplyStart) -> str | None:
        """Open the reply's row; its id."""

    def checkpoint(self, store: Store, text: str) -> None:
        """Save the text so far."""

    def finish(self, store: Store, end: ReplyEnd) -> None:
        """Close the row."""


@dataclass(frozen=True)
class Opening:
    """What a reply begins with that goes on where another was cut: its tokens, and where they are unknown its text.

    ``logprobs`` are those of the reply the tokens came from.
    """

    message: str
    text: str
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()


@dataclass(eq=False)
class Job:
    """One reply to make. ``prompt``: token ids, window already fitted. ``sink`` gets each event, in any thread.

    ``grammar`` (GBNF) is what the reply must follow to its end, from the text ``grammar_after`` on where that is given
    (it may never come). With ``likeliest`` the tokens come with their
    log-probabilities, each beside that many of the likeliest. ``batches``: how to compute the prompt (see trace.py),
    of a replay; None leaves it to the cache. ``left_out``: earlier turns that are not in the prompt, the first
    ``summarised`` of which it tells in short.
    """

    id: str
    client: str
    priority: Priority
    prompt: Sequence[int]
    sampling: Sampling
    max_tokens: int
    recorder: Recorder
    sink: Callable[[TurnEvent], None]
    stops: tuple[str, ...] = ()
    serve: Weights = Serve.ACTIVE
    batches: tuple[tuple[int, int, int], ...] | None = None
    likeliest: int | None = None
    left_out: int = 0
    summarised: int = 0
    context_items: tuple[str, ...] = ()
    opening: Opening | None = None
    message: str | None = None
    created: float = field(default_factory=time.monotonic)
    cancelled: Cancellation = field(default_factory=Cancellation)
    grammar: str | None = None
    grammar_after: str | None = None

    def answers_to(self, handle: str) -> bool:
        """Whether a stop for this handle means this job."""
        return handle in (self.id, self.message)


class FairQueue:
    """Jobs by priority, then round robin over clients, then in order. All methods may be called in any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Priority, OrderedDict[str, deque[Job]]] = {
            level: OrderedDict() for level in Priority
        }
        self._closed = False

    def put(self, job: Job) -> None:
        """Add a job."""
        with self._changed:
            self._waiting[job.priority].setdefault(job.client, deque()).append(job)
            self._changed.notify()

    def ahead(self, job: Job) -> int:
        """How many waiting jobs would come before this one at the most."""
        with self._changed:
            levels = [level for level in Priority if level <= job.priority]
            return sum(len(jobs) for level in levels for jobs in self._waiting[level].values())

    def get(self, timeout: float, before: Priority | None = None) -> Job | None:
        """The next job, or None after ``timeout`` seconds without one, or once closed.

        With ``before``, only what goes before a reply of that priority that is being written.
        """
        with self._changed:
            if timeout > 0:
                self._changed.wait_for(lambda: self._closed or self._size() > 0, timeout)
            if self._closed:
                return None
            for level in Priority:
                if before is not None and level >= before:
                    return None
                if self._waiting[level]:
                    return self._next_of(self._waiting[level])
            return None

    @staticmethod
    def _next_of(clients: OrderedDict[str, deque[Job]]) -> Job:
        client, jobs = next(iter(clients.items()))
        job = jobs.popleft()
        del clients[client]
        if jobs:
            clients[client] = jobs
        return job

    def take_cancelled(self) -> list[Job]:
        """Take out what waits and is not wanted any more."""
        with self._changed:
            gone = [job for job in self._jobs() if job.cancelled.is_set()]
            for job in gone:
                clients = self._waiting[job.priority]
                clients[job.client].remove(job)
                if not clients[job.client]:
                    del clients[job.client]
            return gone

    def find(self, handle: str) -> Job | None:
        """The waiting job that a stop for this handle means."""
        with self._changed:
            return next((job for job in self._jobs() if job.answers_to(handle)), None)

    def drain(self) -> list[Job]:
        """Close the queue and take out everything that waits."""
        with self._changed:
            self._closed = True
            jobs = self._jobs()
            for clients in self._waiting.values():
                clients.clear()
            self._changed.notify_all()
            return jobs

    def __len__(self) -> int:
        with self._changed:
            return self._size()

    def _jobs(self) -> list[Job]:
        return [job for clients in self._waiting.values() for jobs in clients.values() for job in jobs]

    def _size(self) -> int:
        return len(self._jobs())
