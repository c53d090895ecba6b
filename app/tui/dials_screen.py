"""What one conversation may be used for: three dials, each turned by one key, with what that means beside it."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.tui import wording
from app.tui.background import Background
from app.tui.ports import ChatService
from store.errors import MynahError
from store.types import Consent, Dial

MEANING: dict[Dial, tuple[str, str, str]] = {
    Dial.HISTORY: (
        "History",
        "kept, listed and found",
        "not listed and not found; deleted some time after its last message",
    ),
    Dial.MEMORY: ("Memory", "other conversations may be told of it", "no other conversation hears of it"),
    Dial.TRAIN: ("Learning", "what you rate here is learned", "nothing here is ever learned"),
}
"""Each dial's name, and what it means when it is on and off."""


class DialsScreen(ModalScreen[None]):
    """The dials of a conversation."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+c", "dismiss", "back", key_display="Esc"),
        Binding("space", "turn", "turn", show=False),
    ]

    def __init__(self, service: ChatService, conversation: str, title: str) -> None:
        super().__init__()
        self._service = service
        self._conversation = conversation
        self._title = title
        self._background = Background(self)
        self._dials: dict[Dial, Consent] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet small") as sheet:
            sheet.border_title = "Privacy"
            sheet.border_subtitle = "Enter turns · Esc back"
            yield Static(Content(" ".join(self._title.split())), classes="explanation", markup=False)
            yield OptionList(markup=False, compact=True)
            yield Static("", classes="explanation remark", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self._background.call(lambda: self._service.consent(self._conversation), self._show, self._refused)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_turn()

    def action_turn(self) -> None:
        """Turn the highlighted dial."""
        place = self.query_one(OptionList).highlighted
        if place is None or not self._dials:
            return
        dial = list(Dial)[place]
        value = Consent.DENY if self._dials[dial] is Consent.ALLOW else Consent.ALLOW
        self._background.call(
            lambda: self._service.set_consent(self._conversation, dial, value), self._turned, self._refused
        )

    def _turned(self, change: Any) -> None:
        self._say(consequences(change))
        self._show(change.dials)

    def _show(self, dials: dict[Dial, Consent]) -> None:
        self._dials = dials
        listing = self.query_one(OptionList)
        kept = listing.highlighted or 0
        listing.clear_options()
        listing.add_options([Option(row(dial, dials[dial]), id=dial) for dial in Dial])
        listing.highlighted = kept

    def _say(self, line: str) -> None:
        self.query_one(".remark", Static).update(Content(line))

    def _refused(self, error: MynahError) -> None:
        self._say(str(error))


def row(dial: Dial, value: Consent) -> Content:
    """A dial on two lines."""
    name, allowed, denied = MEANING[dial]
    on = value is Consent.ALLOW
    mark = ("● on ", "$text-success") if on else ("○ off", "$text-warning")
    return Content.assemble(
        (f"{name:<10}", "bold"), mark, "\n", (f"  {allowed if on else denied}", wording.MUTED)
    )


def consequences(change: Any) -> str:
    """What turning a dial came to, beyond the dial itself."""
    parts = []
    if change.along:
        parts.append(f"{' and '.join(MEANING[dial][0] for dial in change.along)} went off with it.")
    if change.refused:
        parts.append(f"{_lessons(change.refused)} that waited will not be learned.")
    if change.queued:
        parts.append(f"{_lessons(change.queued)} wait again.")
    if change.taught:
        versions = "one version has" if len(change.taught) == 1 else f"{len(change.taught)} versions have"
        parts.append(
            f"{versions.capitalize()} learned from it before: deleting the conversation takes that back."
        )
    return " ".join(parts)


def _lessons(number: int) -> str:
    return "One lesson" if number == 1 else f"{number} lessons"
