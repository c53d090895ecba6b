"""The queue in front of the model: order is the whole of its fairness."""

from __future__ import annotations

import itertools
import threading

from hypothesis import given
from hypothesis import strategies as st

from app.host.capture import Incognito
from app.host.jobs import FairQueue, Job, Priority, Sampling


def job(name: str, client: str, priority: Priority = Priority.PROGRAM) -> Job:
    return Job(name, client, priority, [1], Sampling(), 8, Incognito(), lambda event: None)


def order(queue: FairQueue) -> list[str]:
    names = []
    while (found := queue.get(0.0)) is not None:
        names.append(found.id)
    return names


def test_one_client_is_served_in_order() -> None:
    queue = FairQueue()
    for name in "abc":
        queue.put(job(name, "one"))
    assert order(queue) == ["a", "b", "c"]


def test_clients_take_turns() -> None:
    queue = FairQueue()
    for name in ("a1", "a2", "a3"):
        queue.put(job(name, "a"))
    queue.put(job("b1", "b"))
    queue.put(job("c1", "c"))
    assert order(queue) == ["a1", "b1", "c1", "a2", "a3"]


def test_people_come_before_programs() -> None:
    queue = FairQueue()
    queue.put(job("program", "p"))
    person = job("person", "tui", Priority.INTERACTIVE)
    assert queue.ahead(person) == 0
    assert queue.ahead(job("other", "q")) == 1
    queue.put(person)
    assert order(queue) == ["person", "program"]


def test_waiting_ends_with_a_job_or_in_vain() -> None:
    queue = FairQueue()
    assert queue.get(0.01) is None
    threading.Timer(0.05, lambda: queue.put(job("late", "a"))).start()
    found = queue.get(5.0)
    assert found is not None
    assert found.id == "late"


def test_drained_queue_gives_nothing_more() -> None:
    queue = FairQueue()
    queue.put(job("a", "one"))
    assert [each.id for each in queue.drain()] == ["a"]
    assert queue.get(5.0) is None


def test_a_waiting_job_is_found_by_its_id() -> None:
    queue = FairQueue()
    queue.put(job("a", "one"))
    found = queue.find("a")
    assert found is not None
    assert queue.find("b") is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Priority))), max_size=30))
def test_nobody_is_lost_and_nobody_waits_for_two_of_another(puts: list[tuple[str, Priority]]) -> None:
    queue = FairQueue()
    for index, (client, priority) in enumerate(puts):
        queue.put(job(f"{index}", client, priority))
    served = [(puts[int(name)][0], puts[int(name)][1], int(name)) for name in order(queue)]
    assert sorted(index for _, _, index in served) == list(range(len(puts)))
    for level in Priority:
        clients = [client for client, priority, _ in served if priority is level]
        for client in set(clients):
            for other in set(clients) - {client}:
                _assert_alternates(clients, client, other)


def _assert_alternates(clients: list[str], client: str, other: str) -> None:
    """Between two turns of one client, the other has at most one while the first still waits."""
    places = [index for index, name in enumerate(clients) if name == client]
    for left, right in itertools.pairwise(places):
        assert clients[left:right].count(other) <= 1
