"""Carries a request to forget out, one step after the other, each of which can be begun again after a crash.

The texts go first and the lesson is taught again after that: taught anew it is from the ledger without them, so
nothing they could add is needed, and a learner that is paused, broken or without a model keeps no text alive. The
order of the states stays: serving is clean, then everything is erased, then the lesson is learned anew (or there is
none, or it cannot be learned now and its units wait in the queue), then what that run left is swept away and the
receipt is written. A step is noted when it is done; one that was cut off is done again. Only one process at a time
carries a request out; any may: whoever asked, the host, a later command.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from store import (
    adapters,
    conversations,
    decisions,
    erasure,
    forgetting,
    runs,
    settings,
    textindex,
    units,
    warm,
)
from store.db import Store
from store.errors import HomeLocked, NotFound
from store.exchange import cleansing
from store.exchange.backup import SCRATCH
from store.exchange.cleansing import Cleansed
from store.forgetting import Forgetting, Item
from store.home import Home, locked, taking_turns
from store.ids import now
from store.quotes import Quotes
from store.types import AdapterState, ForgetState, Scope, SignalKind, SignalSource, Trigger

PERSONAL_SETTINGS = (settings.SYSTEM_PROMPT, settings.PRIVACY_WORDS, settings.PINNED)
"""What of the settings is the owner's own words; the others say how Mynah runs, and stay when all is forgotten."""

_PATIENCE_SECONDS = 10.0


class _Work:
    """One attempt at one request. ``texts`` is what it erased itself; None where an earlier attempt did."""

    def __init__(self, store: Store, asked: Forgetting) -> None:
        self.store = store
        self.asked = asked
        self.texts: list[str] | None = None

    @property
    def plan(self) -> dict[str, Any]:
        return self.asked.plan

    @property
    def scope(self) -> Scope:
        return self.asked.scope

    def done(self, step: str) -> None:
        """Note that a step is done."""
        self.plan["steps"][step] = now()
        self.asked = forgetting.note(self.store, self.asked.id, plan=self.plan)

    def enter(self, state: ForgetState) -> None:
        """Enter a state."""
        self.plan["steps"][state] = now()
        self.asked = forgetting.note(self.store, self.asked.id, state=state, plan=self.plan)


def proceed(store: Store, asked: str) -> Forgetting:
    """Go as far with a request as can be gone now; returns it. It only ever stops short to wait for the learner."""
    with taking_turns(store.home.forget_lock):
        work = _Work(store, forgetting.get(store, asked))
        if work.asked.state is ForgetState.REQUESTED:
            work.enter(ForgetState.SERVING_CLEAN)
        if work.asked.state is ForgetState.SERVING_CLEAN:
            for step in _STEPS:
                name = step.__name__.removeprefix("_")
                if name not in work.plan["steps"]:
                    step(work)
                    work.done(name)
            _teach_again(work)
        if work.asked.state is ForgetState.RETRAINED:
            _close(work)
        return work.asked


def proceed_all(store: Store) -> None:
    """Go on with every request that is not carried out to its end."""
    for asked in forgetting.open_(store):
        proceed(store, asked.id)


def _texts(work: _Work) -> None:
    """Delete the rows, and every quotation of them in what stays."""
    store = work.store
    if work.scope is Scope.ADAPTER:
        return
    if work.scope is Scope.ALL:
        _everything(work)
        return
    item = _item(store, work)
    texts = erasure.texts_of(store, item.messages) + erasure.texts_of_items(store, item.items)
    if item.conversation is not None:
        title = store.conn.execute(
            "SELECT title FROM conversations WHERE id = ?", (item.conversation,)
        ).fetchone()
        texts += [title["title"]] if title is not None else []
    erasure.clean_logs(store, Quotes(texts))
    with store.write():
        forget_in(store, item, work.plan["tainted"])
        work.done("texts")
    work.texts = texts


def _item(store: Store, work: _Work) -> Item:
    """The item as it is now: somebody may have talked on meanwhile."""
    with contextlib.suppress(NotFound):
        return forgetting.find(store, work.scope, work.asked.target)
    kept = work.plan["item"]
    messages, items = tuple(kept["messages"]), tuple(kept.get("items", ()))
    lesser = tuple(kept.get("lesser", ()))
    return Item(work.scope, work.asked.target, messages, kept["conversation"], kept["reply"], items, lesser)


def forget_in(store: Store, item: Item, tainted: list[str]) -> None:
    """Delete an item from a database, in one transaction: its rows, its quotations, its marks on adapters."""
    with store.write() as connection:
        quotes = Quotes(erasure.texts_of(store, item.messages) + erasure.texts_of_items(store, item.items))
        for late in forgetting.seen_by(store, item):
            # A run that was under way when the owner asked has entered its candidate since.
            adapters.taint(store, [late], forgetting.SAW_IT)
            tainted.append(late)
        if item.reply is not None:
            connection.execute("DELETE FROM judged WHERE message = ?", (item.reply,))
            _unreact(store, item.reply, SignalKind.REQUERY)
        for each in item.lesser:
            _unreact(store, each, SignalKind.LESSER)
        touched = {
            row["conversation"]
            for row in connection.execute(
                "SELECT DISTINCT conversation FROM messages WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(item.messages),),
            )
        }
        if item.conversation is None:
            for conversation in touched:
                _mend(store, conversation, item, quotes)
        erasure.forget_items(connection, item.items)
        erasure.delete_messages(connection, item.messages)
        if item.conversation is not None:
            connection.execute("DELETE FROM conversations WHERE id = ?", (item.conversation,))
        _strip(store, tainted)
        erasure.scrub_quotes(connection, quotes)
        decisions.forget(store, quotes)


