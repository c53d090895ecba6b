"""One line of choices above the composer: a question that may be ignored.

It takes the focus because the key that opens it asked for it, and gives it back with the first key that is
not one of its choices, passing that key on, so that nobody who simply types on loses a letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget


@dataclass(frozen=True)
class Choice:
    """One key and what it stands for."""

    key: str
    label: str
    act: Callable[[], None]


class ChoiceBar(Widget, can_focus=True):
    """Shows a question and its choices; hidden while there is none."""

    GAP = 3

    @dataclass
    class Closed(Message):
        """The bar is done; ``passed_on`` is a key it had no use for."""

        passed_on: events.Key | None

    def __init__(self) -> None:
        super().__init__()
        self._question = ""
        self._choices: dict[str, Choice] = {}
        self.display = False

    def ask(self, question: str, choices: Sequence[Choice]) -> None:
        """Show a question, and do nothing when it is closed without a choice."""
        self._question = question
        self._choices = {choice.key: choice for choice in choices}
        self.display = True
        self.refresh(layout=True)
        self.focus()

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.content_size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def _lines(self, width: int) -> list[Content]:
        """The question and the choices, broken only between choices."""
        entries = [*((choice.key, choice.label) for choice in self._choices.values()), ("Esc", "leave it")]
        lines = [Content.styled(self._question, "bold")]
        for key, label in entries:
            entry = Content.assemble((key, "bold $accent"), " ", label)
            if lines[-1].cell_length + self.GAP + entry.cell_length > width:
                lines.append(entry)
            else:
                lines[-1] = lines[-1] + Content(" " * self.GAP) + entry
        return lines

    def on_key(self, event: events.Key) -> None:
        if not self.display:
            return
        choice = self._choices.get(event.character or event.key)
        if choice is not None:
            event.stop()
            self._close(None)
            choice.act()
        elif event.key == "escape":
            event.stop()
            self._close(None)
        elif event.is_printable or event.key in ("enter", "backspace"):
            event.stop()
            self._close(event)

    def on_blur(self) -> None:
        if self.display:
            self._close(None)

    def _close(self, passed_on: events.Key | None) -> None:
        self.display = False
        self._choices = {}
        self.post_message(self.Closed(passed_on))
