"""The terminal is given back on every way out, and native output never shows. On a real pseudo-terminal."""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pexpect
import pyte
import pytest

from store.errors import UsageError
from store.home import Home

ROOT = Path(__file__).parent.parent
PATIENCE = 120
RESTORED = (b"?1049l", b"?1000l", b"?1003l", b"?1006l", b"?2004l", b"?25h")
F12 = "\x1b[24~"


class Terminal:
    """One run of the chat on a pseudo-terminal of 80 by 24, and everything it wrote."""

    def __init__(self, mode: str, home: Home, *, colour: bool = True) -> None:
        environment = {**os.environ, "MYNAH_HOME": str(home.root), "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        if not colour:
            environment["NO_COLOR"] = "1"
        self.written = b""
        self.process = pexpect.spawn(
            sys.executable,
            ["-m", "tests.tui_runner", mode],
            cwd=str(ROOT),
            env=environment,
            dimensions=(24, 80),
            timeout=PATIENCE,
        )
        self._stream = pyte.ByteStream(screen := pyte.Screen(80, 24))
        self.screen = screen

    def read(self) -> None:
        """Take in what was written."""
        with suppress(pexpect.TIMEOUT, pexpect.EOF):
            piece = self.process.read_nonblocking(65536, timeout=0.05)
            self.written += piece
            self._stream.feed(piece)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def until(self, true: Callable[[], object]) -> None:
        """Wait for something on the screen."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if true():
                return
            self.read()
        raise AssertionError(f"never came true; the screen was:\n{self.text}")

    def send(self, keys: str) -> None:
        self.process.send(keys)

    def ended(self) -> int:
        """Wait for the end; the exit code, or minus the signal that killed it."""
        self.until(lambda: not self.process.isalive())
        self.read()
        return -self.process.signalstatus if self.process.signalstatus else int(self.process.exitstatus)

    def is_clean(self) -> bool:
        """Whether every mode that was switched on was switched off again, and lines and echo are back."""
        local = termios.tcgetattr(self.process.child_fd)[3]
        return bool(local & termios.ECHO and local & termios.ICANON) and all(
            self.written.rfind(mode) > self.written.rfind(mode[:-1] + _other(mode)) for mode in RESTORED
        )


def _other(mode: bytes) -> bytes:
    return b"h" if mode.endswith(b"l") else b"l"


@pytest.fixture
def start(home: Home) -> Iterator[Callable[[str], Terminal]]:
    running: list[Terminal] = []

    def open_chat(mode: str) -> Terminal:
        terminal = Terminal(mode, home)
        running.append(terminal)
        terminal.until(lambda: "Write to Mynah" in terminal.text and "SmolLM2" in terminal.text)
        return terminal

    yield open_chat
    for terminal in running:
        terminal.process.close(force=True)


def test_quitting_leaves_a_clean_terminal(start: Callable[[str], Terminal]) -> None:
    terminal = start("plain")
    terminal.send("\x11")
    assert terminal.ended() == 0
    assert terminal.is_clean()


def test_control_c_twice_leaves_a_clean_terminal(start: Callable[[str], Terminal]) -> None:
    terminal = start("plain")
    terminal.send("\x03")
    terminal.until(lambda: "once more quits" in terminal.text)
    terminal.send("\x03")
    assert terminal.ended() == 0
    assert terminal.is_clean()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_a_clean_terminal(start: Callable[[str], Terminal], number: signal.Signals) -> None:
    terminal = start("plain")
    terminal.process.kill(number)
    assert terminal.ended() == 128 + number
    assert terminal.is_clean()


def test_a_signal_in_the_middle_of_a_reply_leaves_a_clean_terminal(start: Callable[[str], Terminal]) -> None:
    terminal = start("slow")
    terminal.send("hello\r")
    terminal.until(lambda: "word word" in terminal.text)
    terminal.process.kill(signal.SIGTERM)
    assert terminal.ended() == 128 + signal.SIGTERM
    assert terminal.is_clean()


def test_a_signal_ends_a_chat_that_hangs(start: Callable[[str], Terminal], home: Home) -> None:
    terminal = start("stuck")
    terminal.send(F12)
    terminal.until(lambda: "STUCK" in (home.logs / "tui.log").read_text())
    terminal.process.kill(signal.SIGTERM)
    assert terminal.ended() == 128 + signal.SIGTERM
    assert terminal.is_clean()


def test_an_exception_leaves_a_clean_terminal_and_a_bad_exit_code(
    start: Callable[[str], Terminal], home: Home
) -> None:
    terminal = start("crash")
    terminal.send(F12)
    assert terminal.ended() == 1
    assert terminal.is_clean()
    after = terminal.written[terminal.written.rfind(b"?1049l") :].decode()
    assert "what happened is in" in " ".join(after.split())
    assert "Traceback" not in after
    assert "a fault [/] in the chat" in (home.logs / "tui.log").read_text()


def test_a_terminal_that_is_closed_takes_the_chat_with_it(start: Callable[[str], Terminal]) -> None:
    terminal = start("slow")
    terminal.send("hello\r")
    terminal.until(lambda: "word word" in terminal.text)
    with Path(os.devnull).open("r+b") as nothing:
        os.dup2(nothing.fileno(), terminal.process.child_fd)
    for _ in range(PATIENCE * 20):
        if not terminal.process.isalive():
            break
        time.sleep(0.05)
    assert not terminal.process.isalive()


def test_native_output_goes_to_the_log(start: Callable[[str], Terminal], home: Home) -> None:
    terminal = start("noise")
    terminal.send("hello\r")
    terminal.until(lambda: "A short answer." in terminal.text)
    terminal.send("\x11")
    assert terminal.ended() == 0
    drawn = terminal.written[terminal.written.find(b"?1049h") : terminal.written.rfind(b"?1049l")]
    assert b"NATIVE NOISE" not in drawn
    assert "NATIVE NOISE" in (home.logs / "tui.log").read_text()


def test_a_reply_cannot_speak_to_the_terminal(start: Callable[[str], Terminal]) -> None:
    """A model may write escape sequences; also in the editor of a correction they stay what one sees."""
    terminal = start("hostile")
    terminal.send("hello\r")
    terminal.until(lambda: "tok/s" in terminal.text)
    terminal.send("\x14")
    terminal.until(lambda: "Correct this reply" in terminal.text)
    terminal.send("\x1b")
    terminal.until(lambda: "Correct this reply" not in terminal.text)
    terminal.send("\x11")
    terminal.until(lambda: not terminal.process.isalive())
    assert b"TITLE" in terminal.written
    assert b"\x1b]0;TITLE" not in terminal.written
    assert b"\x1b[5m" not in terminal.written
    assert "\x9b31m".encode() not in terminal.written


def test_keys_of_a_plain_terminal(start: Callable[[str], Terminal]) -> None:
    """Ctrl+J and Alt+Enter make a line, Enter sends, a bracketed paste is text."""
    terminal = start("plain")
    terminal.send("one\ntwo\x1b\rthree")
    terminal.until(lambda: "three" in terminal.text)
    terminal.send("\x1b[200~four\rfive\x1b[201~")
    terminal.until(lambda: "five" in terminal.text)
    assert "A short answer." not in terminal.text
    terminal.send("\r")
    terminal.until(lambda: "A short answer." in terminal.text)
    lines = [line.strip("▌ ") for line in terminal.screen.display]
    assert [line for line in lines if line in ("one", "two", "threefour", "five")] == [
        "one",
        "two",
        "threefour",
        "five",
    ]


def test_without_a_terminal_it_says_what_to_use_instead(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.tui.terminal import taken

    monkeypatch.setattr(os, "isatty", lambda _: False)
    with pytest.raises(UsageError, match="mynah ask"), taken(home.logs / "tui.log"):
        pass


def test_a_paste_without_an_end_leaves_the_keys_alive(start: Callable[[str], Terminal]) -> None:
    chat = start("plain")
    chat.until(lambda: "Write to Mynah" in chat.text and "SmolLM2" in chat.text)
    chat.send("\x1b[200~half a paste")
    chat.until(lambda: "half a paste" in chat.text)
    chat.send(" and more\r")
    chat.until(lambda: "A short answer." in chat.text)
    chat.send("\x11")
    assert chat.ended() == 0
    assert chat.is_clean()
