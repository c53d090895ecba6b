"""Turns what the owner did next into a verdict on the reply: certain rules first, then the fitted reader, else nothing.

The same question again needs no reader. A phrase of dissatisfaction alone is right nine times in ten ("I meant to
ask as well" has one too), so it counts where the reader does not contradict it. Each reply is looked at once; what
was seen is noted whether or not it is used, so that a verdict can be shown, and turned over, on its message.
Turned-over verdicts are the owner's labels, and the reader is fitted to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from learner import requery
from learner.next_state import (
    OWNER_WEIGHT,
    WORDING,
    Embed,
    Labelled,
    NextState,
    Pair,
    Reader,
    Reading,
    hint_from,
    shipped,
)
from learner.requery import PHRASE, Similarity
from store import conversations, siblings, signals, units
from store.db import Store
from store.files import whole_file
from store.provenance import own_words
from store.types import SignalKind, SignalSource

DOUBT = 0.3
"""A phrase counts where the reader gives dissatisfaction at least this: without it phrases were right 0.88 of times."""


class Reads(Protocol):
    """What reads next messages: `next_state.Reader`, or a script."""

    def read(self, pairs: Sequence[Pair]) -> list[Reading]: ...


@dataclass(frozen=True)
class Judged:
    """How many replies were found wanting, and how many were thanked for."""

    negative: int = 0
    positive: int = 0


def judge_waiting(
    store: Store, similarity: Similarity, reader: Callable[[], Reads], pause: Callable[[], None]
) -> Judged:
    """Look at every reply whose next message nobody has looked at. ``reader`` is made only where rules are silent."""
    negative = positive = 0
    for state in units.unjudged(store):
        pause()
        verdict = requery.judge(state.question, state.next_message, similarity)
        said = own_words(state.next_message)
        reading = None
        if said and (verdict is None or verdict.why == PHRASE):
            reading = reader().read([Pair(state.question, state.answer, said)])[0]
        with store.write():
            if not units.still_follows(store, state):
                continue
            if verdict is not None and (reading is None or reading.dissatisfied >= DOUBT):
                units.mark_judged(store, state.reply, verdict.why)
                _dissatisfied(
                    store, state.reply, verdict.value, verdict.hint, verdict.confidence, SignalSource.RULE
                )
                negative += 1
            elif reading is None or reading.reward == 0:
                units.mark_judged(store, state.reply, "none" if reading is None else WORDING[reading.state])
            elif reading.reward < 0:
                units.mark_judged(store, state.reply, WORDING[reading.state])
                hint = hint_from(said)
                _dissatisfied(store, state.reply, 1.0, hint, reading.confidence, SignalSource.JUDGE)
                negative += 1
            else:
                units.mark_judged(store, state.reply, WORDING[reading.state])
                _thanked(store, state.reply, reading)
                positive += 1
            _compare(store, state.reply)
    return Judged(negative, positive)


def fitted_reader(store: Store) -> Reader:
    """The reader for this owner: the shipped examples and every verdict the owner turned over."""
    return Reader([*shipped(), *owner_labels(store)], remembered(requery.embed, store.home.cache))


def owner_labels(store: Store) -> list[Labelled]:
    """What the owner said of verdicts, as examples: asked again after all, or nothing of the kind."""
    labels = []
    for said in signals.verdicts_of_owner(store):
        state = NextState.AGAIN if said.dissatisfied else NextState.OTHER
        pair = Pair(said.pair.question, said.pair.answer, said.pair.next_message)
        labels.append(Labelled(pair, state, "owner", OWNER_WEIGHT))
    return labels


def remembered(embed: Embed, cache: Path) -> Embed:
    """An embedding that knows the shipped texts by heart: 1,662 of them take three seconds, a file of them none.

    Only what ships with Mynah is kept, never a word of the owner's.
    """
    texts = sorted({text for each in shipped() for text in vars(each.pair).values()})
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = cache / f"next-states-{digest}.npy"
    if path.exists():
        vectors = np.load(path)
    else:
        vectors = embed(texts)
        with whole_file(path) as file, file.open("wb") as target:
            np.save(target, vectors)
    known = dict(zip(texts, vectors, strict=True))

    def looked_up(wanted: Sequence[str]) -> NDArray[np.float32]:
        new = sorted({text for text in wanted if text not in known})
        made = dict(zip(new, embed(new), strict=True)) if new else {}
        return np.array([known[text] if text in known else made[text] for text in wanted])

    return looked_up


def _dissatisfied(
    store: Store, reply: str, value: float, hint: str | None, confidence: float, source: SignalSource
) -> None:
    signals.record(
        store, reply, SignalKind.REQUERY, value=value, text=hint, source=source, confidence=confidence
    )


def _compare(store: Store, reply: str) -> None:
    """Note which answers another one was kept instead of, now that one was gone on from, and which no more are."""
    made = siblings.choice(store, reply)
    sure = {} if made is None else {each.reply: each.confidence for each in made.lesser}
    for each in conversations.siblings(store, reply):
        said = [one for one in signals.all_of(store, each.id) if one.kind is SignalKind.LESSER]
        stands = next((bool(one.value) for one in reversed(said) if one.source is SignalSource.RULE), False)
        if stands != (each.id in sure):
            signals.record(
                store,
                each.id,
                SignalKind.LESSER,
                value=float(each.id in sure),
                source=SignalSource.RULE,
                confidence=sure.get(each.id, 1.0),
            )


def _thanked(store: Store, reply: str, reading: Reading) -> None:
    signals.record(
        store,
        reply,
        SignalKind.THANKS,
        value=1.0,
        source=SignalSource.JUDGE,
        confidence=reading.confidence,
    )
