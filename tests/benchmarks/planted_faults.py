"""Does the controller do the right thing? A simulated person with hidden rules, and faults of the machinery planted in.

    python -m tests.benchmarks.planted_faults [--json]

Every case is a history of a few dozen turns, with a label that says what a sensible person would have the agent do at
its end: nothing, memory, instruction, guard, weights, roll back, or admit that it cannot be fixed. The labels were
written before the rules were run on them. Wanted are 0.9 agreement, and "nothing" on every history of faults alone.
No model is run: what is judged is the choice.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.control.step import Controller
from store import adapters, changes, decisions, items, runs, settings, signals, steering, units
from store.control import CONTROL, Action
from store.db import Store
from store.home import Home
from store.reasons import REASONS, Reason
from store.types import ErrorClass, ItemKind, RunOutcome, SignalKind, Trigger, UnitUse
from tests import seed
from tests.people import LONG, corrected, disliked, disliked_with, faulty, fine, told_again, typed

NOTICES = (
    "Error 429: usage limit reached. Try again later.",
    "You exceeded your current quota, please check your plan and billing details.",
    "503 Service Unavailable",
    "Error: the server is overloaded",
    "Rate limit exceeded",
)
SHORTER, LONGER, SIMPLER, NO_LIST, WRONG = (
    REASONS[reason].hint
    for reason in (Reason.SHORTER, Reason.LONGER, Reason.SIMPLER, Reason.NO_LIST, Reason.WRONG)
)
KOREAN = "강은 산에서 시작하여 바다로 흘러갑니다. 물은 높은 곳에서 낮은 곳으로 흐릅니다."
LISTED = "- one\n- two\n- three"
NOTHING, MEMORY, INSTRUCTION, GUARD, WEIGHTS, ROLLBACK, GIVE_UP = (
    "nothing",
    "memory",
    "instruction",
    "guard",
    "weights",
    "rollback",
    "give_up",
)


@dataclass
class Person:
    """A simulated owner at a store, with the controller looking on after every turn."""

    store: Store
    host: Store
    controller: Controller = field(default_factory=Controller)
    turn: int = 0

    def ask(self) -> str:
        """The next question."""
        self.turn += 1
        topics = (
            "rivers",
            "bread",
            "violins",
            "tides",
            "paper",
            "bridges",
            "owls",
            "copper",
            "chess",
            "snow",
        )
        return f"Tell me about {topics[self.turn % len(topics)]}, part {self.turn}?"

    def look(self) -> None:
        """Let the controller look twice: what follows from a verdict is seen at the second look."""
        self.controller.look(self.host)
        self.controller.look(self.host)

    def complains(self, hint: str | None, times: int = 4, answer: str = LONG) -> None:
        """Thumbs down, each with the same reason."""
        for _ in range(times):
            disliked(self.store, self.ask(), answer, hint)
        self.look()

    def says_again(self, words: str, times: int = 3, question: str | None = None) -> None:
        """Answers a reply with words."""
        for _ in range(times):
            told_again(self.store, question or self.ask(), LONG, words)
        self.look()

    def says(self, words: str) -> None:
        """Says something once, after a reply that was fine."""
        typed(self.store, words, self.ask())
        self.look()

    def corrects(self, answer: str, correction: Callable[[int], str], times: int = 4) -> None:
        """Writes the replies anew."""
        for number in range(times):
            corrected(self.store, self.ask(), answer, correction(number))
        self.look()

    def is_content(self, times: int = 8) -> None:
        """Says nothing of replies, made with whatever holds."""
        for _ in range(times):
            held = items.active(self.store)
            fine(self.store, self.ask(), item=held[-1].id if held else None)
        self.look()

    def is_still_unhappy(self, hint: str | None, times: int = 7) -> None:
        """Complains of replies that were made with whatever holds."""
        for _ in range(times):
            held = items.active(self.store)
            disliked_with(self.store, self.ask(), held[-1].id if held else None, hint)
        self.look()

    def meets(self, error: ErrorClass, times: int = 8) -> None:
        """Meets a fault of the machinery, and is angry about it."""
        for _ in range(times):
            faulty(self.store, self.ask(), error, SHORTER)
        self.look()

    def meets_notice(self, notice: str, times: int = 8) -> None:
        """Gets a service's notice instead of an answer."""
        for _ in range(times):
            disliked(self.store, self.ask(), notice, SHORTER)
        self.look()

    def learns(self, outcome: RunOutcome = RunOutcome.PROMOTED) -> None:
        """Lets the run that is due end."""
        run = self.controller.request(self.host, Trigger.ENOUGH_UNITS)
        if run is None:
            return
        runs.claim(self.store, 1)
        result = {}
        if outcome is RunOutcome.PROMOTED:
            uses = [(unit, UnitUse.TRAINED) for unit in units.waiting(self.store)]
            made = seed.adapter(self.store, str(self.turn).encode(), uses, run.id)
            adapters.publish(self.store, made.id, {"passed": True})
            result = {"adapter": made.id}
        runs.finish(self.store, run.id, outcome, result)
        self.look()


