"""What the replies say about the agent: failures by signature, with counts over conversations and intervals.

Only steps with a valid reward count: a reply that a model made here, that came to its end, and in whose conversation
nothing forbids looking. A fault of the machinery says nothing about the model; it is counted apart, shown, and never
enters a statistic, nor does a reply that is nothing but a service's notice of a quota. Intervals are Wilson's at 95 %
(Wilson 1927), which stay honest at three of five.

The statistics live in memory and follow the store by what is new since the last look. What is taken away (a message
forgotten, a conversation deleted) cannot be followed like that: then everything is read again, which is quick.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from store import asked, causes, units
from store.causes import Reading, Signature
from store.conversations import ASIDE, PROGRAM, REPLACED
from store.db import Store
from store.redaction import contains_secret
from store.types import Consent, ErrorClass, EventKind, MessageStatus, UnitKind, UnitState

Z = 1.959964
REQUESTS_LAST = timedelta(days=1)
"""A standing request that nobody acted on within a day is not dug out of a history any more."""
TOPICS_LAST = 20_000
"""Messages, the newest, of whose questions it is known what they are about: that matters for the newest occasions."""
WINDOW = 200
"""Occasions that a rate is read from, the newest: what was long ago says little about what to change now."""

FAULT_NOTICE, NO_CONSENT, ELSEWHERE = "fault_notice", "no_consent", "not_made_here"

_NOTICE = re.compile(
    r"^\W*(?:error\W+)?(?:\d{3}\W+)?(?:.{0,40}?)(?:rate.?limit|usage limit|quota|too many requests|overloaded|"
    r"service unavailable|billing|insufficient credits|out of memory|timed? ?out|connection (?:refused|reset|closed)|"
    r"context (?:length|window) (?:exceeded|overflow))",
    re.IGNORECASE | re.DOTALL,
)
_NOTE = (
    "CASE WHEN units.kind = 'correction' AND units.hint IS NULL THEN (SELECT CASE WHEN value < 0 THEN signals.text END "
    "FROM signals WHERE signals.message = units.message AND signals.kind = 'thumb' AND signals.source = 'user' "
    "ORDER BY signals.rowid DESC LIMIT 1) END"
)
"""What was said with the thumb down beside a correction. The lesson is the correction, so its unit does not hold it."""
_LONGEST_NOTICE = 200
_ENDED = frozenset({MessageStatus.COMPLETE.value, MessageStatus.STOPPED.value})


@dataclass(frozen=True)
class Count:
    """Failures among occasions, and over how many conversations."""

    failures: int
    conversations: int
    steps: int

    @property
    def rate(self) -> float:
        """Failures per occasion, 0 to 1."""
        return self.failures / self.steps if self.steps else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true rate is, at 95 %."""
        return wilson(self.failures, self.steps)

    def as_dict(self) -> dict[str, float]:
        """For a decision's record."""
        low, high = self.interval
        return {
            "failures": self.failures,
            "conversations": self.conversations,
            "steps": self.steps,
            "low": round(low, 4),
            "high": round(high, 4),
        }

    @classmethod
    def of(cls, record: dict[str, float]) -> Count:
        """The count of a record."""
        return cls(int(record["failures"]), int(record["conversations"]), int(record["steps"]))


@dataclass(frozen=True)
class Failure:
    """One failed reply. ``place`` is its step's; ``unit`` its learning unit; ``said`` what a rule can be made of.

    ``target``: the owner's own version of it.
    """

    place: int
    message: str
    conversation: str
    created: str
    unit: str
    said: str | None
    target: str | None = None


@dataclass(frozen=True)
class Request:
    """One standing request of the owner's, with the message and the characters it stands in."""

    signature: Signature
    said: str
    message: str
    span: tuple[int, int]
    created: str


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Wilson's score interval of a share at 95 %; the whole range where there is nothing."""
    if n == 0:
        return 0.0, 1.0
    share, square = successes / n, Z * Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = Z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    # The bounds of none and of all are exactly 0 and 1; the sums miss them by a rounding.
    return (0.0 if successes == 0 else middle - half), (1.0 if successes == n else middle + half)


