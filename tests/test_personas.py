"""The benchmark of simulated people: rules, wording, pools, what a trial does, what is kept and what is counted."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

import pytest
import torch

from learner import checks
from learner.examples import Example, Target
from learner.next_state import DISSATISFIED, Pair, Reader, shipped
from store.types import UnitKind, UnitState
from store.units import Unit
from tests.benchmarks.personas import ablated, detectors, figures, report, wording
from tests.benchmarks.personas.people import FACTS, PEOPLE, Asked, fact, pool
from tests.benchmarks.personas.plan import Cell, Channel, Method, Way, cells, fits
from tests.benchmarks.personas.results import Results
from tests.benchmarks.personas.trial import Learned, Reply, Trial, teach_in_turn
from tests.benchmarks.personas.wording import Language
from tests.benchmarks.personas.written import Memo

LONG = (
    "Here are some ways to keep a plant alive. You should water it.\n\n"
    "1. Give it light\n2. Give it water\n3. Turn it\n\n"
    "If the leaves turn brown, it gets too much of something. Ask a neighbor, and measure 3 feet of room around it."
)
KOREAN = Language.KOREAN


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (detectors.is_brief, "Water it. Then wait.", "One. Two. Three."),
        (detectors.is_brief, "Paris", ""),
        (detectors.is_brief, "It costs 3.5 euros. Fine.", "- water\n- light"),
        (detectors.is_brief, "A short one.", "word " * 61),
        (detectors.has_no_list, "First this, then that.", "Do this:\n1. this\n2. that"),
        (detectors.has_no_list, "In 1990. It was warm.", "* a\n* b"),
        (detectors.is_signed, f"Fine.\n\n{detectors.SIGN_OFF}", f"Fine. {detectors.SIGN_OFF}"),
        (detectors.is_signed, f"Fine.\n{detectors.SIGN_OFF}\n", f"{detectors.SIGN_OFF}\nFine."),
        (detectors.asks_back, "Water it. How big is it?", "How big is it?"),
        (detectors.asks_back, "Water it. How big is it?", "Why? Because. How big is it?"),
        (detectors.is_british, "The colour is grey, 3 km away.", "The color is grey, far away."),
        (detectors.is_british, "It weighs 3 kg or so.", "It weighs 3 pounds or so."),
        (detectors.is_formal_korean, "물을 주시면 됩니다. 감사합니다.", "물을 줘. 감사합니다."),
        (detectors.is_formal_korean, "어떻습니까?", "Water it."),
        (detectors.is_code_only, "```python\nx = 1\n```", "Here you are:\n```python\nx = 1\n```"),
        (detectors.is_code_only, "def add(a, b):\n    return a + b", "The sum of a and b is a + b."),
        (detectors.is_code_only, "numbers.sort()", "You can use numbers.sort()"),
    ],
)
def test_a_rule_is_kept_or_it_is_not(rule, good: str, bad: str):
    assert rule(good)
    assert not rule(bad)


@pytest.mark.parametrize("name", PEOPLE)
def test_no_rule_is_kept_by_saying_nothing(name: str):
    assert not PEOPLE[name].holds(PEOPLE[name].unseen[0].question, "")
    assert not PEOPLE[name].holds(PEOPLE[name].unseen[0].question, " \n")


@pytest.mark.parametrize("name", PEOPLE)
def test_what_a_person_edits_is_what_they_want(name: str):
    person = PEOPLE[name]
    replies = (LONG, "Certainly! A plant needs light", "```python\nprint(1)\n```\nThat prints 1.")
    kept = [
        person.holds(asked.question, person.edited(asked, reply))
        for asked in person.taught
        for reply in replies
    ]
    assert sum(kept) / len(kept) >= 0.99


def test_measures_become_metric():
    said = detectors.to_british("It is 10 feet or 3.5 miles, at 212 °F, and weighs 1,000 pounds. Gray Color.")
    assert said == "It is 3 m or 5.6 km, at 100 °C, and weighs 454 kg. Grey Colour."


def test_sentences_are_counted_and_numbers_are_none():
    assert [detectors.sentences(text) for text in ("", "a", "a.", "a. b", "It is 3.5 m. Yes!", 'He said "no."')] == [
        0, 1, 1, 2, 2, 1,
    ]  # fmt: skip


def test_the_pools_are_large_and_no_question_is_both_taught_and_asked():
    general = pool("general")
    assert len(general) >= 200
    for person in PEOPLE.values():
        taught, unseen = (
            {each.question.casefold() for each in half} for half in (person.taught, person.unseen)
        )
        assert len(taught) >= 32
        assert len(unseen) >= 32
        assert not taught & unseen
        assert not taught & {each.casefold() for each in person.exempt}
        assert not unseen & {each.casefold() for each in person.exempt}
    assert len(PEOPLE) >= 8


def test_nothing_asked_is_among_the_questions_the_learner_practises_on():
    practised = json.loads(resources.files("learner").joinpath("practice.json").read_text(encoding="utf-8"))
    known = {question.casefold() for group in practised.values() for question in group}
    asked = {each.question.casefold() for person in PEOPLE.values() for each in person.unseen}
    assert not known & asked


def test_each_fact_is_asked_in_both_halves_and_known_by_its_answer():
    for needle, answer, wordings in FACTS.values():
        assert needle.casefold() in answer.casefold()
        assert len(set(wordings)) == 8
    assert fact("What is my name?") == "Marisol"
    assert PEOPLE["facts"].holds("What is my name?", "You are Marisol.")
    assert not PEOPLE["facts"].holds("What is my name?", "You may be Ines.")
    assert PEOPLE["facts"].holds("What do cows drink?", "Water, Marisol.")


def test_wording_varies_and_repeats():
    person = PEOPLE["brevity"]
    said = [person.complaint(asked.question) for asked in person.taught[:40]]
    assert len(set(said)) > 12
    assert said == [person.complaint(asked.question) for asked in person.taught[:40]]
    assert all(text[0].isupper() or not text[0].isalpha() for text in said)
    assert len({wording.thanks(Language.ENGLISH, number) for number in range(40)}) >= 4
    assert any("가" <= letter <= "힣" for letter in PEOPLE["formal-korean"].complaint("물?"))


@pytest.mark.model
def test_complaints_and_thanks_can_be_read_at_all():
    from learner.requery import embed

    reader = Reader(shipped(), embed)
    asked = [(person, each.question) for person in PEOPLE.values() for each in person.taught[:6]]
    bad = reader.read([Pair(question, LONG, person.complaint(question)) for person, question in asked])
    good = reader.read([Pair(question, LONG, person.thanks(question)) for person, question in asked])
    assert not any(reading.reward > 0 for reading in bad)
    assert not any(reading.reward < 0 for reading in good)
    assert sum(reading.reward < 0 for reading in bad) > len(bad) / 3
    assert all(reading.state in DISSATISFIED for reading in bad if reading.reward < 0)


class Pupil:
    """Says a long text until it has been told ``enough`` things and has learned; keeps a record."""

    def __init__(self, enough: int = 2, better: str = "Water it.") -> None:
        self.enough = enough
        self.better = better
        self.told: list[tuple[str, object]] = []
        self.expected: list[list[str]] = []
        self.reply = LONG

    def expect(self, questions: Sequence[str]) -> None:
        self.expected.append(list(questions))

    def ask(self, question: str, seed: int) -> Reply:
        return Reply(f"m{seed}", f"c{seed}", self.reply)

    def say(self, conversation: str, text: str, seed: int) -> None:
        self.told.append(("say", text))

    def rate(self, message: str, value: int, note: str | None) -> None:
        self.told.append(("rate", (value, note)))

    def correct(self, message: str, text: str) -> None:
        self.told.append(("correct", text))

    def remember(self, rule: str) -> None:
        self.told.append(("remember", rule))
        self.reply = self.better

    def learn(self) -> Learned:
        if len(self.told) >= self.enough:
            self.reply = self.better
            return Learned("promoted", 60.0, 80.0, len(self.told), 0.1)
        return Learned("nothing-to-learn", 1.0, 1.0, 0, None)

    def answer(self, question: str, seed: int) -> str:
        return self.reply

    def ability(self) -> float:
        return 0.5


def cell(method: Method, channel: Channel, checkpoints: tuple[int, ...] = (2, 4)) -> Cell:
    return Cell("brevity", method, channel, 0, checkpoints, 4)


def outcome_of(
    method: Method, channel: Channel, pupil: Pupil | None = None, checkpoints: tuple[int, ...] = (2, 6)
):
    pupil = pupil or Pupil()
    return Trial(cell(method, channel, checkpoints), PEOPLE["brevity"], pupil).run(), pupil


@pytest.mark.parametrize(
    ("channel", "kinds"),
    [
        (Channel.IMPLICIT, {"say"}),
        (Channel.THUMBS, {"rate"}),
        (Channel.CORRECTIONS, {"correct"}),
        (Channel.ALL, {"say", "rate", "correct"}),
    ],
)
def test_a_channel_lets_through_what_it_is_named_for(channel: Channel, kinds: set[str]):
    _, pupil = outcome_of(Method.COMBINED, channel, Pupil(enough=99))
    assert {kind for kind, _ in pupil.told} == kinds
    if channel is Channel.THUMBS:
        assert {said for _, said in pupil.told} == {(-1, None)}


def test_a_trial_measures_before_and_at_each_checkpoint_and_notes_each_session():
    outcome, _ = outcome_of(Method.COMBINED, Channel.CORRECTIONS)
    assert [(each.interactions, each.kept, each.asked) for each in outcome.measures] == [
        (0, 0, 4),
        (2, 4, 4),
        (6, 4, 4),
    ]
    assert outcome.satisfied == [False, False, True, True, True, True]
    assert figures.sessions_until_content(outcome.satisfied) == 5
    assert [each.overdone for each in outcome.measures] == [0, 6, 6]


def test_without_learning_nothing_is_said_and_memory_gets_the_rule_once():
    none, silent = outcome_of(Method.NONE, Channel.ALL)
    assert silent.told == []
    assert all(measure.learned is None for measure in none.measures)
    memory, told = outcome_of(Method.MEMORY, Channel.ALL)
    assert told.told == [("remember", PEOPLE["brevity"].rule)]
    assert memory.satisfied[1:] == [True] * 5


def test_shuffled_reactions_know_nothing_of_the_reply():
    pupil = Pupil(enough=99)
    outcome_of(Method.SHUFFLED, Channel.ALL, pupil, (32,))
    thumbs = [said[0] for kind, said in pupil.told if kind == "rate"]  # type: ignore[index]
    assert {1, -1} == set(thumbs)
    assert not any(PEOPLE["brevity"].holds("", str(said)) for kind, said in pupil.told if kind == "correct")


def test_the_oracle_says_what_the_rule_says():
    _, pupil = outcome_of(Method.ORACLE, Channel.IMPLICIT)
    values = [said[0] for kind, said in pupil.told if kind == "rate"]
    assert values == [-1, -1, 1, 1, 1, 1]


def test_a_trial_repeats_itself():
    first, second = (outcome_of(Method.SHUFFLED, Channel.ALL)[1].told for _ in range(2))
    assert first == second


def test_cells_leave_out_what_makes_no_sense_and_have_a_key_of_their_own():
    made = cells(list(PEOPLE), list(Method), list(Channel), range(2), (4, 8), 16, None)
    assert len({each.key for each in made}) == len(made)
    assert all(fits(each.method, each.channel) for each in made)
    assert {each.method for each in made} == set(Method)
    assert not any(each.method is Method.SFT and each.channel is Channel.THUMBS for each in made)
    assert replace(made[0], asked=8).key != made[0].key
    thumbs = cells(["brevity"], [Method.NONE, Method.COMBINED], [Channel.THUMBS], [0], (4,), 4, None)
    assert [(each.method, each.channel) for each in thumbs] == [
        (Method.NONE, Channel.ALL),
        (Method.COMBINED, Channel.THUMBS),
    ]


def test_results_survive_a_run_that_dies_in_the_middle_of_a_line(tmp_path):
    results = Results(tmp_path / "deep" / "results.jsonl")
    first, second = cell(Method.NONE, Channel.ALL), cell(Method.COMBINED, Channel.ALL)
    outcome, _ = outcome_of(Method.COMBINED, Channel.ALL)
    results.add(outcome)
    with (tmp_path / "deep" / "results.jsonl").open("a") as file:
        file.write('{"cell": {"pers')
    assert results.read() == [outcome]
    other = replace(outcome, cell=first)
    results.add(other)
    assert results.read() == [outcome, other]
    assert results.left([first, second, outcome.cell]) == [second]


def test_intervals():
    share = figures.wilson(8, 10)
    assert (share.value, round(share.low, 3), round(share.high, 3)) == (0.8, 0.49, 0.943)
    assert (figures.wilson(0, 10).low, figures.wilson(10, 10).high) == (0.0, 1.0)
    with pytest.raises(ValueError):
        figures.wilson(0, 0)
    apart = figures.mean([[0.5], [0.6], [0.7], [0.55]])
    assert apart.low <= apart.value <= apart.high
    assert apart.clear_of_zero
    assert not figures.mean([[-0.5], [0.6], [0.1]]).clear_of_zero
    assert math.isinf(figures.mean([[0.5, 0.6]]).low)
    with pytest.raises(ValueError):
        figures.mean([[]])


def test_a_person_with_many_values_is_drawn_whole():
    one = figures.mean([[0.0] * 50, [1.0] * 50])
    assert (one.low, one.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("satisfied", "sessions"),
    [
        ([True, True, True], 3),
        ([False, True, True, False, True, True, True], 7),
        ([True, True], None),
        ([], None),
    ],
)
def test_sessions_until_content(satisfied: list[bool], sessions: int | None):
    assert figures.sessions_until_content(satisfied) == sessions


def test_backward_transfer_is_the_last_row_less_the_diagonal():
    assert figures.backward_transfer([[0.8, 0.1], [0.6, 0.9]]) == pytest.approx(-0.2)
    with pytest.raises(ValueError):
        figures.backward_transfer([[0.8]])
    with pytest.raises(ValueError):
        figures.backward_transfer([[0.8, 0.1], [0.6]])


def test_people_in_turn_fill_a_square_matrix():
    people = [PEOPLE["brevity"], PEOPLE["no-lists"]]
    lessons = teach_in_turn(people, Pupil(), 2, 4, 0)
    assert lessons.before == [0.0, 0.0]
    assert lessons.adherence == [[1.0, 1.0], [1.0, 1.0]]
    assert "Backward transfer +0.000" in report.matrix(lessons)


def test_the_table_has_a_line_for_each_method_and_a_plot_has_its_name():
    found = [
        outcome_of(Method.COMBINED, Channel.ALL)[0],
        outcome_of(Method.NONE, Channel.ALL)[0],
        outcome_of(Method.SHUFFLED, Channel.THUMBS, Pupil(enough=99))[0],
    ]
    table = report.table(found)
    lines = table.splitlines()
    assert len(lines) == 5
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["none", "combined", "shuffled"]
    assert "≥ 6.0" in lines[2]
    assert "0/2" not in table
    assert "0.00 (0.00 to 0.66)" in lines[4]
    assert "combined, all" in report.plot(found)


def unit(kind: UnitKind = UnitKind.CORRECTION, target: str | None = "Ahoy!", hint: str | None = None) -> Unit:
    return Unit("u", "m", "c", kind, -1.0, target, hint, 1.0, UnitState.QUEUED, None, "h", "now")


def test_an_objective_sees_only_its_own_part_of_a_unit():
    binary = ablated.seen(unit(hint="shorter"), Method.BINARY)
    assert binary is not None
    assert (binary.kind, binary.target, binary.hint) == (UnitKind.THUMB_DOWN, None, None)
    distilled = ablated.seen(unit(), Method.OPD)
    assert distilled is not None
    assert (distilled.target, distilled.hint) == (None, "A good answer would be: Ahoy!")
    assert ablated.seen(unit(UnitKind.THUMB_DOWN, None, "shorter"), Method.OPD) is not None
    assert ablated.seen(unit(UnitKind.THUMB_DOWN, None), Method.OPD) is None
    assert ablated.seen(unit(UnitKind.THUMB_UP, None), Method.OPD) is None
    assert ablated.seen(unit(UnitKind.THUMB_UP, None), Method.CORRECTION) is None
    assert ablated.seen(unit(), Method.SFT) == unit()


def example(name: str) -> Example:
    first = 10 + ord(name) % 40
    return Example(
        name, UnitKind.CORRECTION, -1.0, 1.0, "q", "r", None, [1, first, 3],
        Target([first, 5, 5, 2], [1.0] * 4), Target([first, 7, 8, 9, 2], [1.0] * 5), None,
    )  # fmt: skip


def test_trl_gets_the_same_tokens():
    rows = ablated.sft_rows([example("a")])
    assert rows == [{"input_ids": [1, 27, 3, 27, 7, 8, 9, 2], "completion_mask": [0, 0, 0, 1, 1, 1, 1, 1]}]
    liked = ablated.kto_rows([example("a")], lambda tokens: " ".join(map(str, tokens)))
    assert [(row["completion"], row["label"]) for row in liked] == [("27 5 5 2", False), ("27 7 8 9 2", True)]


@pytest.mark.parametrize("method", [Method.SFT, Method.KTO])
def test_trls_trainers_move_the_same_adapter(method: Method, monkeypatch):
    from tests.test_learner_trainer import trainer

    teaching = trainer()
    monkeypatch.setitem(ablated.RATE, method, 1e-2)
    ablated.trl_run(method, _tokenizer())(teaching, [example(name) for name in "abcdef"], None)
    assert teaching.metrics.steps > 0
    moved = [
        float(parameter.detach().abs().max())
        for name, parameter in teaching.model.named_parameters()
        if "lora_B" in name
    ]
    assert max(moved) > 0.0
    assert all(torch.isfinite(parameter).all() for parameter in teaching.model.parameters())


def _tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(64)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="w2", pad_token="w0", unk_token="w0")


def test_a_list_in_the_benchmark_is_a_list_to_the_learner():
    for text in ("1. a\n2. b", "- a", "* a", "plain text", "12) a"):
        assert detectors.has_no_list(text) is not checks.has_list(text)


def test_own_answers_pass_their_own_rule():
    for name in ("formal-korean", "code-only"):
        person = PEOPLE[name]
        answered = [each for each in person.taught if each.answer]
        assert len(answered) == len(person.taught)
        assert [each for each in answered if not person.holds(each.question, str(each.answer))] == []
    assert pool("code")[0] == Asked(
        "Write a Python function that adds two numbers.", "def add(a, b):\n    return a + b"
    )


def test_what_tells_most_comes_first_for_all_people():
    made = cells(["brevity", "facts"], list(Method), list(Channel), [0], (16,), 16, None)
    assert [(each.person, each.method, each.channel) for each in made[:4]] == [
        ("brevity", Method.COMBINED, Channel.ALL),
        ("facts", Method.COMBINED, Channel.ALL),
        ("brevity", Method.NONE, Channel.ALL),
        ("facts", Method.NONE, Channel.ALL),
    ]
    assert replace(made[0], way=Way.HOST).key != made[0].key


def test_a_stretch_is_announced_before_it_is_asked():
    _, pupil = outcome_of(Method.COMBINED, Channel.ALL, checkpoints=(2, 6))
    taught = [len(each) for each in pupil.expected]
    exempt = len(PEOPLE["brevity"].exempt)
    assert taught == [4 + exempt, 2, 4 + exempt, 4, 4 + exempt]


def test_what_the_bare_model_said_is_kept_for_that_model_and_prompt_alone(tmp_path):
    path = tmp_path / "said.jsonl"
    memo = Memo(path, "one")
    memo.keep([1, 2], 160, [5, 6])
    memo.keep(0.5, "ability", [7])
    with path.open("a") as file:
        file.write('["half')
    again = Memo(path, "one")
    assert (again.get(160, [5, 6]), again.get("ability", [7])) == ([1, 2], 0.5)
    assert again.get(160, [5]) is None
    assert again.get(80, [5, 6]) is None
    assert Memo(path, "other").get(160, [5, 6]) is None


def test_a_method_is_the_learners_own_only_while_it_is_applied():
    from learner import examples, gate

    before = examples.build
    with ablated.applied(Method.BINARY, lambda: pytest.fail("TRL is not needed")):
        assert examples.build is not before
    assert examples.build is before
    with ablated.applied(Method.SFT, _tokenizer):
        assert gate.Verdict(()).passed
    assert not gate.Verdict(()).passed
