"""Receipts of what was forgotten, brought along when a backup takes the place of a home.

A receipt is the owner's proof, and a backup that is older than it does not have it. `forgetting.carry_over` asks the
copy to forget again what it still holds; here the requests themselves come along: those that are done as they are,
and those that were under way to be begun anew, since what they had done was done to the database that is replaced.
"""

from __future__ import annotations

import json

from store import forgetting
from store.db import Store
from store.forgetting import Forgetting
from store.types import ForgetState

ALL_OF_THEM = -1


def carry_over(live: Store, copy: Store) -> None:
    """Give a copy that is about to take a home's place the requests to forget that only the home knows."""
    known = {each.id for each in forgetting.list_(copy, ALL_OF_THEM)}
    asked_again = {(each.scope, each.target) for each in forgetting.open_(copy)}
    for each in forgetting.list_(live, ALL_OF_THEM):
        if each.id in known:
            continue
        if each.state is ForgetState.PURGED:
            _insert(copy, each)
        elif (each.scope, each.target) not in asked_again:
            _insert(copy, _from_the_start(each))


def _from_the_start(asked: Forgetting) -> Forgetting:
    plan = {**asked.plan, "steps": {}}
    return Forgetting(
        asked.id,
        asked.scope,
        asked.target,
        ForgetState.REQUESTED,
        asked.created,
        asked.updated,
        plan,
        None,
        None,
    )


def _insert(copy: Store, asked: Forgetting) -> None:
    with copy.write() as connection:
        connection.execute(
            "INSERT INTO forgettings (id, scope, target, state, created, updated, [plan], run, receipt) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                asked.id,
                asked.scope,
                asked.target,
                asked.state,
                asked.created,
                asked.updated,
                json.dumps(asked.plan),
                asked.run,
                None if asked.receipt is None else json.dumps(asked.receipt),
            ),
        )
