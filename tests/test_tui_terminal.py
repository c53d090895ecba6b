"""Terminals as they are: small, resized in mid-sentence, without colour, inside tmux, stopped and continued."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pyte
import pytest
from textual.color import Color
from textual.widgets._toast import Toast

from app.tui import clipboard
from app.tui.app import MynahApp
from app.tui.clipboard import Outcome, copy_and_check
from app.tui.palette import CONTRAST, THEMES
from app.tui.transcript import ReplyView
from store.home import Home
from tests.scripted_service import Script, ScriptedService
from tests.test_tui_exit import PATIENCE, RESTORED, ROOT, Terminal
from tests.tui_pilot import Chat, chatting

WIDE = "日本語の文字 👩‍👩‍👧‍👦 🇫🇷 e\u0301 한국어"


async def test_the_end_stays_in_view_when_the_size_changes_while_a_reply_streams(
    service: ScriptedService,
) -> None:
    end = threading.Event()
    text = tuple(f"word{number} " for number in range(300))
    service.scripts = [Script(text, delay=0.002, may_end=end)]
    async with chatting(service, (120, 40)) as chat:
        await chat.send("talk")
        for size in ((40, 12), (120, 40), (60, 20)):
            await chat.pilot.resize_terminal(*size)
            await chat.until(lambda: chat.transcript.scroll_y == chat.transcript.max_scroll_y)
        await chat.until(lambda: chat.view.turn and chat.view.turn.text.endswith("word299 "))
        end.set()
        await chat.settled()
        assert chat.replies[-1].text == "".join(text)


@pytest.mark.parametrize("width", [40, 60, 120])
async def test_a_notice_is_whole_at_any_width(service: ScriptedService, width: int) -> None:
    app = MynahApp(service)
    async with app.run_test(size=(width, 20), notifications=True) as pilot:
        chat = Chat(app, pilot, service)
        chat.app.notify(
            "a notice that is longer than a narrow terminal is wide, to its very end", markup=False
        )
        await chat.until(lambda: chat.app.screen.query(Toast))
        await chat.rest()
        toast = chat.app.screen.query_one(Toast)
        assert toast.region.x >= 0
        assert toast.region.right <= width
        drawn = " ".join(
            "".join(segment.text for segment in strip).strip()
            for strip in chat.app.screen._compositor.render_strips()
        )
        assert "very end" in re.sub(r"\W+", " ", drawn)


async def test_wide_characters_keep_to_their_columns(service: ScriptedService) -> None:
    service.scripts = [Script((WIDE * 6,))]
    async with chatting(service, (40, 20)) as chat:
        await chat.ask(WIDE * 4)
        await chat.rest()
        for strip in chat.app.screen._compositor.render_strips():
            assert strip.cell_length == 40
        assert chat.replies[-1].text == WIDE * 6


def _contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio."""
    dark, light = sorted(_luminance(Color.parse(each)) for each in (one, other))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    parts = [part / 255 for part in color.rgb]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", list(THEMES))
def test_text_can_be_read_in_every_theme(name: str) -> None:
    theme = THEMES[name]
    least = 7.0 if theme is CONTRAST else 4.5
    for ground in (theme.background, theme.surface):
        assert ground is not None
        for text in (theme.foreground, theme.primary, theme.accent, theme.warning, theme.success):
            assert text is not None
            assert _contrast(text, ground) >= least, f"{text} on {ground}"


@pytest.mark.parametrize("name", list(THEMES))
async def test_a_theme_reaches_every_part(service: ScriptedService, name: str) -> None:
    service.choose_theme(name)
    async with chatting(service) as chat:
        await chat.ask("hello")
        assert chat.app.theme == THEMES[name].name
        theme = THEMES[name]
        assert chat.app.screen.styles.background == Color.parse(str(theme.background))
        assert chat.app.screen.query_one(ReplyView).is_mounted


@pytest.fixture
def terminal(home: Home) -> Iterator[Callable[..., Terminal]]:
    running: list[Terminal] = []

    def start(mode: str, *, colour: bool = True) -> Terminal:
        made = Terminal(mode, home, colour=colour)
        running.append(made)
        made.until(lambda: "Write to Mynah" in made.text and "SmolLM2" in made.text)
        return made

    yield start
    for each in running:
        each.process.close(force=True)


