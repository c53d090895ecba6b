"""Whether it gets better: the share of replies left as they were, and the corrections, day by day and by version.

A plot for the eye, and the same in numbers below it, which is what forty columns, no colour and a screen reader get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Vertical
from textual.geometry import Size
from textual_plotext import PlotextPlot

from app.tui import lineage, wording
from app.tui.pages import Line, Look, Page, line
from store.adapters import Adapter
from store.progress import Tally
from store.timeline import Happening, Moment

DAYS = 60
TICKS = 6
ROOMY = Size(50, 24)
"""The smallest pane that a plot is drawn on."""
BAR = 20


@dataclass(frozen=True)
class Record:
    """What is plotted: tallies by ISO date and by adapter, and when versions went live."""

    days: Mapping[str, Tally]
    versions: Mapping[str | None, Tally]
    adapters: Sequence[Adapter]
    moments: Sequence[Moment]


class Satisfaction(Vertical):
    """Plot and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._record: Record | None = None

    def compose(self) -> ComposeResult:
        yield PlotextPlot()
        yield Page()

    def show(self, record: Record) -> None:
        """Draw another record."""
        self._record = record
        self._plot()
        self.query_one(Page).show(numbers(record))

    def on_resize(self) -> None:
        self._plot()

    def _plot(self) -> None:
        """One day is no curve, and a plot that leaves no room for the numbers is none either."""
        plot, record = self.query_one(PlotextPlot), self._record
        roomy = self.size.height >= ROOMY.height and self.size.width >= ROOMY.width
        plot.display = roomy and record is not None and len(record.days) > 1
        if plot.display and record is not None:
            _draw(plot, record)
            plot.refresh()


def _draw(plot: PlotextPlot, record: Record) -> None:
    days = [(day, tally) for day, tally in record.days.items() if tally.left_alone is not None]
    places = [float(date.fromisoformat(day).toordinal()) for day, _ in days]
    variables = plot.app.theme_variables
    good, bad = (Color.parse(variables[name]).rgb for name in ("primary", "warning"))
    plt = plot.plt
    plt.clear_figure()
    plt.subplots(2, 1)
    ticks = places[:: max(1, -(-len(places) // TICKS))]
    labels = [date.fromordinal(int(place)).strftime("%-d %b") for place in ticks]
    upper = plt.subplot(1, 1)
    upper.title("% of replies left as they were")
    upper.plot(places, [100 * (tally.left_alone or 0.0) for _, tally in days], marker="braille", color=good)
    upper.ylim(0, 100)
    upper.yticks([0, 50, 100])
    for moment in record.moments:
        if moment.happening is Happening.LIVE:
            when = date.fromisoformat(moment.created[:10]).toordinal()
            if places[0] <= when <= places[-1]:
                upper.vline(float(when))
    upper.xticks(ticks, labels)
    lower = plt.subplot(2, 1)
    lower.title("corrections and other objections a day")
    objections = [tally.corrected + tally.down + tally.asked_again for _, tally in days]
    lower.bar(places, objections, width=0.5, color=bad)
    most = max([*objections, 1])
    lower.ylim(0, most)
    lower.yticks([0, most], ["0", f"{most}"])
    lower.xticks(ticks, labels)


def numbers(record: Record) -> list[Line]:
    """The record in words: by version, then by day, newest first."""
    names = {adapter.id: adapter.version for adapter in record.adapters}
    lines = [line(Look.HEADING, "By version")]
    for adapter, tally in sorted(record.versions.items(), key=lambda item: -names.get(item[0] or "", 0)):
        if adapter is None or adapter in names:
            name = wording.version_name(names.get(adapter) if adapter else None)
            lines.append(_row(name, tally))
    lines.append(line(Look.HEADING, "By day"))
    for day, tally in reversed(list(record.days.items())):
        lines.append(_row(date.fromisoformat(day).strftime("%-d %b"), tally))
    if not record.days:
        return [line(Look.ITEM, "Nothing to show yet: no reply was given here.")]
    return lines


def _row(name: str, tally: Tally) -> Line:
    full = round((tally.left_alone or 0.0) * BAR)
    return line(
        Look.ITEM,
        (f"{name:<7}", "bold"),
        ("━" * full, "$text-success"),
        ("─" * (BAR - full), wording.MUTED),
        f" {lineage.liked(tally)}",
    )
