"""Recorded questions answered again with an item that nobody has added yet, behind everything that is waited for.

The controller asks from its own thread and may not wait, so a question that is not answered yet is asked for and the
controller looks again when the reply is there. At temperature 0 and short, as measuring an item does: it is to be seen
whether the fault comes again, not what a long reply would be. Nothing of it is kept but in memory, and there only
until something is forgotten. A guard that can mend what was said needs no reply; one that cannot asks for another as it
would of a reply that is made, but once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from app.control.rehearsing import GoesOn, NoRehearsal, by_code
from app.harness import guards
from app.harness.dressing import Harness, dressed
from app.harness.guards import Judged
from app.host.capture import Incognito
from app.host.events import Done, Failed, TurnEvent
from app.host.guarding import asked_again
from app.host.jobs import Job, Priority, Sampling
from app.host.runtime import Runtime
from app.model.renderer import Turn
from store import adapters, conversations, forgetting, ids, items
from store.db import Store
from store.errors import MynahError, UsageError
from store.items import Item
from store.types import ItemKind, Role

log = logging.getLogger("mynah.host")

MAX_TOKENS = 160
_KEPT = 64
"""Replies that are kept: those to three questions of a score of proposals."""


class Rehearsals:
    """The rehearsals of one host. `again` is for one thread; replies come in from the engine's."""

    def __init__(self, runtime: Runtime, submit: Callable[[Job], None], wake: Callable[[], None]) -> None:
        self._runtime = runtime
        self._submit = submit
        self._wake = wake
        self._guard = threading.Lock()
        self._made: OrderedDict[str, str | None] = OrderedDict()
        self._going: set[str] = set()
        self._forgotten: str | None = None

    def again(self, store: Store, reply: str, item: Item) -> str:
        """The text in a reply's place with an item in force (see `app.control.rehearsing`)."""
        judged = None
        if item.kind is ItemKind.GUARD:
            judged = guards.judge([item], conversations.get_message(store, reply).text)
            if not judged.violations:
                return by_code(judged)
        key = self._key(store, reply, item)
        moment = forgetting.latest(store)
        with self._guard:
            if moment != self._forgotten:
                self._forgotten = moment
                self._made.clear()
            if key in self._going:
                raise GoesOn
            if key in self._made:
                made = self._made[key]
                if made is None:
                    raise NoRehearsal("the question could not be answered again")
                return made
            self._going.add(key)
        try:
            self._submit(self._job(store, key, reply, item, judged))
        except MynahError as error:
            self._keep(key, None)
            raise NoRehearsal(str(error)) from error
        raise GoesOn

    def _key(self, store: Store, reply: str, item: Item) -> str:
        """What a rehearsal depends on; of the words a hash, as they may have to be forgotten."""
        serving = adapters.active(store, self._runtime.info.base_hash)
        version = None if serving.adapter is None else (serving.adapter.id, serving.scale)
        holding = [each.id for each in items.active(store)]
        told = json.dumps([reply, item.kind, item.body, holding, version], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()

    def _job(self, store: Store, key: str, reply: str, item: Item, judged: Judged | None) -> Job:
        """``judged``: what a guard said of the reply that it cannot mend, which is then asked for again."""
        before = conversations.path(store, reply)[:-1]
        if not before:
            raise UsageError(f"{reply} answers nothing")
        turns: Sequence[Turn] = [Turn(each.role, each.text) for each in before if each.role is not Role.TOOL]
        context = self._runtime.info.context
        ready = dressed(
            store,
            turns,
            Harness.ALL,
            before[-1].conversation,
            context,
            lambda text: len(self._runtime.continuation(text)),
            adding=(item,),
        )
        told = [*ready.turns, *([] if judged is None else asked_again(judged))]
        fitted = self._runtime.fit(told, MAX_TOKENS)
        log.info("a question is rehearsed: %d prompt tokens", len(fitted.tokens))
        return Job(
            id=ids.new_id("j"),
            client="rehearsal",
            priority=Priority.BACKGROUND,
            prompt=fitted.tokens,
            sampling=Sampling(temperature=0.0),
            max_tokens=min(MAX_TOKENS, context - len(fitted.tokens)),
            recorder=Incognito(),
            sink=lambda event: self._hear(key, event),
            left_out=fitted.left_out,
        )

    def _hear(self, key: str, event: TurnEvent) -> None:
        if isinstance(event, Done):
            self._keep(key, event.text)
        elif isinstance(event, Failed):
            self._keep(key, None)

    def _keep(self, key: str, text: str | None) -> None:
        with self._guard:
            self._going.discard(key)
            self._made[key] = text
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
        self._wake()
