"""What the next message says of a reply: the reader alone, rules and reader together, and the owner's last word."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from learner import judge, requery
from learner.next_state import (
    DISSATISFIED,
    Embed,
    Labelled,
    NextState,
    Pair,
    Reader,
    Reading,
    hint_from,
    parse,
    shipped,
)
from store import signals, units
from store.db import Store
from store.home import Home
from store.types import SignalKind, SignalSource, UnitKind
from tests import seed


def hashed(texts: Sequence[str]):
    """A stand-in for sentence embeddings: the words of a text in 64 buckets, as a unit vector."""
    rows = np.zeros((len(texts), 64), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            row[hashlib.sha256(word.encode()).digest()[0] % 64] += 1.0
        row /= max(float(np.linalg.norm(row)), 1e-6)
    return rows


@pytest.fixture(scope="module")
def embed() -> Embed:
    """The real sentence embeddings; those of the shipped texts are made once for all runs of the tests."""
    return judge.remembered(requery.embed, Home.default().cache)


@pytest.fixture(scope="module")
def reader(embed: Embed) -> Reader:
    return Reader(shipped(), embed)


def never(_one: str, _other: str) -> float:
    raise AssertionError("the embedding model was asked")


class Scripted:
    """A reader that says what it is told to."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.asked: list[Pair] = []

    def read(self, pairs: Sequence[Pair]) -> list[Reading]:
        self.asked += pairs
        return [self.reading for _ in pairs]


UNHAPPY = Reading(NextState.CHANGE, -1, 0.9, 0.9)
HAPPY = Reading(NextState.THANKS, 1, 0.98, 0.01)
SILENT = Reading(NextState.FOLLOW_UP, 0, 0.7, 0.1)


def test_the_shipped_examples_are_many_and_by_several_writers():
    labelled = shipped()
    assert len(labelled) >= 400
    assert len({each.writer for each in labelled}) >= 8
    assert {each.state for each in labelled} == set(NextState)
    pairs = [each.pair for each in labelled]
    assert len(set(pairs)) == len(pairs)


@pytest.mark.model
@pytest.mark.parametrize(
    ("pair", "reward"),
    [
        (Pair("how far is the sun", "93 million miles.", "in km please"), -1),
        (Pair("What is 6 times 7?", "6 times 7 is 48.", "6 times 7 is 42."), -1),
        (Pair("How do I clean a pan?", "Soak it with soda.", "Thank you very much, that worked."), 1),
        (Pair("How do I clean a pan?", "Soak it with soda.", "Thank you, but that is too long."), -1),
    ],
)
def test_it_reads_plain_cases(reader: Reader, pair: Pair, reward: int):
    assert reader.read([pair])[0].reward == reward


@pytest.mark.model
@pytest.mark.parametrize(
    "following", ["thanks, but shorter next time", "고마워요, 근데 너무 길어요", "nice. is it safe?"]
)
def test_thanks_that_go_on_to_want_something_are_no_praise(reader: Reader, following: str):
    assert reader.read([Pair("Explain tides.", "The moon pulls the sea.", following)])[0].reward <= 0


@pytest.mark.model
def test_above_the_threshold_it_was_right_on_writers_it_did_not_know(embed: Embed):
    """Most writers are tested by a reader that was fitted without them."""
    labelled = shipped()
    right = given = 0
    for writer in ("en dev", "en formal", "ko formal"):
        reader = Reader([each for each in labelled if each.writer != writer], embed)
        mine = [each for each in labelled if each.writer == writer]
        for each, reading in zip(mine, reader.read([each.pair for each in mine]), strict=True):
            if reading.reward:
                given += 1
                right += reading.reward == (
                    -1 if each.state in DISSATISFIED else 1 if each.state is NextState.THANKS else 0
                )
    assert given >= 40
    assert right / given >= 0.93


def test_shuffled_labels_leave_it_nothing_to_say():
    labelled = shipped()
    states = [each.state for each in labelled]
    shuffled = [
        Labelled(each.pair, states[(index * 211) % len(states)], each.writer)
        for index, each in enumerate(labelled)
    ]
    reader = Reader(shuffled, hashed)
    readings = reader.read([each.pair for each in labelled[:80]])
    assert sum(reading.reward != 0 for reading in readings) <= 4


