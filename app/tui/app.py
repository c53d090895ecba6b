"""The terminal application: opens the chat screen and hands the terminal back. Everything else lives in screens.

`run` imports nothing that a first paint does not need: the screens behind keys are imported when they are opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any, ClassVar

from textual import on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.filter import LineFilter, NoColor

from app.tui import pasting
from app.tui.chat_screen import ChatScreen
from app.tui.keys import CHAT, CONVERSATION, chosen, misnamed
from app.tui.palette import CALM, THEMES, ThemeChosen
from app.tui.plain import PlainText
from app.tui.ports import ChatService
from app.tui.terminal import signals_leave_cleanly, taken
from store.errors import MynahError

FAULT = 1
"""What Textual sets when a handler raised."""


def _commands() -> type[Provider]:
    """What the palette finds, imported when it is opened."""
    from app.tui.find_command import ChatCommands

    return ChatCommands


class MynahApp(App[None]):
    """Mynah's chat."""

    TITLE = "Mynah"
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        Path(__file__).with_name(name) for name in ("mynah.tcss", "chat.tcss")
    ]
    COMMAND_PALETTE_BINDING = "ctrl+p"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_commands}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "quit", show=False),
        # Ahead of the text area, where it would take back what was typed: in a terminal ^Z is the shell's.
        Binding("ctrl+z", "suspend_process", "suspend", show=False, priority=True),
    ]

    def __init__(self, service: ChatService, conversation: str | None = None) -> None:
        super().__init__()
        self._service = service
        self._conversation = conversation
        self._plain = PlainText()
        for theme in THEMES.values():
            self.register_theme(theme)
        wanted = service.preferences()
        self.theme = THEMES.get(wanted.theme, CALM).name
        self._use_keys(wanted.keys)

    def _use_keys(self, keys: dict[str, str]) -> None:
        """The owner's own keys; a command that comes with none gets its first one here."""
        self._misnamed = misnamed(keys)
        wrong = {each.partition("=")[0] for each in self._misnamed}
        usable = {name: value for name, value in keys.items() if name not in wrong}
        self.set_keymap(usable)
        for command in (*CHAT, *CONVERSATION):
            if not command.keys and command.name in usable:
                self.bind(usable[command.name], command.action, show=False)

    def on_mount(self) -> None:
        # The shell has written over the screen meanwhile, and Textual sends only what changed.
        self.app_resume_signal.subscribe(self, self._draw_again)
        if self._misnamed:
            self.notify(
                f"The setting chat.keys cannot be used for {', '.join(self._misnamed)}: "
                "a command's name, and a key with ctrl, alt or F",
                severity="warning",
                markup=False,
            )

    @on(ThemeChosen)
    def _theme_chosen(self, event: ThemeChosen) -> None:
        theme = THEMES.get(event.name)
        if theme is None:
            self.notify(f"There is no theme {event.name!r}: {', '.join(THEMES)}", markup=False)
            return
        self.theme = theme.name
        self._service.choose_theme(event.name)

    def _draw_again(self, _app: App[Any]) -> None:
        self.refresh(repaint=True, layout=True)
        self.screen.refresh(repaint=True, layout=True)

    def get_default_screen(self) -> ChatScreen:
        return ChatScreen(self._service, self._conversation)

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = [*super().get_line_filters(), self._plain]
        # Textual's own answer to NO_COLOR is grey; who asked for no colour gets none (https://no-color.org).
        return [*filters, NoColor()] if self.no_color else filters

    def action_help(self) -> None:
        from app.tui.help_screen import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            keys = self._service.preferences().keys
            self.push_screen(HelpScreen(chosen((*CHAT, *CONVERSATION), keys)))

    def leave(self, code: int) -> None:
        """Schedule an exit with a code; safe to call from a signal handler in the loop's thread."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._leave, code)

    def _leave(self, code: int) -> None:
        self.exit(return_code=code)


def run(service: ChatService, conversation: str | None = None) -> int:
    """Open the chat, with a conversation or empty, and return the process's exit code once it is closed.

    Raises:
        UsageError: there is no terminal.
        MynahError: a fault in the chat itself ended it; its traceback is in the log, which is where standard
            error points while the chat runs.
    """
    log = service.home.logs / "tui.log"
    with taken(log) as state:
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s", force=True
        )
        app = MynahApp(service, conversation)
        pasting.install()
        with signals_leave_cleanly(state, app.leave):
            app.run()
    if app.return_code == FAULT:
        raise MynahError(
            f"the chat ended on a fault of its own; what happened is in {log}. Nothing was lost."
        )
    return app.return_code or 0
