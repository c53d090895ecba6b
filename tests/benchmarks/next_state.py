"""How well does it read what the owner did next? Each writer's pairs, read by a reader fitted on the other writers.

Prints, for verdicts that are used: precision and coverage (recall); accuracy of the three outcomes; and calibration
(expected calibration error over ten bins). Thresholds are chosen without the writer too. "First contact" are the
writers whose pairs nobody looked at while the reader was made. The fixed phrases of `requery` are the baseline.

    python -m tests.benchmarks.next_state [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from learner import requery
from learner.next_state import DISSATISFIED, Labelled, NextState, Reader, Reading, shipped

FIRST_CONTACT = ("dev", "elder")


def truth(state: NextState) -> int:
    """-1 for dissatisfied, +1 for thanked, 0 for anything else."""
    return -1 if state in DISSATISFIED else int(state is NextState.THANKS)


def measure(labelled: Sequence[Labelled], readings: Sequence[Reading]) -> dict[str, float]:
    """Precision and coverage of the verdicts of each sign, three-way accuracy, calibration error of the negatives."""
    truths = np.array([truth(each.state) for each in labelled])
    rewards = np.array([reading.reward for reading in readings])
    result = {"pairs": float(len(labelled)), "accuracy": float((truths == rewards).mean())}
    for name, sign in (("negative", -1), ("positive", 1)):
        given = rewards == sign
        result[f"{name} precision"] = float((truths[given] == sign).mean()) if given.any() else float("nan")
        result[f"{name} coverage"] = float((rewards[truths == sign] == sign).mean())
    used = rewards != 0
    confidence = np.array([reading.confidence for reading in readings])
    result["calibration error"] = _calibration(confidence[used], truths[used] == rewards[used])
    return result


def _calibration(confidence: Any, right: Any) -> float:
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [
        abs(confidence[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in set(bins)
    ]
    return float(sum(gaps))


def by_phrases(labelled: Sequence[Labelled]) -> list[Reading]:
    """What the fixed phrases and similarity see."""
    found = []
    for each in labelled:
        verdict = requery.judge(each.pair.question, each.pair.following, requery.sentence_similarity)
        confidence = 0.0 if verdict is None else verdict.confidence
        found.append(Reading(NextState.AGAIN, 0 if verdict is None else -1, confidence, confidence))
    return found


def by_others(labelled: Sequence[Labelled]) -> list[Reading]:
    """What a reader sees that knows every writer but the pair's own."""
    vectors = dict(zip(_texts(labelled), requery.embed(_texts(labelled)), strict=True))
    found: dict[int, Reading] = {}
    for writer in sorted({each.writer for each in labelled}):
        others = [each for each in labelled if each.writer != writer]
        mine = [index for index, each in enumerate(labelled) if each.writer == writer]
        reader = Reader(others, lambda texts: np.array([vectors[text] for text in texts]))
        found |= dict(zip(mine, reader.read([labelled[index].pair for index in mine]), strict=True))
    return [found[index] for index in range(len(labelled))]


def _texts(labelled: Sequence[Labelled]) -> list[str]:
    return sorted({text for each in labelled for text in vars(each.pair).values()})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    labelled = shipped()
    read = by_others(labelled)
    table = {
        "phrases alone, all": measure(labelled, by_phrases(labelled)),
        "reader, all": measure(labelled, read),
    }
    for name, chosen in (
        ("reader, Korean", [each.writer.startswith("ko") for each in labelled]),
        ("reader, first contact", [each.writer.split()[1] in FIRST_CONTACT for each in labelled]),
    ):
        some = [index for index, wanted in enumerate(chosen) if wanted]
        table[name] = measure([labelled[index] for index in some], [read[index] for index in some])
    for name, row in table.items():
        print(f"{name:24}" + "  ".join(f"{key} {value:.3f}" for key, value in row.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
