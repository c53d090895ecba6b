"""An evaluation that gives way at any of its operations and is repeated gives what one without a break gives."""

from __future__ import annotations

import ctypes
from contextlib import closing

import llama_cpp
import numpy as np
import pytest

from app.model.llama import ContextSettings, LlamaModel
from app.model.llama import context as contexts
from app.model.llama.context import Row
from tests import tiny_families
from tests.tiny_families import FAMILIES

PROMPT = [1, 17, 42, 5]
TOGETHER = [[Row(9, 4, 0), Row(30, 4, 1)], [Row(61, 4, 3)]]
"""Of the four sequences one has ended."""


class Asked:
    """What llama.cpp asks before each operation: says no the ``at``-th time, and counts."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.count = 0
        self.function = llama_cpp.ggml_abort_callback(self._answer)

    def _answer(self, _data: ctypes.c_void_p) -> bool:
        self.count += 1
        return self.count == self._at


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "base.gguf"
    tiny_families.write(path, FAMILIES[0], tiny_families.model(FAMILIES[0]))
    with closing(LlamaModel.load(path)) as loaded:
        yield loaded


@pytest.fixture
def logits(model, monkeypatch):
    """Logits of the rows together, and of each sequence's next token after that."""

    def computed(asked: Asked, waits: list[int]) -> np.ndarray:
        settings = ContextSettings(n_ctx=64, n_seq=4, n_batch=32)
        with closing(model.context(settings)) as context, monkeypatch.context() as patch:
            for seq in range(4):
                context.evaluate(PROMPT, 0, seq)
            patch.setattr(contexts, "_ASKED", asked.function)
            context.give_way(0, lambda: waits.append(asked.count))
            found = []
            for rows in [*TOGETHER, *([Row(5, 5, row.seq) for row in rows] for rows in TOGETHER)]:
                context.evaluate_together(rows)
                found += [context.row_logits(row).copy() for row in range(len(rows))]
            return np.stack(found)

    return computed


def test_wherever_it_is_broken_off_it_gives_the_same(logits):
    whole = Asked(0)
    usual = logits(whole, [])
    assert whole.count > 20
    for at in range(1, whole.count + 1):
        waits: list[int] = []
        np.testing.assert_array_equal(logits(Asked(at), waits), usual)
        assert waits == [at]


def test_a_gap_is_refused_since_it_would_give_other_digits(model):
    with closing(model.context(ContextSettings(n_ctx=64, n_seq=4, n_batch=32))) as context:
        context.give_way(0, lambda: None)
        with pytest.raises(ValueError, match="neighbouring"):
            context.evaluate_together([row for rows in TOGETHER for row in rows])
