"""A stronger teacher of the same vocabulary: tiny random models that llama.cpp loads, with one word for each byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from app.model.llama import LlamaError, LlamaModel
from app.model.renderer import Renderer, Turn
from learner import checks, contexts, endpoint, examples, hints, likeliest, objectives, scoring, stronger
from learner import teacher as teacher_of_base
from learner.contexts import load_served
from learner.examples import Example, Target
from learner.objectives import Term
from learner.positions import Positions
from learner.round import Round
from learner.stronger import StrongerTeacher
from learner.teacher import ACCEPTED_PER_UNIT, Teacher
from learner.trainer import OWN
from learner.yielding import Yielding
from store import runs, settings
from store.db import Store
from store.errors import LearnerError, ModelFileError, UsageError
from store.options import change
from store.types import Role, Trigger, UnitKind
from tests import tiny_families
from tests.leases import Free
from tests.test_learner_trainer import WORDS, example, trainer
from tests.tiny_families import FAMILIES, Entry

LLAMA = FAMILIES[0]
NORMAL, CONTROL, UNUSED = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL, gguf.TokenType.UNUSED
HINT = "Say it in one word, please."


def bytes_and_marks() -> list[Entry]:
    """GPT-2's 256 bytes under the letters it gives them, and two marks of turns."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in plain]
    letters = [chr(byte) for byte in plain] + [chr(256 + number) for number in range(len(other))]
    return [*((letter, NORMAL) for letter in letters), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)]


ENTRIES = bytes_and_marks()


def written(path: Path, entries: list[Entry], seed: int) -> tuple[Path, Any]:
    network = tiny_families.model(LLAMA, len(entries), seed)
    tiny_families.write(path, LLAMA, network, entries)
    return path, network


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    place = tmp_path_factory.mktemp("models")
    swapped = [*ENTRIES]
    swapped[7], swapped[8] = swapped[8], swapped[7]
    return {
        "small": written(place / "small.gguf", ENTRIES, 5),
        "big": written(place / "big.gguf", ENTRIES, 6),
        "padded": written(place / "padded.gguf", [*ENTRIES, ("[PAD258]", UNUSED)], 6),
        "longer": written(place / "longer.gguf", [*ENTRIES, ("more", NORMAL)], 6),
        "swapped": written(place / "swapped.gguf", swapped, 6),
    }


@pytest.fixture
def small(files: dict[str, tuple[Path, Any]]) -> Iterator[LlamaModel]:
    with closing(load_served(files["small"][0])) as model:
        yield model


def hinted(renderer: Renderer, reply: str = "no idea") -> Example:
    turns = [Turn(Role.USER, "Why?")]
    tokens = renderer.completion(reply)
    return Example(
        "u", UnitKind.THUMB_DOWN, -1.0, 1.0, "Why?", reply, HINT, renderer.prompt(turns),
        Target(tokens, [1.0] * len(tokens)), None, renderer.prompt(examples.with_hint(turns, HINT)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("big", None),
        ("padded", None),
        ("longer", "token 258 is 'more' there and nothing here"),
        ("swapped", "token 7 is ')' there and '(' here"),
    ],
)
def test_vocabularies_agree_entry_by_entry_or_it_is_said_where_not(
    small: LlamaModel, files: dict[str, tuple[Path, Any]], file: str, reason: str | None
) -> None:
    with closing(LlamaModel.load(files[file][0])) as other:
        assert stronger.disagreement(small.vocab, other.vocab) == reason


