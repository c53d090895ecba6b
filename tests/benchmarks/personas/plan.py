"""What a run consists of: methods, channels, and cells, one for each person, method, channel, model and seed.

A cell is the unit that is kept, skipped when it is there already, and averaged over; everything that could change its
figures is in its key, so that a file of results cannot mix two different questions. What tells most comes first, for all
people before the next thing begins: a run that is cut off has whole comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Method(StrEnum):
    """How a model is made to follow what the person wants."""

    NONE = "none"
    MEMORY = "memory"
    BINARY = "binary"
    OPD = "opd"
    CORRECTION = "correction"
    SFT = "sft-trl"
    KTO = "kto-trl"
    COMBINED = "combined"
    ORACLE = "oracle"
    SHUFFLED = "shuffled"

    @property
    def learns(self) -> bool:
        """Whether weights change."""
        return self not in (Method.NONE, Method.MEMORY)

    @property
    def gated(self) -> bool:
        """Whether its adapters have to pass the gate: TRL's trainers are measured as they are used, without one."""
        return self not in (Method.SFT, Method.KTO)


class Channel(StrEnum):
    """What of the person's reaction reaches the model."""

    IMPLICIT = "implicit"
    THUMBS = "thumbs"
    CORRECTIONS = "corrections"
    ALL = "all"


class Way(StrEnum):
    """How the model is met: in one process with what learns (`direct`), or through a host and its learner (`subject`)."""

    DIRECT = "direct"
    HOST = "host"


_TELLING: tuple[tuple[Method, Channel], ...] = (
    (Method.COMBINED, Channel.ALL),
    (Method.NONE, Channel.ALL),
    (Method.MEMORY, Channel.ALL),
    (Method.BINARY, Channel.ALL),
    (Method.OPD, Channel.ALL),
    (Method.SFT, Channel.ALL),
    (Method.COMBINED, Channel.IMPLICIT),
    (Method.SHUFFLED, Channel.ALL),
)


def fits(method: Method, channel: Channel) -> bool:
    """Whether a method has anything to learn from on a channel.

    Without learning all channels are one, so `none` and `memory` are run once; a text is needed for SFT and `correction`;
    a hint or a text for `opd`; and the oracle stands for what a judge would have to read.
    """
    match method:
        case Method.NONE | Method.MEMORY:
            return channel is Channel.ALL
        case Method.CORRECTION | Method.SFT:
            return channel in (Channel.CORRECTIONS, Channel.ALL)
        case Method.OPD:
            return channel is not Channel.THUMBS
        case Method.ORACLE:
            return channel in (Channel.IMPLICIT, Channel.ALL)
        case _:
            return True


@dataclass(frozen=True)
class Cell:
    """One trial. ``checkpoints``: after how many interactions it learns and is measured; ``asked``: on how many unseen
    questions. ``model`` None is the default one. ``way``: how the model is met.
    """

    person: str
    method: Method
    channel: Channel
    seed: int
    checkpoints: tuple[int, ...]
    asked: int
    model: str | None = None
    way: Way = Way.DIRECT

    @property
    def key(self) -> str:
        """All of it in one line."""
        steps = "-".join(map(str, self.checkpoints))
        return "/".join(
            (
                self.model or "default",
                self.person,
                self.method,
                self.channel,
                f"s{self.seed}",
                f"i{steps}",
                f"q{self.asked}",
                self.way,
            )
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def cells(
    people: Sequence[str],
    methods: Sequence[Method],
    channels: Sequence[Channel],
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    asked: int,
    model: str | None,
    way: Way = Way.DIRECT,
) -> list[Cell]:
    """All cells that make sense, what tells most first; a method that knows no channels is there whatever they are."""
    lines = [
        (method, channel)
        for method in methods
        for channel in ([Channel.ALL] if not method.learns else channels)
        if fits(method, channel)
    ]
    lines.sort(key=_rank)
    return [
        Cell(person, method, channel, seed, tuple(checkpoints), asked, model, way)
        for seed in seeds
        for method, channel in lines
        for person in people
    ]


def _rank(line: tuple[Method, Channel]) -> int:
    return _TELLING.index(line) if line in _TELLING else len(_TELLING)