def test_without_colour_nothing_is_coloured(terminal: Callable[..., Terminal]) -> None:
    shown = terminal("plain", colour=False)
    shown.send("hello\r")
    shown.until(lambda: "A short answer." in shown.text)
    sgr = [found.split(b";") for found in re.findall(rb"\x1b\[([\d;]*)m", shown.written)]
    coloured = {b"38", b"48", *(b"%d" % code for base in (30, 40, 90, 100) for code in range(base, base + 8))}
    assert not [codes for codes in sgr if coloured & set(codes)], "no colour, and no grey"
    shown.send("\x0f")
    shown.until(lambda: any(cell.reverse for line in shown.screen.buffer.values() for cell in line.values()))


def test_stop_and_continue_give_the_terminal_back_and_take_it_again(
    terminal: Callable[..., Terminal],
) -> None:
    shown = terminal("plain")
    shown.process.kill(signal.SIGTSTP)
    shown.until(lambda: b"?1049l" in shown.written)
    status = Path(f"/proc/{shown.process.pid}/status")
    shown.until(lambda: "State:\tT" in status.read_text())
    for mode in RESTORED:
        assert mode in shown.written
    before = len(shown.written)
    shown.process.kill(signal.SIGCONT)
    shown.until(lambda: b"?1049h" in shown.written[before:])
    shown.send("hello\r")
    shown.until(lambda: "A short answer." in shown.text)
    shown.send("\x11")
    assert shown.ended() == 0
    assert shown.is_clean()


