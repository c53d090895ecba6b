"""What happened to the versions, in the order it happened: made, refused, live, chosen, rolled back.

Read from the log of activations and from the decisions, both append-only, so the timeline cannot tell anything else
than what was done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from store import adapters, progress
from store.adapters import Adapter
from store.db import Store
from store.progress import Tally
from store.types import Actor


class Happening(StrEnum):
    """One kind of event in the life of a model."""

    LIVE = "live"
    REFUSED = "refused"
    CHOSEN = "chosen"
    ROLLED_BACK = "rolled_back"
    WITHDRAWN = "withdrawn"
    TAKEN_BACK = "taken_back"
    KEPT_BACK = "kept_back"
    DELETED = "deleted"


@dataclass(frozen=True)
class Moment:
    """One event. ``adapter`` None is the base model; ``detail`` says why, where there is a reason."""

    created: str
    happening: Happening
    adapter: Adapter | None
    scale: float
    detail: str


@dataclass(frozen=True)
class Since:
    """What changed since a moment: what was said of replies, and what happened, oldest first."""

    moment: str
    tally: Tally
    moments: list[Moment]


def moments(store: Store, base_hash: str, since: str = "") -> list[Moment]:
    """Everything that happened to this base's versions from a moment on, oldest first."""
    known = {adapter.id: adapter for adapter in adapters.list_(store, base_hash)}
    found = [*_activations(store, base_hash, known, since), *_decisions(store, known, since)]
    return sorted(found, key=lambda each: each.created)


def changes(store: Store, base_hash: str, since: str) -> Since:
    """What changed since a moment (as `ids.now` writes it)."""
    return Since(since, progress.since(store, since), moments(store, base_hash, since))


def _activations(store: Store, base_hash: str, known: dict[str, Adapter], since: str) -> list[Moment]:
    rows = store.conn.execute(
        "SELECT * FROM activations WHERE base_hash = ? AND created >= ? ORDER BY id", (base_hash, since)
    )
    found = []
    for row in rows:
        adapter = known.get(row["adapter"]) if row["adapter"] else None
        reason = str(row["reason"])
        match Actor(row["actor"]):
            case Actor.GATE:
                happening, detail = (
                    Happening.LIVE,
                    str((adapter.gate if adapter else {}).get("summary") or ""),
                )
            case Actor.WATCH:
                happening, detail = Happening.TAKEN_BACK, reason
            case Actor.HOST:
                happening, detail = Happening.WITHDRAWN, reason
            case Actor.OWNER if reason.startswith("rolled back"):
                happening, detail = Happening.ROLLED_BACK, reason
            case _:
                happening, detail = Happening.CHOSEN, ""
        found.append(Moment(row["created"], happening, adapter, row["scale"], detail))
    return found


_CHOICES = {"reject": Happening.REFUSED, "keep": Happening.KEPT_BACK, "delete files": Happening.DELETED}


def _decisions(store: Store, known: dict[str, Adapter], since: str) -> list[Moment]:
    rows = store.conn.execute(
        "SELECT created, json_extract(inputs, '$.adapter') AS adapter, json_extract(choice, '$.action') AS action, "
        "json_extract(choice, '$.reason') AS reason FROM decisions WHERE created >= ? ORDER BY seq",
        (since,),
    )
    return [
        Moment(row["created"], _CHOICES[row["action"]], known[row["adapter"]], 1.0, str(row["reason"] or ""))
        for row in rows
        if row["action"] in _CHOICES and row["adapter"] in known
    ]
