"""The one object behind the terminal chat and the command line: what a person can do with Mynah.

What needs the model goes to the host, which is started when it is first needed; everything else is a short
transaction on the store, so rating, rolling back and reading work while the host is down, busy or loading. The
service is safe to use from several threads: each has a database connection of its own.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app import threads
from app.composing import Composing
from app.governing import Governing
from app.host.client import HostClient, TurnRequest, TurnStream, ensure_host, running_host
from app.insight import Insight
from app.knowing import Knowing
from app.model import catalogue
from app.model.catalogue import ModelFile as ModelFile
from app.models import Models
from app.strengths import Strengths
from app.threads import Thread as Thread
from app.threads import ThreadMessage as ThreadMessage
from store import (
    adapters,
    consent,
    conversations,
    forgetting,
    ids,
    pins,
    purging,
    runs,
    search,
    settings,
    signals,
    steering,
    units,
    verdicts,
)
from store.adapters import Adapter, Serving
from store.consent import Change, Dials
from store.conversations import Conversation
from store.db import Store
from store.errors import AdapterFileError, HostUnavailable, Interrupted, LearnerError, UsageError
from store.forgetting import Forgetting, Item, Preview
from store.home import Home
from store.reasons import Reason, hint_for
from store.runs import Run
from store.search import Hit
from store.signals import Signal
from store.types import (
    Consent,
    Dial,
    ForgetState,
    RunOutcome,
    RunState,
    Scope,
    SignalKind,
    Trigger,
    UnitState,
    UnitUse,
)
from store.units import Fate, Unit

POLL_SECONDS = 0.1
END_REPLY_SECONDS = 5.0


@dataclass(frozen=True)
class LearningStatus:
    """What the learner is about. ``needed`` more units start a run by themselves; 0 means one is due.

    ``usual`` is how many seconds a run takes as a rule, None before the first.
    """

    paused: bool
    waiting: list[Unit]
    refused: list[Unit]
    needed: int
    run: Run | None
    last: Run | None
    usual: float | None = None
    asks: str | None = None
    """What learning stopped for by itself and asks the owner."""
    old: int = 0
    """How many of those that wait start no run any more: one has tried them in vain, or they are thanks alone."""


@dataclass(frozen=True)
class Taught:
    """One thing an adapter learned: the question, what was wrong or right, and how the run used it."""

    unit: Unit
    use: UnitUse
    question: str
    reply: str


@dataclass(frozen=True)
class AdapterDetail:
    """An adapter with all it learned from."""

    adapter: Adapter
    serving: bool
    taught: list[Taught]


@dataclass(frozen=True)
class Receipt:
    """What a rating or correction came to: the signal, and the fate of the reply's learning unit."""

    signal: Signal
    fate: Fate | None


@dataclass(frozen=True)
class Snapshot:
    """Everything a status line shows, read at one moment, so not what was refused. ``host`` is None where none runs."""

    serving: Serving
    learning: LearningStatus
    host: dict[str, Any] | None
    data_version: int