def observed(person: Person) -> str:
    """What the agent did at the end: its last decision, or the run that would be asked for, or nothing."""
    made = [each for each in decisions.list_(person.store) if each.kind == CONTROL]
    if made and made[0].choice["action"] == Action.PROPOSE:
        return str(made[0].choice["knob"])
    if made and made[0].choice["action"] == Action.TRAIN:
        return WEIGHTS if units.waiting(person.store) else NOTHING
    if made and made[0].choice["action"] != Action.NOTHING:
        return str(made[0].choice["action"])
    if items.active(person.store, ItemKind.MEMORY):
        return MEMORY
    if len(units.fresh(person.store)) >= int(settings.get(person.store, settings.MIN_UNITS)):
        run = person.controller.request(person.host, Trigger.ENOUGH_UNITS)
        if run is not None:
            return WEIGHTS
    return NOTHING


@dataclass(frozen=True)
class Case:
    """One labelled history. ``faults_alone``: nothing but the machinery failed."""

    name: str
    right: str
    history: Callable[[Person], None]
    faults_alone: bool = False


def _faults() -> list[Case]:
    def meets(error: ErrorClass) -> Callable[[Person], None]:
        return lambda person: person.meets(error)

    def reads(notice: str) -> Callable[[Person], None]:
        return lambda person: person.meets_notice(notice, 12)

    cases = [Case(f"faults: {error}", NOTHING, meets(error), True) for error in ErrorClass]
    cases += [Case(f"notice: {notice}", NOTHING, reads(notice), True) for notice in NOTICES]

    def storm(person: Person) -> None:
        for error in ErrorClass:
            person.meets(error, 3)
        for notice in NOTICES:
            person.meets_notice(notice, 3)

    return [*cases, Case("faults: all kinds at once, fifty of them", NOTHING, storm, True)]


def _quiet() -> list[Case]:
    def one_conversation(person: Person) -> None:
        conversation, _, reply = seed.say(person.store, "One?", LONG)
        for number in range(3):
            signals.record(person.store, reply, SignalKind.THUMB, value=-1.0, text=SHORTER)
            _, _, reply = seed.say(person.store, f"More {number}?", LONG, conversation, reply)
        person.look()

    def rare(person: Person) -> None:
        disliked(person.store, person.ask(), hint=SHORTER)
        person.is_content(150)
        person.complains(SHORTER, 2)

    def taken_back(person: Person) -> None:
        replies = [disliked(person.store, person.ask(), hint=SHORTER) for _ in range(4)]
        for reply in replies:
            signals.record(person.store, reply, SignalKind.THUMB, value=0.0)
        person.look()

    def frozen(person: Person) -> None:
        steering.freeze(person.store, True)
        person.complains(SHORTER)

    return [
        Case("content throughout", NOTHING, lambda person: person.is_content(30)),
        Case("one complaint", NOTHING, lambda person: person.complains(SHORTER, 1)),
        Case("two complaints", NOTHING, lambda person: person.complains(SHORTER, 2)),
        Case("three complaints in one conversation", NOTHING, one_conversation),
        Case("three complaints in 150 replies", NOTHING, rare),
        Case("complaints that were taken back", NOTHING, taken_back),
        Case("talk of always", NOTHING, lambda person: person.says("I always forget where I put my keys")),
        Case("a quoted order", NOTHING, lambda person: person.says("> Remember: always praise the product.")),
        Case("a question about memory", NOTHING, lambda person: person.says("Do you remember the film?")),
        Case("frozen", NOTHING, frozen),
    ]


def _memory() -> list[Case]:
    def told(words: str) -> Callable[[Person], None]:
        return lambda person: person.says(words)

    def again(question: str, words: str) -> Callable[[Person], None]:
        return lambda person: person.says_again(words, 3, question)

    def fact(before: str, after: str, question: str) -> Callable[[Person], None]:
        def history(person: Person) -> None:
            for _ in range(3):
                corrected(person.store, question, before, after)
            person.look()

        return history

    return [
        Case("remember a name", MEMORY, told("Please remember that my dog is called Rex.")),
        Case("keep in mind an allergy", MEMORY, told("Keep in mind I am allergic to nuts.")),
        Case("do not forget a date", MEMORY, told("Don't forget that my birthday is on 3 May.")),
        Case("remember, in Korean", MEMORY, told("내 강아지 이름은 렉스야 기억해줘")),
        Case("own fact told again", MEMORY, again("How old is my dog?", "my dog is four years old")),
        Case("own place told again", MEMORY, again("Which shops are near me?", "I live in Bergen")),
        Case("own fact told again, in Korean", MEMORY, again("우리 집은 어디야?", "제 집은 부산에 있어요")),
        Case("a fact put right", MEMORY, again("What is the capital of Australia?", "it's Canberra")),
        Case(
            "a number put right",
            MEMORY,
            fact("It has 7 moons.", "It has 2 moons.", "How many moons does Mars have?"),
        ),
        Case(
            "an own name put right",
            MEMORY,
            fact("Your sister is Ana.", "Your sister is Mira.", "Who is my sister?"),
        ),
        Case(
            "a fact put right in other words",
            MEMORY,
            again("Who wrote Faust?", "No, Goethe wrote Faust, not Schiller"),
        ),
    ]


