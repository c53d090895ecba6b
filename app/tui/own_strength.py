"""Another strength for the open conversation: typed as a number, or `base` for the model as it was made and back.

The slider on the page of versions moves the strength everywhere; this is for one conversation, to compare, or to keep
what was learned out of it. What a reply was made with stands under it.
"""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import Screen

from app.tui.background import Background
from app.tui.ports import ChatService
from store.errors import MynahError

_BACK = ("default", "off", "unset")


class OwnStrength:
    """The two commands, for whichever conversation is open."""

    def __init__(
        self,
        screen: Screen[None],
        service: ChatService,
        background: Background,
        conversation: Callable[[], str | None],
    ) -> None:
        self._screen = screen
        self._service = service
        self._background = background
        self._conversation = conversation

    def choose(self, typed: str) -> None:
        """A number from 0 to 1 or in per cent, or a word that takes the choice back; nothing says what holds."""
        open_ = self._opened()
        if open_ is None:
            return
        if not typed:
            self._do(lambda: None, open_)
            return
        try:
            chosen = None if typed.lower() in _BACK else _strength(typed)
        except ValueError:
            self._tell("/strength takes a number from 0 (the base model) to 1, or the word default")
            return
        self._do(lambda: self._service.choose_strength(chosen, open_), open_)

    def base(self) -> None:
        """The base model answers here, or no longer."""
        open_ = self._opened()
        if open_ is None:
            return

        def turn() -> None:
            on_base = self._service.strength(open_) == 0.0
            self._service.choose_strength(None if on_base else 0.0, open_)

        self._do(turn, open_)

    def _do(self, work: Callable[[], None], conversation: str) -> None:
        def done() -> str:
            work()
            own, everywhere = self._service.strength(conversation), self._service.strength()
            return _said(own, everywhere)

        self._background.call(done, self._tell, self._refused)

    def _opened(self) -> str | None:
        conversation = self._conversation()
        if conversation is None:
            self._tell("There is no conversation yet")
        return conversation

    def _tell(self, line: str) -> None:
        self._screen.notify(line, timeout=4, markup=False)

    def _refused(self, error: MynahError) -> None:
        self._screen.notify(str(error), severity="warning", markup=False)


def _strength(typed: str) -> float:
    percent = typed.endswith("%")
    value = float(typed.removesuffix("%")) / (100.0 if percent else 1.0)
    if not 0.0 <= value <= 1.0:
        raise ValueError
    return value


def _said(own: float | None, everywhere: float | None) -> str:
    if own is None:
        return f"What was learned speaks here as everywhere ({everywhere:.0%})"
    if own == 0.0:
        return "The base model answers here, from the next reply on. /base again takes that back"
    return f"What was learned speaks here at {own:.0%}, from the next reply on. /strength default takes that back"
