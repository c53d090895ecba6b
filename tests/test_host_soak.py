"""A short soak of the engine; the long one is `python -m tests.benchmarks.soak`."""

from __future__ import annotations

import pytest

from store.home import Home
from tests.benchmarks.soak import soak


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_wrong_and_nothing_is_left(home: Home, seed: int) -> None:
    result = soak(home, 150, seed)
    assert result["became"].get("wrong", 0) == 0
    assert result["became"]["complete"] > 50
    assert result["became"]["stopped"] > 5
    left = result["left"]
    assert (left["queue"], left["busy"], left["pinned_sequences"], left["open_rows"]) == (0, False, 0, 0)
    assert left["lanes"] <= 3
