"""Which messages contain a text, newest first, without reading the others.

From three characters on the trigram index answers, and it answers in the order of the rows: a word that a third of
a million messages hold costs as much as one that fifty hold, for nobody reads further. Shorter texts are no token of
that index. They are first sought in the newest messages, where a common one is found often enough. A rarer one begins
some of the index's trigrams, which a walk over its terms finds; only at the last two characters of a text no trigram
begins, and these have indexes of their own. Korean and Chinese words are often two characters long, and whole
messages one.
"""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Generator, Iterator

from store.db import Store

TRIGRAM = 3
NEWEST = 500
"""So many messages are read when two characters or one are sought; a reader looks at fifty."""

Rows = Generator[int, None, None]
"""Row numbers of `messages`, the newest first; closing it gives the database's snapshot back."""

_TERMS_AT_ONCE = 200
_LAST = "\U0010ffff"


def newest_first(store: Store, wanted: str) -> Rows:
    """The rows of `messages` whose text contains ``wanted`` (not empty, no NUL), whatever the case of its letters."""
    if len(wanted) >= TRIGRAM:
        return _matching(store, quoted(wanted), None)
    return _short(store, wanted)


def _short(store: Store, wanted: str) -> Rows:
    floor = _floor(store)
    yield from _among_newest(store, wanted, floor)
    if floor is None:
        return
    sources = [
        _matching(store, " OR ".join(map(quoted, terms)), floor)
        for terms in _batches(_trigrams(store, wanted))
    ]
    sources += [_ending(store, *each, floor) for each in _endings(wanted)]
    for row, _ in itertools.groupby(heapq.merge(*sources, reverse=True)):
        yield row


def _floor(store: Store) -> int | None:
    """The oldest row of those that are read; None where there are no others."""
    row = store.conn.execute(
        "SELECT rowid FROM messages ORDER BY rowid DESC LIMIT 1 OFFSET ?", (NEWEST - 1,)
    ).fetchone()
    return None if row is None else int(row[0])


def _among_newest(store: Store, wanted: str, floor: int | None) -> Rows:
    forms = sorted(_cases(wanted))
    # Not LIKE, which decodes every character: five times slower.
    condition = " OR ".join(["instr(text, ?)"] * len(forms))
    return _rows(
        store.conn.execute(
            f"SELECT rowid FROM messages WHERE rowid >= ? AND ({condition}) ORDER BY rowid DESC",
            (floor or 0, *forms),
        )
    )


def _matching(store: Store, expression: str, below: int | None) -> Rows:
    bound, values = ("", ()) if below is None else (" AND rowid < ?", (below,))
    return _rows(
        store.conn.execute(
            f"SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?{bound} ORDER BY rowid DESC",
            (expression, *values),
        )
    )


def _trigrams(store: Store, beginning: str) -> Iterator[str]:
    """The terms of the index that begin with one or two characters: one look-up each, however often they occur."""
    store.conn.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.trigrams USING fts5vocab(main, messages_fts, instance)"
    )
    folded = "".join(map(_folded, beginning))
    term, last = folded, folded + _LAST
    while True:
        row = store.conn.execute(
            "SELECT term FROM temp.trigrams WHERE term >= ? AND term <= ? LIMIT 1", (term, last)
        ).fetchone()
        if row is None:
            return
        yield row[0]
        # The next after it: no term continues another.
        term = row[0] + "\x01"


def _endings(wanted: str) -> Iterator[tuple[str, str, str, str]]:
    """Where else it may stand, as an indexed expression with its index and the range to look for in it."""
    for form in _cases(wanted):
        yield "idx_messages_last_two", "substr(text, -2)", form, form + (_LAST if len(form) == 1 else "")
        if len(form) == 1:
            yield "idx_messages_last_one", "substr(text, -1)", form, form


def _ending(store: Store, index: str, expression: str, first: str, last: str, below: int) -> Rows:
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


def _folded(character: str) -> str:
    """As the index folds it: one character stays one."""
    small = character.lower()
    return small if len(small) == 1 else character


def quoted(text: str) -> str:
    """As one FTS5 string: operators, quotes and punctuation in it mean nothing but themselves."""
    return '"' + text.replace('"', '""') + '"'


def _batches(terms: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(itertools.islice(terms, _TERMS_AT_ONCE)):
        yield batch


def _rows(cursor: sqlite3.Cursor) -> Rows:
    return (int(row[0]) for row in cursor)
