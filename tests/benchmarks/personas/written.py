"""Replies of the served file, sixteen at once, and what the bare model says kept from one cell to the next.

Decoding is bound by reading the weights, so sixteen replies together take a sixth of the time of one after the other. The
bare model says the same to a question whatever is learned from it later, in every method, so that is written once and
kept in a file: keyed by the model file, the prompt and the limit, so that it cannot answer for another one. A reply in
company may differ from one alone where two tokens are as good as equal (the last digits of a sum depend on the batch).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.model.llama import ContextSettings, LlamaAdapter, LlamaModel, SamplerSettings, generate_together
from learner.yielding import usable_threads

TOGETHER = 16
MAX_TOKENS = 160
GREEDY = SamplerSettings(temperature=0.0, repeat_penalty=1.1)
"""What a host does at temperature 0."""

Value = list[int] | float


class Memo:
    """A file of what is known of a model without an adapter: one JSON line each, the key a digest."""

    def __init__(self, path: Path, model: str) -> None:
        self._path = path
        self._model = model
        self._known: dict[str, Value] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    key, value = json.loads(line)
                except ValueError:
                    continue
                self._known[key] = value

    def get(self, *of: object) -> Value | None:
        """What was kept of this, or None."""
        return self._known.get(self._key(of))

    def keep(self, value: Value, *of: object) -> None:
        """Keep it, also for a run to come."""
        key = self._key(of)
        self._known[key] = value
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps([key, value]) + "\n")

    def _key(self, of: Sequence[object]) -> str:
        return hashlib.sha256(json.dumps([self._model, *of]).encode()).hexdigest()


@dataclass(frozen=True)
class Written:
    """A reply's text and tokens; ``ended`` by itself, or cut at the limit."""

    text: str
    tokens: list[int]
    ended: bool


class Writer:
    """Writes with one model file."""

    def __init__(self, model: LlamaModel, memo: Memo, stops: frozenset[int]) -> None:
        self._model = model
        self._memo = memo
        self._stops = stops

    def write(self, prompts: Sequence[list[int]], adapter: LlamaAdapter | None) -> list[Written]:
        """The reply to each prompt, greedily, of at most `MAX_TOKENS` tokens."""
        found = [self._kept(prompt) if adapter is None else None for prompt in prompts]
        left = [prompt for prompt, known in zip(prompts, found, strict=True) if known is None]
        made: list[list[int]] = []
        for start in range(0, len(left), TOGETHER):
            made += self._together(left[start : start + TOGETHER], adapter)
        if adapter is None:
            for prompt, tokens in zip(left, made, strict=True):
                self._memo.keep(tokens, MAX_TOKENS, prompt)
        rest = iter(made)
        return [self._written(next(rest) if known is None else known) for known in found]

    def _kept(self, prompt: list[int]) -> list[int] | None:
        known = self._memo.get(MAX_TOKENS, prompt)
        return known if isinstance(known, list) else None

    def _together(self, prompts: list[list[int]], adapter: LlamaAdapter | None) -> list[list[int]]:
        window = max(map(len, prompts)) + MAX_TOKENS
        threads = usable_threads()
        settings = ContextSettings(-(-window // 64) * 64, len(prompts), threads, threads, 64)
        with closing(self._model.context(settings)) as context:
            context.set_adapter(adapter)
            return generate_together(
                context, prompts, [GREEDY] * len(prompts), MAX_TOKENS, self._stops, between=lambda: None
            )

    def _written(self, tokens: list[int]) -> Written:
        ended = tokens[-1] in self._stops
        return Written(self._model.vocab.text(tokens[:-1] if ended else tokens), tokens, ended)
