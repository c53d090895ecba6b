"""An engine in this process on the scripted model, and the questions tests put to it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from app.host.capture import Incognito, StoreRecorder
from app.host.engine import Engine
from app.host.events import Done, Failed, Started, Token, TurnEvent
from app.host.jobs import Job, Priority, Recorder, Sampling, Serve, Weights
from app.model.renderer import Turn
from store import adapters, conversations, ids
from store.db import Store
from store.home import Home
from store.types import Role
from tests.scripted import BASE_HASH, ScriptedRuntime

WAIT = 120.0


@dataclass(eq=False)
class Answer:
    """The events of one job as they come in."""

    job: Job
    events: queue.Queue[TurnEvent]
    seen: list[TurnEvent] = field(default_factory=list)

    def until(self, wanted: Callable[[TurnEvent], bool]) -> TurnEvent:
        while True:
            event = self.events.get(timeout=WAIT)
            self.seen.append(event)
            if wanted(event):
                return event

    def started(self) -> Started:
        event = self.until(lambda event: isinstance(event, Started))
        assert isinstance(event, Started)
        return event

    @property
    def message(self) -> str | None:
        """The row of a reply that has started."""
        return next(event.message for event in self.seen if isinstance(event, Started))

    def tokens(self, count: int) -> None:
        for _ in range(count):
            self.until(lambda event: isinstance(event, Token))

    def done(self) -> Done:
        event = self.until(lambda event: isinstance(event, Done | Failed))
        assert isinstance(event, Done), event
        return event

    def failed(self) -> Failed:
        event = self.until(lambda event: isinstance(event, Done | Failed))
        assert isinstance(event, Failed), event
        return event

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.seen if isinstance(event, Token))


class Clock:
    """Time that passes only while something is computed; and what is to happen at a moment of it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._at: list[tuple[float, Callable[[], object]]] = []
        self._guard = threading.RLock()

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        with self._guard:
            self.now += seconds
            due = [each for each in self._at if each[0] <= self.now]
            self._at = [each for each in self._at if each[0] > self.now]
            for _, action in due:
                action()

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something when so much time has passed, in the thread that computes then."""
        with self._guard:
            self._at.append((self.now + seconds, action))


class Desk:
    """Asks an engine, with the store's own rows around it."""

    def __init__(
        self,
        home: Home,
        store: Store,
        engine: Engine,
        runtime: Any,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.home, self.store, self.engine, self.runtime, self.clock = home, store, engine, runtime, clock

    def ask(
        self,
        text: str,
        *,
        before: Sequence[Turn] = (),
        conversation: str | None = None,
        client: str = "test",
        priority: Priority = Priority.INTERACTIVE,
        temperature: float = 0.4,
        max_tokens: int = 512,
        stops: tuple[str, ...] = (),
        serve: Weights = Serve.ACTIVE,
        incognito: bool = False,
        recorder: Recorder | None = None,
        grammar: str | None = None,
        note: Callable[[TurnEvent], None] = lambda _event: None,
    ) -> Answer:
        turns = [*before, Turn(Role.USER, text)]
        fitted = self.runtime.fit(turns, 4)
        events: queue.Queue[TurnEvent] = queue.Queue()

        def sink(event: TurnEvent) -> None:
            note(event)
            events.put(event)

        if recorder is None:
            recorder = Incognito() if incognito else self.saved(text, conversation)
        job = Job(
            id=ids.new_id("j"),
            client=client,
            priority=priority,
            prompt=fitted.tokens,
            sampling=Sampling(temperature=temperature),
            max_tokens=max_tokens,
            recorder=recorder,
            sink=sink,
            stops=stops,
            serve=serve,
            left_out=fitted.left_out,
            grammar=grammar,
            created=self.clock(),
        )
        self.engine.submit(job)
        return Answer(job, events)

    def saved(self, text: str, conversation: str | None = None) -> StoreRecorder:
        parent = None
        if conversation is None:
            conversation = conversations.create(self.store, text, "test")
        else:
            parent = conversations.get(self.store, conversation).head
        return StoreRecorder(
            conversation, conversations.append_user(self.store, conversation, text, parent).id
        )

    def row(self, message: str | None) -> conversations.Message:
        assert message is not None
        return conversations.get_message(self.store, message)


@contextmanager
def desk(home: Home, clock: Clock | None = None, **options: Any) -> Iterator[Desk]:
    """An engine that works, on a home of its own."""
    if clock is None:
        runtime = ScriptedRuntime(**options)
        engine = Engine(runtime, home)
    else:
        runtime = ScriptedRuntime(**options, pause=clock.pause)
        engine = Engine(runtime, home, clock)
    with Store.open(home) as store:
        engine.start()
        try:
            yield Desk(home, store, engine, runtime, clock or time.monotonic)
        finally:
            engine.close(WAIT)
            assert runtime.closed


def live_adapter(store: Store, content: bytes, base_hash: str = BASE_HASH) -> str:
    """An installed and published adapter with this content; returns its id."""
    made = store.home.scratch / content.hex()
    made.mkdir()
    (made / adapters.GGUF_NAME).write_bytes(content)
    name = adapters.install(store, made)
    adapters.add_candidate(store, name, base_hash=base_hash, run="r1", manifest={}, uses=[])
    adapters.publish(store, name, {"passed": True})
    return name
