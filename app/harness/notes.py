"""What a guard found wrong with a reply and could not put right, told again whenever the reply is shown.

The verdict that is kept with a reply holds no words, which may quote what is forgotten one day. They are made again by
the same check of the same guard, since neither a reply nor a version of a guard ever changes; where the guard is gone,
that is what is said.
"""

from __future__ import annotations

from app.harness import guards
from app.harness.guards import Finding, Verdict
from store import events, items
from store.conversations import Message
from store.db import Store
from store.errors import NotFound

GONE = "it broke a guard that was forgotten since"


def of(store: Store, reply: Message) -> str | None:
    """The note under a reply that was passed on as it is; None where nothing was wrong with it."""
    broken = [
        _finding(store, reply.text, verdict["item"], verdict["template"])
        for verdict in events.guard_verdicts(store, reply.id)
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
