"""A stored conversation read whole, redacted once: what every export format lays out in its own way.

Redaction happens here and nowhere else, over all texts of a conversation in the order they were written, so that a
placeholder means the same in every message and in every format, and no format can forget it. Token ids would give
the redacted words away, so they are kept only where nothing is redacted.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from store import conversations
from store.db import Store
from store.exchange import steps
from store.provenance import own_correction
from store.types import Consent, MessageStatus, Role, SignalKind, SignalSource

Redact = Callable[[str], str]

IMPORTED = "import:"
"""Begins a conversation's source where it was held elsewhere and came in by import."""


@dataclass(frozen=True)
class Redaction:
    """How texts are made fit to leave. ``over`` is given a conversation's texts, and returns what to apply to each."""

    version: str
    over: Callable[[Sequence[str]], Redact]

    @property
    def hides(self) -> bool:
        """Whether anything may be replaced."""
        return self.version != UNREDACTED.version


UNREDACTED = Redaction("none", lambda _texts: str)


def redacted(store: Store) -> Redaction:
    """The redaction that everything leaves with unless the owner says otherwise, with the owner's own words."""
    from store.redaction import REDACTION_VERSION, Placeholders
    from store.redaction.training import redactor_of

    redactor = redactor_of(store)

    def over(texts: Sequence[str]) -> Redact:
        names = Placeholders()
        # Reserved first: a number that somebody typed must not become another individual's.
        for text in texts:
            names.reserve(text)
        return lambda text: redactor.redact(text, names).text

    return Redaction(REDACTION_VERSION, over)


@dataclass(frozen=True)
class Node:
    """One message. ``facts`` are the columns that say how a reply came about; ``model`` names a foreign model.

    ``replay`` is a recorded reply's ``class`` and ``machine``; ``steps`` are the tool calls, memory accesses and
    guards' verdicts that belong to the message. ``imported``: a file brought it.
    """

    id: str
    parent: str | None
    index: int
    role: Role
    text: str
    status: MessageStatus
    created: str
    facts: dict[str, Any]
    model: str | None
    prompt_tokens: list[int]
    completion_tokens: list[int]
    logprobs: list[float]
    signals: tuple[dict[str, Any], ...]
    replay: dict[str, Any] | None = None
    steps: tuple[dict[str, Any], ...] = ()
    imported: bool = False

    @property
    def claimed(self) -> bool:
        """Whether a program only said that this is a reply: no model here wrote it, no file of the owner's has it."""
        return self.role is Role.ASSISTANT and "base_hash" not in self.facts and not self.imported

    @property
    def correction(self) -> str | None:
        """What the owner would have liked to read instead."""
        text = str(self._latest(SignalKind.CORRECTION).get("text") or "")
        return own_correction(text, self.text) or None

    @property
    def thumb(self) -> int:
        """The owner's rating: 1, -1, or 0 for none."""
        return int(self._latest(SignalKind.THUMB).get("value") or 0)

    @property
    def reward(self) -> float | None:
        """The reply's reward as the owner gave it: -1 for a corrected one, else the thumb; None where unrated."""
        return -1.0 if self.correction is not None else float(self.thumb) if self.thumb else None

    @property
    def delivered(self) -> bool:
        """Whether this is a whole text: not cut off by the owner or by a fault."""
        return self.status is MessageStatus.COMPLETE and bool(self.text.strip())

    def _latest(self, kind: SignalKind) -> dict[str, Any]:
        mine = [each for each in self.signals if (each["kind"], each["source"]) == (kind, SignalSource.USER)]
        return mine[-1] if mine else {}


@dataclass(frozen=True)
class Record:
    """One conversation with all of its branches, in the order the messages were made."""

    id: str
    title: str
    created: str
    updated: str
    client: str
    head: str | None
    consent: dict[str, str]
    redaction: str
    nodes: tuple[Node, ...]

    @property
    def trainable(self) -> bool:
        """Whether the owner lets this conversation be trained on."""
        return self.consent["train"] == Consent.ALLOW

    @cached_property
    def by_id(self) -> dict[str, Node]:
        """The messages by their ids."""
        return {each.id: each for each in self.nodes}

    def path(self, node: Node) -> list[Node]:
        """The messages from the first one to this one."""
        upwards = [node]
        while (parent := upwards[-1].parent) is not None:
            upwards.append(self.by_id[parent])
        return upwards[::-1]

    def visible(self) -> list[Node]:
        """The branch the owner looked at last."""
        leaf = self.by_id.get(self.head or "") or (self.nodes[-1] if self.nodes else None)
        return [] if leaf is None else self.path(leaf)

    def leaves(self) -> list[Node]:
        """The messages that nothing was answered to, in the order they were made."""
        parents = {each.parent for each in self.nodes}
        return [each for each in self.nodes if each.id not in parents]


