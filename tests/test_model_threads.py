"""How many threads compute: the smallest number that is good enough, and never all of them."""

from __future__ import annotations

from typing import cast

import pytest

from app.model import threads
from app.model.llama import LlamaModel


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({1: 1.0}, 1),
        ({1: 1.0, 2: 0.95}, 1),
        ({1: 1.0, 2: 0.6, 4: 0.58}, 2),
        ({1: 1.0, 2: 0.5, 4: 0.2, 7: 0.4}, 4),
    ],
)
def test_the_smallest_within_a_tenth_of_the_best(seconds, chosen):
    assert threads.smallest_near_best(seconds) == chosen


class Timed:
    """A model whose contexts take a known time per token."""

    def __init__(self, monkeypatch, cores, seconds):
        self.measured, self.closed = [], 0
        monkeypatch.setattr(threads, "usable_cores", lambda: cores)
        monkeypatch.setattr(threads, "_seconds_per_token", self.take)
        self.seconds = seconds

    def take(self, _context, count):
        self.measured.append(count)
        return self.seconds[count]

    def context(self, _settings):
        return self

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("cores", [1, 2])
def test_one_or_two_cores_leave_nothing_to_measure(monkeypatch, cores):
    model = Timed(monkeypatch, cores, {})
    assert threads.choose_threads(cast(LlamaModel, model)) == threads.Threads(1, 1)
    assert model.measured == []


def test_a_core_is_left_free(monkeypatch):
    model = Timed(monkeypatch, 8, {1: 1.0, 2: 0.5, 4: 0.25, 7: 0.1})
    assert threads.choose_threads(cast(LlamaModel, model)) == threads.Threads(decode=7, batch=7)
    assert model.closed == 1


def test_measuring_ends_where_more_threads_stop_helping(monkeypatch):
    model = Timed(monkeypatch, 32, {1: 1.0, 2: 0.5, 4: 0.9})
    assert threads.choose_threads(cast(LlamaModel, model)) == threads.Threads(decode=2, batch=31)
    assert model.measured == [1, 2, 4]
