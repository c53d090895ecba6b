"""Which messages contain a text, newest first, without reading the others.

From three characters on the trigram index answers, and it answers in the order of the rows: a word that a third of
a million messages hold costs as much as one that fifty hold, for nobody reads further. Shorter texts are no token of
that index. They are first sought in the newest messages, where a common one is found often enough. A rarer one begins
some of the index's trigrams, which a walk over its terms finds; only at the last two characters of a text no trigram
begins, and these have indexes of their own. Korean and Chinese words are often two characters long, and whole
messages one.

The index finds a phrase by going through the rows of all its trigrams at once, which is dear where they are common
and meet rarely. Where one of them is rare, the rows that have it and one other are read and looked into instead.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache

from store import textindex
from store.db import Store
from store.textindex import Rows, quoted

TRIGRAM = 3
NEWEST = 500
"""So many messages are read when two characters or one are sought; a reader looks at fifty."""

_TERMS_AT_ONCE = 200
_READ_AT_ONCE = 64
_LEAST_TRIGRAMS = 4
_PROBED = 3
_PROBE, _RARE = 32, 256
"""A trigram is rare if its 32 newest messages lie 8,192 back: fewer than one message in 256 has it."""

_FREQUENT = " etaoinshrdlu"
_LAST = "\U0010ffff"


def newest_first(store: Store, wanted: str) -> Rows:
    """The rows of `messages` whose text contains ``wanted`` (not empty, no NUL), whatever the case of its letters."""
    if len(wanted) >= TRIGRAM:
        rare = _rare_trigrams(store, wanted)
        if not rare:
            return textindex.matching(store.conn, quoted(wanted))
        return _holding(store, wanted, textindex.matching(store.conn, " AND ".join(map(quoted, rare))))
    return _short(store, wanted)


def _rare_trigrams(store: Store, wanted: str) -> list[str]:
    """A trigram of a text that is rare enough to read all messages that have it, and one from elsewhere in the text.

    The second leaves few of these to read: a seventh where `#27` stood in 2,651 of a million messages, so that a search
    took 5.5 ms instead of 27.5. Empty where none is rare.
    """
    trigrams = {wanted[at : at + TRIGRAM]: at for at in range(len(wanted) - TRIGRAM + 1)}
    if len(trigrams) < _LEAST_TRIGRAMS:
        return []
    likely = sorted(trigrams, key=_likeness_to_words)
    reach = cache(lambda trigram: textindex.reach(store.conn, quoted(trigram), _PROBE))
    newest = store.conn.execute("SELECT max(rowid) FROM messages").fetchone()[0] or 0
    for rare in likely[:_PROBED]:
        if reach(rare) < newest - _RARE * _PROBE:
            # Neighbours share two characters and tell little of each other.
            apart = [each for each in likely if abs(trigrams[each] - trigrams[rare]) > 1][:_PROBED]
            return [rare, *sorted(apart, key=reach)[:1]]
    return []


def _likeness_to_words(trigram: str) -> tuple[int, int]:
    """Low for signs, digits and the letters that English has least of: such a trigram is likely to be rare."""
    places = [_FREQUENT.find(character) for character in trigram.lower()]
    return sum(place >= 0 for place in places), -sum(places)


def _holding(store: Store, wanted: str, rows: Rows) -> Rows:
    """Those of the rows whose text contains it."""
    folded = _as_indexed(wanted)
    with closing(rows):
        while batch := list(itertools.islice(rows, _READ_AT_ONCE)):
            texts = store.conn.execute(
                f"SELECT rowid, text FROM messages WHERE rowid IN ({', '.join('?' * len(batch))}) "
                "ORDER BY rowid DESC",
                batch,
            ).fetchall()
            yield from (int(row[0]) for row in texts if folded in _as_indexed(row[1]))


def _short(store: Store, wanted: str) -> Rows:
    floor = _floor(store)
    yield from _among_newest(store, wanted, floor)
    if floor is None:
        return
    folded = _as_indexed(wanted)
    sources: list[Iterator[int]] = [
        textindex.matching(store.conn, " OR ".join(map(quoted, terms)), floor)
        for terms in _batches(sorted(set(textindex.terms(store.conn, folded))))
    ]
    sources += [_ending(store, *each, floor) for each in _endings(wanted)]
    yield from textindex.newest_of(sources)


def _floor(store: Store) -> int | None:
    """The oldest row of those that are read; None where there are no others."""
    row = store.conn.execute(
        "SELECT rowid FROM messages ORDER BY rowid DESC LIMIT 1 OFFSET ?", (NEWEST - 1,)
    ).fetchone()
    return None if row is None else int(row[0])


def _among_newest(store: Store, wanted: str, floor: int | None) -> Iterator[int]:
    forms = sorted(_cases(wanted))
    # Not LIKE, which decodes every character: five times slower.
    condition = " OR ".join(["instr(text, ?)"] * len(forms))
    return _rows(
        store.conn.execute(
            f"SELECT rowid FROM messages WHERE rowid >= ? AND ({condition}) ORDER BY rowid DESC",
            (floor or 0, *forms),
        )
    )


def _endings(wanted: str) -> Iterator[tuple[str, str, str, str]]:
    """Where else it may stand, as an indexed expression with its index and the range to look for in it."""
    for form in _cases(wanted):
        yield "idx_messages_last_two", "substr(text, -2)", form, form + (_LAST if len(form) == 1 else "")
        if len(form) == 1:
            yield "idx_messages_last_one", "substr(text, -1)", form, form


def _ending(store: Store, index: str, expression: str, first: str, last: str, below: int) -> Iterator[int]:
    # Left to itself, the planner reads all rows in their order rather than sort the few that fit.
    return _rows(
        store.conn.execute(
            f"SELECT rowid FROM messages INDEXED BY {index} WHERE {expression} BETWEEN ? AND ? AND rowid < ? "
            "ORDER BY rowid DESC",
            (first, last, below),
        )
    )


def _cases(text: str) -> set[str]:
    """A short text with each letter small and large."""
    return {"".join(each) for each in itertools.product(*({c, c.lower(), c.upper()} for c in text))}


def _as_indexed(text: str) -> str:
    return text.lower() if text.isascii() else "".join(map(_folded, text))


def _folded(character: str) -> str:
    """As the index folds it: one character stays one."""
    small = character.lower()
    return small if len(small) == 1 else character


def _batches(terms: list[str]) -> Iterator[list[str]]:
    left = iter(terms)
    while batch := list(itertools.islice(left, _TERMS_AT_ONCE)):
        yield batch


def _rows(cursor: sqlite3.Cursor) -> Iterator[int]:
    return (int(row[0]) for row in cursor)
