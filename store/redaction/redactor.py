"""The order of the detectors, and the loop that makes redacting twice the same as redacting once.

Each detector sees what those before it left: secrets first, since a password may hold an address or a card number,
then what proves itself by a checksum, then the rest, the owner's words last. What one round claims can uncover
something to a detector that had already passed (two numbers written as one word), so rounds go on until one finds
nothing; then the view that a second redaction would start from is the very one that was just searched in vain. Every
round claims characters that no later one can claim, so it ends; ordinary text takes two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from store.redaction import assignments, contact, keys, numbers, phones
from store.redaction.placeholders import Finding, Hit, Kind, Placeholders, without_overlaps
from store.redaction.view import MARK, View
from store.redaction.words import WordList

Detector = Callable[[str], Iterable[Hit]]


@dataclass(frozen=True)
class Redacted:
    """A text without what was found in it, and where that was in the text as given, in order."""

    text: str
    found: tuple[Finding, ...]


class Redactor:
    """Finds and replaces. Pure: the same text and the same mapping give the same result, and nothing is kept."""

    def __init__(self, word_list: Sequence[str] = ()) -> None:
        """``word_list`` is the owner's own: each entry is replaced wherever it stands as a word."""
        self._detectors: tuple[tuple[Kind, Detector], ...] = (
            (Kind.SECRET, secrets),
            (Kind.CARD, numbers.cards),
            (Kind.IBAN, numbers.ibans),
            (Kind.EMAIL, contact.emails),
            (Kind.IP, contact.ips),
            (Kind.NATIONAL_ID, numbers.national_ids),
            (Kind.PHONE, phones.find),
            (Kind.WORD, WordList(word_list).find),
        )

    def redact(self, text: str, names: Placeholders | None = None) -> Redacted:
        """Replace everything that is found.

        ``names`` is the conversation's mapping, so that the same individual keeps its placeholder from one message
        to the next; without one, the text stands for itself.
        """
        names = Placeholders() if names is None else names
        names.reserve(text)
        claimed: list[tuple[Finding, str]] = []
        while found := self._round(text, claimed):
            claimed += found
        claimed.sort(key=lambda claim: claim[0].start)
        pieces: list[str] = []
        position = 0
        for finding, identity in claimed:
            pieces += (text[position : finding.start], names.name(finding.kind, identity))
            position = finding.end
        pieces.append(text[position:])
        return Redacted("".join(pieces), tuple(finding for finding, _ in claimed))

    def _round(self, text: str, claimed: Sequence[tuple[Finding, str]]) -> list[tuple[Finding, str]]:
        """What every detector finds once, in their order, beside what is claimed already."""
        spans = [(finding.start, finding.end) for finding, _ in claimed]
        view = View(text, spans)
        new: list[tuple[Finding, str]] = []
        for kind, detect in self._detectors:
            hits = [
                hit
                for hit in without_overlaps(detect(view.text))
                if MARK not in view.text[hit.start : hit.end]
            ]
            if hits:
                found = [(Finding(kind, *view.original(hit.start, hit.end)), hit.identity) for hit in hits]
                new += found
                spans += [(finding.start, finding.end) for finding, _ in found]
                view = View(text, spans)
        return new


def secrets(text: str) -> Iterable[Hit]:
    """Keys and tokens by their form, and what stands beside a name like "password", in a view."""
    yield from keys.find(text)
    yield from assignments.find(text)


def contains_secret(text: str) -> bool:
    """Whether a text holds what looks like a password, key or token: then nothing may be learned from it."""
    view = View(text).text
    return any(hit.start < hit.end and MARK not in view[hit.start : hit.end] for hit in secrets(view))
