"""Writes docs/settings.md from the table of settings: `make docs`; a test keeps it true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from store import options, settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
_OPENING = """\
# Settings

Written by `make docs` from the program's own table.

`mynah config list` shows every setting as it stands, `mynah config set KEY VALUE` changes one, `mynah config unset
KEY` brings its default back. They are kept in the database (`mynah config path`), so that every process of Mynah sees
a change and a backup holds them; a value that does not fit is refused in one line.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_OPENING, *_sections()])


def _sections() -> Iterator[str]:
    for option in options.OPTIONS:
        yield f"## {option.key}\n"
        yield f"{option.what}\n"
        yield f"- takes {option.takes}"
        yield f"- by default: {options.shown(settings.DEFAULTS[option.key])}"
        if option.command is not None:
            yield f"- changed with `{option.command}`"
        yield f"- holds {option.holds}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
