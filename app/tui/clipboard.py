"""Puts text on the clipboard without ever stalling the chat.

OSC 52 is the only way that works over SSH, but the terminals most Linux desktops ship (everything on VTE)
ignore it, so the desktop's own tool is tried as well, where one is there. Those tools hang on a broken X
connection and take half a second on WSL: they run off the UI loop, with a time limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess

TIMEOUT = 2.0

_TOOLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
    ("__CFBundleIdentifier", ("pbcopy",)),
)


def copy_with_desktop_tool(text: str) -> bool:
    """Hand ``text`` to the first desktop clipboard tool that is there. Blocking: call it off the UI loop."""
    for variable, command in _TOOLS:
        if not os.environ.get(variable) or not shutil.which(command[0]):
            continue
        try:
            subprocess.run(
                command,
                input=text.encode(),
                timeout=TIMEOUT,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return True
    return False
