"""What was left out of a long conversation, told in short: made when nobody waits, and only in this process's memory.

A summary takes the place of the turns that do not fit the window any more, where the owner wants that. It is made after
a reply, by the base model, behind everything else that is asked, and gives way within a token like anything that
nobody waits for; a question never waits for one, and is answered without where there is none yet. It is nobody's reply:
no row holds it, so it cannot be rated, exported or learned from, and when something is forgotten all are dropped. What
the model is told of it is in the recorded prompt of the reply, and how many turns it stood for is announced.

Each is found by the text of exactly the turns it stands for, so a branch, an edit or a message that was forgotten never
gets another's. A longer one is made of the one before and of what was left out since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.host.capture import Incognito
from app.host.events import Done, Failed, TurnEvent
from app.host.jobs import Job, Priority, Sampling, Serve
from app.host.runtime import Runtime
from app.model.renderer import Fitted, Turn
from store import forgetting, ids
from store.conversations import path_hash
from store.db import Store
from store.errors import ContextOverflow
from store.types import Role

MOST = 64
"""Summaries that are kept; each is of some hundred characters."""

LONGEST = 160
"""Tokens of a summary."""

_QUOTED = 2000
"""Characters of one message that are summarised: of a longer one its beginning and its end."""

TOLD = (
    "What was said earlier in this conversation and is not shown any more, in short (it may be inexact):\n{}"
)
_BEFORE = "The conversation so far, in short:\n{}\n\n"
_ASKED = (
    "{}It goes on like this:\n\n{}\n\nTell the whole conversation in short, in at most 100 words: what it is about, "
    "names, numbers, wishes and decisions. Write nothing else."
)
_NAMES = {Role.USER: "User", Role.ASSISTANT: "Assistant"}


@dataclass(frozen=True)
class Summary:
    """``turns``: how many turns from the beginning on it stands for."""

    text: str
    turns: int


@dataclass(frozen=True)
class Prompt:
    """A prompt that fits, and how many of the turns that were left out it tells of in short."""

    fitted: Fitted
    summarised: int = 0


class Summaries:
    """All summaries of one host. For the thread that has the server's database connection, but for `afterwards`' sinks.

    ``submit`` queues a job; ``later`` runs something in that thread.
    """

    def __init__(
        self,
        runtime: Runtime,
        submit: Callable[[Job], None],
        later: Callable[[Callable[[Store], object]], object],
    ) -> None:
        self._runtime = runtime
        self._submit = submit
        self._later = later
        self._known: OrderedDict[str, Summary] = OrderedDict()
        self._making = False
        self._forgotten: str | None = None

    def told(self, store: Store, turns: Sequence[Turn], reserve: int, fitted: Fitted) -> Prompt:
        """The prompt with the summary of what was left out, where there is one; else as it is."""
        self._forget_what_is_gone(store)
        rest = [turn for turn in turns if turn.role is not Role.SYSTEM]
        for summary in self._of([*fitted.dropped, *fitted.turns[1:]]):
            system = Turn(Role.SYSTEM, f"{fitted.turns[0].content}\n\n{TOLD.format(summary.text)}")
            try:
                shorter = self._runtime.fit([system, *rest], reserve)
            except ContextOverflow:
                # The last message alone fills the window.
                continue
            if shorter.left_out >= summary.turns:
                return Prompt(shorter, summary.turns)
        return Prompt(fitted)

    def afterwards(
        self, dropped: Sequence[Turn], sink: Callable[[TurnEvent], None]
    ) -> Callable[[TurnEvent], None]:
        """A sink that has a summary made of what was left out, once the reply has ended."""

        def hear(event: TurnEvent) -> None:
            sink(event)
            if isinstance(event, Done):
                self._later(lambda store: self._make(store, dropped))

        return hear

    def _of(self, turns: Sequence[Turn]) -> list[Summary]:
        """The summaries of the first so many of these turns, the longest first."""
        return [self._known[key] for key in reversed(_keys(turns)) if key in self._known]

    def _make(self, store: Store, dropped: Sequence[Turn]) -> None:
        """Have the next summary made: one at a time, of as much as fits."""
        self._forget_what_is_gone(store)
        before = next(iter(self._of(dropped)), None)
        done = 0 if before is None else before.turns
        if self._making or done == len(dropped):
            return
        last, prompt = self._fitting(before, dropped)
        self._making = True
        forgotten = self._forgotten

        def made(store: Store, text: str | None) -> None:
            self._making = False
            self._forget_what_is_gone(store)
            if not text or self._forgotten != forgotten:
                return
            self._keep(dropped[:last], text)
            self._make(store, dropped)

        def hear(event: TurnEvent) -> None:
            if isinstance(event, Done | Failed):
                text = _whole(event.text) if isinstance(event, Done) else None
                self._later(lambda store: made(store, text))

        self._submit(
            Job(
                id=ids.new_id("j"),
                client="summaries",
                priority=Priority.BACKGROUND,
                prompt=prompt,
                sampling=Sampling(temperature=0.0),
                max_tokens=LONGEST,
                recorder=Incognito(),
                sink=hear,
                serve=Serve.BASE,
            )
        )

    def _fitting(self, before: Summary | None, dropped: Sequence[Turn]) -> tuple[int, Sequence[int]]:
        """The prompt for a summary of what there is and as many further turns as fit, one at least; and up to where."""
        start = 0 if before is None else before.turns
        intro = "" if before is None else _BEFORE.format(before.text)
        quotes = [f"{_NAMES.get(turn.role, turn.role.value)}: {_quoted(turn.content)}" for turn in dropped]
        for last in range(len(dropped), start, -1):
            asked = _ASKED.format(intro, "\n\n".join(quotes[start:last]))
            try:
                return last, self._runtime.fit([Turn(Role.USER, asked)], LONGEST).tokens
            except ContextOverflow:
                continue
        short = _ASKED.format(intro, quotes[start][: _QUOTED // 10])
        return start + 1, self._runtime.fit([Turn(Role.USER, short)], LONGEST).tokens

    def _keep(self, turns: Sequence[Turn], text: str) -> None:
        *_, key = _keys(turns)
        self._known[key] = Summary(text, len(turns))
        self._known.move_to_end(key)
        while len(self._known) > MOST:
            self._known.popitem(last=False)

    def _forget_what_is_gone(self, store: Store) -> None:
        moment = forgetting.latest(store)
        if moment != self._forgotten:
            self._forgotten = moment
            self._known.clear()


def _keys(turns: Sequence[Turn]) -> list[str]:
    """What the summaries of the first, the first two … of these turns are found by."""
    keys: list[str] = []
    for turn in turns:
        keys.append(path_hash(keys[-1] if keys else "", turn.role, turn.content))
    return keys


def _quoted(text: str) -> str:
    if len(text) <= _QUOTED:
        return text
    return f"{text[: _QUOTED // 2]} […] {text[-_QUOTED // 2 :]}"


def _whole(text: str) -> str:
    """A summary without the sentence in which it was cut, if it was."""
    text = text.strip()
    end = max(text.rfind(mark) for mark in ".!?。")
    return text[: end + 1] if end > len(text) // 2 else text
