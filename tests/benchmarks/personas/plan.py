"""What a run consists of: methods, channels, and cells, one for each person, method, channel, model and seed.

A cell is the unit that is kept, skipped when it is there already, and averaged over; everything that could change its
figures is in its key, so that a file of results cannot mix two different questions.
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


def fits(method: Method, channel: Channel) -> bool:
    """Whether a method has anything to learn from on a channel.

    Nothing is learned without learning, so it is run on one channel only; a text is needed for SFT and `correction`; a
    hint or a text for `opd`; and the oracle stands for what a judge would have to read.
    """
    match method:
        case Method.NONE:
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
    questions. ``model`` None is the default one.
    """

    person: str
    method: Method
    channel: Channel
    seed: int
    checkpoints: tuple[int, ...]
    asked: int
    model: str | None = None

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
) -> list[Cell]:
    """All cells that make sense, person by person, so that a run that is cut off has whole people.

    No learning is the same on every channel, so it is there once whatever the channels are.
    """
    return [
        Cell(person, method, channel, seed, tuple(checkpoints), asked, model)
        for seed in seeds
        for person in people
        for method in methods
        for channel in ([Channel.ALL] if method is Method.NONE else channels)
        if fits(method, channel)
    ]