class Tmux:
    """A tmux server of its own with one window."""

    def __init__(self, directory: Path, home: Home) -> None:
        self._socket = directory / "socket"
        command = f"{sys.executable} -m tests.tui_runner slow"
        environment = {**os.environ, "MYNAH_HOME": str(home.root)}
        environment.pop("NO_COLOR", None)
        environment.pop("TMUX", None)
        self.call(
            "-f", os.devnull, "new-session", "-d", "-x", "80", "-y", "24", command, environment=environment
        )

    def call(self, *words: str, environment: dict[str, str] | None = None) -> str:
        ran = subprocess.run(
            ["tmux", "-S", str(self._socket), *words],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return ran.stdout

    @property
    def text(self) -> str:
        return self.call("capture-pane", "-p")

    @property
    def socket(self) -> str:
        return f"{self._socket},0,0"

    def until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if true():
                return
            time.sleep(0.05)
        raise AssertionError(f"never came true; the screen was:\n{self.text}")


@pytest.fixture
def tmux(tmp_path: Path, home: Home) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    made = Tmux(tmp_path, home)
    yield made
    made.call("kill-server")


def test_inside_tmux(tmux: Tmux) -> None:
    """Keys, a stream, a smaller window, a stop and the end, as tmux passes them on."""
    tmux.until(lambda: "Write to Mynah" in tmux.text and "SmolLM2" in tmux.text)
    tmux.call("send-keys", "one", "C-j", "two")
    tmux.until(lambda: "two" in tmux.text)
    tmux.call("send-keys", "Enter")
    tmux.until(lambda: "word word" in tmux.text)
    tmux.call("resize-window", "-x", "40", "-y", "12")
    tmux.until(lambda: max(map(len, tmux.text.splitlines())) <= 40 and "word" in tmux.text)
    tmux.call("send-keys", "Escape")
    tmux.until(lambda: "stopped" in tmux.text)
    tmux.call("send-keys", "C-q")
    tmux.until(lambda: tmux.call("list-sessions") == "")


def test_a_copy_inside_tmux_is_read_back(tmux: Tmux, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(clipboard, "TIMEOUT", PATIENCE)
    monkeypatch.setenv("TMUX", tmux.socket)
    assert copy_and_check("grüß\n世界") is Outcome.CHECKED
    assert tmux.call("save-buffer", "-") == "grüß\n世界"


def test_a_clipboard_that_holds_something_else_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, does in (("wl-copy", "cat > /dev/null"), ("wl-paste", "echo other")):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{does}\n")
        tool.chmod(0o700)
    for variable in ("DISPLAY", "TMUX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(clipboard, "TIMEOUT", PATIENCE)
    assert copy_and_check("text") is Outcome.UNCHECKED
    monkeypatch.setenv("WAYLAND_DISPLAY", "w0")
    assert copy_and_check("text") is Outcome.DIFFERENT


def test_plain_on_a_terminal_moves_nothing(home: Home) -> None:
    """No escape sequence at all, a prompt, and Ctrl-D leaves."""
    from tests.scripted import scripted_host

    with scripted_host(home) as host:
        process = pexpect.spawn(
            sys.executable,
            ["-m", "app.cli.main", "chat", "--plain"],
            cwd=str(ROOT),
            timeout=PATIENCE,
            # A shell starts what runs in the background with Ctrl-C ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        process.expect_exact("You: ")
        process.sendline("slow 1000")
        # Not before it streams: until then a Ctrl-C is one at the prompt.
        deadline = time.monotonic() + PATIENCE
        while host.status()["generating"] is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)
        process.sendintr()
        process.expect_exact("/continue goes on")
        process.expect_exact("You: ")
        process.sendline("echo hello")
        process.expect_exact("Mynah: hello")
        process.expect_exact("You: ")
        process.sendeof()
        process.expect(pexpect.EOF)
        process.close()
        assert process.exitstatus == 0
        assert b"\x1b" not in process.before


class Shell(Terminal):
    """A shell with job control on a pseudo-terminal, with the chat as its job."""

    def __init__(self, mode: str, home: Home) -> None:
        environment = {**os.environ, "MYNAH_HOME": str(home.root), "TERM": "xterm-256color", "PS1": "shell> "}
        self.written = b""
        self.process = pexpect.spawn(
            "/bin/bash",
            ["--norc", "--noprofile", "--noediting", "-i"],
            cwd=str(ROOT),
            env=environment,
            dimensions=(24, 80),
            timeout=PATIENCE,
        )
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.until(lambda: "shell> " in self.text)
        self.send(f"{shlex.quote(sys.executable)} -m tests.tui_runner {mode}\n")


@pytest.fixture
def shell(home: Home) -> Iterator[Callable[[str], Shell]]:
    running: list[Shell] = []

    def begin(mode: str) -> Shell:
        running.append(Shell(mode, home))
        return running[-1]

    yield begin
    for each in running:
        each.process.close(force=True)


def test_control_z_goes_to_the_shell_and_fg_comes_back_to_what_was_typed(
    shell: Callable[[str], Shell],
) -> None:
    shown = shell("plain")
    shown.until(lambda: "Write to Mynah" in shown.text and "SmolLM2" in shown.text)
    shown.send("half a thought")
    shown.until(lambda: "half a thought" in shown.text)
    shown.send("\x1a")
    shown.until(lambda: "Stopped" in shown.text)
    assert shown.is_clean()
    shown.send("echo $((6 * 7))\n")
    shown.until(lambda: "42" in shown.text)
    shown.screen.reset()
    shown.send("fg\n")
    shown.until(lambda: "half a thought" in shown.text and "Write to Mynah" not in shown.text)
    shown.send(" goes on\r")
    shown.until(lambda: "A short answer." in shown.text)
    shown.send("\x11")
    shown.until(lambda: shown.written.endswith(b"shell> "))
    assert shown.is_clean()


def test_control_z_in_the_plain_chat_goes_to_the_shell_and_fg_comes_back(
    shell: Callable[[str], Shell],
) -> None:
    shown = shell("lines")
    shown.until(lambda: "/help says what there is" in shown.text)
    shown.send("\x1a")
    shown.until(lambda: "Stopped" in shown.text)
    shown.send("fg\n")
    shown.send("hello\n")
    shown.until(lambda: "A short answer." in shown.text)
    shown.send("/quit\n")
    shown.until(lambda: shown.written.endswith(b"shell> "))
    assert b"\x1b[?1049h" not in shown.written
