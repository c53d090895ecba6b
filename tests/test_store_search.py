"""Search finds every substring, whatever its length, script and age, newest first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import containing, conversations, textindex
from store.db import Store
from store.search import search
from store.types import Role
from tests.exchange_helpers import fresh_store

# Few letters, so that what is sought occurs; both cases, other scripts, and everything that SQL or FTS could mistake.
LETTERS = st.sampled_from("aAbBéÉ한국漢 '\"%_\\-+*😀")
TEXTS = st.lists(st.text(LETTERS, max_size=8), min_size=1, max_size=12)


def filled(store: Store, texts: list[str]) -> None:
    conversation = conversations.create(store, "t", "test")
    for text in texts:
        conversations.append(store, conversation, Role.USER, text, None)


def folded(text: str) -> str:
    return "".join(each.lower() for each in text)


@pytest.mark.parametrize("newest", [1, 3, 500])
@given(texts=TEXTS, wanted=st.text(LETTERS, min_size=1, max_size=4))
def test_exactly_the_messages_that_contain_it_newest_first(
    newest: int, texts: list[str], wanted: str
) -> None:
    expected = [text for text in reversed(texts) if folded(wanted) in folded(text)]
    with pytest.MonkeyPatch.context() as patch, fresh_store() as store:
        patch.setattr(containing, "NEWEST", newest)
        patch.setattr(containing, "_TERMS_AT_ONCE", 2)
        filled(store, texts)
        rows = list(containing.newest_first(store, wanted))
        assert rows == sorted(set(rows), reverse=True)
        found = [
            store.conn.execute("SELECT text FROM messages WHERE rowid = ?", (row,)).fetchone()[0]
            for row in rows
        ]
        assert found == expected


@given(texts=TEXTS, cut=st.tuples(st.integers(0, 11), st.integers(0, 3), st.integers(6, 9)))
def test_a_phrase_with_a_rare_trigram_is_found_by_reading_what_has_that(
    texts: list[str], cut: tuple[int, int, int]
) -> None:
    number, start, length = cut
    wanted = texts[number % len(texts)][start : start + length]
    expected = [text for text in reversed(texts) if folded(wanted) in folded(text)]
    with pytest.MonkeyPatch.context() as patch, fresh_store() as store:
        patch.setattr(containing, "_LEAST_TRIGRAMS", 2)
        patch.setattr(containing, "_RARE", -1)
        patch.setattr(containing, "_READ_AT_ONCE", 2)
        filled(store, texts)
        if len(wanted) > containing.TRIGRAM and len(set(wanted)) > 1:
            assert containing._rare_trigrams(store, wanted)
            rows = list(containing.newest_first(store, wanted))
            assert len(rows) == len(expected)
            assert rows == sorted(rows, reverse=True)


def pieces(store: Store) -> list[int]:
    return [textindex._segments(store.conn, table) for table in textindex.TABLES]


def tidied(store: Store, begun: str | None = None) -> int:
    """Steps until it is done."""
    steps = 0
    while begun := textindex.tidy(store, begun):
        steps += 1
    return steps


def test_an_index_in_many_pieces_is_merged_bit_by_bit_and_finds_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    # A conversation's id says which part it is in: by chance one of them may have nothing to merge.
    monkeypatch.setattr("secrets.randbits", rng.getrandbits)
    for number in range(60):
        filled(store, [f"needle {number} {rng.randbytes(1000).hex()}"])
    before = pieces(store)
    monkeypatch.setattr(textindex, "MANY_SEGMENTS", max(before))
    assert textindex.tidy(store) is None
    assert pieces(store) == before
    monkeypatch.setattr(textindex, "_PAGES_AT_ONCE", 1)
    # What was begun is gone on with, to its end, also when few pieces are left.
    assert tidied(store, textindex.TABLES[0]) > 1
    assert pieces(store)[0] < before[0]
    assert pieces(store)[1:] == before[1:]
    monkeypatch.setattr(textindex, "MANY_SEGMENTS", 3)
    for _ in textindex.TABLES:
        tidied(store)
    assert max(pieces(store)) <= 3
    textindex.check(store.conn)
    assert len(search(store, "needle", 100)) == 60


@pytest.mark.parametrize("seed", range(4))
def test_merging_writing_and_forgetting_in_any_order_keep_the_index_whole(
    store: Store, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textindex, "MANY_SEGMENTS", 2)
    monkeypatch.setattr(textindex, "_PAGES_AT_ONCE", 1)
    rng, begun = random.Random(seed), None
    for number in range(150):
        filled(store, [f"needle {number} {rng.randbytes(300).hex()}"])
        if rng.random() < 0.7:
            begun = textindex.tidy(store, begun)
        if rng.random() < 0.1:
            conversations.delete(store, rng.choice(conversations.list_(store)).id)
    textindex.check(store.conn)
    assert len(search(store, "needle", 200)) == len(conversations.list_(store, 200))


def test_the_index_does_not_wear_out(store: Store) -> None:
    """Each cleaning adds a level or two, and of more than two thousand SQLite 3.40 makes nothing any more."""
    conversation = conversations.create(store, "t", "test")
    parts: list[int] = []
    with store.write() as connection:
        for number in range(1200):
            last = conversations.append(store, conversation, Role.USER, f"needle {number}", None)
            parts = textindex.parts_of(connection, [last.id])
            textindex.clean(connection, parts)
            if number == 0:
                # What comes after it is smaller than this, so that it is sorted in below.
                conversations.append(store, conversation, Role.USER, random.randbytes(1500).hex(), None)
    assert textindex._levels(store.conn, textindex.TABLES[parts[0]]) < 1100
    textindex.check(store.conn)


def test_a_search_ends_at_its_limit_and_leaves_no_snapshot_behind(store: Store) -> None:
    filled(store, [f"needle {number}" for number in range(30)])
    assert [hit.excerpt for hit in search(store, "needle", 3)] == ["needle 29", "needle 28", "needle 27"]
    assert [hit.excerpt for hit in search(store, "le", 2)] == ["needle 29", "needle 28"]
    # A reader that is left open keeps the write-ahead log from being emptied.
    busy, *_ = store.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0


@pytest.mark.parametrize(
    "wanted", ["C++", "it's", "foo-bar", '"', "50 %", "a_b", "네", "대답", "AND NOT", "*"]
)
def test_old_messages_are_found_whatever_the_words_mean_elsewhere(
    store: Store, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    monkeypatch.setattr(containing, "NEWEST", 2)
    filled(store, [f"before {wanted} after", wanted, f"ends with {wanted}", "one", "two", "three"])
    assert [hit.excerpt for hit in search(store, wanted)] == [
        f"ends with {wanted}",
        wanted,
        f"before {wanted} after",
    ]
