"""What the versions screen shows, read in one go off the UI loop, and the list of versions itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.service import LearningStatus, Taught
from app.tui import lineage, timeline_words
from app.tui.ports import ChatService
from app.tui.satisfaction import DAYS, Record
from store.adapters import Adapter, Serving
from store.progress import Tally
from store.timeline import Since
from store.types import UnitUse
from store.units import Unit

BASE = "base"
NEXT = "next"
SHOWN_UNITS = 30


@dataclass(frozen=True)
class Shelf:
    """All versions, which one answers, which one is pinned, what the next would learn, and how it all went."""

    adapters: list[Adapter]
    serving: Serving
    pinned: str | None
    learning: LearningStatus
    waiting: list[Taught]
    refused: list[Taught]
    record: Record
    yesterday: Since

    @classmethod
    def read(cls, service: ChatService) -> Shelf:
        """Everything the screen shows."""
        learning = service.snapshot().learning
        versions = service.adapters()
        return cls(
            versions,
            service.serving(),
            service.pinned(),
            learning,
            [_lesson(service, unit) for unit in learning.waiting[:SHOWN_UNITS]],
            [_lesson(service, unit) for unit in learning.refused[:SHOWN_UNITS]],
            Record(
                service.progress_by_day(_stored(datetime.now(UTC) - timedelta(days=DAYS))),
                service.progress_by_adapter(),
                versions,
                service.timeline(),
            ),
            service.changes(_stored(timeline_words.start_of_yesterday())),
        )

    @property
    def live(self) -> str:
        """The id of the row that answers now."""
        return self.serving.adapter.id if self.serving.adapter else BASE

    @property
    def tallies(self) -> Mapping[str | None, Tally]:
        """What was said of each version's replies."""
        return self.record.versions

    def version(self, adapter: str | None) -> Adapter | None:
        """A version by its id; None for the base."""
        return next((each for each in self.adapters if each.id == adapter), None)

    def options(self) -> list[Option]:
        """The rows of the list, the newest first and the base at the bottom."""
        rows = []
        if self.waiting or self.refused or self.learning.run is not None:
            rows.append(Option(lineage.next_row(self.learning), id=NEXT))
        rows += [
            Option(lineage.version_row(each, self.serving, each.id == self.pinned), id=each.id)
            for each in self.adapters
        ]
        return [*rows, Option(lineage.base_row(self.live == BASE), id=BASE)]


class VersionList(OptionList):
    """The versions. Left and right turn the strength, which is what a list has no use for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,minus", "screen.strength(-1)", "weaker", show=False),
        Binding("right,plus,equals_sign", "screen.strength(1)", "stronger", show=False),
    ]


def _lesson(service: ChatService, unit: Unit) -> Taught:
    reply = service.message(unit.message).message
    question = service.message(reply.parent).message.text if reply.parent else ""
    return Taught(unit, UnitUse.TRAINED, question, reply.text)


def _stored(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
