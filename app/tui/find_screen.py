"""Finding any message again: words and filters above, hits below, and the chosen one in its surroundings beside.

The search runs off the UI loop a moment after the last key; an answer to a question that was typed on meanwhile is
dropped. What is shown beside a hit is read for that hit alone, so ten thousand conversations cost what one does.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.service import ThreadMessage
from app.tui import wording
from app.tui.background import Background
from app.tui.pages import Line, Look, Page, line
from app.tui.ports import ChatService
from store import finding
from store.errors import MynahError
from store.search import Hit
from store.types import Role

LIMIT = 100
PAUSE = 0.15
ROOMY = 90
SHOWN = 4000
HINT = "rated:down  corrected:yes  used:v3  fate:queued  tag:work  since:7d  before:2026-11-01  in:archived"


class HitList(OptionList):
    """The hits; up from the first one goes back to the words."""

    def on_key(self, event: events.Key) -> None:
        if event.key == "up" and self.highlighted in (0, None):
            event.stop()
            event.prevent_default()
            self.screen.query_one(Input).focus()


class FindScreen(ModalScreen[Hit | None]):
    """Resolves to the hit to go to, or to None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c,ctrl+f", "dismiss(None)", "back", key_display="Esc", priority=True),
        Binding("down", "to_list", show=False),
    ]

    def __init__(self, service: ChatService, text: str = "") -> None:
        super().__init__()
        self._service = service
        self._text = text
        self._background = Background(self)
        self._hits: list[Hit] = []
        self._pause: Timer | None = None
        self._shown = ""
        self._go_there = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet find") as sheet:
            sheet.border_title = "Find in all conversations"
            sheet.border_subtitle = "Enter goes there · Esc back"
            yield Input(self._text, placeholder="words and filters", compact=True, select_on_focus=False)
            yield Static(HINT, classes="explanation", markup=False)
            with Horizontal():
                yield HitList(markup=False, compact=True)
                yield Page()

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self.query_one(Page).can_focus = False
        if self._text:
            self._seek()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < ROOMY, "-narrow")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if self._pause is not None:
            self._pause.stop()
        self._go_there = False
        self._pause = self.set_timer(PAUSE, self._seek)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._pause is not None:
            self._pause.stop()
        if self._hits and self._shown == event.value.strip():
            self.action_to_list()
        else:
            # The hits are of other words, typed a moment ago: look first, then go there.
            self._go_there = True
            self._seek()

    def action_to_list(self) -> None:
        if self._hits:
            self.query_one(HitList).focus()

    def _seek(self) -> None:
        text = self.query_one(Input).value.strip()
        if not text:
            self._show("", [])
            return
        self._background.call(
            lambda: self._service.find(text, LIMIT + 1),
            lambda hits: self._show(text, hits),
            lambda error: self._refused(text, error),
        )

    def _show(self, text: str, hits: list[Hit]) -> None:
        if text != self.query_one(Input).value.strip():
            return
        self._hits, self._shown = hits[:LIMIT], text
        words = finding.parse(text).words if text else ""
        listing = self.query_one(HitList)
        listing.clear_options()
        listing.add_options(
            [Option(hit_row(hit, words), id=str(place)) for place, hit in enumerate(self._hits)]
        )
        if self._hits:
            listing.highlighted = 0
            if self._go_there:
                self.action_to_list()
        else:
            self.query_one(Page).show([])
        self._say(HINT if not text else found(len(hits)))

    def _refused(self, text: str, error: MynahError) -> None:
        if text == self.query_one(Input).value.strip():
            self._say(str(error))

    def _say(self, text: str) -> None:
        self.query_one(".explanation", Static).update(Content(text))

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        hit = self._hits[event.option_index]
        self._background.call(
            lambda: self._around(hit), lambda lines: self._preview(hit, lines), lambda _: None
        )

    def _around(self, hit: Hit) -> list[Line]:
        """The question and the reply of a hit, and what became of it."""
        shown = self._service.message(hit.message)
        if shown.message.role is Role.USER:
            reply = self._service.reply_to(hit.message)
            return context(hit, shown, self._service.message(reply) if reply else None)
        parent = shown.message.parent
        return context(hit, self._service.message(parent) if parent else None, shown)

    def _preview(self, hit: Hit, lines: list[Line]) -> None:
        place = self.query_one(HitList).highlighted
        if place is not None and place < len(self._hits) and self._hits[place] is hit:
            self.query_one(Page).show(lines)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._hits[event.option_index])


def found(number: int) -> str:
    """How much was found."""
    if not number:
        return "Nothing found. Fewer words or another filter may find it."
    if number > LIMIT:
        return f"More than {LIMIT} found, the newest are shown: another word narrows it."
    return "1 found" if number == 1 else f"{number} found"


def hit_row(hit: Hit, words: str) -> Content:
    """A hit in the list, on two lines."""
    by = "you" if hit.role is Role.USER else "mynah"
    title = " ".join(hit.title.split())
    first = Content.assemble((title, "bold"), (f"  {by}, {wording.ago(hit.created)}", wording.MUTED))
    return first + Content("\n  ") + marked(hit.excerpt, words)


def marked(text: str, words: str) -> Content:
    """A text with the words that were looked for in it set off."""
    at = text.casefold().find(words.casefold()) if words else -1
    if at < 0 or len(text.casefold()) != len(text):
        return Content(text)
    end = at + len(words)
    return Content.assemble(text[:at], (text[at:end], "bold $text-accent"), text[end:])


def context(hit: Hit, question: ThreadMessage | None, reply: ThreadMessage | None) -> list[Line]:
    """A hit with what it answered."""
    lines = [line(Look.NOTE, f"{' '.join(hit.title.split())} · {wording.ago(hit.created)}")]
    if question is not None:
        lines += [line(Look.HEADING, "You"), line(Look.TEXT, question.message.text[:SHOWN])]
    if reply is not None:
        lines += [
            line(Look.HEADING, "Mynah"),
            line(Look.TEXT, reply.message.text[:SHOWN]),
            Line(Look.NOTE, wording.meta_line(reply)),
        ]
    return lines
