"""The hindsight teacher: the frozen base that is told, below the question, what the owner wanted.

A small model follows a hint that stands in front of it far more often than it follows one it was told of once,
and what it then writes is close to what it could say by itself, which is why learning it harms little else. Only
replies that pass the checks teach. The teacher runs in llama.cpp on the served file, without an adapter: it is
ten times quicker there than in the training library, and it is the model the owner talks to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from app.model.llama import (
    LlamaContext,
    LlamaModel,
    SamplerSettings,
    evaluate_prompt,
    generate_together,
    shared_prefix,
)
from app.model.renderer import Renderer
from learner import checks, hints
from learner.contexts import polite_context
from learner.examples import MAX_PROMPT_TOKENS, Example
from learner.taught import Taught
from learner.yielding import Yielding

ACCEPTED_PER_UNIT = 2
TRIES_PER_UNIT = 4
MAX_REPLY_TOKENS = 200
TOGETHER = 8
"""Replies written at once, two tries of four examples: one alone is 32 tokens/s on two cores, eight together 137."""

_WAVE = 2
_WINDOW = MAX_PROMPT_TOKENS + MAX_REPLY_TOKENS


@dataclass
class _Pupil:
    """An example on its way through the tries."""

    example: Example
    dropped: str | None
    accepted: list[list[int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def hinted(self) -> list[int]:
        assert self.example.hinted is not None
        return self.example.hinted

    @property
    def wants_more(self) -> bool:
        return self.dropped is None and len(self.accepted) < ACCEPTED_PER_UNIT

    def judge(self, text: str, tokens: list[int], ended: bool, completion: list[int]) -> None:
        """Take a reply, or note why not; one more than is wanted is neither."""
        if not self.wants_more:
            return
        reason = checks.teaches(
            text,
            tokens,
            ended=ended,
            question=self.example.question,
            rejected=self.example.reply_text,
            hint=self.example.hint or "",
        )
        if reason is None:
            self.accepted.append(completion)
        else:
            self.refused.append(reason)

    def taught(self) -> Taught:
        """What came of it."""
        if self.dropped is not None:
            return Taught(self.example, (self.dropped,), self.dropped)
        return Taught(self.example.taught_by(self.accepted), tuple(self.refused))


class Teacher:
    """Writes replies to hinted prompts. Close it: it holds a context of ``model``, the served one or its better."""

    def __init__(
        self, model: LlamaModel, renderer: Renderer, yielding: Yielding, window: int = _WINDOW
    ) -> None:
        self._model = model
        self._renderer = renderer
        self._yielding = yielding
        self._pause = yielding.border
        self._vocab = model.vocab
        self._context: LlamaContext = polite_context(model, yielding, window)

    def teach(
        self, examples: Sequence[Example], seed: int, told: Callable[[float], None] = lambda _: None
    ) -> list[Taught]:
        """Up to two accepted replies for each, from at most four tries; the first try is greedy.

        A hint that says nothing is left out, and nothing is asked. ``told`` hears the share that is done.
        """
        pupils = [self._pupil(example) for example in examples]
        for wave in range(0, TRIES_PER_UNIT, _WAVE):
            waiting = [pupil for pupil in pupils if pupil.wants_more]
            for start in range(0, len(waiting), TOGETHER // _WAVE):
                self._ask(waiting[start : start + TOGETHER // _WAVE], range(wave, wave + _WAVE), seed)
                told((wave + _WAVE * min(1.0, (start + 1) / len(waiting))) / TRIES_PER_UNIT)
        return [pupil.taught() for pupil in pupils]

    def _pupil(self, example: Example) -> _Pupil:
        assert example.hinted is not None
        assert example.hint is not None
        dropped = self._useless(example, example.hinted, example.hint)
        return _Pupil(hints.without_hint(example) if dropped else example, dropped)

    def _ask(self, pupils: Sequence[_Pupil], attempts: Sequence[int], seed: int) -> None:
        """The replies of some attempts at some examples, all at once."""
        tries = [(pupil, attempt) for pupil in pupils for attempt in attempts]
        samplers = [
            SamplerSettings(temperature=0.0 if attempt == 0 else 0.7, seed=seed + attempt)
            for _, attempt in tries
        ]
        prompts = [pupil.hinted for pupil, _ in tries]
        stops = self._renderer.stop_ids
        with closing(polite_context(self._model, self._yielding, _WINDOW, len(tries))) as context:
            replies = generate_together(
                context, prompts, samplers, MAX_REPLY_TOKENS, stops, between=self._yielding.border
            )
        for (pupil, _), reply in zip(tries, replies, strict=True):
            ended = reply[-1] in stops
            tokens = reply[:-1] if ended else reply
            text = self._vocab.text(tokens)
            pupil.judge(text, tokens, ended, self._renderer.completion(text.strip()))

    def _useless(self, example: Example, hinted: list[int], hint: str) -> str | None:
        """Why a hint must not teach, or None."""
        if not hints.says_something(hint):
            return hints.NO_WORDS
        reply = example.reply.tokens[: hints.SHIFT_TOKENS]
        if not reply:
            return None
        # One token less: its logits have to be computed even where the two prompts are the same.
        shared = min(shared_prefix([hinted, example.prompt]), len(example.prompt) - 1)
        with_hint = self._logits(hinted, reply, 0)
        shift = hints.shift(with_hint, self._logits(example.prompt, reply, shared))
        self._context.clear()
        return hints.NO_CHANGE.format(shift, hints.MIN_SHIFT) if shift < hints.MIN_SHIFT else None

    def _logits(self, prompt: Sequence[int], reply: Sequence[int], known: int) -> list[hints.Logits]:
        """Logits before each token of the reply; the first ``known`` tokens of the prompt are in the cache."""
        context = self._context
        context.truncate(0, known)
        evaluate_prompt(context, prompt, known, 0, self._pause)
        found = [context.logits().copy()]
        found += [row.copy() for row in context.after_each(reply[:-1], len(prompt), self._pause)]
        return found

    def close(self) -> None:
        """Give the context back."""
        self._context.close()
