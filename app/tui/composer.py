"""The place to write. It never loses text: what was typed is cleared only once the message was accepted.

Enter sends. A newline is Ctrl+J everywhere, also Alt+Enter and, in terminals that can tell, Shift+Enter; Textual
8.2.8 reads Alt+Enter and xterm's long form of Shift+Enter as a plain Enter, so they are entered in its table. A
terminal without bracketed paste sends pasted lines as keys; a person cannot press another key within
``BURST`` seconds of Enter, so an Enter that is followed that closely is a newline of a paste.

A pasted line of a megabyte makes Textual wrap all of it again at each key (0.77 s per key). Pastes beyond
``FOLD`` characters therefore stand in the text as one short mark, and are written out when the message is sent.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import ClassVar, cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.binding import Binding, BindingType
from textual.keys import Keys
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea

BURST = 0.03
FOLD = 10_000
HISTORY = 200
PASTES = 64
NEWLINE = frozenset({"ctrl+j", "alt+enter", "shift+enter", "ctrl+enter"})
for _sequence in ("\x1b\r", "\x1b\n", "\x1b[27;2;13~", "\x1b[27;5;13~", "\x1b[27;3;13~"):
    cast("dict[str, object]", ANSI_SEQUENCES_KEYS)[_sequence] = (Keys.ControlJ,)

# Everything a terminal would act on, and no text needs: C0 without tab and newline, DEL, C1.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Pasted text with one kind of line end and without control characters."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


UNDO = "alt+z,ctrl+underscore"
"""In place of ^Z, which goes to the shell; the second one is Emacs's and readline's."""


class History:
    """What was sent before, and the draft the owner left to look at it."""

    def __init__(self) -> None:
        self._entries: list[str] = []
        self._position = 0
        self._draft = ""

    def replace(self, entries: list[str]) -> None:
        """Start over with the messages of another conversation, oldest first."""
        self._entries = entries[-HISTORY:]
        self._position = len(self._entries)

    @property
    def shown(self) -> str | None:
        """The entry that is shown, or None while the draft is."""
        return self._entries[self._position] if self._position < len(self._entries) else None

    def add(self, text: str) -> None:
        if not self._entries or self._entries[-1] != text:
            self._entries = [*self._entries, text][-HISTORY:]
        self._position = len(self._entries)
        self._draft = ""

    def older(self, current: str) -> str | None:
        """The entry before the shown one, or None at the oldest."""
        if self._position == 0:
            return None
        if self._position == len(self._entries):
            self._draft = current
        self._position -= 1
        return self._entries[self._position]

    def newer(self) -> str | None:
        """The entry after the shown one, at last the draft, or None when the draft is shown."""
        if self._position >= len(self._entries):
            return None
        self._position += 1
        return self._draft if self._position == len(self._entries) else self._entries[self._position]


class Composer(TextArea):
    """A text area that sends with Enter and grows to eight lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", "Stop or quit", show=False),
        Binding("tab,shift+tab", "pick", "Pick a reply", show=False),
        Binding(UNDO, "undo", "Undo", show=False),
    ]

    @dataclass
    class Submitted(Message):
        """The owner pressed Enter. Whoever takes ``text`` calls ``accept(raw)``. ``pasted``: what nobody typed."""

        composer: Composer
        text: str
        raw: str
        pasted: tuple[str, ...] = ()

    @dataclass
    class Interrupted(Message):
        """Ctrl+C with nothing selected."""

    @dataclass
    class SiblingAsked(Message):
        """Left or right in an empty composer."""

        step: int

    @dataclass
    class PageAsked(Message):
        """The owner wants to scroll what is above by so many pages."""

        step: int

    @dataclass
    class PickAsked(Message):
        """The owner wants to go to a reply."""

    def __init__(self, placeholder: str = "") -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder=placeholder,
        )
        self.sent = History()
        self._folded: dict[str, str] = {}
        # It comes back with the history, so it is known for as long as the composer is there.
        self._pasted: deque[str] = deque(maxlen=PASTES)
        self._pasted_here: list[str] = []
        self._enter: Timer | None = None
        self._entered = 0.0

    @property
    def message(self) -> str:
        """The text with every folded paste written out."""
        text = self.text
        for mark, pasted in self._folded.items():
            text = text.replace(mark, pasted)
        return text

    def accept(self, raw: str) -> None:
        """The message was taken: remember it, and keep only what was typed since."""
        self.sent.add(raw)
        self.put(self.text.removeprefix(raw) if self.text.startswith(raw) else "")

    def put(self, text: str) -> None:
        """Show ``text`` with the cursor at its end."""
        self._pasted_here = [each for each in self._pasted if each in text]
        self.load_text(self._fold(text) if len(text) > FOLD else text)
        self.move_cursor(self.document.end)

    def bring_back(self, text: str) -> None:
        """Show a text of earlier. Nobody knows any more what of it was typed, so that it counts as pasted."""
        self._note(text)
        self.put(text)

    def action_pick(self) -> None:
        self.post_message(self.PickAsked())

    def action_interrupt(self) -> None:
        if self.selected_text:
            self.app.copy_to_clipboard(self.selected_text)
        else:
            self.post_message(self.Interrupted())

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and self.cursor_location[0] == 0 and self.cursor_at_first_line:
            if self.cursor_location == (0, 0) or not self.text or self._browsing:
                self._show(self.sent.older(self.text))
                return
            self.move_cursor((0, 0))
            return
        super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if not select and self.cursor_at_last_line and (newer := self.sent.newer()) is not None:
            self._show(newer)
            return
        super().action_cursor_down(select)

    def action_cursor_page_up(self) -> None:
        self.post_message(self.PageAsked(-1))

    def action_cursor_page_down(self) -> None:
        self.post_message(self.PageAsked(1))

    def action_cursor_left(self, select: bool = False) -> None:
        if self.text or select:
            super().action_cursor_left(select)
        else:
            self.post_message(self.SiblingAsked(-1))

    def action_cursor_right(self, select: bool = False) -> None:
        if self.text or select:
            super().action_cursor_right(select)
        else:
            self.post_message(self.SiblingAsked(1))

    async def _on_key(self, event: events.Key) -> None:
        self._settle_enter(event)
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._entered = event.time
            self._enter = self.set_timer(BURST, self._enter_alone)
            return
        if event.key in NEWLINE:
            # Not a binding: those run after the key has bubbled up, when the letters behind it are already in.
            event.stop()
            event.prevent_default()
            self._replace_via_keyboard("\n", *self.selection)
            return
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        self._settle_enter(None)
        event.stop()
        event.prevent_default()
        text = clean(event.text)
        self._note(text)
        if len(text) > FOLD:
            text = self._fold(text)
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    @property
    def _browsing(self) -> bool:
        """Whether an entry of the history is shown unchanged, so that up goes on to the one before."""
        return self.sent.shown == self.text

    def _show(self, text: str | None) -> None:
        if text is not None:
            self.put(text)

    def _settle_enter(self, following: events.Key | None) -> None:
        """Decide a pending Enter by what follows it: close behind it was a paste, else the message is sent."""
        if self._enter is None:
            return
        self._enter.stop()
        self._enter = None
        if following is not None and following.time - self._entered < BURST:
            self.insert("\n")
        else:
            self.submit()

    def _enter_alone(self) -> None:
        self._enter = None
        self.submit()

    def submit(self) -> None:
        """Offer what is written to whoever sends it."""
        message = self.message
        if message.strip():
            # A paste that was changed cannot be told from what was typed around it.
            changed = any(each not in message for each in self._pasted_here)
            pasted = (message,) if changed else tuple(each for each in self._pasted if each in message)
            self.post_message(self.Submitted(self, message, self.text, pasted))

    def add(self, text: str, name: str | None = None) -> None:
        """Insert a text on lines of its own; one with a ``name`` stands as a mark until the message is sent."""
        column = self.cursor_location[1]
        before = "" if column == 0 else "\n"
        self._note(text)
        shown = text if name is None else self._mark(name, text)
        after = "" if name is None and text.endswith("\n") else "\n"
        self.insert(f"{before}{shown}{after}")

    def _note(self, text: str) -> None:
        """Know that a text was not typed; a single word of it may be typed as well."""
        if len(text.split()) > 1:
            self._pasted.append(text.strip())
            self._pasted_here.append(text.strip())

    def _fold(self, text: str) -> str:
        start = " ".join(text[:60].split())
        return self._mark(f"paste {len(self._folded) + 1}: {len(text):,} characters, “{start[:40]}…”", text)

    def _mark(self, label: str, text: str) -> str:
        mark = f"⟦{label}⟧"
        self._folded[mark] = text
        return mark
