"""What a guard found wrong with a reply and could not put right, told again whenever the reply is shown.

The verdict that is kept with a reply holds no words, which may quote what is forgotten one day. They are made again by
the same check of the same guard, since neither a reply nor a version of a guard ever changes; where the guard is gone,
that is what is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.harness import guards
from app.harness.guards import Finding, Verdict
from store import events, items
from store.conversations import Message
from store.db import Store
from store.errors import NotFound

GONE = "it broke a guard that was forgotten since"


def under(store: Store, conversation: str, shown: Iterable[Message]) -> dict[str, str]:
    """The notes under those replies of a conversation that were passed on as they are, by reply."""
    guarded = events.guarded_in(store, conversation)
    notes = {reply.id: _note(store, reply, guarded[reply.id]) for reply in shown if reply.id in guarded}
    return {reply: note for reply, note in notes.items() if note is not None}


def _note(store: Store, reply: Message, verdicts: list[dict[str, Any]]) -> str | None:
    broken = [
        _finding(store, reply.text, verdict["item"], verdict["template"])
        for verdict in verdicts
        if verdict["verdict"] == Verdict.VIOLATED
    ]
    return guards.note(broken) if broken else None


def _finding(store: Store, reply: str, item: str, template: str) -> Finding:
    try:
        body = items.get(store, item).body
    except NotFound:
        body = {}
    known = guards.TEMPLATES.get(str(body.get("template")))
    words = None if known is None else known.check(reply, body.get("parameters") or {})
    return Finding(item, template, Verdict.VIOLATED, words or GONE)
