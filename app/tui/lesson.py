"""The first lesson: ask, correct, let it learn, see the change, take it back, in two minutes and with the real thing.

Nothing is played. The lesson only looks at what the chat sees anyway (what waits, what runs, which version answers)
and says on one line what comes next; every key on that line is the one that does the same on any other day. So it
can be left at any moment and taken up where things stand, it never takes the focus, and whatever is done meanwhile
counts. Two corrections are the fewest that a run accepts: one to learn from, one to test on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from textual.content import Content
from textual.widgets import Static

from app.service import Snapshot, ThreadMessage
from app.tui import wording
from store.types import MessageStatus, Role, RunOutcome, RunState, UnitKind

NEEDED = 2
QUESTIONS = ("What should I do this evening?", "What should I eat today?")
EXAMPLE = "Ahoy! Read a good book. Aye!"
STEPS = 3


class Part(StrEnum):
    """What comes next."""

    ASK = "ask"
    CORRECT = "correct"
    LEARN = "learn"
    WAIT = "wait"
    REFUSED = "refused"
    FAILED = "failed"
    SEE = "see"
    TAKE_BACK = "take back"
    OVER = "over"


_STEP = {
    Part.ASK: 1,
    Part.CORRECT: 1,
    Part.LEARN: 2,
    Part.WAIT: 2,
    Part.REFUSED: 2,
    Part.FAILED: 2,
    Part.SEE: 3,
    Part.TAKE_BACK: 3,
    Part.OVER: 3,
}


@dataclass
class Lesson:
    """What happened in one lesson. ``before`` is the run that was the last one when it began."""

    before: str | None
    run: str | None = None
    tried: int = 0
    learned: str | None = None

    def part(self, now: Snapshot, reply: ThreadMessage | None) -> Part:
        """What comes next, with ``reply`` at the end of the open conversation."""
        self._follow(now)
        if self.learned is not None:
            serving = now.serving.adapter
            if serving is None or serving.id != self.learned:
                return Part.OVER
            answered = reply is not None and reply.message.adapter == self.learned
            return Part.TAKE_BACK if answered else Part.SEE
        waiting, last = len(now.learning.waiting), now.learning.last
        if now.learning.run is not None:
            return Part.WAIT
        if self.run is not None and waiting <= self.tried and last is not None:
            return Part.FAILED if last.state is RunState.FAILED else Part.REFUSED
        if waiting >= NEEDED:
            return Part.LEARN
        return Part.CORRECT if _to_correct(reply) else Part.ASK

    def _follow(self, now: Snapshot) -> None:
        """Notice the end of a run that began in the lesson."""
        last = now.learning.last
        if last is None or last.id in (self.before, self.run) or now.learning.run is not None:
            return
        if last.outcome is RunOutcome.NOTHING_TO_LEARN:
            # Asked for too early: the notice says so, and the step stays the same.
            self.before = last.id
            return
        self.run, self.tried = last.id, len(now.learning.waiting)
        if last.outcome is RunOutcome.PROMOTED and now.serving.adapter is not None:
            self.learned = now.serving.adapter.id


def _to_correct(reply: ThreadMessage | None) -> bool:
    """Whether a reply could be taught from and is not yet."""
    return (
        reply is not None
        and reply.message.role is Role.ASSISTANT
        and reply.message.status is not MessageStatus.GENERATING
        and reply.fate is None
    )


def words(part: Part, now: Snapshot, key: Callable[[str], str]) -> str:
    """What the line says. ``key`` tells what a command's key is called."""
    waiting = len(now.learning.waiting)
    corrected = any(unit.kind is UnitKind.CORRECTION for unit in now.learning.waiting)
    match part:
        case Part.ASK if not waiting:
            return "Ask the question below, or one of your own. Enter sends it."
        case Part.ASK:
            return "Now another question: what one lesson taught is tested on the other."
        case Part.CORRECT if not corrected:
            return (
                f"{key('correct')} opens the reply: F7 marks all of it, write your own, ^S saves. "
                f"Make it short and give it a manner, such as “{EXAMPLE}”"
            )
        case Part.CORRECT:
            return f"{key('correct')} once more: correct this one in the same manner."
        case Part.LEARN:
            said = "wrote" if corrected else "rated"
            return f"{key('learn')} lets it learn from what you {said}. That takes a minute or two."
        case Part.WAIT:
            return f"{_progress(now)}. You may chat on meanwhile: it gives way."
        case Part.REFUSED:
            more = (
                "One more correction in the same manner"
                if corrected
                else f"Correct a reply ({key('correct')})"
            )
            return f"{_summary(now)}, so nothing changed. {more}, and {key('learn')}."
        case Part.FAILED:
            return f"The run failed, and nothing is lost. {key('learn')} tries again."
        case Part.SEE:
            return f"{_version(now)} answers now. {key('again')} asks the last question again."
        case Part.TAKE_BACK:
            return f"That was {_version(now)}; ← and → show the answer before. {key('undo-learning')} takes it back."
        case Part.OVER:
            return (
                "That was all: it learns your way, and you can always go back. U below brings the version back, "
                "/forget throws this conversation away with what it taught."
            )


def _progress(now: Snapshot) -> str:
    run = now.learning.run
    if run is None:
        return "Learning"
    left = wording.remaining(run, now.learning.usual)
    doing = wording.run_progress(run).capitalize()
    return doing if left is None else f"{doing}, {wording.duration(left)} left"


def _summary(now: Snapshot) -> str:
    last = now.learning.last
    return str((last.result.get("gate") or {}).get("summary") if last else "") or "It did not pass its test"


def _version(now: Snapshot) -> str:
    return wording.version_name(now.serving.adapter.version if now.serving.adapter else None)


class LessonLine(Static):
    """The line above the composer while a lesson goes on. It is only looked at."""

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.display = False
        self.part: Part | None = None

    def show(self, part: Part, text: str) -> None:
        """Say what comes next."""
        self.display, self.part = True, part
        self.update(
            Content.assemble(
                (f"Lesson, {_STEP[part]} of {STEPS}  ", "bold $primary"),
                text,
                ("  Esc leaves the lesson" if part is not Part.OVER else "  Esc closes this", wording.MUTED),
            )
        )

    def hide(self) -> None:
        """The lesson is over, or left."""
        self.display, self.part = False, None
