"""Puts text on the clipboard without ever stalling the chat, and reads it back where that can be done.

OSC 52 is the only way that works over SSH, but the terminals most Linux desktops ship (everything on VTE)
ignore it, so the desktop's own tool is tried as well, where one is there. tmux keeps OSC 52 for itself unless told
otherwise, and hands a buffer on with ``load-buffer -w``. Those tools hang on a broken X connection and take half a
second on WSL: they run off the UI loop, with a time limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum

TIMEOUT = 2.0


class Outcome(StrEnum):
    """What is known after copying."""

    CHECKED = "checked"
    DIFFERENT = "different"
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class Tool:
    """A program that copies what it reads; ``paste`` is one that prints what was copied, where there is one."""

    variable: str
    copy: tuple[str, ...]
    paste: tuple[str, ...] = ()


TOOLS: tuple[Tool, ...] = (
    Tool("TMUX", ("tmux", "load-buffer", "-w", "-"), ("tmux", "save-buffer", "-")),
    Tool("WAYLAND_DISPLAY", ("wl-copy",), ("wl-paste", "--no-newline")),
    Tool("DISPLAY", ("xclip", "-selection", "clipboard"), ("xclip", "-selection", "clipboard", "-o")),
    Tool("DISPLAY", ("xsel", "--clipboard", "--input"), ("xsel", "--clipboard", "--output")),
    Tool("WSL_DISTRO_NAME", ("clip.exe",)),
    Tool("__CFBundleIdentifier", ("pbcopy",), ("pbpaste",)),
)


def copy_and_check(text: str) -> Outcome:
    """Hand ``text`` to every tool that is there, and compare what they hold. Blocking: call it off the UI loop."""
    outcomes = [
        _copy(tool, text) for tool in TOOLS if os.environ.get(tool.variable) and shutil.which(tool.copy[0])
    ]
    for outcome in (Outcome.CHECKED, Outcome.DIFFERENT):
        if outcome in outcomes:
            return outcome
    return Outcome.UNCHECKED


def _copy(tool: Tool, text: str) -> Outcome:
    data = text.encode()
    try:
        subprocess.run(
            tool.copy,
            input=data,
            timeout=TIMEOUT,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if not tool.paste:
            return Outcome.UNCHECKED
        held = subprocess.run(
            tool.paste,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return Outcome.UNCHECKED
    return Outcome.CHECKED if held == data else Outcome.DIFFERENT