def test_the_owners_own_labels_count_more():
    said = Pair("Tell me about tea.", "Tea is a drink made of leaves.", "spicy")
    before = Reader(shipped(), hashed).read([said])[0]
    owner = [Labelled(Pair(f"q{n}", "a", "spicy"), NextState.CHANGE, "owner", 4.0) for n in range(3)]
    after = Reader([*shipped(), *owner], hashed).read([said])[0]
    assert after.dissatisfied > before.dissatisfied


def test_hints_are_the_owners_words_without_the_thanks():
    assert (
        hint_from("Thanks, but make it shorter. And warmer. One. Two.")
        == "but make it shorter. And warmer. One."
    )
    assert hint_from("thanks!") == "thanks!"


def test_lines_that_are_not_examples_are_refused():
    with pytest.raises(ValueError, match="not enough values"):
        parse("again\ten\tterse\tq\tr")
    with pytest.raises(ValueError, match="nonsense"):
        parse("nonsense\ten\tterse\tq\tr\tn")


def test_a_verdict_is_written_once_and_becomes_a_unit(home):
    with Store.open(home) as store:
        conversation, _, reply = seed.say(store, "How do I boil an egg?", "Buy a hen.")
        seed.say(store, "No, I meant: only the time please", "Eight minutes.", conversation, reply)
        script = Scripted(UNHAPPY)
        assert judge.judge_waiting(store, never, lambda: script, lambda: None) == judge.Judged(1, 0)
        assert judge.judge_waiting(store, never, lambda: script, lambda: None) == judge.Judged(0, 0)
        assert len(script.asked) == 1
        unit = units.of_message(store, reply)
        assert unit is not None
        assert (unit.kind, unit.reward, unit.hint) == (
            UnitKind.REQUERY,
            -1.0,
            "No, I meant: only the time please",
        )
        assert unit.weight == pytest.approx(0.5 * 0.9)


@pytest.mark.parametrize(("reading", "units_made"), [(SILENT, 0), (UNHAPPY, 1)])
def test_a_phrase_counts_where_the_reader_does_not_contradict_it(home, reading: Reading, units_made: int):
    with Store.open(home) as store:
        conversation, _, reply = seed.say(store, "Is my plan good?", "Yes, it is good.")
        seed.say(store, "I meant to ask as well: is it legal?", "Yes.", conversation, reply)
        judge.judge_waiting(store, never, lambda: Scripted(reading), lambda: None)
        assert len(units.waiting(store)) == units_made


def test_thanks_make_a_unit_that_starts_no_run(home):
    with Store.open(home) as store:
        conversation, _, reply = seed.say(store, "How do I boil an egg?", "Eight minutes.")
        seed.say(store, "perfect", "Enjoy.", conversation, reply)
        judge.judge_waiting(store, never, lambda: Scripted(HAPPY), lambda: None)
        unit = units.of_message(store, reply)
        assert unit is not None
        assert (unit.kind, unit.reward) == (UnitKind.THANKS, 1.0)
        assert units.fresh(store) == []
        assert [each.id for each in units.waiting(store)] == [unit.id]


def test_the_owners_verdict_is_a_label_and_the_last_one_counts(home):
    with Store.open(home) as store:
        conversation, _, reply = seed.say(store, "How do I boil an egg?", "Buy a hen.")
        seed.say(store, "and a soft one?", "Four minutes.", conversation, reply)
        for value in (1.0, 0.0):
            signals.record(store, reply, SignalKind.REQUERY, value=value, source=SignalSource.USER)
        (label,) = judge.owner_labels(store)
        assert label.state is NextState.OTHER
        assert label.pair == Pair("How do I boil an egg?", "Buy a hen.", "and a soft one?")


def test_only_shipped_texts_are_remembered(tmp_path):
    calls: list[list[str]] = []

    def counted(texts: Sequence[str]):
        calls.append(list(texts))
        return hashed(texts)

    judge.remembered(counted, tmp_path)(["my own secret canary"])
    again = judge.remembered(counted, tmp_path)
    assert np.allclose(again(["my own secret canary", "thx"]), hashed(["my own secret canary", "thx"]))
    assert len(calls) == 3  # the shipped texts once, and the owner's each time
    assert all(b"canary" not in file.read_bytes() for file in tmp_path.iterdir())
