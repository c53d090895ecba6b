"""Forgetting: what it takes along, what it leaves, that no byte stays, and that no crash stops it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from store import (
    adapters,
    conversations,
    decisions,
    erasure,
    forgetting,
    ids,
    purging,
    runs,
    search,
    settings,
    signals,
    textindex,
    units,
    warm,
)
from store.db import Store
from store.errors import NotFound, UsageError
from store.exchange import backup, restore
from store.home import Home
from store.quotes import Quotes
from store.types import (
    AdapterState,
    ForgetState,
    Role,
    RunOutcome,
    RunState,
    Scope,
    SignalKind,
    SignalSource,
    Trigger,
    UnitState,
    UnitUse,
)
from tests import seed
from tests.seed import say

SECRET = "the heron keeps nineteen lanterns"
ANSWER = "a reply about those lanterns, word for word"


def files_with(root: Path, *texts: str) -> list[str]:
    return [
        f"{path.name}: {text}"
        for path in root.rglob("*")
        if path.is_file()
        for text in texts
        if text.encode() in path.read_bytes()
    ]


def forget(store: Store, scope: Scope, target: str | None) -> forgetting.Forgetting:
    return purging.proceed(store, forgetting.request(store, scope, target).id)


def live(store: Store, content: bytes, uses: list[tuple[units.Unit, UnitUse]]) -> str:
    made = seed.adapter(store, content, uses, run=f"r{content!r}")
    adapters.publish(store, made.id, {"passed": True})
    return made.id


def test_a_conversation_that_taught_nothing_is_gone_to_the_last_byte(store: Store) -> None:
    kept, _, _ = say(store, "an ordinary question", "an ordinary reply")
    conversation, _, reply = say(store, SECRET, ANSWER)
    signals.record(store, reply, SignalKind.COPY, value=1.0)
    (store.home.logs / "host.log").write_text(f"start\nfailed at: {SECRET}\nend\n")
    decisions.append(store, "test", {"quoted": f"because of '{ANSWER[5:35]}'"}, {"action": "none"})
    run = runs.request(store, Trigger.MANUAL)
    runs.finish(store, run.id, RunOutcome.FAILED, {"note": SECRET})
    done = forget(store, Scope.CONVERSATION, conversation)
    assert done.state is ForgetState.PURGED
    assert done.receipt is not None
    assert (done.receipt["messages"], done.receipt["retraining"]) == (2, {"outcome": "not-needed"})
    assert files_with(store.home.root, SECRET, ANSWER, ANSWER[5:35]) == []
    assert search.search(store, "lanterns") == []
    assert [hit.conversation for hit in search.search(store, "ordinary question")] == [kept]
    assert decisions.broken_at(store) is None
    log = (store.home.logs / "host.log").read_text()
    assert log.startswith("start\n---")
    assert log.endswith("-\nend\n")
    assert store.conn.execute("PRAGMA foreign_key_check").fetchall() == []
    textindex.check(store.conn)


def test_a_message_takes_what_hangs_below_it_and_leaves_its_siblings(store: Store) -> None:
    conversation, question, reply = say(store, "first question", "first reply")
    _, below, answer = say(store, SECRET, ANSWER, conversation, reply)
    _, beside, _ = say(store, "another branch", "another reply", conversation, reply)
    conversations.select(store, answer)
    preview = forgetting.preview(store, Scope.MESSAGE, below)
    assert (preview.messages, preview.conversations, preview.serving_moves) == (2, 0, False)
    forget(store, Scope.MESSAGE, below)
    assert [each.id for each in conversations.children(store, reply)] == [beside]
    head = conversations.get(store, conversation).head
    assert head is not None
    assert conversations.path(store, head)[0].id == question
    assert files_with(store.home.root, SECRET, ANSWER) == []


def test_a_conversation_whose_first_message_goes_is_gone_with_its_title(store: Store) -> None:
    conversation, question, _ = say(store, SECRET, ANSWER)
    forget(store, Scope.MESSAGE, question)
    with pytest.raises(NotFound):
        conversations.get(store, conversation)
    assert files_with(store.home.root, SECRET) == []


def test_a_title_that_quotes_a_branch_is_taken_off(store: Store) -> None:
    conversation, question, _ = say(store, SECRET, ANSWER)
    other = conversations.append_user(store, conversation, "asked differently", None)
    forget(store, Scope.MESSAGE, question)
    found = conversations.get(store, conversation)
    assert (found.title, found.head, found.messages) == ("(forgotten)", other.id, 1)
    assert files_with(store.home.root, SECRET) == []


def test_what_a_rule_read_off_the_message_goes_too(store: Store) -> None:
    conversation, _, reply = say(store, "first question", "first reply")
    following = conversations.append_user(store, conversation, SECRET, reply)
    signals.record(
        store, reply, SignalKind.REQUERY, value=0.9, text=SECRET, source=SignalSource.RULE, confidence=0.9
    )
    adapter = live(store, b"1", [(seed.unit_of(store, reply), UnitUse.TRAINED)])
    done = forget(store, Scope.MESSAGE, following.id)
    assert adapters.get(store, adapter).state is AdapterState.TAINTED
    assert units.of_message(store, reply) is None
    assert done.plan["tainted"] == [adapter]
    assert files_with(store.home.root, SECRET) == []


def test_serving_goes_at_once_to_the_newest_that_never_saw_it(store: Store) -> None:
    one, two, three = (
        seed.corrected(store, f"question {number}", "a reply", f"better {number}") for number in range(3)
    )
    first = live(store, b"1", [(one, UnitUse.TRAINED)])
    second = live(store, b"2", [(two, UnitUse.TRAINED), (one, UnitUse.REPLAYED)])
    third = live(store, b"3", [(three, UnitUse.TRAINED), (two, UnitUse.HELD_OUT)])
    settings.put(store, settings.PINNED, third)
    asked = forgetting.request(store, Scope.CONVERSATION, two.conversation)
    assert asked.state is ForgetState.REQUESTED
    serving = adapters.active(store, seed.BASE).adapter
    assert serving is not None
    assert serving.id == first
    assert settings.get(store, settings.PINNED) is None
    assert [adapters.get(store, each).state for each in (second, third)] == [AdapterState.TAINTED] * 2
    assert units.get(store, one.id).state is UnitState.USED
    assert units.get(store, three.id).state is UnitState.QUEUED
    assert three.id in [unit.id for unit in units.fresh(store)]
    with pytest.raises(UsageError, match="cannot serve"):
        adapters.use(store, seed.BASE, third)


def test_without_a_learner_everything_is_erased_and_only_the_lesson_waits(store: Store) -> None:
    settings.put(store, settings.LEARNING_PAUSED, True)
    taught = seed.corrected(store, SECRET, ANSWER, "a better reply, which is long enough to be seen")
    other = seed.corrected(store, "an ordinary question", "a reply", "better")
    adapter = live(store, b"1", [(taught, UnitUse.TRAINED), (other, UnitUse.HELD_OUT)])
    manifest = json.dumps({"base": {"name": "b"}, "units": [{"hash": taught.content_hash}]})
    store.conn.execute("UPDATE adapters SET manifest = ? WHERE id = ?", (manifest, adapter))
    done = forget(store, Scope.CONVERSATION, taught.conversation)
    assert done.state is ForgetState.SERVING_CLEAN
    assert done.run is not None
    assert runs.get(store, done.run).trigger is Trigger.FORGETTING
    assert not adapters.files(store, adapter).exists()
    assert files_with(store.home.root, SECRET, ANSWER, "which is long enough", taught.content_hash) == []
    runs.fail(store, done.run, "no model")
    done = purging.proceed(store, done.id)
    assert done.state is ForgetState.PURGED
    assert done.receipt is not None
    assert done.receipt["retraining"]["error"] == "no model"
    assert [unit.id for unit in units.waiting(store)] == [other.id]


def test_a_backup_is_written_anew_without_it(store: Store, tmp_path: Path) -> None:
    kept, _, _ = say(store, "an ordinary question", "an ordinary reply")
    before = tmp_path / "before.tar.gz"
    backup.write(store, before, "1")
    before.unlink()
    store.conn.execute("UPDATE backups SET created = '2020-01-01T00:00:00.000000+00:00'")
    taught = seed.corrected(store, SECRET, ANSWER, "better")
    adapter = live(store, b"1", [(taught, UnitUse.TRAINED)])
    here, gone = tmp_path / "here.tar.gz", tmp_path / "gone.tar.gz"
    for path in (here, gone):
        backup.write(store, path, "1")
    gone.rename(tmp_path / "elsewhere.tar.gz")
    done = forget(store, Scope.CONVERSATION, taught.conversation)
    assert [(each["outcome"], each["holds"]) for each in done.plan["backups"]] == [
        ("no longer where it was made", False),
        ("written anew without it", False),
        ("no longer where it was made", True),
    ]
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    restore.unpack(here, unpacked)
    assert files_with(unpacked, SECRET, ANSWER) == []
    assert not (unpacked / "adapters" / adapter).exists()
    with Store.open(Home(unpacked)) as copy:
        assert [each.id for each in conversations.list_(copy)] == [kept]


def test_a_backup_that_comes_back_is_forgotten_again(store: Store, tmp_path: Path) -> None:
    say(store, "an ordinary question", "an ordinary reply")
    conversation, _, _ = say(store, SECRET, ANSWER)
    made, moved = tmp_path / "made.tar.gz", tmp_path / "moved.tar.gz"
    backup.write(store, made, "1")
    made.rename(moved)
    forget(store, Scope.CONVERSATION, conversation)
    home = store.home
    store.close()
    for receipts in (2, 3):
        restore.restore(home, moved, replace=True)
        with Store.open(home) as again:
            purging.proceed_all(again)
            assert len(conversations.list_(again)) == 1
            assert len(forgetting.list_(again)) == receipts
            assert files_with(home.root, SECRET, ANSWER) == []


def test_receipts_outlive_a_restore_and_what_was_under_way_is_begun_anew(
    store: Store, tmp_path: Path
) -> None:
    say(store, "an ordinary question", "an ordinary reply")
    saved = tmp_path / "saved.tar.gz"
    backup.write(store, saved, "1")
    done, open_ = (say(store, SECRET, ANSWER)[0] for _ in range(2))
    receipt = forget(store, Scope.CONVERSATION, done)
    waits = forgetting.request(store, Scope.CONVERSATION, open_)
    forgetting.note(store, waits.id, run="r1", state=ForgetState.SERVING_CLEAN)
    home = store.home
    store.close()
    restore.restore(home, saved, replace=True)
    with Store.open(home) as again:
        assert forgetting.get(again, receipt.id) == receipt
        purging.proceed_all(again)
        assert {each.id: each.state for each in forgetting.list_(again)} == {
            receipt.id: ForgetState.PURGED,
            waits.id: ForgetState.PURGED,
        }
        assert len(conversations.list_(again)) == 1


def test_everything_leaves_a_working_home_and_its_settings(store: Store, tmp_path: Path) -> None:
    taught = seed.corrected(store, SECRET, ANSWER, "better")
    live(store, b"1", [(taught, UnitUse.TRAINED)])
    settings.put(store, settings.MIN_UNITS, 9)
    settings.put(store, settings.SYSTEM_PROMPT, SECRET)
    saved = tmp_path / "saved.tar.gz"
    backup.write(store, saved, "1")
    (store.home.root / "mynah.db.damaged-1").write_text(SECRET)
    for conversation in (taught.conversation, None):
        store.conn.execute(
            "INSERT INTO drafts (conversation, text, updated) VALUES (?, ?, ?)",
            (conversation, SECRET, ids.now()),
        )
    warm.directory(store.home).mkdir()
    (warm.directory(store.home) / "state").write_text(SECRET)
    done = forget(store, Scope.ALL, None)
    assert done.state is ForgetState.PURGED
    assert files_with(store.home.root, SECRET, ANSWER) == []
    assert not saved.exists()
    assert conversations.list_(store) == []
    assert adapters.list_(store) == []
    assert list(store.home.adapters.iterdir()) == []
    assert settings.get(store, settings.MIN_UNITS) == 9
    assert settings.get(store, settings.SYSTEM_PROMPT) == settings.DEFAULTS[settings.SYSTEM_PROMPT]
    assert decisions.broken_at(store) is None
    say(store, "a new beginning", "yes")
    assert len(search.search(store, "beginning")) == 1


def test_an_adapter_is_forgotten_with_what_only_it_had_learned(store: Store) -> None:
    one = seed.corrected(store, "question 1", "a reply", "better 1")
    two = seed.corrected(store, "question 2", "a reply", "better 2")
    first = live(store, b"1", [(one, UnitUse.TRAINED)])
    second = live(store, b"2", [(two, UnitUse.TRAINED), (one, UnitUse.REPLAYED)])
    done = forget(store, Scope.ADAPTER, second)
    serving = adapters.active(store, seed.BASE).adapter
    assert serving is not None
    assert (serving.id, done.state) == (first, ForgetState.PURGED)
    assert not adapters.files(store, second).exists()
    assert units.get(store, two.id).reason == "its adapter v2 was forgotten"
    assert units.get(store, one.id).state is UnitState.USED


def test_a_learner_that_may_hold_it_is_ended(home: Home, store: Store) -> None:
    taught = seed.corrected(store, SECRET, ANSWER, "better")
    code = (
        "from store.home import Home, locked; import time; home = Home.default()\n"
        "with locked(home.learner_lock, 'learner'):\n print('there', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as learner:
        assert learner.stdout is not None
        learner.stdout.readline()
        (home.scratch / "adapter-half").mkdir()
        (home.scratch / "adapter-half" / "batch").write_text(SECRET)
        forget(store, Scope.CONVERSATION, taught.conversation)
        assert learner.wait(120) == -signal.SIGTERM
    assert list(home.scratch.iterdir()) == []


_KILLED = """
import os, signal, sys
from store import forgetting, purging
from store.db import Store
from store.home import Home
after = int(sys.argv[1])
count = 0
real = forgetting.note
def note(store, asked, **changes):
    global count
    count += 1
    if count == after:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(store, asked, **changes)
