"""A teacher that is a stronger model of the same vocabulary, in a file on this machine.

The same vocabulary is the point: then it can say not only what it would have answered but, token by token, what it
thinks of what the model did answer, which is worth many texts. So the two vocabularies are compared entry by entry
before anything is asked; models of one family (Qwen2.5 0.5B and 1.5B, say) agree, and others are refused in one line
rather than read as noise. It reads the very tokens that the model read, with the hint below the question, writes
replies that must pass the same checks, and is gone from memory before training begins: what stays of its opinion are
its likeliest tokens at each position (likeliest.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from app.model.llama import LlamaModel, Vocab, evaluate_prompt
from app.model.renderer import Renderer
from learner import likeliest
from learner.contexts import load_served
from learner.examples import MAX_COMPLETION_TOKENS, MAX_PROMPT_TOKENS, Example
from learner.likeliest import Likeliest
from learner.taught import Taught
from learner.teacher import Teacher
from learner.yielding import Yielding
from store import settings
from store.db import Store
from store.errors import LearnerError

_WINDOW = MAX_PROMPT_TOKENS + MAX_COMPLETION_TOKENS
_INSTEAD = f"choose one of the same family, or `mynah config unset {settings.TEACHER}` to learn without it"


def chosen(store: Store) -> Path | None:
    """The file that the owner named as the teacher, or None."""
    named = settings.get(store, settings.TEACHER)
    return Path(named) if named and settings.is_file(named) else None


class StrongerTeacher(Teacher):
    """Writes replies, and says what it thinks of them and of the model's own. Close it: it holds the other weights.

    ``model`` is the served one, whose vocabulary it must have.
    """

    def __init__(self, path: Path, model: LlamaModel, renderer: Renderer, yielding: Yielding) -> None:
        """Raises ModelFileError: the file is none. LearnerError: its vocabulary is another."""
        self._other = load_served(path)
        try:
            reason = disagreement(model.vocab, self._other.vocab)
            if reason is not None:
                raise LearnerError(f"the teacher {path.name} has another vocabulary: {reason}; {_INSTEAD}")
            super().__init__(self._other, renderer, yielding, _WINDOW)
        except BaseException:
            self._other.close()
            raise
        self._words = model.vocab.size

    def teach(
        self, examples: Sequence[Example], seed: int, told: Callable[[float], None] = lambda _: None
    ) -> list[Taught]:
        """As any teacher, with its opinion of each reply's positions in ``opinions``."""
        done = []
        results = super().teach(examples, seed, lambda share: told(share / 2))
        for result in results:
            done.append(result if result.dropped else self._with_opinions(result))
            told(0.5 + len(done) / len(results) / 2)
        return done

    def _with_opinions(self, taught: Taught) -> Taught:
        example = taught.example
        return replace(taught, example=replace(example, opinions=tuple(self._opinions(example))))

    def _opinions(self, example: Example) -> list[Likeliest]:
        """Of the reply as it was given, then of each accepted one."""
        assert example.hinted is not None
        context, start = self._context, len(example.hinted)
        context.truncate(0, 0)
        evaluate_prompt(context, example.hinted, 0, 0, self._pause)
        first = context.logits().copy()
        found = []
        for reply in (example.reply.tokens, *example.accepted):
            context.truncate(0, start)
            rows = chain([first], context.after_each(reply[:-1], start, self._pause))
            found.append(likeliest.of(rows, self._words))
        return found

    def close(self) -> None:
        """Give its weights back."""
        super().close()
        self._other.close()


def disagreement(model: Vocab, other: Vocab) -> str | None:
    """The first entry in which two vocabularies differ, in words, or None. Entries that nothing uses may be missing."""
    for token in range(max(model.size, other.size)):
        texts = [_entry(vocab, token) for vocab in (model, other)]
        if texts[0] != texts[1]:
            return f"token {token} is {_shown(texts[1])} there and {_shown(texts[0])} here"
    if model.end_of_turn != other.end_of_turn:
        ends = [vocab.control_text(vocab.end_of_turn) for vocab in (model, other)]
        return f"a turn ends with {ends[1]} there and with {ends[0]} here"
    return None


def _entry(vocab: Vocab, token: int) -> tuple[bytes, str] | None:
    """What a token stands for, and how a control token is written; None where nothing uses it."""
    if token >= vocab.size or vocab.is_unused(token):
        return None
    piece = vocab.piece(token)
    return piece, "" if piece else vocab.control_text(token)


def _shown(entry: tuple[bytes, str] | None) -> str:
    if entry is None:
        return "nothing"
    return repr(entry[0].decode("utf-8", "replace") or entry[1])
