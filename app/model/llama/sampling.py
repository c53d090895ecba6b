"""From logits to tokens: llama.cpp's own samplers, and a plain loop for the learner.

A sampled token comes with its log-probability under the model itself, at temperature 1 and before any sampler setting,
because that is the quantity that training compares; it is computed from the one row of logits that is there anyway.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import llama_cpp
import numpy as np

from app.model.llama.context import LlamaContext, Logits, Row
from app.model.llama.grammar import Grammar
from app.model.llama.vocab import Vocab

_PENALTY_WINDOW = 64
_WHOLE_REPLY = 131_072
"""The longest window that can be set."""


@dataclass(frozen=True)
class SamplerSettings:
    """How the next token is chosen. Temperature 0 is greedy and ignores the rest but the penalty.

    Where a setting does nothing: `top_p` 1, `top_k` 0, `min_p` 0, the repeat penalty 1, the other penalties 0. The
    repeat penalty looks back over 64 tokens, the other two over the whole reply, as the OpenAI interface has them.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class SampledToken:
    """One sampled token; `logprob` is its natural logarithm under the model at temperature 1."""

    id: int
    logprob: float


class Sampler:
    """llama.cpp's sampler chain for one reply: penalty, top-k, top-p, min-p, temperature, seeded draw.

    Holds the tokens it has sampled (the penalty looks back over 64 of them) and the state of its generator,
    so a reply takes a sampler of its own, and the same seed on the same logits gives the same tokens.
    """

    def __init__(
        self, settings: SamplerSettings, vocab: Vocab, grammar: str | None = None, after: str | None = None
    ) -> None:
        """With a ``grammar`` (GBNF), only tokens that it allows, from the text ``after`` on where that is given.

        Raises UsageError where it cannot be read.
        """
        self.settings = settings
        self._grammar = None if grammar is None else Grammar(grammar, vocab, after)
        chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        for link in _links(settings, vocab.size):
            llama_cpp.llama_sampler_chain_add(chain, link)
        self._free = weakref.finalize(self, llama_cpp.llama_sampler_free, chain)
        self._chain = chain

    def sample(self, context: LlamaContext, row: int = -1) -> int:
        """Choose a token from the context's last logits, or from those of one row, and remember it."""
        if self._grammar is not None:
            return self._grammar.sample(self._chain, context.row_logits(row))
        return int(llama_cpp.llama_sampler_sample(self._chain, context.handle, row))

    @staticmethod
    def logprob(logits: Logits, token: int) -> float:
        """Natural logarithm of the token's probability at temperature 1, with no sampler setting applied."""
        top = float(logits.max())
        total = float(np.exp(logits - top, dtype=np.float32).sum(dtype=np.float64))
        return float(logits[token]) - top - math.log(total)

    def close(self) -> None:
        """Free it. May be called twice."""
        if self._grammar is not None:
            self._grammar.close()
        self._free()


def _links(settings: SamplerSettings, n_vocab: int) -> Iterator[object]:
    if settings.repeat_penalty != 1.0:
        yield llama_cpp.llama_sampler_init_penalties(
            n_vocab, _PENALTY_WINDOW, settings.repeat_penalty, 0.0, 0.0
        )
    if settings.presence_penalty or settings.frequency_penalty:
        yield llama_cpp.llama_sampler_init_penalties(
            n_vocab, _WHOLE_REPLY, 1.0, settings.frequency_penalty, settings.presence_penalty
        )
    if settings.temperature <= 0.0:
        yield llama_cpp.llama_sampler_init_greedy()
        return
    if settings.top_k > 0:
        yield llama_cpp.llama_sampler_init_top_k(settings.top_k)
    if settings.top_p < 1.0:
        yield llama_cpp.llama_sampler_init_top_p(settings.top_p, 1)
    if settings.min_p > 0.0:
        yield llama_cpp.llama_sampler_init_min_p(settings.min_p, 1)
    yield llama_cpp.llama_sampler_init_temp(settings.temperature)
    yield llama_cpp.llama_sampler_init_dist(settings.seed & 0xFFFFFFFF)


def generate(
    context: LlamaContext,
    prompt: Sequence[int],
    settings: SamplerSettings,
    max_tokens: int,
    stop_ids: frozenset[int],
    *,
    between: Callable[[], None],
) -> Iterator[SampledToken]:
    """Reply to a prompt in sequence 0 until a stop token, which is yielded too, or `max_tokens`.

    For the learner (teacher, gate); what a person reads comes from the host's engine. `between` runs before
    every evaluation. Raises ContextOverflow when prompt and reply do not fit.
    """
    context.truncate(0, 0)
    evaluate_prompt(context, prompt, 0, 0, between)
    sampler = Sampler(settings, context.model.vocab)
    try:
        for position in range(len(prompt), len(prompt) + max_tokens):
            logits = context.logits()
            token = sampler.sample(context)
            yield SampledToken(token, sampler.logprob(logits, token))
            if token in stop_ids or position + 1 == len(prompt) + max_tokens:
                return
            between()
            context.evaluate([token], position)
    finally:
        sampler.close()


def generate_together(
    context: LlamaContext,
    prompts: Sequence[Sequence[int]],
    settings: Sequence[SamplerSettings],
    max_tokens: int,
    stop_ids: frozenset[int],
    *,
    between: Callable[[], None],
) -> list[list[int]]:
    """Reply to as many prompts as the context has sequences, at once; the tokens of each, its stop token included.

    What the prompts share is evaluated once, and decoding reads the weights once for all: four replies together
    took 0.57 of the time of one after the other. Raises ContextOverflow when one does not fit.
    """
    samplers = [Sampler(each, context.model.vocab) for each in settings]
    try:
        replies = [[token] for token in _first_tokens(context, prompts, samplers, between)]
        while True:
            going = [
                seq
                for seq, reply in enumerate(replies)
                if reply[-1] not in stop_ids and len(reply) < max_tokens
            ]
            if not going:
                return replies
            between()
            for neighbours in _runs(going):
                context.evaluate_together(
                    [
                        Row(replies[seq][-1], len(prompts[seq]) + len(replies[seq]) - 1, seq)
                        for seq in neighbours
                    ]
                )
                for row, seq in enumerate(neighbours):
                    replies[seq].append(samplers[seq].sample(context, row))
    finally:
        for sampler in samplers:
            sampler.close()


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Rising numbers in runs without a gap: where a reply has ended, llama.cpp takes two steps in any case."""
    for _, run in itertools.groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        yield [number for _, number in run]


def _first_tokens(
    context: LlamaContext,
    prompts: Sequence[Sequence[int]],
    samplers: Sequence[Sampler],
    between: Callable[[], None],
) -> Iterator[int]:
    shared = min(shared_prefix(prompts), min(len(prompt) for prompt in prompts) - 1)
    context.clear()
    for seq, (prompt, sampler) in enumerate(zip(prompts, samplers, strict=True)):
        if seq and shared:
            context.copy_prefix(0, seq, shared)
        evaluate_prompt(context, prompt, shared if seq else 0, seq, between)
        yield sampler.sample(context)


def evaluate_prompt(
    context: LlamaContext, prompt: Sequence[int], start: int, seq: int, between: Callable[[], None]
) -> None:
    """Read a prompt from its token ``start`` on, batch by batch; the tokens before that are in the cache.

    `between` runs before every evaluation. Raises ContextOverflow when the prompt does not fit.
    """
    step = context.settings.n_batch
    for position in range(start, len(prompt), step):
        between()
        context.evaluate(prompt[position : position + step], position, seq)


def shared_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """How many leading tokens all of the prompts have in common."""
    columns = zip(*prompts, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
