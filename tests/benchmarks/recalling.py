"""Which memories come with which question: by words alone, and by words and meaning, at several limits of nearness.

Sixty-four wordings of questions about eight facts, sixteen more facts beside them, and questions about the world that
no memory is about. Found: the fact's memory is among those that would be told. Beside it: memories told that are about
something else, per question; these cost tokens, and a small model takes them for the answer.

    python -m tests.benchmarks.recalling
"""

from __future__ import annotations

import numpy as np

from app.harness import recall
from app.model.embedder import Embedder
from store.home import Home
from store.items import Item
from store.types import ItemKind, ItemState
from tests.benchmarks.personas.people import FACTS, pool

LIMITS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
TOLD = {
    "Marisol": "my name is Marisol", "Utrecht": "I live in Utrecht", "hazelnuts": "I'm allergic to hazelnuts",
    "Pablo": "my dog is called Pablo", "carpenter": "I'm a carpenter", "Ines": "my sister is called Ines",
    "jasmine": "I like jasmine tea best", "of May": "my birthday is on the third of May",
}  # fmt: skip
BESIDE = (
    "I play the cello on Tuesdays", "my car is a red Volvo", "I prefer trains to planes", "I'm left-handed",
    "my doctor is called Okafor", "I speak Portuguese and some Danish", "my flat is on the fourth floor",
    "I sleep badly when it is hot", "my father was a baker", "I vote by post", "my laptop runs Fedora",
    "I run ten kilometres every Sunday", "my son goes to a Montessori school", "I hate coriander",
    "I bank with a cooperative", "I'm learning to sail",
)  # fmt: skip


def memory(name: str, text: str) -> Item:
    """A fact as it is kept."""
    body = {"text": text, "value_type": recall.FACT}
    return Item(name, ItemKind.MEMORY, name, 1, ItemState.ACTIVE, body, None, None, 1.0, None, "")


def main() -> None:
    """Print the table."""
    memories = [memory(name, text) for name, text in TOLD.items()]
    memories += [memory(f"beside {place}", text) for place, text in enumerate(BESIDE)]
    about = [(wording, name) for name, (_, _, wordings) in FACTS.items() for wording in wordings]
    world = [asked.question for asked in pool("general")]
    encoder = Embedder.load(Home.default().cache)
    vectors = np.array([encoder.embed(each.text) for each in memories])
    near: dict[str, dict[str, float]] = {}
    for question in (*(wording for wording, _ in about), *world):
        cosines = vectors @ np.array(encoder.embed(question))
        near[question] = {each.id: float(cosine) for each, cosine in zip(memories, cosines, strict=True)}
    encoder.close()
    print("limit  found  first  beside it  told though about none")
    for limit in (None, *LIMITS):
        found = first = beside = needless = 0
        for question, name in about:
            told = [each.id for each in _told(question, memories, near[question], limit)]
            found += name in told
            first += told[:1] == [name]
            beside += len(set(told) - {name})
        for question in world:
            needless += len(_told(question, memories, near[question], limit))
        print(
            f"{limit or 'words':5}  {found / len(about):.2f}   {first / len(about):.2f}   {beside / len(about):.2f}"
            f"       {needless / len(world):.2f}"
        )


def _told(question: str, memories: list[Item], near: dict[str, float], limit: float | None) -> list[Item]:
    given = {} if limit is None else {name: value for name, value in near.items() if value >= limit}
    return recall.ranked(question, memories, given)


if __name__ == "__main__":
    main()