def test_another_vocabulary_is_refused_in_one_line_and_its_weights_are_given_back(
    small: LlamaModel, files: dict[str, tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[LlamaModel] = []

    def load(path: Path) -> LlamaModel:
        loaded.append(load_served(path))
        return loaded[-1]

    monkeypatch.setattr(stronger, "load_served", load)
    renderer = Renderer(small.vocab, None)
    with pytest.raises(
        LearnerError, match=r"teacher swapped\.gguf .*: token 7 .*config unset learning\.teacher"
    ):
        StrongerTeacher(files["swapped"][0], small, renderer, Yielding(Free()))
    with pytest.raises(LlamaError, match="closed"):
        _ = loaded[0].handle
    with pytest.raises(ModelFileError):
        StrongerTeacher(files["swapped"][0].with_name("none.gguf"), small, renderer, Yielding(Free()))


def test_it_writes_replies_and_says_what_it_thinks_of_each_position(
    small: LlamaModel, files: dict[str, tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "teaches", lambda *_, **__: None)
    monkeypatch.setattr(teacher_of_base, "MAX_REPLY_TOKENS", 24)
    # Two threads that wait for each other between such small products take a hundred times as long.
    monkeypatch.setattr(contexts, "usable_threads", lambda: 1)
    path, network = files["padded"]
    renderer = Renderer(small.vocab, None)
    asked = hinted(renderer)
    shares: list[float] = []
    with closing(StrongerTeacher(path, small, renderer, Yielding(Free()))) as teacher:
        monkeypatch.setattr(hints, "MIN_SHIFT", 0.0)
        taught, silent = teacher.teach([asked, replace(asked, hint="...")], 1, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert (silent.example.hinted, silent.example.opinions) == (None, ())
    made = taught.example
    assert len(made.accepted) == ACCEPTED_PER_UNIT
    assert len(made.opinions) == 1 + len(made.accepted)
    for reply, opinion in zip((asked.reply.tokens, *made.accepted), made.opinions, strict=True):
        assert asked.hinted is not None
        start = len(asked.hinted)
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([[*asked.hinted, *reply]])).logits[0, start - 1 : -1]
        expected = logits[:, : len(ENTRIES)].log_softmax(-1).topk(likeliest.TOP_K)
        assert opinion.tokens.shape == (len(reply), likeliest.TOP_K)
        assert opinion.tokens.max() < len(ENTRIES), "nothing that the pupil has no word for"
        # llama.cpp keeps what it has read in 16 bits.
        assert np.abs(opinion.logprobs - expected.values.numpy()).mean() < 0.01
        assert np.mean(opinion.tokens[:, 0] == expected.indices[:, 0].numpy()) > 0.9


def test_the_likeliest_are_those_of_a_softmax() -> None:
    chance = np.random.default_rng(1)
    rows = chance.normal(0, 3, (4, 200)).astype(np.float32)
    found = likeliest.of(rows, 150)
    expected = torch.from_numpy(rows[:, :150]).log_softmax(-1).topk(likeliest.TOP_K)
    assert np.array_equal(found.tokens, expected.indices.numpy())
    assert np.allclose(found.logprobs, expected.values.numpy(), atol=1e-5)
    assert len(likeliest.of(rows[:, :5], 5).tokens[0]) == 5
    assert len(found) == 4


def test_an_opinion_of_every_token_teaches_what_the_same_teachers_logits_do() -> None:
    """The tiny model has as many words as an opinion has room for, so that nothing is left for the last bin."""
    assert likeliest.TOP_K == WORDS
    teaching = trainer()
    with torch.no_grad():
        # So that a random model's logits are apart by more than a rounding.
        teaching.model.get_base_model().lm_head.weight.mul_(30)
    asked = example("c", UnitKind.THUMB_DOWN, hint="h", hinted=[1, 30, 31, 3], accepted=([7, 8, 2], [9, 2]))
    opinions = tuple(
        likeliest.of(teaching._hinted(asked, number).logits().numpy(), WORDS)
        for number in (OWN, *range(len(asked.accepted)))
    )
    whole, bins = (
        teaching._distilled(each, _said(teaching, each))
        for each in (asked, replace(asked, opinions=opinions))
    )
    assert set(whole) == set(bins) == {Term.ON_POLICY, Term.DISTILL}
    for term, value in whole.items():
        # An untrained adapter is the base, so that what is apart is the hint.
        assert float(value.detach()) > 0.01
        assert float(bins[term].detach()) == pytest.approx(float(value.detach()), rel=1e-3)
    moved = [parameter for parameter in teaching.model.parameters() if parameter.requires_grad]
    for term in whole:
        one, other = (torch.autograd.grad(terms[term], moved, retain_graph=True) for terms in (whole, bins))
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one, other, strict=True))
        assert any(bool(a.abs().max() > 1e-4) for a in one)


def _said(teaching: Any, asked: Example) -> dict[str, Positions]:
    parts = teaching._parts(asked)
    return dict(zip(parts, scoring.completions(teaching.model, list(parts.values())), strict=True))


def test_of_fewer_tokens_the_rest_is_one_bin() -> None:
    student = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    teacher = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    known = teacher.log_softmax(-1).topk(2)
    p, q = (
        [*each.softmax(-1)[0, :2].tolist(), float(each.softmax(-1)[0, 2:].sum())]
        for each in (teacher, student)
    )
    forward = sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))
    reverse = sum(b * np.log(b / a) for a, b in zip(p, q, strict=True))
    assert float(objectives.forward_kl_bins(student, known.indices, known.values)) == pytest.approx(
        forward, abs=1e-5
    )
    assert float(objectives.reverse_kl_bins(student, known.indices, known.values)) == pytest.approx(
        reverse, abs=1e-5
    )
    assert forward < float(objectives.forward_kl(student, teacher))


def test_a_file_is_named_by_its_path_and_base_is_the_default(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "big.gguf"
    file.write_bytes(b"GGUF")
    change(store, settings.TEACHER, os.path.relpath(file))
    assert stronger.chosen(store) == file
    assert endpoint.chosen(store) is None
    change(store, settings.TEACHER, "http://127.0.0.1:8080/v1")
    assert stronger.chosen(store) is None
    assert endpoint.chosen(store) is not None
    change(store, settings.TEACHER, "base")
    assert settings.get(store, settings.TEACHER) is None
    assert (stronger.chosen(store), endpoint.chosen(store)) == (None, None)
    for wrong in (tmp_path / "none.gguf", tmp_path, "bigger"):
        with pytest.raises(UsageError, match=r"takes base, a \.gguf file"):
            change(store, settings.TEACHER, str(wrong))


def test_a_round_asks_whom_the_owner_named(
    store: Store, small: LlamaModel, files: dict[str, tuple[Path, Any]]
) -> None:
    runs.request(store, Trigger.MANUAL)
    run = runs.claim(store, os.getpid())
    assert run is not None
    carried = Round(store, run, Yielding(Free()))
    renderer = Renderer(small.vocab, None)
    with closing(carried._teacher(small, renderer, None)) as teacher:
        assert type(teacher) is Teacher
    change(store, settings.TEACHER, str(files["big"][0]))
    with closing(carried._teacher(small, renderer, None)) as teacher:
        assert type(teacher) is StrongerTeacher
    assert carried._taught_by == "big.gguf"
