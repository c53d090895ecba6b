"""Failure classes: one case for each, and none of them ever counts as quality."""

from __future__ import annotations

import errno

import pytest

from app.host.events import failure_of
from app.model.llama import LlamaError, LlamaMemoryError
from store import conversations, failures, signals, units
from store.conversations import ReplyEnd
from store.db import Store
from store.errors import (
    AdapterFileError,
    ContextOverflow,
    DiskFull,
    HomeError,
    HostSilent,
    HostUnavailable,
    Interrupted,
    ModelFileError,
)
from store.types import ErrorClass, FinishReason, MessageStatus, SignalKind, SignalSource, UnitState
from tests import seed

CASES: list[tuple[BaseException, ErrorClass]] = [
    (HostUnavailable("gone"), ErrorClass.HOST_DOWN),
    (ConnectionRefusedError(), ErrorClass.HOST_DOWN),
    (ModelFileError("no model"), ErrorClass.LOAD_FAILED),
    (AdapterFileError("no adapter"), ErrorClass.LOAD_FAILED),
    (MemoryError(), ErrorClass.OUT_OF_MEMORY),
    (LlamaMemoryError("no memory"), ErrorClass.OUT_OF_MEMORY),
    (OSError(errno.ENOMEM, "no memory"), ErrorClass.OUT_OF_MEMORY),
    (HostSilent("nothing before the first token"), ErrorClass.TIMEOUT),
    (TimeoutError(), ErrorClass.TIMEOUT),
    (Interrupted("stopped"), ErrorClass.CANCELLED),
    (ContextOverflow("too long"), ErrorClass.CONTEXT_OVERFLOW),
    (DiskFull("full"), ErrorClass.DISK_FULL),
    (OSError(errno.ENOSPC, "full"), ErrorClass.DISK_FULL),
    (HomeError("broken"), ErrorClass.UNKNOWN),
    (LlamaError("code 1"), ErrorClass.UNKNOWN),
    (RuntimeError("what is this"), ErrorClass.UNKNOWN),
]


@pytest.mark.parametrize(("error", "expected"), CASES)
def test_each_failure_has_its_class(error: BaseException, expected: ErrorClass):
    assert failures.class_of(error) is expected
    assert failure_of(error).error_class is expected


def test_every_class_has_a_case_and_none_is_quality():
    assert {expected for _, expected in CASES} == set(ErrorClass)
    assert [each for each in ErrorClass if failures.counts_as_quality(each)] == []
    assert failures.counts_as_quality(None)


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_no_verdict_is_drawn_from_a_reply_that_failed(store: Store, error_class: ErrorClass):
    conversation = conversations.create(store, "t", "cli")
    asked = conversations.append_user(store, conversation, "Name three rivers please", None)
    row = conversations.begin_reply(store, conversation, asked.id, seed.START)
    stopped = error_class is ErrorClass.CANCELLED
    reply = conversations.finish_reply(
        store,
        row.id,
        ReplyEnd(
            "The",
            MessageStatus.STOPPED if stopped else MessageStatus.FAILED,
            FinishReason.CANCELLED if stopped else FinishReason.ERROR,
            error_class=error_class,
        ),
    )
    conversations.append_user(store, conversation, "No, I meant lakes.", reply.id)
    assert units.unjudged(store) == []
    signals.record(store, reply.id, SignalKind.REQUERY, value=1.0, source=SignalSource.RULE)
    unit = units.of_message(store, reply.id)
    assert unit is not None
    assert unit.state is UnitState.REFUSED