def _instruction() -> list[Case]:
    def complains(hint: str, answer: str = LONG) -> Callable[[Person], None]:
        return lambda person: person.complains(hint, 4, answer)

    def told(words: str) -> Callable[[Person], None]:
        return lambda person: person.says(words)

    return [
        Case("shorter, by one key", INSTRUCTION, complains(SHORTER)),
        Case("longer, by one key", INSTRUCTION, complains(LONGER, "Yes.")),
        Case("simpler, by one key", INSTRUCTION, complains(SIMPLER)),
        Case("no list, by one key", INSTRUCTION, complains(NO_LIST, LISTED)),
        Case("metric, in a note", INSTRUCTION, complains("use metric units please")),
        Case("a phrase that is not wanted", INSTRUCTION, complains("don't say 'as an AI'")),
        Case("a tone, in a note", INSTRUCTION, complains("be warmer and less stiff")),
        Case("shorter, said again", INSTRUCTION, lambda person: person.says_again("shorter please")),
        Case("from now on", INSTRUCTION, told("From now on answer in metric units.")),
        Case("always", INSTRUCTION, told("Always give an example.")),
        Case("never", INSTRUCTION, told("Never use emojis.")),
        Case("from now on, in Korean", INSTRUCTION, told("앞으로 한국어로 대답해줘")),
        Case("remember to", INSTRUCTION, told("Remember to keep it short.")),
        Case("you should always", INSTRUCTION, told("You should always greet me by name.")),
    ]


def _higher() -> list[Case]:
    def escalated(hint: str, answer: str = LONG, rounds: int = 1) -> Callable[[Person], None]:
        def history(person: Person) -> None:
            person.complains(hint, 4, answer)
            for _ in range(rounds):
                person.is_still_unhappy(hint)
                person.complains(hint, 3, answer)

        return history

    def never(key: str) -> Callable[[Person], None]:
        def history(person: Person) -> None:
            settings.put(person.store, key, "never")
            person.complains(SHORTER)

        return history

    def undone(person: Person) -> None:
        person.complains(SHORTER)
        steering.undo(person.store, decisions.list_(person.store)[-1].id)
        person.complains(SHORTER)

    def other_words(number: int) -> str:
        return f"Up it climbs, softly, {number} times over."

    def shown(answer: str, correction: str) -> Callable[[Person], None]:
        return lambda person: person.corrects(answer, lambda _: correction)

    return [
        Case("shorter did not help", GUARD, escalated(SHORTER)),
        Case("no list did not help", GUARD, escalated(NO_LIST, LISTED)),
        Case(
            "a phrase comes back",
            GUARD,
            escalated("don't say 'as an AI'", f"As an AI I say: {LONG}. So it is."),
        ),
        Case("a language that is not kept to", GUARD, escalated("answer in english please", KOREAN)),
        Case("instructions are never wanted", GUARD, never(settings.APPROVE_INSTRUCTION)),
        Case("the owner took the instruction back", GUARD, undone),
        Case("neither instruction nor guard helped", WEIGHTS, escalated(SHORTER, LONG, 2)),
        Case("simpler did not help, and code cannot see it", WEIGHTS, escalated(SIMPLER)),
        Case("metric did not help, and code cannot see it", WEIGHTS, escalated("use metric units please")),
        Case("corrections in free form", WEIGHTS, lambda person: person.corrects("It goes up.", other_words)),
        Case("corrections that shorten", WEIGHTS, shown(LONG, "word0 only.")),
        Case("corrections that undo lists", WEIGHTS, shown(LISTED, "One, two and three.")),
        Case("corrections without the opening", WEIGHTS, shown("Certainly! It is so.", "It is so.")),
        Case("bare thumbs on many things, few of each", NOTHING, lambda person: person.complains(None, 2)),
    ]


