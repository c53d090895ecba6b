"""A conversation made ready for the model: which items are in force for a turn, and the turns with them in it.

One place decides, and what it decided is a value that is recorded with the reply: the ids that stood in the prompt and
the guards that will look at the answer. Where nothing is in force the turns are the very same object and nothing is
counted or rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from app.harness import instructions, recall
from app.model.renderer import Turn
from store import items, settings
from store.db import Store
from store.items import Item
from store.types import ItemKind, Role

Nearness = Callable[[Store, str, Sequence[Item]], Mapping[str, float]]
"""Similarities of a question to memories, by their ids."""


class Harness(StrEnum):
    """What of it a turn gets: nothing, the rules (guards and instructions), or memories as well."""

    OFF = "off"
    RULES = "rules"
    ALL = "all"


@dataclass(frozen=True)
class Dressed:
    """Turns as the model reads them, with the ids of what was put into them, and the guards that hold."""

    turns: Sequence[Turn]
    told: tuple[str, ...] = ()
    guards: tuple[Item, ...] = ()

    @property
    def items(self) -> tuple[str, ...]:
        """Everything that this turn is exposed to."""
        return (*self.told, *(guard.id for guard in self.guards))


def dressed(
    store: Store,
    turns: Sequence[Turn],
    harness: Harness,
    conversation: str | None,
    window: int,
    count: Callable[[str], int],
    *,
    only: Sequence[str] | None = None,
    adding: Sequence[Item] = (),
    nearness: Nearness | None = None,
) -> Dressed:
    """The turns with what holds now; ``count`` tells how many tokens a text has, ``only`` names the items
    that hold in the place of the active ones, ``adding`` are some that hold as well, as if they had been added.
    ``nearness`` is asked where there are memories and a question.

    Raises:
        NotFound: one that is named does not exist.
    """
    if harness is Harness.OFF:
        return Dressed(turns)
    found = (
        items.active(store, None, conversation) if only is None else [items.get(store, item) for item in only]
    )
    found = [*found, *adding]
    if not found:
        return Dressed(turns)
    of = {kind: [item for item in found if item.kind is kind] for kind in ItemKind}
    rules = instructions.chosen(of[ItemKind.INSTRUCTION], instructions.BUDGET, count)
    memories: list[Item] = []
    if harness is Harness.ALL and of[ItemKind.MEMORY] and turns[-1].role is Role.USER:
        asked, known = turns[-1].content, of[ItemKind.MEMORY]
        similar = None if nearness is None else nearness(store, asked, known)
        near = recall.ranked(asked, known, similar)
        memories = recall.within(near, recall.budget_of(window), count)
    ready = _with_memories(_with_rules(store, turns, rules), memories)
    return Dressed(ready, tuple(item.id for item in (*rules, *memories)), tuple(of[ItemKind.GUARD]))


def _with_rules(store: Store, turns: Sequence[Turn], rules: Sequence[Item]) -> Sequence[Turn]:
    if not rules:
        return turns
    if turns[0].role is Role.SYSTEM:
        return [replace(turns[0], content=turns[0].content + instructions.told(rules)), *turns[1:]]
    prompt = str(settings.get(store, settings.SYSTEM_PROMPT))
    return [Turn(Role.SYSTEM, prompt + instructions.told(rules)), *turns]


def _with_memories(turns: Sequence[Turn], memories: Sequence[Item]) -> Sequence[Turn]:
    if not memories:
        return turns
    return [*turns[:-1], replace(turns[-1], content=recall.block(memories) + turns[-1].content)]
