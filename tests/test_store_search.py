"""Search finds every substring, whatever its length, script and age, newest first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import containing, conversations
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
            assert containing._rare_trigram(store, wanted) is not None
            rows = list(containing.newest_first(store, wanted))
            assert len(rows) == len(expected)
            assert rows == sorted(rows, reverse=True)


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
