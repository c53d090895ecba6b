"""Practice by demonstration: the frozen base, shown the owner's corrections, answers everyday questions like them.

Six corrections hold a style, but also six topics, and a model trained on nothing else learns the topics with it
or stops before it has learned the style. The same base with those corrections in front of it as earlier turns
imitates their manner on other questions: without any training 0.75 to 1.0 of unseen questions came out in the
style for five styles (tests/benchmarks/README.md). What it writes then is likely under the base, which is why
learning it moves little else. No style is known by name here: an answer teaches when it is healthy, of about
the length the owner writes, and not a copy of what it was shown.
"""

from __future__ import annotations

import difflib
import json
import random
import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import resources

from app.model.llama import LlamaContext, LlamaModel, SamplerSettings, generate_together
from app.model.renderer import Renderer, Turn
from learner import checks
from learner.contexts import polite_context
from learner.examples import END_WEIGHT, Example, Target
from learner.yielding import Yielding
from store.types import Role, UnitKind

MIN_DEMONSTRATIONS = 3
MAX_DEMONSTRATIONS = 6
MAX_SHOWN_TOKENS = 900
TOGETHER = 8
"""Answers written at once: what they are shown is evaluated once for all of them."""
ENOUGH = 5
TRIES = 16
WEIGHT = 0.5
"""Of one practised answer against one correction: the owner's own words count double."""

_WINDOW = 1280
_SHORTEST, _LONGEST = 0.4, 1.6
_COPIED_SHARE = 0.6
_QUESTIONS: dict[str, list[str]] = json.loads(
    resources.files(__package__).joinpath("practice.json").read_text(encoding="utf-8")
)
_SAMPLING = SamplerSettings(temperature=0.7, top_p=0.95, top_k=40, repeat_penalty=1.1)


@dataclass(frozen=True)
class Practice:
    """What came of it: examples for the trainer, and why other answers were refused."""

    examples: list[Example]
    refused: list[str]


@dataclass(frozen=True)
class Shown:
    """One correction as the teacher sees it: question, the owner's text, and that text's tokens."""

    question: str
    text: str
    tokens: list[int]


class Demonstrator:
    """The frozen base with corrections in front of it."""

    def __init__(self, model: LlamaModel, renderer: Renderer, yielding: Yielding) -> None:
        self._model = model
        self._renderer = renderer
        self._yielding = yielding

    def practise(self, corrections: Sequence[Example], seed: int) -> Practice:
        """Answer practice questions in the manner of the corrections; nothing where there are too few of them."""
        shown = choose(self._renderer, corrections)
        if len(shown) < MIN_DEMONSTRATIONS:
            return Practice([], [])
        questions = practice_questions(corrections)
        random.Random(seed).shuffle(questions)
        longest = int(_LONGEST * max(len(each.tokens) for each in shown)) + 1
        made: list[Example] = []
        refused: list[str] = []
        # Made only now: eight windows are 240 MB, which a round without corrections has no use for.
        with closing(polite_context(self._model, self._yielding, _WINDOW, TOGETHER)) as context:
            for first in range(0, TRIES, TOGETHER):
                asked = questions[first : first + TOGETHER]
                if len(made) >= ENOUGH or not asked:
                    break
                answers = self._answers(context, shown, asked, longest, seed + first)
                for question, (tokens, ended) in zip(asked, answers, strict=True):
                    text = self._model.vocab.text(tokens).strip()
                    reason = (
                        refusal(tokens, ended, [each.tokens for each in shown]) if text else "it is empty"
                    )
                    if reason is None:
                        made.append(self._example(len(made), question, text))
                    else:
                        refused.append(reason)
        return Practice(made, refused)

    def _answers(
        self,
        context: LlamaContext,
        shown: Sequence[Shown],
        questions: Sequence[str],
        longest: int,
        seed: int,
    ) -> list[tuple[list[int], bool]]:
        """The tokens of each answer without its end, and whether it came to one."""
        turns: list[Turn] = []
        for each in shown:
            turns += [Turn(Role.USER, each.question), Turn(Role.ASSISTANT, each.text)]
        prompts = [self._renderer.prompt([*turns, Turn(Role.USER, question)]) for question in questions]
        room = min(longest, context.n_ctx - max(map(len, prompts)))
        if room <= 0:
            return [([], False) for _ in prompts]
        samplings = [replace(_SAMPLING, seed=(seed + number) % 2**32) for number in range(len(prompts))]
        stops = self._renderer.stop_ids
        replies = generate_together(context, prompts, samplings, room, stops, between=self._yielding.border)
        return [(reply[:-1], True) if reply[-1] in stops else (reply, False) for reply in replies]

    def _example(self, number: int, question: str, text: str) -> Example:
        tokens = self._renderer.completion(text)
        return Example(
            unit=f"practice-{number}",
            kind=UnitKind.CORRECTION,
            reward=1.0,
            weight=WEIGHT,
            question=question,
            reply_text="",
            hint=None,
            prompt=self._renderer.prompt([Turn(Role.USER, question)]),
            reply=Target([], []),
            chosen=Target(tokens, [*([1.0] * (len(tokens) - 1)), END_WEIGHT]),
            hinted=None,
            chosen_text=text,
        )


def refusal(tokens: Sequence[int], ended: bool, shown: Sequence[Sequence[int]]) -> str | None:
    """Why an answer must not teach, or None. ``shown`` are the corrections' tokens."""
    if not ended:
        return "it did not end"
    if checks.loops(tokens):
        return "it repeats itself"
    lengths = [len(each) for each in shown]
    if len(tokens) < _SHORTEST * min(lengths):
        return "it is much shorter than what the owner writes"
    if len(tokens) > _LONGEST * max(lengths):
        return "it is much longer than what the owner writes"
    for each in shown:
        match = difflib.SequenceMatcher(None, each, tokens, autojunk=False).find_longest_match()
        if match.size > _COPIED_SHARE * len(tokens):
            return "it copies a correction"
    return None


def choose(renderer: Renderer, corrections: Sequence[Example]) -> list[Shown]:
    """The corrections to show: those nearest to the usual length, within the token budget.

    Only first questions of a conversation: a later one means little without what was said before it.
    """
    usable = [
        Shown(each.question, each.chosen_text, renderer.completion(each.chosen_text)[:-1])
        for each in corrections
        if each.chosen_text and each.asked == 1
    ]
    if not usable:
        return []
    usual = statistics.median(len(each.tokens) for each in usable)
    usable.sort(key=lambda each: abs(len(each.tokens) - usual))
    shown: list[Shown] = []
    spent = 0
    for each in usable[:MAX_DEMONSTRATIONS]:
        spent += len(renderer.prompt([Turn(Role.USER, each.question)])) + len(each.tokens)
        if spent > MAX_SHOWN_TOKENS:
            break
        shown.append(each)
    return shown


def practice_questions(corrections: Sequence[Example]) -> list[str]:
    """Practice questions in the script the owner asks in, without those that were taught."""
    asked = checks.script(" ".join(example.question for example in corrections)) or "LATIN"
    taught = {example.question.strip().lower() for example in corrections}
    return [each for each in _QUESTIONS.get(asked, _QUESTIONS["LATIN"]) if each.lower() not in taught]
