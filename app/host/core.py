"""One host, put together: model, engine, supervisor and the store's thread, and who has need of them.

Both ways in, our own and the OpenAI endpoint, admit a question the same way: read it, fit it into the window,
save it, queue it. Reading and saving happen in one thread that has the server's only database connection, so
the loop that streams replies never waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from math import nan
from typing import Any, TypeVar

from app.control.hearing import PASTED, PIPED, hear, pass_over
from app.harness.dressing import Harness, dressed
from app.host.capture import Incognito, Question, save
from app.host.engine import Engine
from app.host.events import Done, TurnEvent
from app.host.guarding import GuardedTurn
from app.host.jobs import AtStrength, Job, Opening, Priority, Recorder, Serve, Weights
from app.host.nearness import Nearness
from app.host.requests import Limits
from app.host.runtime import Runtime
from app.host.summaries import Prompt, Summaries
from app.host.supervisor import Supervisor
from app.model.renderer import Fitted, Turn
from store import ids, settings, strengths
from store.activity import Activity
from store.db import Store
from store.errors import ContextOverflow
from store.home import Home
from store.items import Item
from store.voice import without_pasted

log = logging.getLogger("mynah.host")

Answer = TypeVar("Answer")

_SMALLEST_RESERVE = 4
"""A quarter of the window is kept for a reply where that much is wanted; the rest is for what was said."""


class Keep(StrEnum):
    """Whether a turn is kept."""

    RECORD = "record"
    INCOGNITO = "incognito"


class Author(StrEnum):
    """Who a question's new text is from: the owner at the keyboard, what came through a pipe, or a program's."""

    OWNER = "owner"
    PIPE = "pipe"
    PROGRAM = "program"


class Window(StrEnum):
    """What happens to a conversation that is longer than the window."""

    DROP_OLDEST = "drop_oldest"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Ask:
    """How a question is to be answered, whoever asks.

    ``harness``: what of the owner's items holds; ``items`` names them, else it is those that are active.
    ``author``: whose new text it is, the owner's may be remembered but for what was ``pasted``. ``most_retries``: how
    often a reply that breaks a guard is asked for again.
    """

    read: Callable[[Store], Question]
    limits: Limits
    client: str
    priority: Priority
    keep: Keep = Keep.RECORD
    window: Window = Window.DROP_OLDEST
    serve: Weights = Serve.ACTIVE
    likeliest: int | None = None
    stops: tuple[str, ...] = ()
    grammar: str | None = None
    grammar_after: str | None = None
    harness: Harness = Harness.OFF
    items: Sequence[str] | None = None
    author: Author = Author.PROGRAM
    pasted: Sequence[str] = ()
    most_retries: int = 0


def prompt_of(runtime: Runtime, turns: Sequence[Turn], reserve: int, window: Window) -> Fitted:
    """The prompt of a conversation with room for a reply of ``reserve`` tokens.

    Raises:
        ContextOverflow: it does not fit, or not whole where that is wanted.
    """
    fitted = runtime.fit(turns, reserve)
    if fitted.left_out and window is Window.REFUSE:
        raise ContextOverflow(
            f"the prompt is too long for the model's window of {runtime.info.context} tokens: "
            "send less of the conversation"
        )
    return fitted


def _weights(store: Store, asked: Weights, question: Question) -> Weights:
    """What is asked for; where that is what serves now, at the strength the owner chose for the conversation."""
    if asked is not Serve.ACTIVE or question.conversation is None:
        return asked
    own = strengths.of(store, question.conversation)
    return asked if own is None else AtStrength(own)


def _telling(remembered: Sequence[Item], sink: Callable[[TurnEvent], None]) -> Callable[[TurnEvent], None]:
    """A sink that tells, with the end of the reply, what was remembered of the question."""
    told = [{"id": item.id, "text": item.text} for item in remembered]

    def hear_end(event: TurnEvent) -> None:
        sink(replace(event, remembered=told) if isinstance(event, Done) else event)

    return hear_end


def _logged(done: Future[Any]) -> None:
    if not done.cancelled() and (fault := done.exception()) is not None:
        log.error("something nobody waits for failed", exc_info=fault)


class Host:
    """What the server's handlers work with."""

    def __init__(
        self, home: Home, runtime: Runtime, engine: Engine, supervisor: Supervisor, token: str
    ) -> None:
        self.home = home
        self.runtime = runtime
        self.engine = engine
        self.supervisor = supervisor
        self.token = token
        self.started = ids.now()
        self.started_at = int(time.time())
        self.ending = asyncio.Event()
        self._began = self._needed = self._asked = time.monotonic()
        self._in_flight = 0
        self._activity = Activity(home)
        self._store: Store | None = None
        self._store_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._summaries = Summaries(runtime, engine.submit, self._later)
        self._nearness = Nearness(runtime.encoder)
        self._later(self._nearness.prepare)

    async def in_store(self, work: Callable[[Store], Answer]) -> Answer:
        """Run something on the server's database connection, in the thread that has it."""
        return await asyncio.get_running_loop().run_in_executor(self._store_thread, self._with_store, work)

    def _with_store(self, work: Callable[[Store], Answer]) -> Answer:
        if self._store is None:
            self._store = Store.open(self.home)
        return work(self._store)

    def _later(self, work: Callable[[Store], object]) -> None:
        """Run something on that connection when its thread has time; nothing once the host ends."""
        with suppress(RuntimeError):
            self._store_thread.submit(self._with_store, work).add_done_callback(_logged)

    async def admit(self, ask: Ask, sink: Callable[[TurnEvent], None]) -> Job:
        """Save a question and queue its reply; the events go to ``sink``.

        Raises:
            ContextOverflow: it does not fit the window. Nothing was saved.
            MynahError: it cannot be read or saved. Nothing was saved.
        """
        # Before anything else: the learner makes room while the question is still being read.
        self._activity.hold()
        arrived = self._asked = time.monotonic()
        job = await self.in_store(lambda store: self._prepare(store, ask, sink, arrived))
        self.engine.submit(job)
        return job

    def _prepare(self, store: Store, ask: Ask, sink: Callable[[TurnEvent], None], arrived: float) -> Job:
        question = ask.read(store)
        context = self.runtime.info.context
        opening = self._tokens_of(question.opening)
        said = len(opening.tokens) if opening is not None else 0
        reserve = said + max(1, min(ask.limits.max_tokens, context // _SMALLEST_RESERVE))
        ready = dressed(
            store,
            question.turns,
            ask.harness,
            question.conversation,
            context,
            lambda text: len(self.runtime.continuation(text)),
            only=ask.items,
            nearness=self._nearness.of,
        )
        try:
            prompt = Prompt(prompt_of(self.runtime, ready.turns, reserve, ask.window))
        except ContextOverflow as error:
            if not said:
                raise
            raise ContextOverflow("this reply fills the model's window: it cannot go on") from error
        if prompt.fitted.left_out and ask.keep is Keep.RECORD and settings.get(store, settings.SUMMARY):
            prompt = self._summaries.told(store, ready.turns, reserve, prompt.fitted)
            sink = self._summaries.afterwards(prompt.fitted.dropped, sink)
        fitted = prompt.fitted
        if opening is not None:
            question = replace(question, opening=opening)
        recorder: Recorder = Incognito()
        if ask.keep is not Keep.INCOGNITO:
            recorder, remembered = self._saved(store, ask, question)
            sink = _telling(remembered, sink) if remembered else sink
        job = Job(
            id=ids.new_id("j"),
            client=ask.client,
            priority=ask.priority,
            prompt=fitted.tokens,
            sampling=ask.limits.sampling,
            max_tokens=min(said + ask.limits.max_tokens, context - len(fitted.tokens)),
            recorder=recorder,
            sink=sink,
            stops=ask.stops,
            grammar=ask.grammar,
            grammar_after=ask.grammar_after,
            serve=_weights(store, ask.serve, question),
            likeliest=ask.likeliest,
            left_out=fitted.left_out,
            summarised=prompt.summarised,
            context_items=ready.items,
            opening=opening,
            created=arrived,
        )
        if not ready.guards:
            return job
        turn = GuardedTurn(self.runtime, self.engine.submit, ready.turns, reserve, ask.most_retries)
        return turn.over(job, ready.guards)

    @staticmethod
    def _saved(store: Store, ask: Ask, question: Question) -> tuple[Recorder, list[Item]]:
        """Save a question, and write down what its owner states in it."""
        remembered: list[Item] = []
        with store.write():
            recorder = save(store, question)
            if ask.author is Author.OWNER and question.new:
                typed = without_pasted(question.new[-1].content, ask.pasted)
                remembered = hear(store, recorder.conversation, recorder.user_message, typed)
                if not typed.strip():
                    pass_over(store, recorder.user_message, PASTED)
            elif ask.author is Author.PIPE and question.new:
                pass_over(store, recorder.user_message, PIPED)
        return recorder, remembered

    def _tokens_of(self, opening: Opening | None) -> Opening | None:
        """The tokens a reply begins with: as they were sampled, else (imported, or its host died) those of its text."""
        if opening is None:
            return None
        tokens = list(opening.tokens)
        logprobs = list(opening.logprobs)
        if not tokens:
            tokens = self.runtime.continuation(opening.text)
            logprobs = [nan] * len(tokens)
        elif self.runtime.is_end(tokens[-1]):
            del tokens[-1], logprobs[-1:]
        return replace(opening, tokens=tokens, logprobs=logprobs)

    @contextmanager
    def needed(self) -> Iterator[None]:
        """For the length of a request the host has a reason to live."""
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._needed = time.monotonic()

    def idle_seconds(self) -> float:
        """Seconds since anybody needed the host; 0 while somebody does."""
        if self._in_flight or self.engine.busy or self.supervisor.learner_pid is not None:
            self._needed = time.monotonic()
        return time.monotonic() - self._needed

    def quiet_seconds(self) -> float:
        """Seconds since anything was asked; 0 while a reply is made."""
        if self.engine.busy:
            self._asked = time.monotonic()
        return time.monotonic() - self._asked

    def status(self) -> dict[str, Any]:
        """What the host is doing, for people and programs."""
        info, engine = self.runtime.info, self.engine.status()
        version = engine.version
        return {
            "model": info.name,
            "base_hash": info.base_hash,
            "served": info.served,
            "context": info.context,
            "threads": {"decode": info.decode_threads, "batch": info.batch_threads},
            "adapter": (
                {"id": version.adapter, "version": version.number, "scale": version.scale}
                if version.adapter is not None
                else None
            ),
            "contexts": engine.contexts,
            "queue": engine.queue,
            "generating": engine.generating,
            "tokens_per_second": round(engine.tokens_per_second, 2),
            "learner": {"pid": self.supervisor.learner_pid},
            "started": self.started,
            "uptime": round(time.monotonic() - self._began, 1),
        }

    def close(self) -> None:
        """Close what this object opened; the engine and the supervisor are closed by who made them."""
        self._store_thread.submit(self._close_store).result()
        self._store_thread.shutdown()
        self._nearness.close()
        self._activity.close()

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