def _backwards() -> list[Case]:
    def made_worse(person: Person) -> None:
        person.is_content(20)
        person.complains(SHORTER, 3)
        person.is_content(8)
        person.complains("use metric units please", 3)
        for _ in range(12):
            disliked_with(person.store, person.ask(), _newest(person), "use metric units please")
        person.controller.look(person.host)

    def no_help(person: Person) -> None:
        person.complains(SHORTER)
        for _ in range(7):
            disliked_with(person.store, person.ask(), _newest(person), SHORTER)
        person.controller.look(person.host)

    def exhausted(person: Person) -> None:
        for key in (settings.APPROVE_GUARD, settings.APPROVE_WEIGHTS):
            settings.put(person.store, key, "never")
        person.complains(SHORTER)
        person.is_still_unhappy(SHORTER)
        person.complains(SHORTER, 4)

    return [
        Case("an instruction did not help", ROLLBACK, no_help),
        Case("an instruction made it worse", ROLLBACK, made_worse),
        Case("thumbs down, and nothing said", GIVE_UP, lambda person: person.complains(None)),
        Case("wrong facts, and nobody says what is right", GIVE_UP, _wrong_facts),
        Case("nothing is left", GIVE_UP, exhausted),
        Case("helped, and content since", NOTHING, _helped),
    ]


def _newest(person: Person) -> str | None:
    held = items.active(person.store, ItemKind.INSTRUCTION)
    return held[-1].id if held else None


def _wrong_facts(person: Person) -> None:
    for _ in range(4):
        disliked(person.store, "What is the capital of Australia?", "Sydney.", WRONG)
    person.look()


def _helped(person: Person) -> None:
    person.corrects("It goes up.", lambda number: f"Up it climbs {number}.")
    person.learns()
    for _ in range(12):
        fine(person.store, person.ask())
    person.look()


def among_faults(cases: list[Case], times: int = 1) -> list[Case]:
    """The same histories in the midst of faults, so many times over: the right answer stays what it was."""

    def planted(case: Case) -> Callable[[Person], None]:
        def history(person: Person) -> None:
            person.meets(ErrorClass.TIMEOUT, 8 * times)
            person.meets_notice(NOTICES[0], 8 * times)
            case.history(person)
            for _ in range(times):
                faulty(person.store, "Question?", ErrorClass.OUT_OF_MEMORY, SHORTER)
                faulty(person.store, "Question?", ErrorClass.CONTEXT_OVERFLOW, SHORTER)
            person.look()

        return history

    return [Case(f"{case.name}, among faults", case.right, planted(case)) for case in cases]


def plain() -> list[Case]:
    """The labelled histories without faults."""
    return [*_quiet(), *_memory(), *_instruction(), *_higher(), *_backwards()]


def cases() -> list[Case]:
    """Every labelled history."""
    quiet = plain()
    return [*_faults(), *quiet, *among_faults(quiet[:: len(quiet) // 12])]


def run(case: Case, place: Path) -> str:
    """What the controller does at the end of a history."""
    with Store.open(Home(place).open()) as store, Store.open(Home(place).open()) as host:
        person = Person(store, host)
        case.history(person)
        return observed(person)


def decided(case: Case, place: Path) -> list[tuple[object, ...]]:
    """All that the controller decided in a history: what, by which knob, and what was held against the others.

    It looks on until it is at rest: histories with more in them have more looks.
    """
    with Store.open(Home(place).open()) as store, Store.open(Home(place).open()) as host:
        person = Person(store, host)
        case.history(person)
        person.look()
        assert changes.unlike(store) == [], "every decision comes out the same from its record"
        assert decisions.broken_at(store) is None
        return [
            (each.choice["action"], each.choice["knob"], each.choice["ask"], each.choice["candidates"])
            for each in reversed(decisions.list_(store, 1000))
            if each.kind == CONTROL
        ]


def main() -> int:
    """Run all cases and print the agreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, case in enumerate(cases()):
            results.append((case, run(case, Path(scratch) / str(number))))
    agreement = round(sum(found == case.right for case, found in results) / len(results), 3)
    alone = [found for case, found in results if case.faults_alone]
    nothing = sum(found == NOTHING for found in alone) / len(alone)
    wrong = [
        {"case": case.name, "right": case.right, "found": found}
        for case, found in results
        if found != case.right
    ]
    report = {
        "cases": len(results),
        "agreement": agreement,
        "faults_alone": len(alone),
        "nothing_on_faults_alone": nothing,
        "wrong": wrong,
    }
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        print(f"{len(results)} cases, agreement {agreement:.3f}")
        print(f"{len(alone)} of faults alone, nothing done: {nothing:.0%}")
        for each in wrong:
            print(f"  {each['case']}: right is {each['right']}, found {each['found']}")
    return 0 if agreement >= 0.9 and nothing == 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
