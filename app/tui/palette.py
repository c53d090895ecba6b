"""The colours of the chat: few, muted, and the same on every screen, so that the text is what one sees.

One dark theme rather than the terminal's own colours: code highlighting and the dimmed lines under replies need
steps of brightness that sixteen colours of unknown contrast do not give.
"""

from __future__ import annotations

from typing import Final

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
