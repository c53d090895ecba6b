"""What a found thing is called: kinds, findings, and placeholders that stay the same within a conversation.

A placeholder names the kind and counts the individuals: `[EMAIL_1]` is one address wherever it occurs, so that
"write to [EMAIL_1], not to [EMAIL_2]" still teaches what it taught. Square brackets with an underscore survive
tokenisers, Markdown and JSON unharmed and are hardly ever typed by people. The mapping lives in memory alone and
shows nothing of what it holds: it is made anew from the conversation whenever it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Final


class Kind(StrEnum):
    """What was found."""

    SECRET = auto()
    CARD = auto()
    IBAN = auto()
    EMAIL = auto()
    IP = auto()
    NATIONAL_ID = auto()
    PHONE = auto()
    WORD = auto()


LABELS: Final[dict[Kind, str]] = {
    Kind.SECRET: "SECRET",
    Kind.CARD: "CARD",
    Kind.IBAN: "IBAN",
    Kind.EMAIL: "EMAIL",
    Kind.IP: "IP",
    Kind.NATIONAL_ID: "ID",
    Kind.PHONE: "PHONE",
    Kind.WORD: "PRIVATE",
}
_KINDS: Final = {label: kind for kind, label in LABELS.items()}

PLACEHOLDER: Final = re.compile(rf"\[({'|'.join(_KINDS)})_([1-9][0-9]{{0,5}})\]")
"""A placeholder in a text, whoever wrote it. Whatever has this form is never redacted again."""

# Numbers of six digits end what `PLACEHOLDER` knows: a text that says 999999 must not use them up.
_RESERVABLE: Final = 99_999


@dataclass(frozen=True)
class Finding:
    """Something that was found. ``start`` and ``end`` count characters of the text as it was given."""

    kind: Kind
    start: int
    end: int


@dataclass(frozen=True, repr=False)
class Hit:
    """What a detector reports: where, and which individual it is, in one spelling whatever the text's was."""

    start: int
    end: int
    identity: str


def without_overlaps(hits: Iterable[Hit]) -> list[Hit]:
    """Hits in the order of the text; of two that overlap, the one that begins first, then the longer one."""
    kept: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if hit.start < hit.end and (not kept or hit.start >= kept[-1].end):
            kept.append(hit)
    return kept


class Placeholders:
    """The names one conversation gives to what was found in it. Not shared between conversations."""

    def __init__(self) -> None:
        self._names: dict[tuple[Kind, str], str] = {}
        self._counts: dict[Kind, int] = dict.fromkeys(Kind, 0)

    def __repr__(self) -> str:
        return f"Placeholders({len(self._names)} names)"

    def reserve(self, text: str) -> None:
        """Keep the numbers that a text already uses, so that a new individual never gets one of them."""
        for match in PLACEHOLDER.finditer(text):
            kind, number = _KINDS[match[1]], int(match[2])
            if number <= _RESERVABLE:
                self._counts[kind] = max(self._counts[kind], number)

    def name(self, kind: Kind, identity: str) -> str:
        """The placeholder of an individual, the same at every call."""
        known = self._names.get((kind, identity))
        if known is None:
            self._counts[kind] += 1
            known = self._names[kind, identity] = f"[{LABELS[kind]}_{self._counts[kind]}]"
        return known
