"""What Mynah knows of itself, on one page: what it is bad at, what it is trying, whether that worked.

The page shows counts and what was decided, never a sentence of the model's about itself. What waits for the owner's
word stands on top, because it is the only thing here that waits for anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from app.tui.background import Background
from app.tui.pages import Line, Look, Page, line
from app.tui.ports import ChatService
from store.errors import MynahError
from store.selfview import CAME_OF, Calibration, SelfView, Trial, Weakness
from store.steering import Done

_SHOWN = 12
_MUTED = "$text-muted"


class SelfScreen(ModalScreen[None]):
    """The agent's view of itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+c", "dismiss", "back", key_display="Esc"),
        Binding("a", "approve", "approve what waits"),
        Binding("d", "decline", "decline what waits"),
        Binding("z", "freeze", "freeze, or let changes be made again"),
    ]

    def __init__(self, service: ChatService) -> None:
        super().__init__()
        self._service = service
        self._background = Background(self)
        self._view: SelfView | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet") as sheet:
            sheet.border_title = "What I know of myself"
            sheet.border_subtitle = "A approve · D decline · Z freeze · Esc back"
            yield Page()

    def on_mount(self) -> None:
        self.query_one(Page).focus()
        self._load()

    def action_approve(self) -> None:
        """Agree to what waits longest."""
        self._answer(self._service.approve)

    def action_decline(self) -> None:
        """Say no to what waits longest."""
        self._answer(self._service.decline)

    def action_freeze(self) -> None:
        """Let nothing be changed by itself, or again."""
        if self._view is None:
            return
        on = not self._view.frozen
        self._background.call(lambda: self._service.freeze(on), lambda _: self._load(), self._refused)

    def _answer(self, give: Any) -> None:
        waiting = self._view.waiting if self._view is not None else []
        if not waiting:
            self.notify("Nothing waits for your word", timeout=3)
            return
        decision = waiting[-1].decision
        self._background.call(lambda: give(decision), self._done, self._refused)

    def _done(self, done: Done) -> None:
        self.notify(done.said, timeout=4, markup=False)
        self._load()

    def _load(self) -> None:
        self._background.call(self._service.self_view, self._show, self._refused)

    def _show(self, view: SelfView) -> None:
        self._view = view
        self.query_one(Page).show(list(lines(view)))

    def _refused(self, error: MynahError) -> None:
        self.notify(str(error), severity="warning", markup=False)


def lines(view: SelfView) -> Iterator[Line]:
    """The page."""
    if view.frozen:
        yield line(
            Look.NOTE, ("Frozen: nothing is changed by itself. Z lets changes be made again.", "$warning")
        )
    for trial in view.waiting:
        yield line(Look.NOTE, ("Waits for you: ", "$accent"), f"{trial.knob} against {trial.what}")
        if trial.says is not None:
            yield line(Look.DETAIL, f"“{trial.says}”")
        yield line(Look.DETAIL, (f"decision {trial.decision}; A approves, D declines", _MUTED))
    yield line(Look.HEADING, "What I am bad at")
    if not view.weaknesses:
        yield line(Look.TEXT, f"Nothing I know of, in {view.steps} replies.")
    for weakness in view.weaknesses:
        yield from _weakness(weakness)
    yield line(Look.HEADING, "What I have tried")
    if not view.trials:
        yield line(Look.TEXT, "Nothing yet.")
    for trial in view.trials[:_SHOWN]:
        yield from _trial(trial)
    if view.calibration:
        yield line(Look.HEADING, "How well I foresee what helps")
    for each in view.calibration:
        yield _calibration(each)
    yield line(Look.HEADING, "What does not count")
    faults = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in view.excluded.items())
    yield line(Look.TEXT, faults or "Nothing: every reply so far says something about me.")
    if view.resting:
        yield line(Look.NOTE, f"Resting after changes that went wrong: {', '.join(view.resting)}")


def _weakness(weakness: Weakness) -> Iterator[Line]:
    low, high = weakness.count.interval
    yield line(Look.ITEM, weakness.what)
    counted = f"{weakness.count.failures} of {weakness.count.steps} replies, {low:.0%} to {high:.0%}"
    yield line(Look.DETAIL, (counted, _MUTED))
    yield line(Look.DETAIL, weakness.plan)


def _trial(trial: Trial) -> Iterator[Line]:
    yield line(Look.ITEM, f"{trial.knob} against {trial.what}: ", (CAME_OF[trial.stage], "bold"))
    if trial.says is not None:
        yield line(Look.DETAIL, f"“{trial.says}”")
    seen = ""
    if trial.before is not None and trial.after is not None:
        seen = f"before {_rate(trial.before)}, with it {_rate(trial.after)}; "
    yield line(Look.DETAIL, (f"{seen}mynah why {trial.decision}", _MUTED))


def _rate(count: dict[str, Any]) -> str:
    return (
        f"{count['failures']:.0f} of {count['steps']:.0f} failed ({count['low']:.0%} to {count['high']:.0%})"
    )


def _calibration(each: Calibration) -> Line:
    did = round(each.helped * each.trials)
    return line(
        Look.TEXT,
        f"{each.knob}: expected to help {each.expected:.0%} of the time, {did} of {each.trials} did",
    )
