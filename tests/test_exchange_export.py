"""What leaves: the shape each reader wants, only what may leave, and nothing that was to stay."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from atif import Trajectory

from store import consent, conversations, signals
from store.conversations import ReplyEnd
from store.db import Store
from store.errors import NotFound
from store.exchange import records
from store.exchange.export import Format, Request, Tally, lines
from store.exchange.records import Redaction
from store.types import Consent, Dial, FinishReason, MessageStatus, Role, SignalKind, SignalSource
from tests.exchange_helpers import exported
from tests.seed import BASE, START, say


@pytest.fixture
def talked(store: Store) -> dict[str, str]:
    """A conversation with two branches: one reply corrected, one thumbed up, one turned down."""
    conversation, question, bad = say(store, "What is a heron?", "A fish.")
    signals.record(store, bad, SignalKind.CORRECTION, text="A wading bird.")
    _, _, good = say(store, "And a crane?", "A tall bird.", conversation, bad)
    signals.record(store, good, SignalKind.THUMB, value=1)
    _, _, down = say(store, "And a stork?", "I do not know.", conversation, bad)
    signals.record(store, down, SignalKind.THUMB, value=-1)
    signals.record(store, down, SignalKind.THUMB, value=1, source=SignalSource.RULE)
    return {"conversation": conversation, "question": question, "bad": bad, "good": good, "down": down}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


class TestAtif:
    def test_each_branch_is_a_valid_trajectory(self, store: Store, talked: dict[str, str]) -> None:
        conversations.append(store, talked["conversation"], Role.TOOL, "42", talked["down"])
        rows = exported(store, Format.ATIF)
        read = [Trajectory.model_validate(row) for row in rows]
        assert [each.session_id for each in read] == [talked["conversation"]] * 2
        assert [[step.message for step in each.steps] for each in read] == [
            ["What is a heron?", "A fish.", "And a crane?", "A tall bird."],
            ["What is a heron?", "A fish.", "And a stork?", "I do not know.", ""],
        ]
        # A consumer that drops copied context, as it must, sees each message once.
        fresh = [step for each in read for step in each.steps if not step.is_copied_context]
        assert len(fresh) == len(conversations.path(store, talked["good"])) + 3
        assert read[1].to_json_dict() == json.loads(json.dumps(rows[1], sort_keys=True))

    def test_reward_consent_and_provenance_are_under_one_key(
        self, store: Store, talked: dict[str, str]
    ) -> None:
        row = exported(store, Format.ATIF)[1]
        assert list(row["extra"]) == ["mynah"]
        told = row["extra"]["mynah"]
        assert told["consent"] == {"keep_history": "allow", "feed_memory": "allow", "train": "allow"}
        assert (told["redaction"], told["client"]) == ("none", "cli")
        steps = [step["extra"]["mynah"] for step in row["steps"]]
        assert [(step.get("reward") or {}).get("value") for step in steps] == [None, -1.0, None, -1.0]
        assert steps[1]["reward"]["signals"][0]["text"] == "A wading bird."
        assert (steps[3]["base_hash"], steps[3]["sampler"]) == (BASE, {"temperature": 0.0})
        assert row["steps"][3]["model_name"] == "tiny"
        assert row["steps"][3]["metrics"]["completion_token_ids"] == [3, 4]


class TestDatasets:
    def test_whole_chats_take_the_branch_that_is_shown(self, store: Store, talked: dict[str, str]) -> None:
        conversations.append_user(store, talked["conversation"], "unanswered", talked["down"])
        assert exported(store, Format.OPENAI) == [
            {
                "messages": [
                    user("What is a heron?"),
                    reply("A fish."),
                    user("And a stork?"),
                    reply("I do not know."),
                ]
            }
        ]
        (row,) = exported(store, Format.SHAREGPT)
        assert [turn["from"] for turn in row["conversations"]] == ["human", "gpt", "human", "gpt"]

    def test_sharegpt_takes_turns(self, store: Store) -> None:
        conversation = conversations.create(store, "t", "api")
        parent = None
        for role, text in (
            (Role.SYSTEM, "be kind"),
            (Role.ASSISTANT, "unasked"),
            (Role.USER, "one"),
            (Role.ASSISTANT, ""),
            (Role.USER, "two"),
            (Role.ASSISTANT, "both"),
        ):
            parent = conversations.append(store, conversation, role, text, parent).id
        assert exported(store, Format.SHAREGPT) == [
            {
                "conversations": [
                    {"from": "human", "value": "one\n\ntwo"},
                    {"from": "gpt", "value": "both"},
                ],
                "system": "be kind",
            }
        ]

    def test_supervised_rows_end_with_a_correction(self, store: Store, talked: dict[str, str]) -> None:
        assert exported(store, Format.TRL_SFT) == [
            {"messages": [user("What is a heron?"), reply("A wading bird.")]}
        ]

    def test_supervised_rows_end_before_what_was_turned_down(self, store: Store) -> None:
        conversation, _, fine = say(store, "hi", "hello")
        _, _, down = say(store, "and?", "no", conversation, fine)
        signals.record(store, down, SignalKind.THUMB, value=-1)
        assert exported(store, Format.TRL_SFT) == [{"messages": [user("hi"), reply("hello")]}]

    def test_thumbs_and_corrections_come_from_every_branch(
        self, store: Store, talked: dict[str, str]
    ) -> None:
        before = [user("What is a heron?"), reply("A fish.")]
        assert exported(store, Format.TRL_KTO) == [
            {
                "prompt": [*before, user("And a crane?")],
                "completion": [reply("A tall bird.")],
                "label": True,
            },
            {
                "prompt": [*before, user("And a stork?")],
                "completion": [reply("I do not know.")],
                "label": False,
            },
        ]
        assert exported(store, Format.TRL_DPO) == [
            {
                "prompt": [user("What is a heron?")],
                "chosen": [reply("A wading bird.")],
                "rejected": [reply("A fish.")],
            }
        ]

    def test_training_sets_ask_for_consent(self, store: Store, talked: dict[str, str]) -> None:
        consent.set_(store, talked["conversation"], Dial.TRAIN, Consent.DENY)
        for form in Format:
            tally = Tally()
            rows = list(lines(store, Request(form, records.UNREDACTED, "1"), tally))
            assert (rows == [], tally.without_consent) == (form.trains, int(form.trains))

    def test_a_thumb_taken_back_is_none(self, store: Store, talked: dict[str, str]) -> None:
        signals.record(store, talked["good"], SignalKind.THUMB, value=0)
        assert [row["label"] for row in exported(store, Format.TRL_KTO)] == [False]


def shout(texts: Any) -> Any:
    assert "mail bob" in list(texts)
    return lambda text: text.replace("bob", "[WHO]")


class TestWhatLeaves:
    @pytest.mark.parametrize("form", Format)
    def test_everything_is_redacted_and_tokens_stay(self, store: Store, form: Format) -> None:
        _, _, answer = say(store, "mail bob", "bob it is")
        signals.record(store, answer, SignalKind.CORRECTION, text="not bob")
        signals.record(store, answer, SignalKind.THUMB, value=-1, text="bob again")
        text = json.dumps(exported(store, form, Redaction("1", shout)))
        assert "bob" not in text
        assert "[WHO]" in text
        assert "token_ids" not in text
        assert "logprobs" not in text

    def test_what_a_program_gave_along_with_a_request_stays(self, store: Store) -> None:
        conversation, question, _ = say(store, "Who?", "Somebody.")
        asked = {"temperature": 0.0, "stops": ["Sonja"], "grammar": 'root ::= "Sonja"'}
        reply = conversations.begin_reply(store, conversation, question, replace(START, sampler=asked))
        conversations.finish_reply(
            store, reply.id, ReplyEnd("no", MessageStatus.COMPLETE, FinishReason.STOP, [3], [-0.1])
        )
        assert "Sonja" in json.dumps(exported(store, Format.ATIF))
        left = exported(store, Format.ATIF, Redaction("1", lambda _texts: str))
        assert "Sonja" not in json.dumps(left)
        assert left[0]["steps"][-1]["extra"]["mynah"]["sampler"] == {"temperature": 0.0}

    def test_the_standard_redaction_keeps_names_apart(self, store: Store) -> None:
        say(store, "I am ann@example.com, not bob@example.com", "Noted, ann@example.com.")
        (row,) = exported(store, Format.OPENAI, records.redacted(store))
        assert row["messages"][0]["content"] == "I am [EMAIL_1], not [EMAIL_2]"
        assert row["messages"][1]["content"] == "Noted, [EMAIL_1]."

    def test_a_reply_that_is_being_written_is_left_out(self, store: Store) -> None:
        conversation, _, first = say(store, "hi", "hello")
        asked = conversations.append_user(store, conversation, "more?", first)
        started = conversations.begin_reply(store, conversation, asked.id, START)
        (row,) = exported(store, Format.ATIF)
        assert [step["message"] for step in row["steps"]] == ["hi", "hello", "more?"]
        assert row["extra"]["mynah"]["head"] == asked.id
        conversations.finish_reply(
            store, started.id, ReplyEnd("yes", MessageStatus.COMPLETE, FinishReason.STOP)
        )
        assert len(exported(store, Format.ATIF)[0]["steps"]) == 4

    def test_one_conversation_alone(self, store: Store) -> None:
        say(store, "hi", "hello")
        conversation, _, _ = say(store, "yes?", "no")
        assert [row["session_id"] for row in exported(store, Format.ATIF, conversation=conversation)] == [
            conversation
        ]
        with pytest.raises(NotFound):
            exported(store, Format.ATIF, conversation="cnothing")
