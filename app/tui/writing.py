"""What gets into the composer besides typing: quotations and files, both as quoted data.

A quotation is lines that begin with ``> ``, a file is a fenced block under its name. That is how a reader sees what
the owner said and what was only shown, and so does the learner, which must not take another's words for the owner's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from app.tui.composer import clean
from app.tui.fences import fenced
from store.errors import NotFound, UsageError

LARGEST = 2_000_000


@dataclass(frozen=True)
class Attachment:
    """A file as it goes into a message."""

    name: str
    size: int
    quoted: str


def quoted(text: str) -> str:
    """A text as lines of a quotation."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip("\n").split("\n"))


def read_file(typed: str) -> Attachment:
    """A text file as quoted data.

    Raises:
        NotFound: there is no such file.
        UsageError: it cannot be read, is too large, or is no text.
    """
    path = Path(typed.strip().strip("'\"").replace("\\ ", " ")).expanduser()
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    if not path.is_file():
        raise UsageError(f"{path} is not a file: attach one text file at a time")
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path.name} is larger than {LARGEST // 1_000_000} MB: attach a part of it")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error})") from error
    try:
        text = clean(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UsageError(f"{path.name} is not a text file (it is not UTF-8)") from None
    if "\x00" in data.decode("utf-8-sig"):
        raise UsageError(f"{path.name} is not a text file (it holds zero bytes)")
    name = re.sub(r"[`\s]+", " ", path.name).strip()
    language = re.sub(r"[^A-Za-z0-9+#-]", "", path.suffix) or "text"
    return Attachment(name, len(text), f"`{name}`:\n\n{fenced(text, language)}\n")
