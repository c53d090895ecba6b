"""Conversations out, one JSON object a line, with what was left out counted so that nobody is surprised.

A conversation is read, redacted and written before the next one is looked at: a million messages pass through
without being in memory at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from store import conversations
from store.db import Store
from store.exchange import atif, datasets, records
from store.exchange.records import Record, Redaction


class Format(StrEnum):
    """The formats that can be written."""

    ATIF = "atif"
    TRL_SFT = "trl-sft"
    TRL_KTO = "trl-kto"
    TRL_DPO = "trl-dpo"
    SHAREGPT = "sharegpt"
    OPENAI = "openai"

    @property
    def trains(self) -> bool:
        """Whether the format is for training alone, so that the dial of each conversation decides."""
        return self in (Format.TRL_SFT, Format.TRL_KTO, Format.TRL_DPO)


_LAYOUTS: dict[Format, Callable[[Record], Iterator[dict[str, Any]]]] = {
    Format.TRL_SFT: datasets.trl_sft,
    Format.TRL_KTO: datasets.trl_kto,
    Format.TRL_DPO: datasets.trl_dpo,
    Format.SHAREGPT: datasets.sharegpt,
    Format.OPENAI: datasets.openai,
}


@dataclass(frozen=True)
class Request:
    """What to write. ``version`` is the program's; ``models`` names base models by their hash, where known."""

    form: Format
    redaction: Redaction
    version: str
    conversation: str | None = None
    models: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Tally:
    """What an export came to, counted while it is written."""

    lines: int = 0
    conversations: int = 0
    without_consent: int = 0


def lines(store: Store, request: Request, tally: Tally) -> Iterator[str]:
    """The export, line by line without line ends.

    Raises:
        NotFound: the conversation that was asked for is not there.
    """
    wanted = records.ids(store) if request.conversation is None else [request.conversation]
    if request.conversation is not None:
        conversations.get(store, request.conversation)
    for conversation in wanted:
        record = records.load(store, conversation, request.redaction)
        if request.form.trains and not record.trainable:
            tally.without_consent += 1
            continue
        before = tally.lines
        for row in _rows(record, request):
            tally.lines += 1
            yield json.dumps(row, ensure_ascii=False, allow_nan=False)
        tally.conversations += tally.lines > before


def _rows(record: Record, request: Request) -> Iterator[dict[str, Any]]:
    if request.form is Format.ATIF:
        return atif.trajectories(record, request.version, request.models)
    return _LAYOUTS[request.form](record)