def fault_notice(text: str) -> bool:
    """Whether a reply is nothing but a service's word that it cannot serve."""
    return len(text) <= _LONGEST_NOTICE and _NOTICE.search(text) is not None


class Evidence:
    """The statistics of one home. For one thread, as its store is."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._message = self._event = self._request = self._seen = 0
        self._touched = ""
        self._open: set[int] = set()
        self._created: list[str] = []
        self._names: list[str] = []
        self._adapter: list[str | None] = []
        self._place: dict[str, int] = {}
        self._items: dict[str, set[str]] = defaultdict(set)
        self._all: list[int] = []
        self._by_kind: dict[str, list[int]] = {causes.PROSE: [], causes.CODE: []}
        self._by_topic: dict[str, list[int]] = defaultdict(list)
        self._failures: dict[Signature, dict[str, Failure]] = defaultdict(dict)
        self._signature: dict[str, Signature] = {}
        self._broken: dict[str, str] = {}
        self._invalid: dict[str, str] = {}
        self.requests: list[Request] = []
        self.units_of_faults: dict[str, str] = {}
        self._touched_signatures: set[Signature] = set()

    @property
    def steps(self) -> int:
        """Valid steps so far."""
        return len(self._all)

    @property
    def signatures(self) -> list[Signature]:
        """Every signature that has a failure or a request, in order."""
        asked_for = {request.signature for request in self.requests}
        return sorted({signature for signature, found in self._failures.items() if found} | asked_for)

    def touched(self) -> list[Signature]:
        """The signatures that something new was said of since this was last asked, in order."""
        found = sorted(self._touched_signatures)
        self._touched_signatures.clear()
        return found

    @property
    def excluded(self) -> dict[str, int]:
        """How many replies do not count, by why."""
        return dict(sorted(Counter([*self._broken.values(), *self._invalid.values()]).items()))

    def failures(self, signature: Signature, after: str = "") -> list[Failure]:
        """The failures of a signature whose replies are younger than a moment, oldest first."""
        found = self._failures.get(signature, {}).values()
        return sorted((each for each in found if each.created > after), key=lambda each: each.place)

    def signature_of(self, message: str) -> Signature | None:
        """What is known to be wrong with a reply."""
        return self._signature.get(message)

    def count(
        self,
        signature: Signature,
        after: str = "",
        until: str = "",
        exposed: Callable[[int], bool] | None = None,
    ) -> Count:
        """How often replies failed like this among the newest occasions for it, between two moments.

        Occasions begin with the first failure in the span: before it, nobody minded. ``exposed`` says of a step
        whether what is to be measured was in force.
        """
        failed = {
            each.place: each
            for each in self.failures(signature, after)
            if (not until or each.created <= until)
        }
        occasions = self._occasions(signature)
        start = bisect_right(occasions, after, key=self._created.__getitem__) if after else 0
        end = bisect_right(occasions, until, key=self._created.__getitem__) if until else len(occasions)
        if not after:
            first = min(failed, default=len(self._created))
            start = max(start, bisect_right(occasions, first - 1))
        chosen = occasions[start:end]
        if exposed is not None:
            chosen = [place for place in chosen if exposed(place)]
        chosen = chosen[-WINDOW:]
        inside = [failed[place] for place in chosen if place in failed]
        return Count(len(inside), len({each.conversation for each in inside}), len(chosen))

    def with_item(self, item: str) -> Callable[[int], bool]:
        """Whether an item was in force in a step."""
        places = self._items.get(item, set())
        return lambda place: self._names[place] in places

    def with_any_adapter(self) -> Callable[[int], bool]:
        """Whether anything learned was in force in a step."""
        return lambda place: self._adapter[place] is not None

    def with_adapter_of(self, adapters: Container[str]) -> Callable[[int], bool]:
        """Whether one of some adapters was in force in a step."""
        return lambda place: self._adapter[place] in adapters

    def _occasions(self, signature: Signature) -> list[int]:
        if signature.cause.of_facts:
            return self._by_topic.get(signature.topic, [])
        return self._by_kind.get(signature.topic, self._all)

    # Following the store

    def update(self, store: Store) -> bool:
        """Take in what is new; whether anything was."""
        if store.conn.in_transaction:
            return self._update(store)
        # One moment of the store, or a reply that comes in between is counted twice or not at all.
        store.conn.execute("BEGIN")
        try:
            return self._update(store)
        finally:
            store.conn.execute("COMMIT")

    def _update(self, store: Store) -> bool:
        total, newest = store.conn.execute(
            "SELECT (SELECT count(*) FROM messages), (SELECT coalesce(max(rowid), 0) FROM messages)"
        ).fetchone()
        fresh = store.conn.execute(
            "SELECT count(*) FROM messages WHERE rowid > ?", (self._message,)
        ).fetchone()[0]
        rebuilt = total != self._seen + fresh or newest < self._message
        if rebuilt:
            self._clear()
        changed = self._take_messages(store) or rebuilt
        self._seen = total
        changed = self._take_requests(store) or changed
        changed = self._take_exposures(store) or changed
        return self._take_units(store) or changed

    def _take_messages(self, store: Store) -> bool:
        columns = (
            "SELECT m.rowid, m.id, m.created, m.status, m.error_class, m.base_hash, m.adapter, "
            f"m.context_items, instr(m.text, '```'), CASE WHEN length(m.text) <= {_LONGEST_NOTICE} "
            f"THEN m.text END, substr(q.text, 1, 400), {REPLACED.replace('sampler', 'm.sampler')} "
            "FROM messages AS m LEFT JOIN messages AS q ON q.id = m.parent AND m.rowid > ? "
            "WHERE m.role = 'assistant' AND "
        )
        newest = store.conn.execute("SELECT coalesce(max(rowid), 0) FROM messages").fetchone()[0]
        spans: list[tuple[str, int | str]] = [("m.rowid > ?", self._message)]
        if self._open:
            spans.insert(0, ("m.rowid IN (SELECT value FROM json_each(?))", json.dumps(sorted(self._open))))
            self._open.clear()
        took = False
        for clause, value in spans:
            found = store.conn.execute(
                f"{columns} {clause} AND m.rowid <= ? ORDER BY m.rowid",
                (newest - TOPICS_LAST, value, newest),
            )
            for row in found:
                took = True
                self._take_reply(row)
        self._message = max(self._message, newest)
        return took

    def _take_reply(self, row: sqlite3.Row) -> None:
        rowid, message, created, status, error, base, adapter, items, fenced, text, question, replaced = row
        if replaced is not None:
            self._leave_out(replaced)
        if status == MessageStatus.GENERATING:
            self._open.add(rowid)
            return
        if base is None:
            self._broken[message] = ELSEWHERE
            return
        if error or status not in _ENDED:
            self._broken[message] = error or ErrorClass.UNKNOWN.value
            return
        if text is not None and fault_notice(text):
            self._broken[message] = FAULT_NOTICE
            return
        place = len(self._created)
        # A reply that was long in the making is entered when it ends: the order of entry is the order of time.
        self._created.append(max(created, self._created[-1]) if self._created else created)
        self._names.append(message)
        self._adapter.append(adapter)
        self._place[message] = place
        self._all.append(place)
        self._by_kind[causes.CODE if fenced else causes.PROSE].append(place)
        if question is not None:
            self._by_topic[causes.topic_of(question)].append(place)
        if items and items != "[]":
            for item in json.loads(items):
                self._items[item].add(message)

    def _leave_out(self, attempt: str) -> None:
        """Nobody saw it: a guard asked for another reply, which is the one that counts."""
        place = self._place.pop(attempt, None)
        if place is None:
            return
        for places in (self._all, *self._by_kind.values(), *self._by_topic.values()):
            at = bisect_left(places, place)
            if places[at : at + 1] == [place]:
                del places[at]

    def _take_requests(self, store: Store) -> bool:
        """What was noted as asked for when it was typed, of the last day, where it may be remembered."""
        rows = store.conn.execute(
            "SELECT events.seq, messages.id, messages.text, messages.created, action FROM events "
            "JOIN messages ON messages.id = events.message "
            "JOIN conversations ON conversations.id = events.conversation AND feed_memory = ? "
            "WHERE events.kind = ? AND events.seq > ? AND events.created > ? "
            f"AND json_extract(action, '$.{asked.NOTED}') IS NOT NULL ORDER BY events.seq",
            (
                Consent.ALLOW,
                EventKind.MEMORY_WRITE,
                self._request,
                (datetime.now(UTC) - REQUESTS_LAST).isoformat(timespec="microseconds"),
            ),
        ).fetchall()
        for row in rows:
            self._request = row["seq"]
            told = json.loads(row["action"])
            start, end = told[asked.NOTED]
            signature = Signature.parse(told[asked.ABOUT])
            self._touched_signatures.add(signature)
            said = row["text"][start:end]
            self.requests.append(Request(signature, said, row["id"], (start, end), row["created"]))
        return bool(rows)

    def _take_exposures(self, store: Store) -> bool:
        """Which guards looked at which replies: as steps of their own, or told with the reply they looked at."""
        took = False
        for row in store.conn.execute(
            "SELECT seq, message, action, harness, metadata FROM events WHERE seq > ? AND message IS NOT NULL "
            "AND (kind = ? OR instr(harness, '\"guards\"') OR instr(metadata, '\"guards\"')) ORDER BY seq",
            (self._event, EventKind.GUARD_VERDICT),
        ):
            self._event, took = row["seq"], True
            for part in ("harness", "action", "metadata"):
                told = json.loads(row[part])
                for each in (told, *(told.get("guards") or [])):
                    if isinstance(each, dict) and each.get("item"):
                        self._items[str(each["item"])].add(row["message"])
        return took

    def _take_units(self, store: Store) -> bool:
        rows = store.conn.execute(
            f"SELECT units.*, {_NOTE} AS note, m.text AS reply, q.text AS question, conversations.train AS train, "
            "conversations.source AS source "
            "FROM units JOIN messages AS m ON m.id = units.message LEFT JOIN messages AS q ON q.id = m.parent "
            "JOIN conversations ON conversations.id = units.conversation WHERE units.updated >= ? "
            "ORDER BY units.updated",
            (self._touched,),
        )
        took = False
        for row in rows:
            took = took or row["updated"] > self._touched
            self._touched = row["updated"]
            self._take_unit(row)
        return took

    def _take_unit(self, row: sqlite3.Row) -> None:
        message, kind = row["message"], UnitKind(row["kind"])
        before = self._signature.pop(message, None)
        if before is not None:
            self._failures[before].pop(message, None)
            self._touched_signatures.add(before)
        self._invalid.pop(message, None)
        place = self._place.get(message)
        why = _unusable(row)
        if why == FAULT_NOTICE:
            self.units_of_faults[row["id"]] = message
        elif why is not None:
            self._invalid[message] = why
        # That another answer was preferred does not say that this one failed.
        if place is None or why is not None or kind.approves or kind.compares or _taken_back(row):
            return
        reading = self._read(row, kind)
        self._signature[message] = reading.signature
        self._touched_signatures.add(reading.signature)
        self._failures[reading.signature][message] = Failure(
            place,
            message,
            row["conversation"],
            self._created[place],
            row["id"],
            reading.said,
            row["target"] if kind is UnitKind.CORRECTION else None,
        )

    @staticmethod
    def _read(row: sqlite3.Row, kind: UnitKind) -> Reading:
        # What a program sent next may show that a reply was wanting, but its words are nobody's rule.
        programs = kind is UnitKind.REQUERY and row["source"] in (PROGRAM, ASIDE)
        hint = None if programs else row["hint"] or row["note"]
        if hint is not None and hint == row["note"] and contains_secret(hint):
            hint = None
        return causes.of_failure(kind, row["question"] or "", row["reply"], row["target"], hint)


def _unusable(row: sqlite3.Row) -> str | None:
    if row["train"] != "allow" or row["reason"] == units.NO_CONSENT:
        return NO_CONSENT
    return FAULT_NOTICE if fault_notice(row["reply"]) else None


def _taken_back(row: sqlite3.Row) -> bool:
    """Whether nothing is held against the reply any more, or what is must not be read."""
    silent = (units.TAKEN_BACK, units.OVERTURNED, units.HOLDS_KEY)
    return bool(row["state"] == UnitState.REFUSED and row["reason"] in silent)


def of(store: Store) -> Evidence:
    """The statistics of a store, read as a whole."""
    evidence = Evidence()
    evidence.update(store)
    return evidence
