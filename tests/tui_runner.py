"""The chat as a program of its own, for tests that watch it on a pseudo-terminal. `python -m tests.tui_runner MODE`.

Modes: `plain`; `noise` also writes to descriptor 2 as native libraries do; `crash` raises in a handler at F12;
`stuck` blocks the event loop at F12, as a terminal does that is gone; `slow` answers without end; `hostile` answers
with sequences that a terminal obeys; `lines` is the plain chat.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import ClassVar

from textual.binding import Binding, BindingType

import app.tui.app as tui
from app.cli.plain import PlainChat, read_line
from app.tui import chat_view
from store.errors import MynahError
from store.home import Home
from tests.scripted_service import Script, ScriptedService

HOSTILE = "start\x1b]0;TITLE\x07\x1b[5m\x9b31mend"


class Faulty(tui.MynahApp):
    """The chat with a key that breaks it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f12", "break", priority=True)]
    mode = ""

    def action_break(self) -> None:
        if self.mode == "stuck":
            os.write(2, b"STUCK\n")
            time.sleep(60)
        raise RuntimeError("a fault [/] in the chat")


def _noise() -> None:
    while True:
        os.write(2, b"NATIVE NOISE\n")
        time.sleep(0.02)


def main(mode: str) -> int:
    """Run the chat in one of the modes; returns its exit code."""
    service = ScriptedService(Home.default())
    if mode == "hostile":
        service.scripts = [Script((f"{HOSTILE}\n\n`{HOSTILE}`\n\n```\n{HOSTILE}\n```",))]
    if mode == "slow":
        service.scripts = [Script(("word ",) * 5000, delay=0.02)]
    if mode == "noise":
        threading.Thread(target=_noise, daemon=True).start()

    if mode == "lines":
        return PlainChat(service, read_line, person=True).run()

    # A busy machine passes a key on late: the second Ctrl-C still means that the first was meant.
    chat_view.QUIT_WINDOW = 120.0
    Faulty.mode = mode
    tui.MynahApp = Faulty  # type: ignore[misc]
    try:
        return tui.run(service)
    except MynahError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
