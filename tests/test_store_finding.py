"""Finding by words and filters, sorting by pins, archive and tags, and titles that give way to the owner's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from store import conversations, finding, labels, signals, units
from store.db import Store
from store.errors import UsageError
from store.finding import Corrected, Rated, Sought
from store.home import Home
from store.types import Shelf, SignalKind, UnitState, UnitUse
from tests.seed import adapter, corrected, say


def found(store: Store, text: str) -> list[str]:
    return [hit.message for hit in finding.find(store, finding.parse(text))]


def test_words_and_filters_are_told_apart() -> None:
    sought = finding.parse(
        "boil  rated:down an egg USED:v12 http://x a:b tag:#Work in:archived fate:held-out"
    )
    assert sought == Sought(
        "boil an egg http://x a:b",
        rated=Rated.DOWN,
        used=12,
        fate=UnitState.HELD_OUT,
        tag="work",
        shelf=Shelf.ARCHIVED,
    )
    assert finding.parse("corrected:yes").corrected is Corrected.YES
    assert finding.parse("def  f(x):  pass").words == "def  f(x):  pass"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rated:maybe", "up or down"),
        ("used:latest", "as in v3"),
        ("since:tomorrow", "a date as in"),
        ("fate:sealed", "queued"),
        ("in:space", "open, archived or all"),
    ],
)
def test_a_filter_with_a_value_it_does_not_know_says_what_it_takes(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        finding.parse(text)


def test_nothing_is_not_everything(store: Store) -> None:
    with pytest.raises(UsageError, match="nothing to search for"):
        finding.find(store, finding.parse("  "))


@pytest.mark.parametrize(
    "word", ["部署", "デプロイ", "署", "C++", "it's", "foo-bar", "100%", "a_b", '"', "AND", "def f("]
)
def test_any_script_and_any_code_is_found(store: Store, word: str) -> None:
    _, question, _ = say(store, f"about {word} here", "yes")
    say(store, "about something else", "no")
    assert found(store, word) == [question]


def test_the_words_may_be_in_the_question_and_the_rating_on_its_reply(store: Store) -> None:
    _, question, reply = say(store, "How long for an egg?", "Ten hours.")
    say(store, "How long for an egg, again?", "Ten minutes.")
    signals.record(store, reply, SignalKind.THUMB, value=-1)
    assert found(store, "egg rated:down") == [question]
    assert found(store, "rated:down") == [reply]
    assert found(store, "rated:up") == []
    signals.record(store, reply, SignalKind.THUMB, value=1)
    assert found(store, "rated:down") == []
    assert found(store, "hours rated:up") == [reply]


def test_corrected_used_and_fate(store: Store) -> None:
    first = corrected(store, "one", "two", "three")
    second = corrected(store, "four", "five", "six")
    _, _, plain = say(store, "seven", "eight")
    made = adapter(store, b"v1", [(first, UnitUse.TRAINED), (second, UnitUse.HELD_OUT)])
    units.settle(store, made.id)
    assert found(store, "corrected:yes") == [second.message, first.message]
    assert found(store, "corrected:no") == [plain]
    assert found(store, "used:v1") == [first.message]
    assert found(store, "used:2") == []
    assert found(store, "fate:held_out") == [second.message]
    assert found(store, "fate:used two") == [first.message]


def test_tags_archive_and_dates(store: Store) -> None:
    old, question, _ = say(store, "the old egg", "yes")
    new, other, _ = say(store, "the new egg", "yes")
    labels.set_tags(store, old, ["Work", "#kitchen"])
    labels.archive(store, old)
    assert found(store, "egg tag:work") == [question]
    assert found(store, "egg in:archived") == [question]
    assert found(store, "egg in:open") == [other]
    assert found(store, "egg") == [other, question]
    assert found(store, "egg since:1d") == [other, question]
    assert found(store, "egg before:1d") == []
    assert found(store, "egg since:2026-01-01 before:2199-01-01") == [other, question]
    assert [each.id for each in conversations.list_(store)] == [new]
    assert [each.id for each in conversations.list_(store, shelf=Shelf.ARCHIVED)] == [old]
    assert len(conversations.list_(store, shelf=Shelf.ALL)) == 2
    assert conversations.get(store, old).tags == ("kitchen", "work")


def test_a_day_begins_at_local_midnight() -> None:
    assert finding.moment("2026-11-29").startswith("2026-11-29T00:00:00")
    assert finding.moment("7d", datetime(2026, 11, 29, 12, tzinfo=UTC)).startswith("2026-11-22T12:00:00")


def test_pinned_conversations_come_first_and_unpinned_go_back(store: Store) -> None:
    first, _, _ = say(store, "first", "1")
    second, _, _ = say(store, "second", "2")
    labels.pin(store, first)
    assert [each.id for each in conversations.list_(store)] == [first, second]
    labels.unpin(store, first)
    assert [each.id for each in conversations.list_(store)] == [second, first]


@pytest.mark.parametrize("tag", ["", "two words", "a,b", "a:b", "x" * 31])
def test_what_is_no_tag_is_refused_and_changes_nothing(store: Store, tag: str) -> None:
    conversation, _, _ = say(store, "first", "1")
    labels.set_tags(store, conversation, ["kept"])
    with pytest.raises(UsageError, match="a tag is one word"):
        labels.set_tags(store, conversation, ["good", tag])
    assert conversations.get(store, conversation).tags == ("kept",)
    assert labels.all_tags(store) == {"kept": 1}


def test_tags_and_pins_go_with_their_conversation(store: Store) -> None:
    conversation, _, _ = say(store, "first", "1")
    labels.set_tags(store, conversation, ["work"])
    conversations.delete(store, conversation)
    assert labels.all_tags(store) == {}


def test_a_made_title_gives_way_to_the_owners(store: Store) -> None:
    conversation, _, _ = say(store, "How do I boil an egg so that it is soft?", "Six minutes.")
    assert labels.untitled(store, conversation) == "How do I boil an egg so that it is soft?"
    conversations.rename(store, conversation, "Mine")
    assert labels.untitled(store, conversation) is None
    assert not labels.entitle(store, conversation, "Soft-boiled eggs")
    assert conversations.get(store, conversation).title == "Mine"
    other, _, _ = say(store, "And a goose egg?", "Thirteen.")
    assert labels.entitle(store, other, "Goose eggs")
    assert conversations.get(store, other).title == "Goose eggs"


def test_a_database_from_before_keeps_its_conversations(home: Home) -> None:
    with Store.open(home) as store:
        conversation, _, _ = say(store, "an old egg", "yes")
        for statement in (
            "DROP TABLE tags",
            "DROP TABLE drafts",
            "DROP INDEX idx_conversations_shown",
            "ALTER TABLE conversations DROP COLUMN pinned",
            "ALTER TABLE conversations DROP COLUMN archived",
            "DELETE FROM _sqlite_migrations WHERE name = 'm004_pins_tags_drafts'",
            "PRAGMA user_version = 3",
        ):
            store.conn.execute(statement)
    with Store.open(home) as store:
        found = conversations.get(store, conversation)
        assert (found.title, found.pinned, found.archived, found.tags) == ("an old egg", None, None, ())
        labels.pin(store, conversation)
        labels.set_tags(store, conversation, ["old"])
