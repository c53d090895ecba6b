"""What the owner does to a reply, and to what was learned from it: rate, correct, copy, learn, roll back.

All of it is a short transaction on the store, done off the UI loop, followed by one quiet confirmation. Nothing
asks "are you sure": whatever is done here can be taken back with one key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from textual.screen import Screen

from app.service import Receipt
from app.tui import wording
from app.tui.background import Background
from app.tui.choice_bar import Choice, ChoiceBar
from app.tui.correction import CorrectionDialog
from app.tui.dialogs import LineDialog
from app.tui.ports import ChatService
from app.tui.transcript import ReplyView
from store.adapters import Adapter, Serving
from store.errors import MynahError
from store.reasons import REASONS, Reason
from store.runs import Run
from store.types import RunState

T = TypeVar("T")


class Teaching:
    """The commands of one chat screen that concern learning. ``changed`` is called when a meta line may differ."""

    def __init__(
        self,
        screen: Screen[None],
        service: ChatService,
        background: Background,
        changed: Callable[[], None],
        serving_chosen: Callable[[Serving], None],
    ) -> None:
        self._screen = screen
        self._service = service
        self._background = background
        self._changed = changed
        self._serving_chosen = serving_chosen

    def good(self, view: ReplyView) -> None:
        """Thumb up, or take it back when it is up already."""
        entry = view.entry
        if entry is None:
            return
        value = 0 if entry.rating == 1 else 1
        self._rate(entry.message.id, value, "Rated good" if value else "Rating taken back")

    def bad(self, view: ReplyView) -> None:
        """Thumb down at once, then a line that asks why; or take it back when it is down already."""
        entry = view.entry
        if entry is None:
            return
        message = entry.message.id
        if entry.rating == -1:
            self._rate(message, 0, "Rating taken back")
            return
        self._rate(message, -1, None)
        choices = [
            Choice(text.key, text.label, partial(self._give_reason, view, reason))
            for reason, text in REASONS.items()
        ]
        self._bar.ask("Not good. Why?", choices)

    def correct(self, view: ReplyView) -> None:
        """Open the reply in an editor; what is saved is how it should have been."""
        entry = view.entry
        if entry is None:
            return

        def save(text: str | None) -> None:
            if text is not None:
                self._call(
                    lambda: self._service.correct(entry.message.id, text),
                    partial(self._received, "Correction saved"),
                )

        self._screen.app.push_screen(CorrectionDialog(entry.message.text), save)

    def story(self, view: ReplyView) -> None:
        """Open everything that is known of what became of a reply."""
        from app.tui.story_screen import StoryScreen

        if view.entry is not None:
            self._screen.app.push_screen(StoryScreen(self._service, view.entry.message.id, self._changed))

    def learn_now(self) -> None:
        """Ask for a learning run."""

        def asked(run: Run) -> None:
            if run.state is not RunState.DONE:
                self._tell("Learning starts. Keep chatting: it waits for you at every step.")

        self._background.beside(self._service.learn_now, asked, self._refused)

    def rollback(self) -> None:
        """Go back one version, and offer to take that back."""
        self._call(self._service.rollback, self._rolled_back)

    def _rolled_back(self, result: tuple[Adapter, Serving]) -> None:
        taken_back, serving = result
        self._serving_chosen(serving)
        self._bar.ask(
            f"Back on {wording.serving_name(serving)}; v{taken_back.version} is set aside.",
            [Choice("u", f"undo, use v{taken_back.version}", partial(self._use, taken_back))],
        )

    def _use(self, adapter: Adapter) -> None:
        def used(serving: Serving) -> None:
            self._serving_chosen(serving)
            self._tell(f"v{adapter.version} answers again")

        self._call(lambda: self._service.use(adapter.id), used)

    def _give_reason(self, view: ReplyView, reason: Reason) -> None:
        entry = view.entry
        if entry is None:
            return
        message = entry.message.id
        if reason is not Reason.OWN_WORDS:
            label = REASONS[reason].label
            self._call(
                lambda: self._service.rate(message, -1, reason=reason),
                partial(self._received, f"Noted: {label}"),
            )
            return

        def say(note: str | None) -> None:
            if note is not None:
                self._call(
                    lambda: self._service.rate(message, -1, reason=reason, note=note),
                    partial(self._received, "Noted"),
                )

        self._screen.app.push_screen(
            LineDialog("What should be different?", "", "One sentence, such as: Answer in plain words."), say
        )

    def _rate(self, message: str, value: int, confirmation: str | None) -> None:
        self._call(lambda: self._service.rate(message, value), partial(self._received, confirmation))

    def _received(self, confirmation: str | None, receipt: Receipt) -> None:
        if confirmation is not None:
            fate = f" · {receipt.fate.text}" if receipt.fate is not None else ""
            self._tell(confirmation + fate)
        self._changed()

    def _call(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._background.call(work, then, self._refused)

    def _refused(self, error: MynahError) -> None:
        self._screen.notify(str(error), severity="warning", markup=False)

    def _tell(self, line: str) -> None:
        self._screen.notify(line, timeout=3, markup=False)

    @property
    def _bar(self) -> ChoiceBar:
        return self._screen.query_one(ChoiceBar)
