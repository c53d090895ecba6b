"""What programs send is found in its conversation however they resend it, and what must not teach is kept apart."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from app.host.client import HostClient
from store import consent, conversations, signals, units
from store.db import Store
from store.types import Consent, Dial, SignalKind, UnitState
from tests.endpoint_helpers import (
    chat,
    chat_body,
    module_host,
    mynah,
    openai_client,
    raw,
    said,
    say,
    text_of,
    user,
)

OFF = {"X-Mynah-Learn": "off"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    with module_host(tmp_path_factory.mktemp("capture")) as client:
        yield client


@pytest.fixture
def client(host: HostClient) -> Iterator[openai.OpenAI]:
    with openai_client(host) as made:
        yield made


@pytest.fixture
def store(host: HostClient) -> Iterator[Store]:
    with Store.open(host.home) as opened:
        yield opened


def test_an_edited_question_is_a_branch(client: openai.OpenAI, store: Store) -> None:
    opening = [user("echo root one"), said("root one")]
    say(client, user("echo root one"))
    first = say(client, *opening, user("echo first"))
    edited = say(client, *opening, user("echo edited"))
    assert mynah(edited)["conversation"] == mynah(first)["conversation"]
    question, other = (conversations.path(store, mynah(answer)["message"])[2] for answer in (first, edited))
    assert [row.id for row in conversations.siblings(store, question.id)] == [question.id, other.id]
    deeper = say(client, *opening, user("echo first"), said("first"), user("echo more"))
    assert [row.text for row in conversations.path(store, mynah(deeper)["message"])] == [
        *("echo root one", "root one", "echo first", "first", "echo more", "more")
    ]


def test_an_edited_first_question_is_another_conversation(client: openai.OpenAI) -> None:
    first = say(client, user("echo alpha"))
    second = say(client, user("echo beta"), said("alpha"), user("echo gamma"))
    assert mynah(second)["conversation"] != mynah(first)["conversation"]


def test_an_edited_reply_is_a_sibling_that_no_model_wrote(client: openai.OpenAI, store: Store) -> None:
    first = say(client, user("echo edit me"))
    second = say(client, user("echo edit me"), said("edited by hand"), user("echo on"))
    path = conversations.path(store, mynah(second)["message"])
    assert [row.text for row in path] == ["echo edit me", "edited by hand", "echo on", "on"]
    assert path[1].base_hash is None
    assert mynah(second)["conversation"] != mynah(first)["conversation"], "one known turn is not enough"


def test_a_reply_is_known_without_its_outer_space_and_thoughts(client: openai.OpenAI, store: Store) -> None:
    for asked, kept in (("count 5", "1 2 3 4 5"), ("raw <think>hm</think>\n\nBlue 7.", "Blue 7.")):
        first = say(client, user(asked))
        second = say(client, user(asked), said(kept), user("echo next"))
        assert mynah(second)["conversation"] == mynah(first)["conversation"]
        assert conversations.path(store, mynah(second)["message"])[1].id == mynah(first)["message"]
        third = say(client, user(asked), said(kept), user("echo next"), said("next"), user("echo last"))
        assert mynah(third)["conversation"] == mynah(first)["conversation"]
        assert len(conversations.path(store, mynah(third)["message"])) == 6


def test_of_two_that_begin_alike_the_right_one_goes_on(client: openai.OpenAI) -> None:
    one = say(client, user("count 3"))
    two = say(client, user("count 3"), max_tokens=2)
    assert text_of(two) == "1 2 "
    after_one = say(client, user("count 3"), said("1 2 3"), user("echo a"))
    after_two = say(client, user("count 3"), said("1 2"), user("echo b"))
    assert mynah(after_one)["conversation"] == mynah(one)["conversation"]
    assert mynah(after_two)["conversation"] == mynah(two)["conversation"]


def test_off_is_kept_apart_and_never_learned(client: openai.OpenAI, host: HostClient, store: Store) -> None:
    aside = say(client, user("echo a title"), extra_headers=OFF)
    row = conversations.get(store, mynah(aside)["conversation"])
    assert (row.source, row.train) == (conversations.ASIDE, Consent.DENY)
    raw(host, "POST", "/v1/feedback", {"message": mynah(aside)["message"], "kind": "thumb", "value": 1})
    unit = units.of_message(store, mynah(aside)["message"])
    assert unit is not None
    assert unit.state is UnitState.REFUSED
    again = say(client, user("echo a title"), said("a title"), user("echo more"), extra_headers=OFF)
    assert mynah(again)["conversation"] == mynah(aside)["conversation"]
    assert all(state.reply != mynah(aside)["message"] for state in units.unjudged(store))


def test_off_in_the_middle_of_a_conversation_leaves_it_alone(client: openai.OpenAI, store: Store) -> None:
    say(client, user("echo talk"))
    talk = [user("echo talk"), said("talk"), user("echo on"), said("on")]
    chat_ = say(client, *talk[:3])
    before = conversations.get(store, mynah(chat_)["conversation"])
    title = say(client, *talk, user("echo Title of this"), extra_headers=OFF)
    assert mynah(title)["conversation"] != before.id
    assert conversations.get(store, before.id) == before
    path = conversations.path(store, mynah(title)["message"])
    assert [row.text for row in path] == ["echo Title of this", "Title of this"]
    assert len(conversations.tokens(store, mynah(title)["message"]).prompt) > 60, (
        "the model saw the whole of it"
    )
    later = say(client, *talk, user("echo later"))
    assert mynah(later)["conversation"] == before.id


def test_what_continues_nothing_teaches_nothing_by_itself(client: openai.OpenAI, store: Store) -> None:
    """A title asked for in a conversation of its own has no next state that a judge could look at."""
    aside = say(client, user("echo Title: two birds"))
    assert all(state.reply != mynah(aside)["message"] for state in units.unjudged(store))
    first = say(client, user("echo said once"))
    say(client, user("echo said once"), said("said once"), user("echo no, I meant twice"))
    assert any(state.reply == mynah(first)["message"] for state in units.unjudged(store))


def test_a_denied_conversation_stays_denied_when_it_goes_on(client: openai.OpenAI, store: Store) -> None:
    first = say(client, user("echo private matter"))
    consent.set_(store, mynah(first)["conversation"], Dial.TRAIN, Consent.DENY)
    second = say(client, user("echo private matter"), said("private matter"), user("echo and on"))
    assert conversations.get(store, mynah(second)["conversation"]).train is Consent.DENY


def test_what_is_not_stored_leaves_nothing(client: openai.OpenAI, host: HostClient, store: Store) -> None:
    before = len(conversations.list_(store, 1000))
    answer = say(client, user("echo unwritten"), store=False)
    assert text_of(answer) == "unwritten"
    assert not any(mynah(answer).values())
    assert len(conversations.list_(store, 1000)) == before
    feedback = {"message": answer.id, "kind": "thumb", "value": 1}
    assert raw(host, "POST", "/v1/feedback", feedback)[0] == 404


def test_the_header_is_on_or_off(host: HostClient) -> None:
    status, answer = chat(host, chat_body(), X_Mynah_Learn="maybe")
    assert (status, answer["error"]["param"]) == (400, "X-Mynah-Learn")
    assert chat(host, chat_body(), X_Mynah_Learn="ON")[0] == 200


def test_feedback_takes_a_rating_back(client: openai.OpenAI, host: HostClient, store: Store) -> None:
    answer = say(client, user("echo rate me"))
    message = mynah(answer)["message"]
    for name, value in ((message, 1), (answer.id, 0)):
        body = {"message": name, "kind": "thumb", "value": value}
        assert raw(host, "POST", "/v1/feedback", body)[0] == 200
    assert [signal.value for signal in signals.all_of(store, message)] == [1, 0]
    assert signals.all_of(store, message)[0].kind is SignalKind.THUMB
