"""The colours of the chat: few, muted, and the same on every screen, so that the text is what one sees.

Themes of its own rather than the terminal's colours: code highlighting and the dimmed lines under replies need
steps of brightness that sixteen colours of unknown contrast do not give. ``contrast`` is for eyes that need it: white
on black, every text of it at 7:1 or better. What a colour says is also said by a word or a sign, for those who see
none of them (``NO_COLOR``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from textual.message import Message
from textual.theme import Theme

GOOD: Final = "#98bb6c"
BAD: Final = "#e0a458"

CALM = Theme(
    name="mynah",
    primary="#7fb4ca",
    secondary="#938aa9",
    accent="#e6c384",
    warning=BAD,
    error="#d27e99",
    success=GOOD,
    foreground="#d8d6cf",
    background="#16181d",
    surface="#1b1e24",
    panel="#22262e",
    dark=True,
)

LIGHT = Theme(
    name="mynah-light",
    primary="#1f6f8b",
    secondary="#6a5a8c",
    accent="#8a5a00",
    warning="#9a5b00",
    error="#a3324f",
    success="#3f6b1f",
    foreground="#24262b",
    background="#faf9f6",
    surface="#f1efe9",
    panel="#e6e3db",
    dark=False,
)

CONTRAST = Theme(
    name="mynah-contrast",
    primary="#66d9ff",
    secondary="#d0b0ff",
    accent="#ffd75f",
    warning="#ffb347",
    error="#ff8fa3",
    success="#8ff28f",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#262626",
    dark=True,
    variables={"text-muted": "#e4e4e4", "text-disabled": "#d0d0d0"},
)

THEMES: Final[dict[str, Theme]] = {"dark": CALM, "light": LIGHT, "contrast": CONTRAST}


@dataclass
class ThemeChosen(Message):
    """The owner wants other colours, by their name in the settings."""

    name: str
