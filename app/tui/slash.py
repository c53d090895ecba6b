"""Commands that are typed: a slash, a name, for some an argument; with what fits shown while one types.

Whoever has to remember a key can read a list instead. Only a word that can be a command's name is taken for one, so
that a message which begins with a path (``/etc/hosts is…``) is sent as it is; any other text that begins with a
slash can be sent by writing a space before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.tui.composer import Composer
from app.tui.keys import Command
from app.tui.paths import complete

SHOWN = 8
_PATH = re.compile(r"/([a-z-]+) +(.*)")
_COMMAND = re.compile(r"/([a-z-]+)(?:\s+(.*))?", re.DOTALL)


class CommandList(Widget):
    """The commands that fit what was typed so far; it is only looked at."""

    def __init__(self) -> None:
        super().__init__()
        self._commands: Sequence[Command] = ()
        self._chosen = 0
        self._names: Sequence[str] = ()

    def show(self, commands: Sequence[Command], chosen: int) -> None:
        """Show these, one of them chosen; none hides the list."""
        self._commands, self._chosen, self._names = commands, chosen, ()
        self.display = bool(commands)
        self.refresh(layout=True)

    def show_names(self, names: Sequence[str]) -> None:
        """Show the names that a path could go on with; none hides the list."""
        self._commands, self._names = (), names
        self.display = bool(names)
        self.refresh(layout=True)

    def render(self) -> Content:
        first = max(0, min(self._chosen - SHOWN + 1, len(self._commands) - SHOWN))
        lines = [Content(name) for name in self._names[:SHOWN]]
        if len(self._names) > SHOWN:
            lines[-1] = Content(f"… and {len(self._names) - SHOWN + 1} more")
        for place, command in list(enumerate(self._commands))[first : first + SHOWN]:
            name = f"/{command.name} {command.argument}".strip().ljust(16)
            style = "bold $accent" if place == self._chosen else "$primary"
            keys = f"  {command.shown}" if command.shown else ""
            lines.append(Content.assemble((name, style), " ", command.help, (keys, "$text-muted")))
        return Content("\n").join(lines)


class CommandComposer(Composer):
    """A composer that knows commands by their names."""

    @dataclass
    class Given(Message):
        """A command was typed."""

        command: Command
        argument: str

    @dataclass
    class Unknown(Message):
        """What looks like a command and is none."""

        name: str

    @dataclass
    class Offered(Message):
        """The commands that fit, and which of them Enter and Tab mean."""

        commands: Sequence[Command]
        chosen: int

    @dataclass
    class Names(Message):
        """What the path that is being typed could go on with."""

        names: Sequence[str]

    def __init__(self, placeholder: str, commands: Callable[[], Sequence[Command]]) -> None:
        super().__init__(placeholder)
        self._commands = commands
        self._offers: list[Command] = []
        self._chosen = 0
        self._listed = False

    def on_text_area_changed(self) -> None:
        """Look again which commands fit."""
        text = self.text
        if self._listed:
            self._listed = False
            self.post_message(self.Names(()))
        offers: list[Command] = []
        if re.fullmatch(r"/[a-z-]*", text):
            word = text[1:]
            named = [each for each in self._commands() if each.name.startswith(word)]
            inside = [each for each in self._commands() if word in each.name and each not in named]
            offers = [*named, *inside]
        if offers != self._offers:
            self._offers, self._chosen = offers, 0
            self.post_message(self.Offered(offers, 0))

    async def _on_key(self, event: events.Key) -> None:
        if self._offers and event.key in ("tab", "up", "down", "escape"):
            event.stop()
            event.prevent_default()
            self._choose(event.key)
            return
        if event.key == "tab" and (typed := _PATH.fullmatch(self.text)) and self._takes_path(typed[1]):
            event.stop()
            event.prevent_default()
            self._complete(typed[1], typed[2])
            return
        await super()._on_key(event)

    def _takes_path(self, name: str) -> bool:
        return any(each.name == name and each.argument == "FILE" for each in self._commands())

    def _complete(self, name: str, path: str) -> None:
        completed = complete(path)
        if completed.text != path:
            self.put(f"/{name} {completed.text}")
        # Behind the change of the text, which takes an old list away.
        self.call_later(self._list, completed.names)

    def _list(self, names: Sequence[str]) -> None:
        self._listed = bool(names)
        self.post_message(self.Names(names))

    def _choose(self, key: str) -> None:
        if key == "tab":
            self.put(f"/{self._offers[self._chosen].name} ")
        elif key == "escape":
            self.put("")
        else:
            self._chosen = (self._chosen + (1 if key == "down" else -1)) % len(self._offers)
            self.post_message(self.Offered(self._offers, self._chosen))

    def submit(self) -> None:
        typed = _COMMAND.fullmatch(self.text.rstrip())
        if typed is None:
            super().submit()
            return
        name, argument = typed[1], (typed[2] or "").strip()
        command = next((each for each in self._commands() if each.name == name), None)
        if command is None and self._offers:
            command = self._offers[self._chosen]
        if command is None and not argument:
            self.post_message(self.Unknown(name))
        elif command is None:
            super().submit()
        else:
            self.put("")
            self.post_message(self.Given(command, argument))
