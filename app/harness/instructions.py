"""Standing rules into the system prompt: few, short, the ones that were measured to help first.

A small model follows the first few rules it is given and loses the rest, so their number is bounded, and what was
measured to help comes before what nobody has measured yet; what was measured to do harm is left out. They stand at
the end of the system prompt in an order that changes only when a rule or a measurement does, so that the part of the
prompt that is already computed stays valid from turn to turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from store.items import Item

MOST = 8
BUDGET = 200
HEADING = "Rules of the user:"


def gain(item: Item) -> float | None:
    """How much better replies kept to it with it than without; None where it was never measured."""
    effect = item.effect or {}
    if effect.get("with") is None or effect.get("without") is None:
        return None
    return float(effect["with"]) - float(effect["without"])


def chosen(rules: Sequence[Item], budget: int, count: Callable[[str], int]) -> list[Item]:
    """The rules that are told, the most helpful first, then the newest of those nobody has measured."""
    useful = [rule for rule in rules if (gain(rule) or 0.0) >= 0.0]
    measured = sorted((rule for rule in useful if gain(rule)), key=lambda rule: -(gain(rule) or 0.0))
    others = [rule for rule in reversed(useful) if not gain(rule)]
    kept: list[Item] = []
    for rule in (*measured, *others):
        if len(kept) < MOST and count(told([*kept, rule])) <= budget:
            kept.append(rule)
    return kept


def told(rules: Sequence[Item]) -> str:
    """Rules as they stand at the end of the system prompt; empty where there are none."""
    if not rules:
        return ""
    return "\n\n" + "\n".join((HEADING, *(f"- {' '.join(rule.text.split())}" for rule in rules)))
