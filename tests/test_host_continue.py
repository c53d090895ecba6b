"""A reply that was cut goes on in a sibling, and the owner's own message is edited beside itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from app.host.client import HostClient, TurnRequest
from app.host.events import Done, Failed, Started, Token, TurnEvent
from store import conversations
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.home import Home
from store.types import FinishReason, MessageStatus, Role
from tests.scripted import END, scripted_host


@pytest.fixture
def host(home: Home) -> Iterator[HostClient]:
    with scripted_host(home) as client:
        yield client


def ask(client: HostClient, text: str | None = None, **fields: Any) -> Done:
    end = list(client.turn(TurnRequest(text=text, **fields)))[-1]
    assert isinstance(end, Done), end
    return end


def refused(client: HostClient, request: TurnRequest) -> str:
    """Why there is no reply."""
    end = list(client.turn(request))[-1]
    assert isinstance(end, Failed), end
    return end.message


def stopped_after(client: HostClient, text: str, tokens: int) -> Done:
    """Ask, and stop once so many pieces came."""
    stream = client.turn(TurnRequest(text=text))
    started: Started | None = None
    end: TurnEvent | None = None
    for event in stream:
        started = event if isinstance(event, Started) else started
        tokens -= isinstance(event, Token)
        if tokens == 0 and started is not None:
            client.stop(str(started.message))
        end = event
    assert isinstance(end, Done), end
    return end


def test_a_stopped_reply_goes_on_in_a_sibling_that_begins_with_it(host: HostClient, store: Store) -> None:
    cut = stopped_after(host, "slow 40", 4)
    assert cut.finish_reason == "cancelled"
    before = conversations.get_message(store, str(cut.message))
    whole = ask(host, extend=cut.message)
    assert whole.text == "".join(f"{number} " for number in range(1, 41))
    assert whole.text.startswith(cut.text)
    assert conversations.get_message(store, before.id) == before
    assert [each.id for each in conversations.siblings(store, before.id)] == [cut.message, whole.message]
    row = conversations.get_message(store, str(whole.message))
    first, second = (conversations.tokens(store, str(each.message)) for each in (cut, whole))
    assert row.sampler["extends"] == cut.message
    assert row.sampler["opening_tokens"] == len(first.completion)
    assert second.prompt == first.prompt
    assert second.completion[: len(first.completion)] == first.completion
    assert len(second.completion) == len(second.logprobs) == 41
    assert conversations.get(store, str(cut.conversation)).head == whole.message


def test_the_old_text_comes_first_and_at_once(host: HostClient) -> None:
    cut = ask(host, "count 9", sampler={"max_tokens": 5})
    pieces = [event.text for event in host.turn(TurnRequest(extend=cut.message)) if isinstance(event, Token)]
    assert pieces[0] == cut.text == "1 2 3 4 5 "
    assert "".join(pieces[1:]) == "6 7 8 9 "


def test_a_character_that_was_cut_in_two_is_put_together(host: HostClient) -> None:
    cut = ask(host, "bytes a漢b", sampler={"max_tokens": 2})
    assert (cut.text, cut.finish_reason) == ("a", "length")
    assert ask(host, extend=cut.message).text == "a漢b"


def test_a_length_limit_counts_from_where_it_goes_on(host: HostClient) -> None:
    cut = ask(host, "count 50", sampler={"max_tokens": 5})
    longer = ask(host, extend=cut.message, sampler={"max_tokens": 5})
    assert longer.text.split() == [str(number) for number in range(1, 11)]
    assert longer.finish_reason == "length"
    assert ask(host, extend=longer.message).text.split()[-1] == "50"


def test_a_reply_whose_tokens_are_unknown_goes_on_from_its_text(host: HostClient, store: Store) -> None:
    conversation = conversations.create(store, "kept", "chat")
    question = conversations.append_user(store, conversation, "echo one two", None)
    start = ReplyStart("b" * 64, None, 1.0, {}, "t", [])
    reply = conversations.begin_reply(store, conversation, question.id, start)
    conversations.finish_reply(
        store, reply.id, ReplyEnd("I say: ", MessageStatus.FAILED, FinishReason.ERROR, [], [])
    )
    whole = ask(host, extend=reply.id)
    assert whole.text == "I say: one two"
    tokens = conversations.tokens(store, str(whole.message))
    known = len(b"I say: ")
    assert all(map(math.isnan, tokens.logprobs[:known]))
    assert not any(map(math.isnan, tokens.logprobs[known:]))


def test_what_ended_by_itself_does_not_go_on(host: HostClient, store: Store) -> None:
    whole = ask(host, "echo done")
    assert conversations.tokens(store, str(whole.message)).completion[-1] == END
    assert "ended by itself" in refused(host, TurnRequest(extend=whole.message))
    question = conversations.get_message(store, str(whole.message)).parent
    assert "not a reply" in refused(host, TurnRequest(extend=question))


def test_a_reply_that_fills_the_window_is_said_not_to_go_on(home: Home, store: Store) -> None:
    with scripted_host(home, "--context", "256") as client:
        full = ask(client, "forever")
        assert full.finish_reason == "length"
        assert "fills the model's window" in refused(client, TurnRequest(extend=full.message))


def test_an_edited_message_stands_beside_the_old_one(host: HostClient, store: Store) -> None:
    first = ask(host, "echo one")
    conversation = str(first.conversation)
    ask(host, "echo two", conversation=conversation)
    old = conversations.path(store, str(first.message))[0]
    edited = ask(host, "turns", edit=old.id)
    assert edited.conversation == conversation
    assert edited.text == "2"
    path = conversations.path(store, str(edited.message))
    assert [each.text for each in path] == ["turns", "2"]
    assert [each.id for each in conversations.siblings(store, old.id)] == [old.id, path[0].id]
    assert conversations.get_message(store, old.id) == old
    conversations.select(store, old.id)
    head = conversations.get(store, conversation).head
    assert [each.text for each in conversations.path(store, str(head))] == [
        "echo one",
        "one",
        "echo two",
        "two",
    ]


def test_only_the_owners_messages_are_edited(host: HostClient) -> None:
    first = ask(host, "echo one")
    assert "not a message of the owner's" in refused(host, TurnRequest(text="other", edit=first.message))
    assert "needs its new text" in refused(host, TurnRequest(edit=first.message))


def test_a_failure_is_gone_on_with(host: HostClient, store: Store) -> None:
    end = list(host.turn(TurnRequest(text="fail 3")))[-1]
    assert isinstance(end, Failed)
    conversation = conversations.list_(store)[0]
    reply = conversations.get_message(store, str(conversation.head))
    assert (reply.role, reply.status, reply.text) == (Role.ASSISTANT, MessageStatus.FAILED, "1 2 3 ")
    again = [event for event in host.turn(TurnRequest(extend=reply.id)) if isinstance(event, Token)]
    assert again[0].text == reply.text
