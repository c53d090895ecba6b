"""The hindsight teacher: the frozen base that is told, below the question, what the owner wanted.

A small model follows a hint that stands in front of it far more often than it follows one it was told of once,
and what it then writes is close to what it could say by itself, which is why learning it harms little else. Only
replies that pass the checks teach. The teacher runs in llama.cpp on the served file, without an adapter: it is
ten times quicker there than in the training library, and it is the model the owner talks to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.model.llama import (
    LlamaContext,
    LlamaModel,
    SamplerSettings,
    evaluate_prompt,
    generate,
    shared_prefix,
)
from app.model.renderer import Renderer
from learner import checks, hints
from learner.contexts import polite_context
from learner.examples import Example
from learner.yielding import Yielding

ACCEPTED_PER_UNIT = 2
TRIES_PER_UNIT = 4
MAX_REPLY_TOKENS = 200
_WINDOW = 1024


@dataclass(frozen=True)
class Taught:
    """An example with its accepted replies, why the others were refused, and why its hint was left out, if it was."""

    example: Example
    refused: tuple[str, ...]
    dropped: str | None = None


class Teacher:
    """Writes replies to hinted prompts. Close it: it holds a context of the served model."""

    def __init__(self, model: LlamaModel, renderer: Renderer, yielding: Yielding) -> None:
        self._renderer = renderer
        self._pause = yielding.border
        self._vocab = model.vocab
        self._context: LlamaContext = polite_context(model, yielding, _WINDOW)

    def teach(self, example: Example, seed: int) -> Taught:
        """Up to two accepted replies, from at most four tries; the first try is greedy.

        A hint that says nothing is left out, and nothing is asked.
        """
        assert example.hinted is not None
        assert example.hint is not None
        dropped = self._useless(example, example.hinted, example.hint)
        if dropped is not None:
            return Taught(hints.without_hint(example), (dropped,), dropped)
        accepted: list[list[int]] = []
        refused: list[str] = []
        for attempt in range(TRIES_PER_UNIT):
            sampler = SamplerSettings(temperature=0.0 if attempt == 0 else 0.7, seed=seed + attempt)
            tokens, ended = self._reply(example.hinted, sampler)
            text = self._vocab.text(tokens)
            reason = checks.teaches(
                text,
                tokens,
                ended=ended,
                question=example.question,
                rejected=example.reply_text,
                hint=example.hint,
            )
            if reason is None:
                accepted.append(self._renderer.completion(text.strip()))
            else:
                refused.append(reason)
            if len(accepted) == ACCEPTED_PER_UNIT:
                break
        return Taught(example.taught_by(accepted), tuple(refused))

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
        for place, token in enumerate(reply[:-1], start=len(prompt)):
            self._pause()
            context.evaluate([token], place)
            found.append(context.logits().copy())
        return found

    def _reply(self, prompt: Sequence[int], sampler: SamplerSettings) -> tuple[list[int], bool]:
        stops = self._renderer.stop_ids
        tokens = [
            token.id
            for token in generate(
                self._context, prompt, sampler, MAX_REPLY_TOKENS, stops, between=self._pause
            )
        ]
        if tokens and tokens[-1] in stops:
            return tokens[:-1], True
        return tokens, False

    def close(self) -> None:
        """Give the context back."""
        self._context.close()
