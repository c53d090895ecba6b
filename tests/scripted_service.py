"""A service whose model is a script: the real store on a temporary home, without weights, host or learner.

Everything a chat does to the store is done by the real code; only what needs a model is played. A script says
which pieces a reply comes in, when it may go on, and how it fails.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.host.client import TurnRequest
from app.host.events import Done, Failed, Queued, Started, Token, TurnEvent
from app.service import Service, Snapshot
from store import adapters, conversations, runs, units
from store.adapters import Adapter
from store.conversations import ReplyEnd, ReplyStart
from store.errors import MynahError
from store.home import Home
from store.runs import Run
from store.types import FinishReason, MessageStatus, RunOutcome, Scope, Trigger, UnitUse

BASE = "b" * 64
MODEL = "SmolLM2-135M-Instruct"
CONTEXT = 4096
# Longer than any test waits: what is held back comes when the test lets it, never because a machine is slow.
HELD_SECONDS = 300.0


@dataclass
class Script:
    """One reply: its pieces, what it waits for before the first, what it queues behind, how it ends badly."""

    pieces: Sequence[str] = ("A short answer.",)
    may_start: threading.Event | None = None
    may_end: threading.Event | None = None
    delay: float = 0.0
    ahead: int = 0
    fails_before: MynahError | None = None
    fails_after: Failed | None = None
    tokens_per_second: float = 41.0


@dataclass
class ScriptedTurn:
    """The stream of one scripted reply."""

    service: ScriptedService
    request: TurnRequest
    script: Script
    stopped: threading.Event = field(default_factory=threading.Event)

    def __iter__(self) -> Iterator[TurnEvent]:
        return self.service.play(self)

    def __enter__(self) -> ScriptedTurn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.stopped.set()
        for event in (self.script.may_start, self.script.may_end):
            if event is not None:
                event.set()


@dataclass(frozen=True)
class Undone:
    """What forgetting will undo."""

    messages: int
    ratings: int
    versions: list[int]
    serving_moves: bool
    serving: str | None
    backups: list[str]
    retrain: bool = True
    unreached: dict[str, str] = field(default_factory=dict)


class ScriptedService(Service):
    """The real service, with a scripted model in the place of the host."""

    def __init__(self, home: Home, scripts: Sequence[Script] = ()) -> None:
        super().__init__(home)
        self.scripts = list(scripts)
        self.turns: dict[str, ScriptedTurn] = {}
        self.requests: list[TurnRequest] = []
        self.host_error: MynahError | None = None
        self.host_may_start: threading.Event | None = None
        self.host_starts = 0
        self.up = False
        self.titles = False

    def base_hash(self) -> str:
        return BASE

    def host(self) -> Any:
        self.host_starts += 1
        if self.host_may_start is not None:
            self.host_may_start.wait(HELD_SECONDS)
        if self.host_error is not None:
            raise self.host_error
        self.up = True
        return None

    def chat(self, request: TurnRequest) -> ScriptedTurn:  # type: ignore[override]
        self.requests.append(request)
        script = self.scripts.pop(0) if self.scripts else Script()
        self.host()
        if script.fails_before is not None:
            raise script.fails_before
        return ScriptedTurn(self, request, script)

    def stop(self, handle: str) -> bool:
        turn = self.turns.get(handle)
        if turn is None:
            return False
        turn.close()
        return True

    def wants_titles(self) -> bool:
        return self.titles

    def learn_now(self) -> Run:
        return runs.request(self.store, Trigger.MANUAL)

    def forget_preview(self, scope: Scope, target: str | None) -> Any:
        return Undone(
            messages=2, ratings=1, versions=[1], serving_moves=True, serving=None, backups=["/b [/]"]
        )

    def forget(self, scope: Scope, target: str | None) -> Any:
        conversations.delete(self.store, target or "")

    def snapshot(self) -> Snapshot:
        host = {"model": MODEL, "context": CONTEXT, "generating": None, "queue": 0} if self.up else None
        return Snapshot(self.serving(), self.learning(), host, self.store.data_version)

    def play(self, turn: ScriptedTurn) -> Iterator[TurnEvent]:
        """Do to the store what the host does, and tell what the host tells."""
        store, request, script = self.store, turn.request, turn.script
        if request.incognito:
            yield from self._unkept(turn)
            return
        conversation, parent = self._parent(request)
        if script.ahead:
            yield Queued(script.ahead, conversation, parent)
        serving = self.serving()
        adapter = serving.adapter.id if serving.adapter else None
        sampler = {"extends": request.extend} if request.extend is not None else {}
        reply = conversations.begin_reply(
            store, conversation, parent, ReplyStart(BASE, adapter, 1.0, sampler, "template", [1, 2, 3])
        )
        self.turns[reply.id] = turn
        yield Started(reply.id, conversation, parent, reply.id, adapter)
        if script.may_start is not None:
            script.may_start.wait(HELD_SECONDS)
        said = ""
        if request.extend is not None:
            said = conversations.get_message(store, request.extend).text
            yield Token(said)
        for piece in script.pieces:
            if turn.stopped.wait(script.delay) if script.delay else turn.stopped.is_set():
                break
            said += piece
            yield Token(piece)
        if script.may_end is not None:
            script.may_end.wait(HELD_SECONDS)
        yield self._end(turn, reply.id, conversation, said, adapter)

    def _unkept(self, turn: ScriptedTurn) -> Iterator[TurnEvent]:
        """A reply that nothing is kept of."""
        request = turn.request
        serving = self.serving().adapter
        adapter = None if request.base else request.adapter or (serving.id if serving else None)
        job = f"j{len(self.requests)}"
        self.turns[job] = turn
        yield Queued(turn.script.ahead)
        yield Started(job, None, None, None, adapter)
        if turn.script.may_start is not None:
            turn.script.may_start.wait(HELD_SECONDS)
        said = ""
        for piece in turn.script.pieces:
            if turn.stopped.is_set():
                break
            said += piece
            yield Token(piece)
        if turn.script.may_end is not None:
            turn.script.may_end.wait(HELD_SECONDS)
        self.turns.pop(job, None)
        if turn.script.fails_after is not None:
            yield turn.script.fails_after
            return
        finish = FinishReason.CANCELLED if turn.stopped.is_set() else FinishReason.STOP
        usage = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
        yield Done(None, None, said, adapter, finish, usage, {"tokens_per_second": 41.0, "total": 1.0})

    def _end(
        self, turn: ScriptedTurn, reply: str, conversation: str, said: str, adapter: str | None
    ) -> Done | Failed:
        failed = turn.script.fails_after
        stopped = turn.stopped.is_set()
        status = MessageStatus.STOPPED if stopped else MessageStatus.COMPLETE
        finish = FinishReason.CANCELLED if stopped else FinishReason.STOP
        usage = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42 * 12}
        timings = {"tokens_per_second": turn.script.tokens_per_second, "total": 1.0}
        end = ReplyEnd(said, status, finish, [4, 5], [-0.1, -0.2], usage=usage, timings=timings)
        if failed is not None:
            end = ReplyEnd(
                said,
                MessageStatus.FAILED,
                FinishReason.ERROR,
                error_class=failed.error_class,
                error=failed.message,
            )
        conversations.finish_reply(self.store, reply, end)
        self.turns.pop(reply, None)
        return failed or Done(conversation, reply, said, adapter, finish, usage, timings)

    def _parent(self, request: TurnRequest) -> tuple[str, str]:
        store = self.store
        if request.edit is not None:
            assert request.text is not None
            old = conversations.get_message(store, request.edit)
            new = conversations.append_user(store, old.conversation, request.text, old.parent)
            return old.conversation, new.id
        if request.regenerate is not None or request.extend is not None:
            again = conversations.get_message(store, request.regenerate or str(request.extend))
            assert again.parent is not None
            return again.conversation, again.parent
        if request.text is None:
            assert request.continue_from is not None
            return conversations.get_message(store, request.continue_from).conversation, request.continue_from
        conversation = request.conversation or conversations.create(
            store, conversations.title_from(request.text), "chat"
        )
        head = request.continue_from or conversations.get(store, conversation).head
        return conversation, conversations.append_user(store, conversation, request.text, head).id

    def say(
        self, question: str, reply: str, conversation: str | None = None, **script: Any
    ) -> tuple[str, str]:
        """A whole exchange at once; returns the conversation and the reply's id."""
        turn = ScriptedTurn(self, TurnRequest(question, conversation), Script([reply], **script))
        done = list(self.play(turn))[-1]
        assert isinstance(done, Done)
        assert done.conversation is not None
        assert done.message is not None
        return done.conversation, done.message

    def learned(self, gate: dict[str, Any] | None = None, passes: bool = True, salt: str = "") -> Adapter:
        """Play a learning run over everything that waits, up to its end."""
        store = self.store
        run = runs.request(store, Trigger.MANUAL)
        waiting = units.waiting(store)
        made = store.home.scratch / run.id
        made.mkdir()
        (made / adapters.GGUF_NAME).write_bytes(f"scripted {len(self.adapters())} {salt}".encode())
        adapter = adapters.install(store, made)
        held = {unit.id for unit in waiting[3::4]}
        uses = [(unit, UnitUse.HELD_OUT if unit.id in held else UnitUse.TRAINED) for unit in waiting]
        uses += [(unit, UnitUse.REPLAYED) for unit in units.learned(store)]
        adapters.add_candidate(store, adapter, base_hash=BASE, run=run.id, manifest={}, uses=uses)
        report = gate or GATE
        if passes:
            adapters.publish(store, adapter, report)
        else:
            adapters.reject(store, adapter, report, str(report.get("summary", "")))
        outcome = RunOutcome.PROMOTED if passes else RunOutcome.REJECTED
        runs.finish(store, run.id, outcome, {"outcome": outcome, "adapter": adapter, "gate": report})
        return adapters.get(store, adapter)


GATE: dict[str, Any] = {
    "passed": True,
    "summary": "better on 2 of 2 replies it had not seen, and close to the base elsewhere",
    "checks": [
        {"name": "held_out_gain", "value": 0.42, "limit": 0.0, "passed": True, "detail": ""},
        {"name": "kl_reference", "value": 0.031, "limit": 0.1, "passed": True, "detail": ""},
        {"name": "repetition", "value": 0.0, "limit": 0.05, "passed": True, "detail": ""},
    ],
}
