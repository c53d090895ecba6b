"""What does going from the cheapest knob to the dearest cost in sessions? The simulated people, and a model made up.

    python -m tests.benchmarks.knobs_ladder [--sessions N] [--unrehearsed]

A reply is bad until a knob that works has been turned, and which those are is set here, so that no model is needed and
what is measured is the rules alone: how soon something is decided, and how long what does not help is held on to. With a
real model (`knobs`) the same sessions are spent, with the model's chance on top. A rehearsal here is never wrong, as no
real one is; without any, a knob is only seen to fail in replies that a person meets.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from app.control.step import Controller
from store import adapters, conversations, items, runs, settings, signals, units
from store.control import Knob
from store.conversations import ReplyEnd
from store.db import Store
from store.home import Home
from store.items import Item
from store.types import FinishReason, ItemKind, MessageStatus, RunOutcome, SignalKind, Trigger, UnitUse
from tests import seed
from tests.benchmarks import knobs
from tests.benchmarks.knobs import SINGLE, Arm, Spent
from tests.benchmarks.knobs_agent import APPROVALS
from tests.benchmarks.personas.people import PEOPLE, Asked, Person
from tests.benchmarks.personas.trial import Reply

BAD = (
    "Here are some ways to keep a plant alive. You should water it.\n\n"
    "1. Give it light\n2. Give it water\n3. Turn it\n\n"
    "If the leaves turn brown, it gets too much of something. Ask a neighbor, and measure 3 feet of room around it."
)
_ITEMS = {Knob.MEMORY: ItemKind.MEMORY, Knob.INSTRUCTION: ItemKind.INSTRUCTION, Knob.GUARD: ItemKind.GUARD}


class Gate(StrEnum):
    """What becomes of a version that does not help."""

    FOOLED = "fooled"
    SOUND = "sound"


class Rehearsed(StrEnum):
    """Whether recorded questions are answered again before something is changed."""

    YES = "rehearsed"
    NO = "unrehearsed"


class Puppet:
    """A store with the controller, and replies that are as a person wants them once a working knob is turned."""

    def __init__(
        self,
        store: Store,
        host: Store,
        person: Person,
        arm: Arm,
        works: frozenset[Knob],
        gate: Gate,
        rehearsed: Rehearsed,
    ) -> None:
        self._store = store
        self._host = host
        self._arm = arm
        self._person = person
        self._works = works
        self._gate = gate
        self._controller = Controller(self if rehearsed is Rehearsed.YES else None)
        self._asked: dict[str, Asked] = {}
        self._made = 0
        for knob, approval in arm.approvals.items():
            settings.put(store, APPROVALS[knob], approval)

    def ask(self, question: str, number: int) -> Reply:
        """A reply that says with what it was made."""
        held = items.active(self._store)
        serving = adapters.active(self._store, seed.BASE).adapter
        asked = next(each for each in self._person.taught if each.question == question)
        text = self._said(asked, held)
        conversation = conversations.create(self._store, "t", "cli")
        message = conversations.append_user(self._store, conversation, question, None)
        start = replace(
            seed.START,
            context_items=tuple(each.id for each in held),
            adapter=None if serving is None else serving.id,
        )
        reply = conversations.begin_reply(self._store, conversation, message.id, start)
        end = ReplyEnd(text, MessageStatus.COMPLETE, FinishReason.STOP, [3, 4], [-0.1, -0.2])
        conversations.finish_reply(self._store, reply.id, end)
        self._asked[reply.id] = asked
        return Reply(reply.id, conversation, text)

    def again(self, store: Store, reply: str, item: Item) -> str:
        """What would be said in a reply's place with an item more."""
        return self._said(self._asked[reply], [*items.active(store), item])

    def _said(self, asked: Asked, held: Sequence[Item]) -> str:
        works = any(each.kind == _ITEMS.get(knob) for knob in self._works for each in held)
        learned = adapters.active(self._store, seed.BASE).adapter is not None
        works = works or (Knob.WEIGHTS in self._works and learned)
        return self._person.edited(asked, BAD) if works else BAD

    def rate(self, message: str, value: int, note: str | None) -> None:
        """A thumb."""
        signals.record(self._store, message, SignalKind.THUMB, value=float(value), text=note)

    def correct(self, message: str, text: str) -> None:
        """The person's own version."""
        signals.record(self._store, message, SignalKind.CORRECTION, text=text)

    def settle(self) -> None:
        """Let the controller look as the host does, and a run that is due succeed."""
        for _ in range(2):
            self._controller.look(self._host)
        enough = len(units.fresh(self._store)) >= int(settings.get(self._store, settings.MIN_UNITS))
        run = None
        if Knob.WEIGHTS in self._arm.knobs and enough:
            run = self._controller.request(self._host, Trigger.ENOUGH_UNITS)
        if run is None:
            return
        runs.claim(self._store, 1)
        uses = [(unit, UnitUse.TRAINED) for unit in units.waiting(self._store)]
        self._made += 1
        made = seed.adapter(self._store, str(self._made).encode(), uses, run.id)
        if Knob.WEIGHTS in self._works or self._gate is Gate.FOOLED:
            adapters.publish(self._store, made.id, {"passed": True})
            runs.finish(self._store, run.id, RunOutcome.PROMOTED, {"adapter": made.id})
        else:
            adapters.reject(self._store, made.id, {"passed": False}, "it does not help")
            runs.finish(self._store, run.id, RunOutcome.REJECTED, {"adapter": made.id})

    def spent(self) -> Spent:
        """Nothing is read or computed here."""
        return Spent(0, 0.0, tuple(str(each.kind) for each in items.list_(self._store)))


def sessions_of(
    person: str, arm: Arm, works: frozenset[Knob], gate: Gate, sessions: int, rehearsed: Rehearsed
) -> int:
    """Sessions until content, or all of them."""
    with tempfile.TemporaryDirectory(prefix="mynah-ladder-") as root:
        home = Home(Path(root)).open()
        with Store.open(home) as store, Store.open(home) as host:
            puppet = Puppet(store, host, PEOPLE[person], arm, works, gate, rehearsed)
            made = knobs.talk(PEOPLE[person], arm, 0, sessions, puppet)
    return len(made.satisfied) if made.content else sessions + 1


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=30)
    parser.add_argument("--unrehearsed", action="store_true", help="no recorded question is answered again")
    given = parser.parse_args()
    sessions, rehearsed = given.sessions, Rehearsed.NO if given.unrehearsed else Rehearsed.YES
    print(
        f"sessions until content, {sessions + 1} for never: the controller, and in brackets that knob alone"
    )
    for gate in Gate:
        print(f"\nversions that do not help; the gate is {gate}\n")
        print("| person | " + " | ".join(f"only {arm} works" for arm in SINGLE) + " |")
        print("|---" * (len(SINGLE) + 1) + "|")
        for person in PEOPLE:
            cells = []
            for single in SINGLE:
                both = [
                    sessions_of(person, arm, frozenset(single.knobs), gate, sessions, rehearsed)
                    for arm in (Arm.CONTROLLER, single)
                ]
                cells.append(f"{both[0]} ({both[1]})")
            print(f"| {person} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
