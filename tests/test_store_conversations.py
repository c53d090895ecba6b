"""Conversations as trees: what is saved when, what can never change, and finding it again."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from store import conversations, ids, search
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.errors import NotFound, UsageError
from store.types import ErrorClass, FinishReason, MessageStatus, Role
from tests.seed import START, say


def test_a_reply_keeps_everything_that_made_it(store: Store) -> None:
    conversation = conversations.create(store, "Tea", "cli")
    question = conversations.append_user(store, conversation, "How hot should tea be?", None)
    start = ReplyStart("base", None, 1.0, {"temperature": 0.0, "seed": 7}, "t1", [1, 2, 70000], left_out=3)
    reply = conversations.begin_reply(store, conversation, question.id, start)
    assert reply.status is MessageStatus.GENERATING
    conversations.checkpoint(store, reply.id, "Eigh")
    assert conversations.get_message(store, reply.id).text == "Eigh"
    end = ReplyEnd(
        "Eighty degrees.", MessageStatus.COMPLETE, FinishReason.STOP, [5, 6], [-0.5, -0.25], usage={"a": 1}
    )
    done = conversations.finish_reply(store, reply.id, end)
    assert (done.text, done.finish_reason, done.left_out) == ("Eighty degrees.", FinishReason.STOP, 3)
    assert done.sampler == {"temperature": 0.0, "seed": 7}
    kept = conversations.tokens(store, reply.id)
    assert (kept.prompt, kept.completion, kept.logprobs) == ([1, 2, 70000], [5, 6], [-0.5, -0.25])
    assert conversations.get(store, conversation).head == reply.id


def test_a_finished_message_cannot_be_changed(store: Store) -> None:
    _, _, reply = say(store, "Hi", "Hello")
    with pytest.raises(sqlite3.IntegrityError, match="finished message"):
        store.conn.execute("UPDATE messages SET text = 'other' WHERE id = ?", (reply,))
    conversations.checkpoint(store, reply, "late checkpoint")
    assert conversations.get_message(store, reply).text == "Hello"


def test_regenerate_makes_a_sibling_and_select_moves_the_head(store: Store) -> None:
    conversation, question, first = say(store, "Hi", "Hello")
    second = conversations.begin_reply(store, conversation, question, START).id
    conversations.finish_reply(store, second, ReplyEnd("Hey", MessageStatus.COMPLETE, FinishReason.STOP))
    assert [m.id for m in conversations.siblings(store, first)] == [first, second]
    assert [m.text for m in conversations.path(store, second)] == ["Hi", "Hey"]
    follow_up = conversations.append_user(store, conversation, "And?", first)
    conversations.select(store, second)
    assert conversations.get(store, conversation).head == second
    assert conversations.select(store, first) == follow_up.id


def test_a_dead_host_leaves_its_text_and_a_reason(store: Store) -> None:
    conversation, question, _ = say(store, "Hi", "Hello")
    reply = conversations.begin_reply(store, conversation, question, START).id
    conversations.checkpoint(store, reply, "Half a sen")
    assert conversations.recover(store) == 1
    found = conversations.get_message(store, reply)
    assert (found.text, found.status, found.error_class) == (
        "Half a sen",
        MessageStatus.FAILED,
        ErrorClass.HOST_DOWN,
    )
    assert conversations.recover(store) == 0


def test_a_transcript_is_found_by_its_content(store: Store) -> None:
    _, _, reply = say(store, "Hi", "Hello")
    digest = conversations.path_hash(conversations.path_hash("", Role.USER, "Hi"), Role.ASSISTANT, "Hello")
    assert [found.id for found in conversations.by_path(store, digest)] == [reply]
    assert conversations.by_path(store, conversations.path_hash("", Role.USER, "Other")) == []


@pytest.mark.parametrize(
    "query", ["C++", "it's", "foo-bar", 'say "hi"', "部署", "デプロイ", "안녕", "AND", "*", "100%", "_"]
)
def test_search_finds_any_characters_as_they_are(store: Store, query: str) -> None:
    say(store, "nothing of the kind", "no")
    conversation, question, _ = say(store, f"before {query} after", "yes")
    assert [(hit.conversation, hit.message) for hit in search.search(store, query)] == [
        (conversation, question)
    ]


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(query=st.text(max_size=20))
def test_no_query_is_a_syntax_error(store: Store, query: str) -> None:
    search.search(store, query)


def test_delete_leaves_nothing_behind(store: Store) -> None:
    conversation, _, reply = say(store, "a secret question", "a secret reply")
    conversations.delete(store, conversation)
    assert search.search(store, "secret") == []
    with pytest.raises(NotFound):
        conversations.get_message(store, reply)
    assert store.conn.execute("PRAGMA foreign_key_check").fetchall() == []
    for file in store.home.root.rglob("*"):
        assert not file.is_file() or b"a secret" not in file.read_bytes(), file


def test_ids_are_found_by_a_unique_prefix(store: Store) -> None:
    conversation, _, _ = say(store, "Hi", "Hello")
    assert ids.resolve(store, "conversations", conversation[:6]) == conversation
    with pytest.raises(UsageError, match="more than one message"):
        ids.resolve(store, "messages", "m")
    for nothing in ("mzzzzzz", "", "%", "_"):
        with pytest.raises(NotFound):
            ids.resolve(store, "messages", nothing)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello there", "Hello there"),
        ("\n\n  Two\nlines", "Two"),
        ("", "(empty)"),
        ("word " * 30, "word word word word word word word word word word word word…"),
        ("x" * 80, "x" * 60 + "…"),
    ],
)
def test_titles_come_from_the_first_line(text: str, title: str) -> None:
    assert conversations.title_from(text) == title
