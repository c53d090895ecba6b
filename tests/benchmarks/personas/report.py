"""The table and the plot of a file of results: one line for each method and channel, averaged over people.

Everything is a function of the outcomes, so a table can be made of an unfinished run. Averages are over people first:
one with many questions does not outweigh another. A method that was never run is not in the table; one that never got
three content sessions in a row counts with the number of its sessions, and is marked as a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from statistics import fmean

import plotext

from tests.benchmarks.personas import figures
from tests.benchmarks.personas.figures import Interval
from tests.benchmarks.personas.plan import Channel, Method
from tests.benchmarks.personas.trial import Lessons, Measure, Outcome

Line = tuple[Method, Channel]


def lines(outcomes: Iterable[Outcome]) -> dict[Line, list[Outcome]]:
    """Outcomes by method and channel, in the order of the enums."""

    def place(outcome: Outcome) -> tuple[int, int]:
        return list(Method).index(outcome.cell.method), list(Channel).index(outcome.cell.channel)

    ordered = sorted(outcomes, key=place)
    return {
        (group[0].cell.method, group[0].cell.channel): group
        for group in (list(each) for _, each in groupby(ordered, key=place))
    }


def by_person(outcomes: Sequence[Outcome], value: Callable[[Outcome], float | None]) -> list[list[float]]:
    """One value per outcome, in groups of a person; outcomes without one are left out."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        made = value(outcome)
        if made is not None:
            found.setdefault(outcome.cell.person, []).append(made)
    return list(found.values())


def at(outcome: Outcome, interactions: int) -> Measure | None:
    """The measure after so many interactions; a method that never changes has its last one for all later ones."""
    return next((each for each in outcome.measures if each.interactions == interactions), None)


def adherence(outcomes: Sequence[Outcome], interactions: int) -> Interval | None:
    """Share of unseen replies that keep to the rule, over people."""

    def share(outcome: Outcome) -> float | None:
        measure = at(outcome, interactions)
        return measure.kept / measure.asked if measure is not None and measure.asked else None

    groups = by_person(outcomes, share)
    return figures.mean(groups) if groups else None


def gain(outcomes: Sequence[Outcome], interactions: int) -> Interval | None:
    """The same, against the untaught model on the same questions, in pairs."""

    def gained(outcome: Outcome) -> float | None:
        before, after = at(outcome, 0), at(outcome, interactions)
        if before is None or after is None or not after.asked:
            return None
        return after.kept / after.asked - before.kept / before.asked

    groups = by_person(outcomes, gained)
    return figures.mean(groups) if groups else None


def promoted(outcomes: Sequence[Outcome]) -> Interval | None:
    """Share of rounds that put a version live."""
    rounds = [measure.learned for outcome in outcomes for measure in outcome.measures if measure.learned]
    if not rounds:
        return None
    return figures.wilson(sum(each.outcome == "promoted" for each in rounds), len(rounds))


def sessions(outcomes: Sequence[Outcome]) -> str:
    """Mean number of sessions until three in a row satisfy; with ≥ where one never came to it."""
    counts = [(figures.sessions_until_content(each.satisfied), len(each.satisfied)) for each in outcomes]
    if not counts:
        return ""
    bound = "≥ " if any(reached is None for reached, _ in counts) else ""
    return f"{bound}{fmean(of if reached is None else reached for reached, of in counts):.1f}"


def table(outcomes: Sequence[Outcome]) -> str:
    """The table in Markdown."""
    steps = sorted({step for outcome in outcomes for step in outcome.cell.checkpoints})
    head = ["method", "channel", "cells", "before", *(f"after {step}" for step in steps)]
    head += [
        "gain at the end",
        "over-applied",
        "sessions",
        "ability",
        "KL",
        "promoted",
        "s per round",
        "CPU s per unit",
    ]
    rows = [head, ["---"] * len(head)]
    for (method, channel), group in lines(outcomes).items():
        last = max((measure.interactions for each in group for measure in each.measures), default=0)
        rows.append(
            [
                method,
                channel,
                str(len(group)),
                *(_shown(adherence(group, step)) for step in (0, *steps)),
                _shown(gain(group, last)),
                *_costs(group),
            ]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _costs(group: Sequence[Outcome]) -> list[str]:
    ends = [each.measures[-1] for each in group if len(each.measures) > 1]
    starts = [each.measures[0] for each in group if len(each.measures) > 1]
    rounds = [measure.learned for each in group for measure in each.measures if measure.learned]
    drifts = [each.kl for each in rounds if each.kl is not None]
    units = sum(each.units for each in rounds)
    return [
        f"{sum(e.overdone for e in ends)}/{sum(e.exempt for e in ends)} (base {sum(s.overdone for s in starts)})",
        sessions(group),
        f"{fmean(e.ability - s.ability for e, s in zip(ends, starts, strict=True)):+.3f}" if ends else "",
        f"{fmean(drifts):.3f}" if drifts else "",
        _shown(promoted(group)),
        f"{fmean(each.seconds for each in rounds):.0f}" if rounds else "",
        f"{sum(each.cpu_seconds for each in rounds) / units:.1f}" if units else "",
    ]


def plot(outcomes: Sequence[Outcome], width: int = 100, height: int = 28) -> str:
    """Adherence over interactions, one line for each method and channel, as text."""
    plotext.clear_figure()
    plotext.plotsize(width, height)
    plotext.theme("clear")
    for (method, channel), group in lines(outcomes).items():
        steps = sorted({measure.interactions for each in group for measure in each.measures})
        shares = [(step, adherence(group, step)) for step in steps]
        known = [(step, share.value) for step, share in shares if share is not None]
        plotext.plot([step for step, _ in known], [share for _, share in known], label=f"{method}, {channel}")
    plotext.ylim(0, 1)
    plotext.xlabel("interactions")
    plotext.ylabel("share of unseen replies that keep to the rule")
    return str(plotext.uncolorize(plotext.build()))


def matrix(lessons: Lessons) -> str:
    """The forgetting matrix in Markdown, with its backward transfer."""
    head = ["after", *lessons.people, "outcome"]
    rows = [head, ["---"] * len(head), ["nothing", *(f"{share:.2f}" for share in lessons.before), ""]]
    for name, shares, outcome in zip(lessons.people, lessons.adherence, lessons.outcomes, strict=True):
        rows.append([name, *(f"{share:.2f}" for share in shares), outcome])
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
    if len(lessons.people) > 1:
        text += f"\nBackward transfer {figures.backward_transfer(lessons.adherence):+.3f}\n"
    return text


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return str(interval) if abs(interval.low) < 10 else f"{interval.value:.2f}"
