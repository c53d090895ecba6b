"""Results as lines of JSON, one a cell, appended when the cell is done: a run of hours must survive being cut off.

A last line that was only half written is left out and its cell made again; a cell that is there is not run twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks.personas.plan import Cell, Channel, Method, Way
from tests.benchmarks.personas.trial import Learned, Measure, Outcome


class Results:
    """A file of outcomes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Outcome]:
        """What is there, the last one of each cell."""
        found: dict[str, Outcome] = {}
        for line in self._lines():
            outcome = parsed(line)
            found[outcome.cell.key] = outcome
        return list(found.values())

    def left(self, cells: Iterable[Cell]) -> list[Cell]:
        """The cells that are not there yet."""
        done = {outcome.cell.key for outcome in self.read()}
        return [cell for cell in cells if cell.key not in done]

    def add(self, outcome: Outcome) -> None:
        """Append one, on the disk when this returns; a half line of a run that died is ended first."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        torn = (
            self._path.exists() and self._path.stat().st_size and not self._path.read_bytes().endswith(b"\n")
        )
        with self._path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + json.dumps(outcome.as_dict(), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        lines = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
        return [line for line in lines if isinstance(line, dict) and "cell" in line]


def parsed(line: dict[str, Any]) -> Outcome:
    """An outcome from its line."""
    cell = line["cell"]
    return Outcome(
        Cell(
            **{
                **cell,
                "method": Method(cell["method"]),
                "channel": Channel(cell["channel"]),
                "checkpoints": tuple(cell["checkpoints"]),
                "way": Way(cell["way"]),
            }
        ),
        list(line["satisfied"]),
        [
            Measure(**{**each, "learned": None if each["learned"] is None else Learned(**each["learned"])})
            for each in line["measures"]
        ],
    )
