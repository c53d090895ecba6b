"""Completing the path of a file, as a shell does: as far as it is certain, with what there is where it is not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

MOST = 5000
"""Entries of a directory that are looked at: the key must be heard in a directory of a million files too."""


@dataclass(frozen=True)
class Completion:
    """The path as far as it is certain, and the names that it could go on with, none once it is whole."""

    text: str
    names: tuple[str, ...]


def complete(typed: str) -> Completion:
    """Go on with a path that was typed in part. What cannot be read has nothing to offer."""
    folder, slash, beginning = typed.rpartition("/")
    if typed == "~":
        return Completion("~/", ())
    try:
        place = Path(folder + slash or ".").expanduser()
        with os.scandir(place) as entries:
            found = sorted(_name(each) for each in islice(entries, MOST) if _fits(each.name, beginning))
    except (OSError, RuntimeError, ValueError):
        # RuntimeError: there is no home directory to expand to. ValueError: a zero byte.
        return Completion(typed, ())
    if not found:
        return Completion(typed, ())
    # They are sorted: what the first and the last have in common, all have.
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(found[0], found[-1], strict=False))
    certain = "".join(letter for letter, _ in pairs)
    return Completion(folder + slash + certain, tuple(found) if len(found) > 1 else ())


def _fits(name: str, beginning: str) -> bool:
    return name.startswith(beginning) and (beginning.startswith(".") or not name.startswith("."))


def _name(entry: os.DirEntry[str]) -> str:
    try:
        return f"{entry.name}/" if entry.is_dir() else entry.name
    except OSError:
        return entry.name
