"""Every family of templates, on every shape that editing, deleting, stopping, branching and trimming can leave."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.renderer import Renderer, Turn
from store.errors import ContextOverflow
from store.types import Role
from tests.chat_templates import FAMILIES, Family

SYSTEM, USER, ASSISTANT = Role.SYSTEM, Role.USER, Role.ASSISTANT
RULES = "Be brief."


class FamilyVocab:
    """One token per byte, and the family's control tokens from 256 on."""

    def __init__(self, family: Family) -> None:
        self.names = [*family.ends, *family.controls]
        self.adds_bos = family.bos is not None
        self.bos = -1 if family.bos is None else 256 + self.names.index(family.bos)
        self.eos = 256 + len(family.ends) - 1
        self.end_of_turn = 256
        self.end_ids = frozenset(range(256, 256 + len(family.ends)))

    def encode(self, text: str, *, special: bool) -> list[int]:
        tokens: list[int] = []
        while text:
            name = next((name for name in self.names if special and text.startswith(name)), None)
            tokens += [256 + self.names.index(name)] if name else list(text[0].encode())
            text = text[len(name) if name else 1 :]
        return tokens

    def control_text(self, token: int) -> str:
        return self.names[token - 256] if token >= 256 else ""

    def is_control(self, token: int) -> bool:
        return token >= 256

    def decode(self, tokens: list[int]) -> str:
        return b"".join(bytes([t]) if t < 256 else self.names[t - 256].encode() for t in tokens).decode()


def renderer_of(name: str) -> tuple[Renderer, FamilyVocab]:
    vocab = FamilyVocab(FAMILIES[name])
    return Renderer(vocab, FAMILIES[name].template), vocab


families = pytest.mark.parametrize("name", FAMILIES)


@families
def test_system_prompt_is_said_once_and_nobody_elses(name: str) -> None:
    render, vocab = renderer_of(name)
    text = vocab.decode(
        render.prompt([Turn(SYSTEM, RULES), Turn(USER, "Hi"), Turn(ASSISTANT, "Yes?"), Turn(USER, "Go")])
    )
    assert text.count(RULES) == 1
    assert "I am the default" not in text
    for content in ("Hi", "Yes?", "Go"):
        assert text.count(content) == 1
    assert text.index(RULES) < text.index("Go")


@families
def test_system_message_in_the_middle_joins_the_first(name: str) -> None:
    render, vocab = renderer_of(name)
    text = vocab.decode(
        render.prompt(
            [
                Turn(SYSTEM, RULES),
                Turn(USER, "a"),
                Turn(SYSTEM, "In French."),
                Turn(ASSISTANT, "b"),
                Turn(USER, "c"),
            ]
        )
    )
    assert f"{RULES}\n\nIn French." in text


@families
def test_every_end_stops_and_a_reply_ends_with_one(name: str) -> None:
    render, vocab = renderer_of(name)
    assert render.stop_ids >= vocab.end_ids
    completion = render.completion("fine")
    assert completion[-1] in vocab.end_ids
    assert sum(token in render.stop_ids for token in completion) == 1


@families
def test_a_conversation_only_grows(name: str) -> None:
    """So that what was computed stays of use, and a reply's own tokens follow its prompt as they did."""
    render, _ = renderer_of(name)
    asked = [Turn(SYSTEM, RULES), Turn(USER, "one")]
    first = render.prompt(asked)
    grown = first + render.completion("two")
    after = render.prompt([*asked, Turn(ASSISTANT, "two"), Turn(USER, "three")])
    if FAMILIES[name].grows:
        assert after[: len(grown)] == grown
    else:
        # A thought that is over stands before a reply while it is written, and not in the history.
        thought = len("<think>\n\n</think>\n\n")
        assert after[: len(first) - thought] == first[:-thought]


@families
def test_a_thought_in_a_reply_and_in_a_question_is_only_text(name: str) -> None:
    render, vocab = renderer_of(name)
    turns = [Turn(USER, "</think> hm"), Turn(ASSISTANT, "<think>so</think>Yes"), Turn(USER, "and?")]
    text = vocab.decode(render.prompt(turns))
    assert "</think> hm" in text
    assert "<think>so</think>Yes" in text


@families
def test_no_text_forges_a_turn(name: str) -> None:
    render, vocab = renderer_of(name)
    forged = "".join(vocab.names)
    plain = render.prompt([Turn(USER, "a"), Turn(ASSISTANT, "b"), Turn(USER, "c")])
    tokens = render.prompt([Turn(USER, forged), Turn(ASSISTANT, forged), Turn(USER, forged)])
    assert [t for t in tokens if vocab.is_control(t)] == [t for t in plain if vocab.is_control(t)]


class Talk:
    """A conversation as people treat it: a tree of turns, of which one path is open."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.path: list[Turn] = [Turn(SYSTEM, RULES)] if seed % 3 else []
        self.branches: list[list[Turn]] = []

    def say(self) -> None:
        self.path.append(Turn(USER, f"question {len(self.path)}"))

    def answer(self) -> None:
        self.path.append(Turn(ASSISTANT, f"answer {len(self.path)}"))

    def stop(self) -> None:
        """A reply that was stopped, now and then before its first word."""
        self.path.append(Turn(ASSISTANT, self.rng.choice(["", "  ", "half an ans"])))

    def edit(self) -> None:
        if self.path:
            place = self.rng.randrange(len(self.path))
            self.branches.append(self.path)
            self.path = [*self.path[:place], Turn(self.path[place].role, f"edited {place}")]

    def delete(self) -> None:
        if self.path:
            del self.path[self.rng.randrange(len(self.path))]

    def branch(self) -> None:
        if self.branches:
            self.path, other = list(self.rng.choice(self.branches)), self.path
            self.branches.append(other)

    def trim(self) -> None:
        del self.path[: self.rng.randrange(3)]

    def instruct(self) -> None:
        self.path.append(Turn(SYSTEM, f"rule {len(self.path)}"))


OPERATIONS = [Talk.say, Talk.answer, Talk.stop, Talk.edit, Talk.delete, Talk.branch, Talk.trim, Talk.instruct]


@families
@given(st.integers(0, 10_000), st.lists(st.sampled_from(OPERATIONS), max_size=25), st.integers(150, 600))
def test_whatever_is_done_to_a_conversation_it_renders(
    name: str, seed: int, operations: list[object], window: int
) -> None:
    talk = Talk(seed)
    for operation in operations:
        assert callable(operation)
        operation(talk)
    talk.path.append(Turn(USER, "the last question"))
    render, vocab = renderer_of(name)
    text = vocab.decode(render.prompt(talk.path))
    for turn in talk.path:
        assert turn.content.strip() in text
    try:
        fitted = render.fit(talk.path, window, 50)
    except ContextOverflow:
        return
    assert len(fitted.tokens) <= window - 50
    assert "the last question" in vocab.decode(fitted.tokens)
    first = next((turn for turn in fitted.turns if turn.role is not SYSTEM), None)
    assert first is not None
    assert not fitted.left_out or first.role is USER
