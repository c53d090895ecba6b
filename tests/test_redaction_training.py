"""What reaches the learner: redacted paths with stable names, and no unit that holds a secret."""

from __future__ import annotations

import pytest

from store import settings, signals, units
from store.db import Store
from store.errors import UsageError
from store.redaction import REDACTION_VERSION
from store.redaction.training import RedactedTurn, redacted_turns
from store.types import Role, SignalKind, UnitState
from tests.seed import corrected, say, unit_of


def row_of(store: Store, unit: units.Unit) -> str:
    return str(tuple(store.conn.execute("SELECT * FROM units WHERE id = ?", (unit.id,)).fetchone()))


@pytest.mark.parametrize(
    ("question", "answer", "correction"),
    [
        ("my password is hunter2, is it good?", "Yes.", "No."),
        ("Q", "Use password: hunter2", "Use a better one."),
        ("Q", "A", "비밀번호는 hunter2야"),
    ],
)
def test_a_secret_keeps_a_unit_from_being_learned(
    store: Store, question: str, answer: str, correction: str
) -> None:
    unit = corrected(store, question, answer, correction)
    assert (unit.state, unit.reason) == (UnitState.REFUSED, "it contains what looks like a password or key")
    assert (unit.target, unit.hint) == (None, None)
    assert "hunter2" not in row_of(store, unit)
    assert units.waiting(store) == []


def test_a_secret_in_a_hint_counts_too_and_a_better_hint_heals(store: Store) -> None:
    _, _, reply = say(store, "Q", "A")
    signals.record(store, reply, SignalKind.THUMB, value=-1, text="say that the pw = hunter2")
    assert unit_of(store, reply).state is UnitState.REFUSED
    assert units.fate(store, reply) == units.Fate(
        UnitState.REFUSED, "not used: it contains what looks like a password or key"
    )
    signals.record(store, reply, SignalKind.THUMB, value=-1, text="Be brief.")
    unit = unit_of(store, reply)
    assert (unit.state, unit.reason, unit.hint) == (UnitState.QUEUED, None, "Be brief.")


def test_a_unit_carries_the_version_of_the_rules(store: Store) -> None:
    unit = corrected(store, "Q", "A", "B")
    query = "SELECT redaction FROM units WHERE id = ?"
    assert store.conn.execute(query, (unit.id,)).fetchone()[0] == REDACTION_VERSION
    store.conn.execute("UPDATE units SET redaction = '0' WHERE id = ?", (unit.id,))
    signals.record(store, unit.message, SignalKind.CORRECTION, text="C")
    assert store.conn.execute(query, (unit.id,)).fetchone()[0] == REDACTION_VERSION


def test_one_name_for_one_individual_from_the_first_message_to_the_hint(store: Store) -> None:
    settings.put(store, settings.PRIVACY_WORDS, ["Hartwell"])
    conversation, _, first = say(store, "I am Hartwell, jane@example.org. My pin is 4821.", "Hello Hartwell!")
    _, _, reply = say(store, "Mail bob@example.com", "Done: bob@example.com.", conversation, first)
    signals.record(store, reply, SignalKind.HINT, text="Sign as Hartwell.")
    signals.record(store, reply, SignalKind.CORRECTION, text="Sent to BOB@example.com from jane@example.org.")
    redacted = redacted_turns(store, unit_of(store, reply))
    assert redacted.turns == (
        RedactedTurn(Role.USER, "I am [PRIVATE_1], [EMAIL_1]. My pin is [SECRET_1]."),
        RedactedTurn(Role.ASSISTANT, "Hello [PRIVATE_1]!"),
        RedactedTurn(Role.USER, "Mail [EMAIL_2]"),
    )
    assert redacted.reply == "Done: [EMAIL_2]."
    assert redacted.target == "Sent to [EMAIL_2] from [EMAIL_1]."
    assert redacted.hint == "Sign as [PRIVATE_1]."
    assert redacted.redaction == REDACTION_VERSION


def test_another_branch_changes_no_name(store: Store) -> None:
    conversation, _, reply = say(store, "Write to me", "At jane@example.org?")
    signals.record(store, reply, SignalKind.THUMB, value=1)
    before = redacted_turns(store, unit_of(store, reply))
    say(store, "or to bob@example.com", "Fine.", conversation, None)
    assert redacted_turns(store, unit_of(store, reply)) == before
    assert before.reply == "At [EMAIL_1]?"


def test_a_number_typed_later_is_nobody_s_before(store: Store) -> None:
    unit = corrected(store, "I am jane@example.org", "Hi", "Hi, as in [EMAIL_1]!")
    assert redacted_turns(store, unit).turns[0].text == "I am [EMAIL_2]"


@pytest.mark.parametrize("words", ["Hartwell", [1], {"a": 1}])
def test_a_list_of_words_must_be_one(store: Store, words: object) -> None:
    settings.put(store, settings.PRIVACY_WORDS, words)
    with pytest.raises(UsageError, match=r"privacy\.words must be a list of words"):
        redacted_turns(store, corrected(store, "Q", "A", "B"))
