"""The command palette: every command by any word of its name or description, with the key it has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.tui.chat_screen import ChatScreen
from app.tui.keys import Command
from app.tui.palette import THEMES


class ChatCommands(Provider):
    """The commands of the chat screen, and the themes."""

    async def discover(self) -> Hits:
        for command in self._commands:
            yield DiscoveryHit(_title(command), self._run(command), text=command.help, help=command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._commands:
            title = _title(command)
            score = max(matcher.match(title), matcher.match(command.help) * 0.9)
            if score > 0:
                yield Hit(score, matcher.highlight(title), self._run(command), text=title, help=command.help)
        for name in THEMES:
            title = f"theme {name}"
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), self._theme(name), text=title, help="colours")

    @property
    def _commands(self) -> list[Command]:
        screen = self.screen
        return list(screen.commands) if isinstance(screen, ChatScreen) else []

    def _run(self, command: Command) -> Callable[[], Awaitable[None]]:
        screen = self.screen
        assert isinstance(screen, ChatScreen)
        return partial(screen.perform, command)

    def _theme(self, name: str) -> Callable[[], None]:
        screen = self.screen
        assert isinstance(screen, ChatScreen)
        return partial(screen.action_theme, name)


def _title(command: Command) -> str:
    return f"{command.name} ({command.shown})" if command.shown else command.name