class Service(Insight, Composing, Knowing, Governing, Strengths, Models):
    """Mynah for one home."""

    def __init__(self, home: Home) -> None:
        self.home = home.open()
        self._local = threading.local()

    @property
    def store(self) -> Store:
        """The calling thread's connection."""
        store: Store | None = getattr(self._local, "store", None)
        if store is None:
            store = self._local.store = Store.open(self.home)
        return store

    def close(self) -> None:
        """Close the calling thread's connection."""
        store: Store | None = getattr(self._local, "store", None)
        if store is not None:
            store.close()
            self._local.store = None

    def host(self) -> HostClient:
        """The host, started where none runs; may take seconds while the model loads."""
        return ensure_host(self.home)

    def base_hash(self) -> str:
        """The identity of the model in use."""
        return self.model().base_hash

    def model(self) -> ModelFile:
        """The model in use."""
        return catalogue.resolve(self.home, settings.get(self.store, settings.MODEL))

    def chat(self, request: TurnRequest) -> TurnStream:
        """Ask for a reply; iterate over the events, close the stream to stop."""
        return self.host().turn(request)

    def stop(self, handle: str) -> bool:
        """Stop the reply with this message id or job; False where it had ended already."""
        client = running_host(self.home)
        return client is not None and client.stop(handle)

    def conversations(self, limit: int = 200) -> list[Conversation]:
        """The conversations, the last used first."""
        return conversations.list_(self.store, limit)

    def thread(self, conversation: str) -> Thread:
        """A conversation along its visible path."""
        return threads.thread(self.store, conversation)

    def message(self, message: str) -> ThreadMessage:
        """One message as the chat shows it."""
        return threads.message(self.store, message)

    def select(self, message: str) -> None:
        """Show the branch that a message is on."""
        conversations.select(self.store, message)

    def search(self, query: str, limit: int = 50) -> list[Hit]:
        """Messages that contain the query, newest first."""
        return search.search(self.store, query, limit)

    def rename(self, conversation: str, title: str) -> None:
        """Give a conversation another title."""
        conversations.rename(self.store, conversation, title)

    def delete_conversation(self, conversation: str) -> None:
        """Delete a conversation that taught nothing."""
        conversations.delete(self.store, conversation)

    def consent(self, conversation: str | None = None) -> Dials:
        """What a conversation may be used for, by dial; without one, what new conversations may be used for."""
        if conversation is None:
            return consent.defaults(self.store)
        return consent.of(self.store, conversation)

    def set_consent(self, conversation: str, dial: Dial, value: Consent) -> Change:
        """Turn one dial of a conversation; see `store.consent.set_`."""
        return consent.set_(self.store, conversation, dial, value)

    def set_default_consent(self, dial: Dial, value: Consent) -> Dials:
        """Turn one dial for conversations that are yet to come."""
        return consent.set_default(self.store, dial, value)

    def resolve(self, table: str, prefix: str) -> str:
        """The full id for an unambiguous prefix; see `store.ids.resolve`."""
        return ids.resolve(self.store, table, prefix)

    def rate(
        self, message: str, value: int, *, reason: Reason | None = None, note: str | None = None
    ) -> Receipt:
        """Thumb up (1), down (-1) or taken back (0). A reason or a note for a thumb down becomes a hint."""
        if value not in (-1, 0, 1):
            raise UsageError("a rating is up, down or clear")
        store = self.store
        hint = (note or "").strip() or None
        if reason is not None:
            hint = hint_for(reason, note)
        signal = signals.record(store, message, SignalKind.THUMB, value=value, text=hint)
        return Receipt(signal, units.fate(store, message))

    def correct(self, message: str, text: str) -> Receipt:
        """Save the owner's own version of a reply.

        Raises:
            UsageError: it is empty, or no different from the reply.
        """
        store = self.store
        if not text.strip():
            raise UsageError("the correction is empty: write what the reply should have been")
        if text.strip() == conversations.get_message(store, message).text.strip():
            raise UsageError("the correction is the same as the reply: nothing was saved")
        signal = signals.record(store, message, SignalKind.CORRECTION, text=text.strip())
        return Receipt(signal, units.fate(store, message))

    def flip(self, message: str) -> Receipt:
        """Turn over the verdict on whether a reply's question was asked again.

        Raises:
            UsageError: nothing followed the reply.
        """
        return Receipt(verdicts.flip(self.store, message), units.fate(self.store, message))

    def note(self, message: str, kind: SignalKind) -> None:
        """Record that the owner copied, stopped or regenerated a reply."""
        signals.record(self.store, message, kind, value=1.0)

    def signals(self, message: str) -> list[Signal]:
        """Every signal a reply got, oldest first."""
        return signals.all_of(self.store, message)

    def learning(self, refused: int = -1) -> LearningStatus:
        """What waits, what runs, what came of the last run; all that was refused, or the newest ``refused``."""
        store = self.store
        open_runs = runs.open_(store)
        last = next((run for run in runs.list_(store, 10) if run.state.finished), None)
        enough = int(settings.get(store, settings.MIN_UNITS))
        waiting, fresh = units.waiting(store), units.fresh(store)
        return LearningStatus(
            paused=bool(settings.get(store, settings.LEARNING_PAUSED)),
            waiting=waiting,
            refused=units.refused(store, refused),
            needed=max(enough - len(fresh), int(bool(waiting) and not units.make_a_run(store))),
            old=len(waiting) - len(fresh),
            run=open_runs[0] if open_runs else None,
            last=last,
            usual=self.usual_seconds(),
            asks=settings.get(store, settings.LEARNING_ASKS),
        )

    def learn_now(self) -> Run:
        """Ask for a learning run and wake the learner. Asking twice before it starts is one run."""
        store = self.store
        # The owner's word: what a decision had left out is learned too.
        steering.release(store)
        if not units.waiting(store) and not units.unjudged(store, 1) and not runs.open_(store):
            run = runs.request(store, Trigger.MANUAL)
            runs.finish(store, run.id, RunOutcome.NOTHING_TO_LEARN, _nothing_to_learn(units.refused(store)))
            return runs.get(store, run.id)
        if settings.get(store, settings.LEARNING_PAUSED):
            raise UsageError("learning is paused: `mynah learn resume` first")
        client = self.host()
        run = runs.request(store, Trigger.MANUAL)
        client.learn()
        return run

    def wait(self, run: str, told: Callable[[Run], None] | None = None) -> Run:
        """Wait until a run ends; ``told`` hears of each step on the way.

        Raises:
            LearnerError: the run could not be carried out.
            Interrupted: Ctrl-C; the run goes on.
        """
        store = self.store
        seen = None
        checked = time.monotonic()
        try:
            while True:
                now = runs.get(store, run)
                if told is not None and (now.state, now.note, round(now.fraction, 2)) != seen:
                    told(now)
                    seen = (now.state, now.note, round(now.fraction, 2))
                if now.state is RunState.FAILED:
                    raise LearnerError(f"the learning run failed: {now.error}")
                if now.state.finished:
                    return now
                if now.state is RunState.QUEUED and settings.get(store, settings.LEARNING_PAUSED):
                    raise UsageError(
                        "learning was paused before the run began: `mynah learn resume` lets it start"
                    )
                if time.monotonic() - checked > 5.0:
                    # The host looks after the learner: a run whose host died would otherwise wait for ever.
                    checked = time.monotonic()
                    self.host()
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            raise Interrupted("stopped waiting; the run goes on in the background") from None

    def pause_learning(self, paused: bool) -> None:
        """Stop runs from starting, or let them start again. A run under way is not cut off."""
        settings.put(self.store, settings.LEARNING_PAUSED, paused)
        if not paused:
            settings.put(self.store, settings.LEARNING_ASKS, None)

    def runs(self, limit: int = 50) -> list[Run]:
        """Past and present learning runs, newest first."""
        return runs.list_(self.store, limit)

    def adapters(self) -> list[Adapter]:
        """The adapters of the model in use, newest first."""
        return adapters.list_(self.store, self.base_hash())

    def serving(self) -> Serving:
        """What answers now."""
        return adapters.active(self.store, self.base_hash())

    def adapter(self, adapter: str) -> AdapterDetail:
        """An adapter and what it learned from."""
        store = self.store
        found = adapters.get(store, adapter)
        serving = adapters.active(store, found.base_hash)
        taught = [self._taught(unit, use) for unit, use in units.used_by(store, adapter)]
        return AdapterDetail(found, serving.adapter is not None and serving.adapter.id == adapter, taught)

    def use(self, adapter: str | None, scale: float = 1.0) -> Serving:
        """Choose what answers from the next turn on; None is the base model."""
        return adapters.use(self.store, self.base_hash(), adapter, scale)

    def rollback(self) -> tuple[Adapter, Serving]:
        """Take the active adapter back; returns it, and what answers now."""
        return adapters.rollback(self.store, self.base_hash())

    def pin(self, adapter: str | None) -> None:
        """Keep what is active (or an adapter, which is then activated) until it is unpinned with None."""
        if adapter is None:
            pins.unpin(self.store, self.base_hash())
            return
        serving = self.serving().adapter
        if serving is None or serving.id != adapter:
            # One that serves keeps the strength it serves with.
            self.use(adapter)
        pins.pin(self.store, adapter)

    def pinned(self) -> str | None:
        """The pinned adapter of the model in use, if any."""
        return pins.of(self.store, self.base_hash())

    def delete_adapter(self, adapter: str) -> None:
        """Delete an adapter's files."""
        adapters.delete(self.store, adapter)

    def export_adapter(self, adapter: str, to: Path) -> Path:
        """Copy an adapter's files (PEFT and GGUF forms, manifest) into a new directory.

        Raises:
            UsageError: the directory exists, or cannot be written.
            AdapterFileError: the files are gone.
        """
        source = adapters.files(self.store, adapters.get(self.store, adapter).id)
        if not source.exists():
            raise AdapterFileError(f"the files of adapter {adapter} are gone")
        if to.exists():
            raise UsageError(f"{to} exists already: choose a new directory")
        try:
            shutil.copytree(source, to)
        except OSError as error:
            shutil.rmtree(to, ignore_errors=True)
            # A copy that fails half-way names its reasons file by file; one is enough.
            reason = error.strerror or "the disk may be full"
            raise UsageError(f"cannot write {to} ({reason}): choose another place") from error
        return to

    def forget_preview(self, scope: Scope, target: str | None) -> Preview:
        """What a request to forget would undo, without doing it."""
        from store.exchange.cleansing import Cleansed, foresee

        planned = forgetting.preview(self.store, scope, target)
        foreseen = {path: foresee(self.home, Path(path)) for path in planned.backups}
        # To delete a file nobody needs its passphrase.
        lost = (
            [Cleansed.MISSING]
            if scope is Scope.ALL
            else [outcome for outcome in Cleansed if not outcome.reached]
        )
        unreached = {path: str(outcome) for path, outcome in foreseen.items() if outcome in lost}
        return replace(planned, unreached=unreached)

    def forget(self, scope: Scope, target: str | None) -> Forgetting:
        """Forget: when this returns, nothing that saw it is served and it is erased; retraining may go on.

        Raises:
            NotFound: there is no such thing.
        """
        store = self.store
        self._end_replies(forgetting.find(store, scope, target))
        asked = purging.proceed(store, forgetting.request(store, scope, target).id)
        client = running_host(self.home)
        if asked.run is not None and client is not None:
            client.learn()
        return asked

    def forget_on(self, asked: str) -> Forgetting:
        """Go on with a request that was broken off, as far as can be gone now."""
        return purging.proceed(self.store, asked)

    def forget_wait(self, asked: str, told: Callable[[Run], None] | None = None) -> Forgetting:
        """Go on with a request until its end, or until what is left must wait for learning to be resumed.

        Raises:
            Interrupted: Ctrl-C; the rest goes on.
        """
        now = self.forget_on(asked)
        while now.state is not ForgetState.PURGED and now.run is not None:
            if settings.get(self.store, settings.LEARNING_PAUSED):
                return now
            if runs.get(self.store, now.run).state is RunState.QUEUED:
                self.host().learn()
            # A run that fails, or may not begin, ends the wait for it; what it left is told by the request.
            with contextlib.suppress(LearnerError, UsageError):
                self.wait(now.run, told)
            now = self.forget_on(asked)
        return now

    def forgettings(self) -> list[Forgetting]:
        """The requests to forget, newest first."""
        return forgetting.list_(self.store)

    def forgetting(self, asked: str) -> Forgetting:
        """One request to forget, with its receipt once it is carried out."""
        return forgetting.get(self.store, asked)

    def _end_replies(self, item: Item) -> None:
        """Stop replies that are being written in what is to be forgotten, and wait a moment until they are saved."""
        client = running_host(self.home)
        deadline = time.monotonic() + END_REPLY_SECONDS
        while client is not None and time.monotonic() < deadline:
            open_ = conversations.being_written(self.store)
            mine = [each for each in open_ if item.scope is Scope.ALL or each in item.messages]
            if not mine:
                return
            for message in mine:
                client.stop(message)
            time.sleep(POLL_SECONDS)

    def use_model(self, name: str) -> ModelFile:
        """Choose another model by name or path; the host must be started anew to serve it."""
        chosen = catalogue.resolve(self.home, name)
        # The whole path: a relative one means another file from another directory.
        kept = None if chosen.comes_along else str(chosen.path)
        settings.put(self.store, settings.MODEL, kept)
        return chosen

    def models(self) -> list[ModelFile]:
        """The models that are known here."""
        return catalogue.list_models(self.home, settings.get(self.store, settings.MODEL))

    def snapshot(self) -> Snapshot:
        """What a status line shows, cheap enough to ask for twice a second. Never starts a host."""
        client = running_host(self.home)
        try:
            host = client.status() if client else None
        except HostUnavailable:
            host = None
        return Snapshot(self.serving(), self.learning(0), host, self.store.data_version)

    def _taught(self, unit: Unit, use: UnitUse) -> Taught:
        before = conversations.path(self.store, unit.message)
        question = before[-2].text if len(before) > 1 else ""
        return Taught(unit, use, question, before[-1].text)


def _nothing_to_learn(refused: list[Unit]) -> dict[str, Any]:
    return {
        "outcome": RunOutcome.NOTHING_TO_LEARN,
        "adapter": None,
        "used": [],
        "held_out": [],
        "skipped": [
            {"unit": unit.id, "reason": unit.reason} for unit in refused if unit.state is UnitState.REFUSED
        ],
        "gate": {},
        "seconds": 0.0,
    }