forgetting.note = note
with Store.open(Home.default()) as store:
    for asked in forgetting.open_(store):
        purging.proceed(store, asked.id)
print(count)
"""


def test_a_kill_before_any_note_of_progress_is_made_good_by_the_next(home: Home, store: Store) -> None:
    """Killed once before each thing that is written down, in turn; every start goes one step further."""
    taught = seed.corrected(store, SECRET, ANSWER, "better")
    other = seed.corrected(store, "an ordinary question", "a reply", "better")
    live(store, b"1", [(taught, UnitUse.TRAINED), (other, UnitUse.HELD_OUT)])
    asked = forgetting.request(store, Scope.CONVERSATION, taught.conversation)
    seen = [forgetting.get(store, asked.id).state]
    killed = 0
    for _ in range(60):
        now = forgetting.get(store, asked.id)
        if now.state is ForgetState.PURGED:
            break
        if now.run is not None and not runs.get(store, now.run).state.finished:
            runs.finish(store, now.run, RunOutcome.NOTHING_TO_LEARN, {})
        # Killed at the first note, then at the second of the next attempt, and so on: each is hit before and after.
        for after in (1, 2):
            done = subprocess.run(
                [sys.executable, "-c", _KILLED, str(after)], capture_output=True, text=True, check=False
            )
            killed += done.returncode == -signal.SIGKILL
            seen.append(forgetting.get(store, asked.id).state)
    assert list(dict.fromkeys(seen)) == list(ForgetState)
    assert killed > 10
    assert files_with(home.root, SECRET, ANSWER) == []
    done_ = forgetting.get(store, asked.id)
    assert done_.receipt is not None
    assert store.conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert decisions.broken_at(store) is None


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_any_long_enough_piece_is_recognised(cut: int) -> None:
    text = "In the beginning the heron kept nineteen lanterns under the old millstone by the river."
    quotes = Quotes([text])
    assert quotes.in_(f"reason: {text[cut : cut + 23]} and so on")
    assert not quotes.in_("the heron kept its peace and nobody else was there")
    assert json.loads(quotes.without_json(json.dumps({"a": [text[cut:], 1]}))) == {"a": ["(forgotten)", 1]}


def test_single_words_are_no_quotation() -> None:
    assert not Quotes(["promoted", "yes", "ok then"]).in_("promoted: yes")
    assert Quotes(["pin 44-17-29"]).in_("the pin 44-17-29 was given")


def test_late_candidates_of_a_run_under_way_never_go_live(store: Store) -> None:
    taught = seed.corrected(store, SECRET, ANSWER, "better")
    made = seed.adapter(store, b"9", [(taught, UnitUse.TRAINED)])
    forgetting.request(store, Scope.CONVERSATION, taught.conversation)
    assert adapters.get(store, made.id).state is AdapterState.TAINTED
    adapters.reject(store, made.id, {}, "its run was broken off")
    assert adapters.get(store, made.id).state is AdapterState.TAINTED


def test_runs_that_retrain_go_first_and_are_not_shared(store: Store) -> None:
    manual = runs.request(store, Trigger.MANUAL)
    again = runs.request(store, Trigger.FORGETTING)
    assert runs.request(store, Trigger.IDLE).id == manual.id
    assert runs.request(store, Trigger.FORGETTING).id == again.id != manual.id
    claimed = runs.claim(store, 1)
    assert claimed is not None
    assert (claimed.id, claimed.state) == (again.id, RunState.PREPARING)


def test_delete_names_forget_where_adapters_learned(store: Store) -> None:
    taught = seed.corrected(store, SECRET, ANSWER, "better")
    live(store, b"1", [(taught, UnitUse.TRAINED)])
    with pytest.raises(UsageError, match=f"mynah forget conversation {taught.conversation}"):
        conversations.delete(store, taught.conversation)
    assert conversations.get_message(store, taught.message).role is Role.ASSISTANT


def test_a_copy_that_deleting_left_in_the_file_is_found_and_written_over(store: Store) -> None:
    """With overwriting off, as a split page's leftover: the text is still in the file after the row is gone."""
    kept, _, _ = say(store, "an ordinary question", "an ordinary reply")
    store.conn.execute("PRAGMA secure_delete = OFF")
    store.conn.execute("CREATE TABLE leftover (text TEXT)")
    store.conn.execute("INSERT INTO leftover VALUES (?)", (SECRET,))
    store.conn.execute("DELETE FROM leftover")
    erasure.empty_log(store)
    assert files_with(store.home.root, SECRET) == [f"mynah.db: {SECRET}"]
    erasure.clean_file(store, [SECRET])
    assert files_with(store.home.root, SECRET) == []
    assert [hit.conversation for hit in search.search(store, "ordinary question")] == [kept]