def _unreact(store: Store, reply: str, kind: SignalKind) -> None:
    """Take back what a rule or the judge read off a forgotten message that came after a reply, or stood beside it."""
    with store.write() as connection:
        connection.execute(
            "DELETE FROM signals WHERE message = ? AND kind = ? AND source != ?",
            (reply, kind, SignalSource.USER),
        )
        left = connection.execute(
            "SELECT * FROM signals WHERE message = ? ORDER BY rowid", (reply,)
        ).fetchall()
        unit = units.of_message(store, reply)
        if unit is not None and units.draft(left, conversations.get_message(store, reply).text) is None:
            # It cannot stay as one that was refused: its hash is one of the forgotten text too.
            connection.execute("DELETE FROM unit_uses WHERE unit = ?", (unit.id,))
            connection.execute("DELETE FROM units WHERE id = ?", (unit.id,))
        elif unit is not None:
            units.refresh(store, reply)


def _mend(store: Store, conversation: str, item: Item, quotes: Quotes) -> None:
    """A conversation that goes on without some of its messages: where its head is, and what it is called."""
    ids = json.dumps(item.messages)
    kept = "conversation = ? AND id NOT IN (SELECT value FROM json_each(?))"
    with store.write() as connection:
        connection.execute(
            f"UPDATE conversations SET head = (SELECT id FROM messages WHERE {kept} AND NOT EXISTS (SELECT 1 FROM "
            "messages AS child WHERE child.parent = messages.id AND child.id NOT IN (SELECT value FROM json_each(?))) "
            "ORDER BY rowid DESC LIMIT 1) WHERE id = ? AND head IN (SELECT value FROM json_each(?))",
            (conversation, ids, ids, conversation, ids),
        )
        title = connection.execute("SELECT title FROM conversations WHERE id = ?", (conversation,)).fetchone()
        texts = set(erasure.texts_of(store, item.messages))
        named = title["title"]
        if quotes.in_(named) or any(conversations.title_from(text) == named for text in texts):
            connection.execute("UPDATE conversations SET title = '(forgotten)' WHERE id = ?", (conversation,))
        # Steps of the conversation as a whole may quote any message of it.
        connection.execute("DELETE FROM events WHERE conversation = ? AND message IS NULL", (conversation,))


def _strip(store: Store, tainted: list[str]) -> None:
    """Leave of a tainted adapter's row what lineage needs: the hashes of what it learned are hashes of the text."""
    with store.write() as connection:
        for each in tainted:
            row = connection.execute("SELECT manifest FROM adapters WHERE id = ?", (each,)).fetchone()
            if row is None:
                continue
            manifest = json.loads(row["manifest"])
            kept = {key: manifest[key] for key in ("base", "recipe") if key in manifest}
            connection.execute(
                "UPDATE adapters SET manifest = ?, gate = '{}' WHERE id = ? AND state = ?",
                (json.dumps(kept), each, AdapterState.TAINTED),
            )


def _everything(work: _Work) -> None:
    store = work.store
    erasure.empty_logs(store)
    with store.write() as connection:
        erasure.delete_everything(connection)
        for key in PERSONAL_SETTINGS:
            settings.put(store, key, None)
        connection.execute("DELETE FROM forgettings WHERE id != ?", (work.asked.id,))
        decisions.append(
            store, "forgetting", {"request": work.asked.id, "scope": work.scope}, {"serving": "base"}
        )
        work.done("texts")


def _learner(work: _Work) -> None:
    """End a learner that may hold any of it in memory, and clear what is half-made; its run is begun again."""
    home = work.store.home
    if work.plan["taught"] or work.scope is Scope.ALL:
        with _without_learner(home):
            _clear(home, lambda _name: True)
            known = {row["id"] for row in work.store.conn.execute("SELECT id FROM adapters")}
            for path in home.adapters.iterdir():
                if path.name not in known:
                    shutil.rmtree(path, ignore_errors=True)
    else:
        _clear(home, lambda name: name.startswith(SCRATCH))


def _clear(home: Home, wanted: Callable[[str], bool]) -> None:
    with taking_turns(home.backup_lock):
        for path in home.scratch.iterdir():
            if not wanted(path.name):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def _without_learner(home: Home) -> Iterator[None]:
    """Hold the learner's lock; a learner that has it is asked to end, then killed."""
    began = time.monotonic()
    while True:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(home.learner_lock, "learner"))
            except HomeLocked:
                text = home.learner_lock.read_text().strip()
                patient = time.monotonic() - began < _PATIENCE_SECONDS
                if text.isdigit() and int(text) != os.getpid():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(text), signal.SIGTERM if patient else signal.SIGKILL)
                time.sleep(0.1)
                continue
            yield
            return


