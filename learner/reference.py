"""Fixed texts by which a round measures what it should not change; written for this, about nobody.

Three sets that must not overlap: passages the trainer is held to while it trains (the anchor), passages only the
gate sees (a drift that is absent from what was trained on proves nothing), and questions that the gate lets the
finished adapter answer. Passages are plain text and not chat on purpose: a taught style must be free to change
every chat reply, a language model's knowledge of ordinary text must stay. The sets are part of a gate's verdict:
their hash goes into the manifest, so that two verdicts can be compared.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources

_SOURCE = resources.files(__package__).joinpath("reference.json").read_text(encoding="utf-8")
_SETS: dict[str, list[str]] = json.loads(_SOURCE)

ANCHOR_PASSAGES = tuple(_SETS["anchor_passages"])
GATE_PASSAGES = tuple(_SETS["gate_passages"])
PROBES = tuple(_SETS["probes"])


def digest() -> str:
    """16 hexadecimal digits that name this state of the sets."""
    return hashlib.sha256(_SOURCE.encode()).hexdigest()[:16]