_FACTS = (
    "finished",
    "base_hash",
    "adapter",
    "scale",
    "template",
    "finish_reason",
    "error_class",
    "left_out",
)
_JSON_FACTS = ("sampler", "context_items", "usage", "timings")
_WORDED = ("stops", "grammar")
"""What a program gave along with a request: words of its own, of no use to a reply that cannot be replayed."""

_SIGNAL = ("id", "kind", "value", "text", "source", "confidence", "created", "supersedes")


def ids(store: Store) -> list[str]:
    """All conversations that are kept in history and have a finished message, oldest first."""
    rows = store.conn.execute(
        "SELECT id FROM conversations WHERE keep_history = 'allow' "
        "AND EXISTS (SELECT 1 FROM messages WHERE conversation = conversations.id AND status != ?) ORDER BY rowid",
        (MessageStatus.GENERATING,),
    )
    return [row["id"] for row in rows]


def load(store: Store, conversation: str, redaction: Redaction) -> Record:
    """One conversation, fit to leave. A reply that is still being written is left out."""
    head = conversations.get(store, conversation)
    row = store.conn.execute("SELECT * FROM conversations WHERE id = ?", (conversation,)).fetchone()
    messages = store.conn.execute(
        "SELECT messages.*, origins.model AS model, origins.message AS origin FROM messages "
        "LEFT JOIN origins ON origins.message = messages.id "
        "WHERE conversation = ? AND status != ? ORDER BY messages.rowid",
        (conversation, MessageStatus.GENERATING),
    ).fetchall()
    signals: dict[str, list[sqlite3.Row]] = {}
    for signal in store.conn.execute(
        "SELECT signals.* FROM signals JOIN messages ON messages.id = signals.message "
        "WHERE conversation = ? ORDER BY signals.rowid",
        (conversation,),
    ):
        signals.setdefault(signal["message"], []).append(signal)
    events = steps.of_conversation(store, conversation)
    told = [*_texts(head.title, messages, signals), *steps.texts(events)]
    redact = redaction.over(told)
    shown = _shown_head(store, head.head)
    return Record(
        id=conversation,
        title=redact(head.title),
        created=head.created,
        updated=head.updated,
        client=head.source.removeprefix(IMPORTED),
        head=shown,
        consent={dial: row[dial] for dial in ("keep_history", "feed_memory", "train")},
        redaction=redaction.version,
        nodes=tuple(
            replace(
                _node(index, message, signals.get(message["id"], []), redact, redaction),
                replay=steps.replay_of(events.get(message["id"], []), hidden=redaction.hides),
                steps=steps.leaving(events.get(message["id"], []), redact),
            )
            for index, message in enumerate(messages)
        ),
    )


def _texts(
    title: str, messages: Sequence[sqlite3.Row], signals: dict[str, list[sqlite3.Row]]
) -> Iterator[str]:
    yield title
    for message in messages:
        yield message["text"]
        yield message["error"] or ""
        for signal in signals.get(message["id"], []):
            yield signal["text"] or ""


def _shown_head(store: Store, head: str | None) -> str | None:
    """The head, or the question above it while its reply is being written."""
    if head is None:
        return None
    message = conversations.get_message(store, head)
    return message.parent if message.status is MessageStatus.GENERATING else head


def _node(
    index: int, row: sqlite3.Row, signals: Sequence[sqlite3.Row], redact: Redact, redaction: Redaction
) -> Node:
    facts = {name: row[name] for name in _FACTS if row[name] is not None}
    facts |= {name: value for name in _JSON_FACTS if (value := json.loads(row[name] or "null"))}
    if redaction.hides and "sampler" in facts:
        facts["sampler"] = {name: value for name, value in facts["sampler"].items() if name not in _WORDED}
    if row["error"]:
        facts["error"] = redact(row["error"])
    return Node(
        id=row["id"],
        parent=row["parent"],
        index=index,
        role=Role(row["role"]),
        text=redact(row["text"]),
        status=MessageStatus(row["status"]),
        created=row["created"],
        facts=facts,
        model=row["model"],
        prompt_tokens=[] if redaction.hides else conversations.known_numbers("i", row["prompt_tokens"]),
        completion_tokens=[]
        if redaction.hides
        else conversations.known_numbers("i", row["completion_tokens"]),
        logprobs=[] if redaction.hides else conversations.known_numbers("f", row["logprobs"]),
        signals=tuple(_signal(signal, redact) for signal in signals),
        imported=row["origin"] is not None,
    )


def _signal(row: sqlite3.Row, redact: Redact) -> dict[str, Any]:
    signal = {name: row[name] for name in _SIGNAL if row[name] is not None}
    if "text" in signal:
        signal["text"] = redact(signal["text"])
    return signal