def _index(work: _Work) -> None:
    """Take the texts out of the full-text index."""
    if work.scope in (Scope.MESSAGE, Scope.CONVERSATION):
        # A request that an earlier version left behind does not say which.
        erasure.clean_index(work.store, work.plan.get("parts", range(textindex.PARTS)))


def _file(work: _Work) -> None:
    """No byte of it in the database file, its log, or a damaged database that was kept aside."""
    home = work.store.home
    if work.scope is Scope.ADAPTER:
        return
    if work.scope is Scope.ALL:
        erasure.rewrite(work.store)
    else:
        erasure.clean_file(work.store, work.texts)
    for path in home.root.glob(f"{home.db.name}.damaged-*"):
        path.unlink(missing_ok=True)


def _adapters(work: _Work) -> None:
    """Delete the files of what saw it, in all their forms."""
    home = work.store.home
    if work.scope is Scope.ALL:
        for path in home.adapters.iterdir():
            shutil.rmtree(path, ignore_errors=True)
        return
    for each in work.plan["tainted"]:
        row = work.store.conn.execute("SELECT state FROM adapters WHERE id = ?", (each,)).fetchone()
        if row is None or row["state"] == AdapterState.TAINTED:
            shutil.rmtree(home.adapters / each, ignore_errors=True)


def _backups(work: _Work) -> None:
    """Take it out of the backups that were made, where they still are."""
    store = work.store
    with taking_turns(store.home.backup_lock):
        listed = store.conn.execute("SELECT path, created FROM backups ORDER BY created").fetchall()
        work.plan["backups"] = [_cleansed(work, row["path"], row["created"]) for row in listed]
        if work.scope is Scope.ALL:
            with store.write() as connection:
                connection.execute("DELETE FROM backups")


def _cleansed(work: _Work, path: str, created: str) -> dict[str, Any]:
    """What became of one backup. ``holds``: it was made when the item was there, and could not be reached."""
    outcome = _cleanse(work, Path(path))
    holds = not outcome.reached and created >= work.plan.get("since", "")
    return {"path": path, "outcome": str(outcome), "holds": holds}


def _cleanse(work: _Work, path: Path) -> Cleansed:
    if work.scope is Scope.ALL:
        return cleansing.delete(path)
    return cleansing.rewrite(work.store.home, path, lambda copy: _forget_in_copy(work, copy))


def _forget_in_copy(work: _Work, copy: Store) -> bool:
    try:
        item = forgetting.find(copy, work.scope, work.asked.target)
    except NotFound:
        return False
    tainted, _ = forgetting.make_clean(copy, item)
    if work.scope is not Scope.ADAPTER:
        forget_in(copy, item, tainted)
        erasure.rewrite(copy)
    return True


def _warmed(work: _Work) -> None:
    """Delete what was computed of conversations: their text in another form. A running host drops its own."""
    warm.wipe(work.store.home)


_STEPS = (_texts, _warmed, _learner, _index, _file, _adapters, _backups)


def _teach_again(work: _Work) -> None:
    """Ask for the run that learns the rest again, and see whether it has ended."""
    if not work.plan["lost"] or work.scope is Scope.ALL:
        work.plan["retraining"] = {"outcome": "not-needed"}
        work.enter(ForgetState.RETRAINED)
        return
    if work.asked.run is None:
        run = runs.request(work.store, Trigger.FORGETTING)
        work.asked = forgetting.note(work.store, work.asked.id, run=run.id)
        return
    run = runs.get(work.store, work.asked.run)
    if run.state.finished:
        work.plan["retraining"] = {
            "run": run.id,
            "outcome": str(run.outcome),
            "adapter": run.result.get("adapter"),
            "error": run.error,
        }
        work.enter(ForgetState.RETRAINED)


def _close(work: _Work) -> None:
    """Empty the log once more, and write the receipt."""
    erasure.empty_log(work.store)
    plan = work.plan
    steps = plan["steps"]
    receipt = {
        "request": work.asked.id,
        "scope": work.scope,
        "target": work.asked.target,
        "requested": work.asked.created,
        "serving_clean": steps[ForgetState.SERVING_CLEAN],
        "erased": steps["backups"],
        "retrained": steps[ForgetState.RETRAINED],
        "purged": now(),
        **plan["counts"],
        "adapters": plan["tainted"],
        "serving": [{key: each[key] for key in ("base", "before", "after")} for each in plan["moved"]],
        "retraining": plan["retraining"],
        "backups": plan["backups"],
    }
    plan["steps"][ForgetState.PURGED] = receipt["purged"]
    work.asked = forgetting.note(
        work.store, work.asked.id, state=ForgetState.PURGED, plan=plan, receipt=receipt
    )
    erasure.empty_log(work.store)
