"""The labelled corpus of the redaction tests, and how it is scored.

Every line of `data/redaction_corpus.jsonl` is one text in which «kind:…» marks what has to be found; a line without
a mark is a hard negative, and `case` says of what sort. `{+}` stands in the middle of made-up keys and goes away on
reading: without it, a host that scans repositories for leaks would take the corpus for one. It was written in five
batches. The rules were corrected after each, so the figures of the whole say how well they fit what they know; each
batch's `FIRST_CONTACT`, taken before the rules had met it, says what to expect of a new text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from store.redaction import Finding, Kind, Redactor

CORPUS = Path(__file__).resolve().parent / "data" / "redaction_corpus.jsonl"
WORDS = ("Hartwell", "Mina Okafor", "김서연", "해오름아파트", "Project Bluefin", "東京太郎")
_MARK = re.compile(r"«([a-z_]+):([^»]*)»")


@dataclass(frozen=True)
class Sentence:
    """One labelled text. ``case`` names the sort of a hard negative and is empty otherwise."""

    text: str
    labels: tuple[Finding, ...]
    language: str
    batch: int
    case: str


@dataclass
class Count:
    """What became of one kind's labels. A hit counts where kind and both borders are the label's."""

    right: int = 0
    missed: int = 0
    wrong: int = 0

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


FIRST_CONTACT = {
    Kind.SECRET: Count(right=144, missed=29, wrong=4),
    Kind.CARD: Count(right=43),
    Kind.IBAN: Count(right=43),
    Kind.EMAIL: Count(right=63, missed=1, wrong=1),
    Kind.IP: Count(right=51, missed=1, wrong=1),
    Kind.NATIONAL_ID: Count(right=50, missed=1),
    Kind.PHONE: Count(right=95, missed=12),
    Kind.WORD: Count(right=41, missed=1, wrong=1),
}
"""Batches 2 to 5 together, each when the rules first met it; slips of the labels' own are put right."""


@dataclass(frozen=True)
class Mistake:
    """One label that was not found, or one finding that is no label."""

    sentence: Sentence
    finding: Finding

    @property
    def words(self) -> str:
        return self.sentence.text[self.finding.start : self.finding.end]


@dataclass(frozen=True)
class Score:
    """How a redactor did on some sentences."""

    counts: dict[Kind, Count]
    missed: list[Mistake]
    wrong: list[Mistake]


def sentences() -> list[Sentence]:
    """The whole corpus, in its order."""
    with CORPUS.open(encoding="utf-8") as lines:
        return [_sentence(json.loads(line)) for line in lines]


def score(redactor: Redactor, corpus: Iterable[Sentence]) -> Score:
    """Compare what is found with the labels."""
    result = Score({kind: Count() for kind in Kind}, [], [])
    for sentence in corpus:
        found, labels = set(redactor.redact(sentence.text).found), set(sentence.labels)
        for finding in found & labels:
            result.counts[finding.kind].right += 1
        for finding in sorted(labels - found, key=lambda label: label.start):
            result.counts[finding.kind].missed += 1
            result.missed.append(Mistake(sentence, finding))
        for finding in sorted(found - labels, key=lambda label: label.start):
            result.counts[finding.kind].wrong += 1
            result.wrong.append(Mistake(sentence, finding))
    return result


def _sentence(row: dict[str, str | int]) -> Sentence:
    marked = str(row["text"]).replace("{+}", "")
    labels: list[Finding] = []
    pieces: list[str] = []
    length = position = 0
    for match in _MARK.finditer(marked):
        before, inner = marked[position : match.start()], match[2]
        length += len(before)
        labels.append(Finding(Kind(match[1]), length, length + len(inner)))
        length += len(inner)
        pieces += (before, inner)
        position = match.end()
    pieces.append(marked[position:])
    return Sentence(
        "".join(pieces), tuple(labels), str(row["lang"]), int(row["batch"]), str(row.get("case", ""))
    )
