"""What a sampler chooses where a grammar or a penalty has a say: a real vocabulary, logits that a test makes up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest

from app.model import catalogue
from app.model.llama import LlamaContext, LlamaModel, Sampler, SamplerSettings
from app.model.llama.context import Logits
from store.errors import UsageError
from store.home import Home

pytestmark = pytest.mark.model

TAG = "<tool_call>"
CALL = 'root ::= "\\n" ("yes" | "no") "!"'
ANY = "root ::= [a-z]*"


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    with LlamaModel.load(catalogue.resolve(Home.default(), None).path, vocab_only=True) as loaded:
        yield loaded


class Wishes:
    """Stands for a context whose model wants certain tokens, some more than others."""

    def __init__(self, model: LlamaModel) -> None:
        self._plain = np.linspace(-1.0, 0.0, model.vocab.size, dtype=np.float32)
        self.logits: Logits = self._plain

    def want(self, *tokens: tuple[int, float]) -> LlamaContext:
        self.logits = self._plain.copy()
        for token, much in tokens:
            self.logits[token] = much
        return cast(LlamaContext, self)

    def row_logits(self, _row: int) -> Logits:
        return self.logits


def token_of(model: LlamaModel, text: str) -> int:
    [token] = model.vocab.encode(text, special=False)
    return token


def said_freely(model: LlamaModel, sampler: Sampler, wishes: Wishes, text: str) -> list[int]:
    return [sampler.sample(wishes.want((token, 50.0))) for token in model.vocab.encode(text, special=False)]


def after_the_tag(model: LlamaModel, sampler: Sampler, wishes: Wishes) -> str:
    """Ten tokens of a model that wants to say something else."""
    other = model.vocab.encode(" I would rather talk about the weather", special=False)
    tokens = [sampler.sample(wishes.want((token, 50.0))) for token in other]
    assert model.vocab.is_end(tokens[-1])
    return model.vocab.text(tokens)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_grammar_holds_from_a_text_on(model: LlamaModel, temperature: float) -> None:
    sampler = Sampler(SamplerSettings(temperature, seed=3), model.vocab, CALL, TAG)
    wishes = Wishes(model)
    free = f"Let me see: a < b, <tool_cal, no.\n{TAG}"
    assert model.vocab.text(said_freely(model, sampler, wishes, free)) == free
    assert after_the_tag(model, sampler, wishes) in ("\nyes!", "\nno!")
    sampler.close()


def test_a_token_that_goes_beyond_the_text_is_chosen_again(model: LlamaModel) -> None:
    sampler = Sampler(SamplerSettings(0.0), model.vocab, CALL, TAG)
    wishes = Wishes(model)
    said_freely(model, sampler, wishes, "<tool_call")
    end = token_of(model, ">")
    beyond = [
        token for token in range(model.vocab.size) if model.vocab.piece(token)[:1] == b">" and token != end
    ]
    assert len(beyond) > 1
    wished = [(token, 50.0 - place) for place, token in enumerate(beyond)]
    assert sampler.sample(wishes.want(*wished, (end, 1.0))) == end
    assert after_the_tag(model, sampler, wishes) in ("\nyes!", "\nno!")
    sampler.close()


def test_without_the_text_there_is_no_grammar(model: LlamaModel) -> None:
    sampler = Sampler(SamplerSettings(0.0), model.vocab, CALL, TAG)
    free = "The <tool_ call> of the wild, and no more of it than that."
    assert model.vocab.text(said_freely(model, sampler, Wishes(model), free)) == free
    sampler.close()


def test_a_grammar_that_begins_later_is_read_at_once(model: LlamaModel) -> None:
    with pytest.raises(UsageError):
        Sampler(SamplerSettings(0.0), model.vocab, "root ::= nothing-of-the-kind", TAG)


@pytest.mark.parametrize(
    ("settings", "drawn"),
    [
        (SamplerSettings(0.0), "aaaaaa"),
        (SamplerSettings(0.0, presence_penalty=0.15), "abaaaa"),
        (SamplerSettings(0.0, frequency_penalty=0.15), "ababab"),
    ],
)
def test_penalties_for_what_was_said(model: LlamaModel, settings: SamplerSettings, drawn: str) -> None:
    sampler = Sampler(settings, model.vocab, ANY)
    a, b = token_of(model, "a"), token_of(model, "b")
    wishes = Wishes(model)
    tokens = [sampler.sample(wishes.want((a, 9.0), (b, 8.9))) for _ in drawn]
    assert model.vocab.text(tokens) == drawn
    sampler.close()


def test_the_presence_of_a_token_is_remembered_for_the_whole_reply(model: LlamaModel) -> None:
    sampler = Sampler(SamplerSettings(0.0, presence_penalty=0.15), model.vocab, ANY)
    a, b, c = (token_of(model, letter) for letter in "abc")
    wishes = Wishes(model)
    assert sampler.sample(wishes.want((a, 9.0), (b, 8.9))) == a
    for _ in range(200):
        assert sampler.sample(wishes.want((c, 50.0))) == c
    assert sampler.sample(wishes.want((a, 9.0), (b, 8.9))) == b
    sampler.close()
