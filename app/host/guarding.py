"""One turn under guards: what is said is held back until it has passed, put right, or been asked for again.

A reply that is shown while it is written cannot be taken back, so where a guard holds, nothing is shown before the
verdict; where none holds, none of this is in the way. The check runs where the reply's row is closed, so that what is
kept is what was shown, and the row says what each guard found. A reply that could not be put right stays as it was,
as every reply does, and the next attempt has a prompt of its own and says in whose place it stands: each of them can
be replayed, and one that nobody saw is counted and shown nowhere. After two more attempts the last one is passed on,
with a note that says what is wrong with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.harness import guards
from app.harness.guards import Judged
from app.host.capture import StoreRecorder
from app.host.events import Done, Queued, Token, TurnEvent
from app.host.jobs import Job, Recorder
from app.host.runtime import Runtime
from app.model.renderer import Turn
from store import ids
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.items import Item
from store.types import MessageStatus, Role

log = logging.getLogger("mynah.host")


@dataclass
class GuardedRecorder:
    """Keeps a reply as its guards leave it, with what they found."""

    inner: Recorder
    guards: Sequence[Item]
    retries: int = 0
    judged: Judged | None = None

    @property
    def conversation(self) -> str | None:
        return self.inner.conversation

    @property
    def user_message(self) -> str | None:
        return self.inner.user_message

    def begin(self, store: Store, start: ReplyStart) -> str | None:
        """Open the reply's row."""
        return self.inner.begin(store, start)

    def checkpoint(self, store: Store, text: str) -> None:
        """Save the text so far."""
        self.inner.checkpoint(store, text)

    def finish(self, store: Store, end: ReplyEnd) -> None:
        """Check the reply, unless it was stopped or failed, and close its row."""
        if end.status is MessageStatus.COMPLETE:
            self.judged = guards.judge(self.guards, end.text)
            found = [finding.record(self.retries) for finding in self.judged.findings]
            end = replace(end, text=self.judged.text, guards=found)
        self.inner.finish(store, end)


class GuardedTurn:
    """The events of one turn on their way to who asked. Its methods are called in the engine's thread."""

    def __init__(
        self,
        runtime: Runtime,
        submit: Callable[[Job], None],
        turns: Sequence[Turn],
        reserve: int,
        most_retries: int,
    ) -> None:
        self._runtime = runtime
        self._submit = submit
        self._turns = turns
        self._reserve = reserve
        self._most = most_retries
        self._sink: Callable[[TurnEvent], None] = lambda _event: None
        self._job: Job | None = None

    def over(self, job: Job, holding: Sequence[Item]) -> Job:
        """A job whose reply goes through guards."""
        self._sink = job.sink
        self._job = replace(job, sink=self._hear, recorder=GuardedRecorder(job.recorder, holding))
        return self._job

    def _hear(self, event: TurnEvent) -> None:
        if isinstance(event, Token):
            return
        if isinstance(event, Done):
            self._done(event)
        elif not isinstance(event, Queued) or not self._recorder.retries:
            # Who asked has heard of the first place in the queue; each attempt has a row of its own.
            self._sink(event)

    @property
    def _recorder(self) -> GuardedRecorder:
        assert self._job is not None
        assert isinstance(self._job.recorder, GuardedRecorder)
        return self._job.recorder

    def _done(self, done: Done) -> None:
        judged = self._recorder.judged
        violations = [] if judged is None else judged.violations
        if judged is not None and violations and self._recorder.retries < self._most and self._again(judged):
            return
        text = done.text if judged is None else judged.text
        notes = [guards.note(violations)] if violations else []
        if text:
            self._sink(Token(text))
        self._sink(replace(done, text=text, notes=notes))

    def _again(self, judged: Judged) -> bool:
        """Ask once more, with what is wrong; False where that cannot be."""
        assert self._job is not None
        before, recorder = self._job, self._recorder
        if before.cancelled.is_set():
            return False
        told = [*self._turns, *asked_again(judged)]
        try:
            fitted = self._runtime.fit(told, self._reserve)
            self._job = replace(
                before,
                id=ids.new_id("j"),
                prompt=fitted.tokens,
                max_tokens=min(before.max_tokens, self._runtime.info.context - len(fitted.tokens)),
                left_out=fitted.left_out,
                message=None,
                recorder=GuardedRecorder(_anew(recorder.inner), recorder.guards, recorder.retries + 1),
            )
        except Exception:
            log.exception("a reply could not be asked for again")
            return False
        self._submit(self._job)
        return True


def asked_again(judged: Judged) -> list[Turn]:
    """What is said after a question for another answer to it: the one before, and what is wrong with that."""
    return [Turn(Role.ASSISTANT, judged.text), Turn(Role.USER, guards.request(judged.violations))]


def _anew(recorder: Recorder) -> Recorder:
    """A recorder for another reply to the same message."""
    if isinstance(recorder, StoreRecorder):
        return StoreRecorder(recorder.conversation, recorder.user_message, instead_of=recorder.reply)
    return recorder
