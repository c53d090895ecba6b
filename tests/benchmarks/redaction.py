"""What redaction finds and what it does not: precision and recall per kind, every mistake, and its pace.

A finding counts where its kind and both its borders are the label's. The rules were corrected after each batch of
the corpus, so the table of the whole says how well they fit what they have met. FIRST_CONTACT was counted before
they had met it, once per batch, and is what a new text can expect; it cannot be measured again. The last list is of
things that no rule here looks for, so no corpus can count them.

    python -m tests.benchmarks.redaction [--json] [--megabytes 1]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from store.redaction import Kind, Redactor
from tests.redaction_corpus import FIRST_CONTACT, WORDS, Count, Mistake, Score, score, sentences

NOT_LOOKED_FOR = (
    "names of people and places, street addresses, birthdays, health, employers: only the owner's list knows them",
    "bank account numbers that are no IBAN (Korean, American, British), passports, driving licences, number plates",
    "national ids other than Korea's and America's; Korean business numbers",
    "local telephone numbers without an area code, Korean short numbers (1588-…), numbers spelt out in English",
    "passwords without any name beside them, or with another sentence in between",
    "passwords made of ordinary letters in the middle of a sentence (“비번 vhtmxmrm 맞지?”)",
    "keys without an issuer's prefix or a name: a bare base64 or hex string looks like any hash",
    "pairs like “mina/hunter2” and “mina:hunter2” where no word says which is which",
    "anything split over two messages, in a picture, or encoded",
)
PACE = {
    "prose": "My dear friend, the policy says that we meet at 10:30 on 2024-01-15 in room 555. ",
    "Korean prose": "오늘은 날씨가 좋아서 친구와 함께 한강에 갔다가 010번 버스를 탔어요. ",
    "e-mail addresses": "jane.doe@example.org, ",
    "phone numbers": "010-1234-5678, ",
    "one letter": "a",
    "digits": "1",
    "digit groups": "010 ",
    "at signs": "a@b.",
    "colons": "2001:",
    "addresses": "a://b:",
    "half tokens": "-eyJ",
    "half private keys": "-----BEGIN PRI" + "VATE KEY-----\n",
    "names of passwords": "password ",
    "open quotes": 'pw="',
    "blanks": " ",
}


def table(counts: dict[Kind, Count]) -> list[dict[str, Any]]:
    """One row per kind."""
    return [
        {
            "kind": str(kind),
            "labels": count.right + count.missed,
            "precision": round(count.precision, 3),
            "recall": round(count.recall, 3),
        }
        for kind, count in counts.items()
    ]


def pace(redactor: Redactor, megabytes: float) -> dict[str, float]:
    """Seconds of processor time for texts of one repeated piece, the hostile ones included."""
    seconds: dict[str, float] = {}
    for name, piece in PACE.items():
        text = piece * int(megabytes * 1e6 / len(piece.encode()))
        began = time.process_time()
        redactor.redact(text)
        seconds[name] = round(time.process_time() - began, 2)
    return seconds


def report(result: Score, seconds: dict[str, float], megabytes: float) -> dict[str, Any]:
    """Everything that is printed."""
    return {
        "sentences": len(sentences()),
        "without labels": sum(not sentence.labels for sentence in sentences()),
        "whole corpus": table(result.counts),
        "first contact": table(FIRST_CONTACT),
        "missed": [_mistake(each) for each in result.missed],
        "wrong": [_mistake(each) for each in result.wrong],
        "not looked for": NOT_LOOKED_FOR,
        f"seconds for {megabytes:g} MB": seconds,
    }


def _mistake(mistake: Mistake) -> str:
    return f"{mistake.finding.kind}: {mistake.words!r} in {mistake.sentence.text!r}"


def _print(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, int):
            print(f"{name}: {value}")
        elif isinstance(value, dict):
            print(f"\n{name}")
            print("\n".join(f"  {key:20} {seconds:8.2f}" for key, seconds in value.items()))
        elif value and isinstance(value[0], dict):
            print(f"\n{name:16} labels  precision  recall")
            for row in value:
                print(f"  {row['kind']:14} {row['labels']:6}  {row['precision']:9.3f}  {row['recall']:6.3f}")
        else:
            print(f"\n{name} ({len(value)})")
            print("\n".join(f"  {line}" for line in value))


def main() -> None:
    """Print the tables, or all of it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--megabytes", type=float, default=1.0)
    given = parser.parse_args()
    redactor = Redactor(WORDS)
    values = report(score(redactor, sentences()), pace(redactor, given.megabytes), given.megabytes)
    if given.json:
        print(json.dumps(values, ensure_ascii=False))
    else:
        _print(values)


if __name__ == "__main__":
    main()
