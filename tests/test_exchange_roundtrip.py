"""Export, import, export: the same again, for every format that can be read back.

ATIF carries whole trees with ratings and corrections. Three things are different on purpose after an import: the
consent, which is taken back, the tokens where something was redacted, and nothing else. OpenAI, ShareGPT and TRL's
supervised rows carry the branch that is shown; KTO and DPO rows are judgements, not conversations, and not read back.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import consent, conversations, signals
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.exchange import records
from store.exchange.export import Format
from store.exchange.intake import import_file
from store.exchange.records import UNREDACTED
from store.types import Consent, Dial, ErrorClass, FinishReason, MessageStatus, Role, SignalKind
from tests.exchange_helpers import exported, fresh_store, written

WORDS = st.text(max_size=12) | st.sampled_from(
    ["mail bob@example.com", "a  b", "\n", "naïve 漢字 👩‍👩‍👧", "password: hunter2"]
)
ENDS = st.sampled_from(
    [
        (MessageStatus.COMPLETE, FinishReason.STOP, None),
        (MessageStatus.STOPPED, FinishReason.CANCELLED, None),
        (MessageStatus.FAILED, FinishReason.ERROR, ErrorClass.TIMEOUT),
    ]
)
REACTION = st.tuples(st.sampled_from([SignalKind.THUMB, SignalKind.CORRECTION, SignalKind.COPY]), WORDS)
MESSAGE = st.fixed_dictionaries(
    {
        "above": st.integers(0, 20),
        "role": st.sampled_from([Role.USER, Role.ASSISTANT, Role.ASSISTANT, Role.SYSTEM, Role.TOOL]),
        "text": WORDS,
        "end": ENDS,
        "generated": st.booleans(),
        "reactions": st.lists(REACTION, max_size=3),
    }
)
TREES = st.lists(st.lists(MESSAGE, min_size=1, max_size=7), min_size=1, max_size=3)
FEW = settings(max_examples=25)


def build(store: Store, trees: list[list[dict[str, Any]]]) -> None:
    for tree in trees:
        conversation = conversations.create(store, conversations.title_from(tree[0]["text"]), "chat")
        made: list[str] = []
        for wanted in tree:
            parent = ([None, *made])[-1 - wanted["above"] % (len(made) + 1)]
            made.append(add(store, conversation, parent, wanted))


def add(store: Store, conversation: str, parent: str | None, wanted: dict[str, Any]) -> str:
    if wanted["role"] is not Role.ASSISTANT or not wanted["generated"]:
        message = conversations.append(store, conversation, wanted["role"], wanted["text"], parent)
    else:
        status, reason, error = wanted["end"]
        start = ReplyStart("b" * 64, "a1", 0.5, {"seed": 7}, "tpl", [1, 2, 3], 1, ["item"])
        end = ReplyEnd(
            wanted["text"], status, reason, [4, 5], [-0.1, -2.5], error, "it broke", {"prompt_tokens": 3}
        )
        started = conversations.begin_reply(store, conversation, parent, start)
        message = conversations.finish_reply(store, started.id, end)
    for kind, text in wanted["reactions"] if wanted["role"] is Role.ASSISTANT else ():
        value = float(len(text) % 3 - 1) if kind is SignalKind.THUMB else None
        signals.record(store, message.id, kind, value=value, text=text or None)
    return message.id


def imported(store: Store, rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        report = import_file(store, written(Path(scratch) / "in.jsonl", rows))
    assert report.skipped == []


def without_consent(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = copy.deepcopy(rows)
    for row in kept:
        del row["extra"]["mynah"]["consent"]
    return kept


@FEW
@given(TREES, st.booleans())
def test_atif_carries_the_whole_tree(trees, redact):
    with fresh_store() as first, fresh_store() as second:
        build(first, trees)
        redaction = records.redacted(first) if redact else UNREDACTED
        rows = exported(first, Format.ATIF, redaction)
        imported(second, rows)
        again = exported(second, Format.ATIF, redaction)
        assert without_consent(again) == without_consent(rows)
        assert {row["extra"]["mynah"]["consent"]["train"] for row in again} == {Consent.DENY}


@pytest.mark.parametrize("form", [Format.OPENAI, Format.SHAREGPT, Format.TRL_SFT])
@FEW
@given(trees=TREES)
def test_the_plain_formats_carry_the_branch_that_is_shown(form, trees):
    with fresh_store() as first, fresh_store() as second:
        build(first, trees)
        rows = exported(first, form, records.redacted(first))
        if not rows:
            return
        imported(second, rows)
        for conversation in records.ids(second):
            consent.set_(second, conversation, Dial.TRAIN, Consent.ALLOW)
        assert exported(second, form, records.redacted(second)) == rows


@FEW
@given(TREES)
def test_importing_twice_adds_nothing(trees):
    with fresh_store() as first, fresh_store() as second:
        build(first, trees)
        rows = exported(first, Format.ATIF)
        imported(second, rows)
        before = list(second.conn.iterdump())
        imported(second, rows)
        assert list(second.conn.iterdump()) == before
        imported(first, rows)
        assert exported(first, Format.ATIF) == rows
