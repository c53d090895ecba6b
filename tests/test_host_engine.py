"""The engine on a scripted model: every way a reply can go, and what is left of it in the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from app.host.events import Started
from app.host.jobs import Exactly, Priority, Serve
from app.model.renderer import Turn
from store import adapters, conversations
from store.activity import Activity
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.errors import DiskFull
from store.home import Home
from store.types import AdapterState, ErrorClass, FinishReason, MessageStatus, Role
from tests.host_helpers import Desk, desk, live_adapter
from tests.scripted import BASE_HASH, BROKEN, END


@pytest.fixture
def at(home: Home) -> Iterator[Desk]:
    with desk(home) as made:
        yield made


def test_reply_is_streamed_and_kept_with_all_that_made_it(at: Desk) -> None:
    answer = at.ask("count 3", temperature=0.0)
    done = answer.done()
    assert answer.text == done.text == "1 2 3 "
    row = at.row(done.message)
    assert (row.text, row.status, row.finish_reason) == ("1 2 3 ", MessageStatus.COMPLETE, FinishReason.STOP)
    assert (row.base_hash, row.adapter, row.error_class) == (BASE_HASH, None, None)
    assert row.sampler["temperature"] == 0.0
    assert row.usage == done.usage
    assert row.timings["first_token"] <= row.timings["total"]
    tokens = conversations.tokens(at.store, row.id)
    assert tokens.prompt == answer.job.prompt
    assert len(tokens.completion) == 4
    assert tokens.completion[-1] == END
    assert tokens.logprobs == pytest.approx([-0.25, -0.25, -0.25, -0.5])


def test_events_come_in_order(at: Desk) -> None:
    answer = at.ask("echo one two")
    answer.done()
    names = [type(event).__name__ for event in answer.seen]
    assert names == ["Queued", "Started", "Token", "Token", "Done"]


@pytest.mark.parametrize("text", ["é漢👩‍👩‍👧‍👦", "🇫🇷 ñ", "a\u0301"])
def test_characters_split_over_tokens_come_whole(at: Desk, text: str) -> None:
    answer = at.ask(f"bytes {text}")
    assert answer.done().text == text == answer.text
    assert "\ufffd" not in answer.text


def test_length_in_the_middle_of_a_character_ends_before_it(at: Desk) -> None:
    done = at.ask("bytes a漢", max_tokens=3).done()
    assert (done.text, done.finish_reason) == ("a", "length")


def test_control_token_spelled_in_pieces_is_never_shown(at: Desk) -> None:
    answer = at.ask("spell")
    done = answer.done()
    assert (done.text, done.finish_reason) == ("fine", "stop")
    assert "<|" not in answer.text


def test_stop_string_over_several_tokens(at: Desk) -> None:
    done = at.ask("bytes hello END world", stops=("END",)).done()
    assert (done.text, done.finish_reason) == ("hello ", "stop")


def test_text_that_only_begins_like_a_stop_is_released(at: Desk) -> None:
    assert at.ask("bytes hello EN", stops=("END",)).done().text == "hello EN"


def test_window_ends_a_reply_that_never_does(home: Home) -> None:
    with desk(home, context=256) as at:
        answer = at.ask("forever", max_tokens=100_000)
        done = answer.done()
        assert done.finish_reason == "length"
        # The last token is sampled from the last position of the window, and needs none of its own.
        assert done.usage["total_tokens"] == 257
        assert at.ask("echo next").done().text == "next"


def test_two_at_once_both_complete(at: Desk) -> None:
    first, second = at.ask("count 50", client="a"), at.ask("count 60", client="b")
    assert second.done().text.split()[-1] == "60"
    assert first.done().text.split()[-1] == "50"


def test_cancel_keeps_the_text_so_far(at: Desk) -> None:
    answer = at.ask("slow 1000")
    answer.tokens(3)
    assert at.engine.cancel(answer.job.id)
    done = answer.done()
    assert len(done.text.split()) < 1000
    assert done.finish_reason == "cancelled"
    row = at.row(done.message)
    assert row.status is MessageStatus.STOPPED
    assert row.error_class is ErrorClass.CANCELLED
    assert row.text.startswith("1 2 3")
    assert row.text == answer.text


def test_cancel_by_the_message_and_of_nothing(at: Desk) -> None:
    answer = at.ask("slow 1000")
    started = answer.started()
    assert started.message is not None
    assert at.engine.cancel(started.message)
    answer.done()
    assert not at.engine.cancel(started.message)


def test_cancel_while_the_prompt_is_evaluated(home: Home) -> None:
    with desk(home, batch_seconds=0.2) as at:
        answer = at.ask("echo " + "x" * 2000)
        answer.started()
        answer.job.cancelled.set()
        done = answer.done()
        assert (done.finish_reason, done.text) == ("cancelled", "")
        # Of 32 batches, those before the stop and at most the one under way.
        assert len(at.runtime.evaluated) < 30


def test_cancel_in_the_queue(at: Desk) -> None:
    first, second = at.ask("slow 1000", client="a"), at.ask("echo late", client="b")
    first.tokens(1)
    assert at.engine.cancel(second.job.id)
    first.job.cancelled.set()
    first.done()
    failure = second.failed()
    assert failure.error_class is ErrorClass.CANCELLED
    assert not any(isinstance(event, Started) for event in second.seen)


def test_cancel_and_ask_again_many_times(at: Desk) -> None:
    for round_ in range(30):
        answer = at.ask("forever")
        answer.tokens(round_ % 4 + 1)
        answer.job.cancelled.set()
        answer.done()
    assert at.ask("echo alive").done().text == "alive"


@pytest.mark.parametrize(
    ("command", "kind"), [("fail 3", ErrorClass.UNKNOWN), ("memory 3", ErrorClass.OUT_OF_MEMORY)]
)
def test_fault_in_a_reply_ends_that_reply_only(at: Desk, command: str, kind: ErrorClass) -> None:
    answer = at.ask(command)
    failure = answer.failed()
    assert failure.error_class is kind
    started = next(event for event in answer.seen if isinstance(event, Started))
    row = at.row(started.message)
    assert (row.status, row.error_class, row.text) == (MessageStatus.FAILED, kind, "1 2 3 ")
    assert at.ask("echo next").done().text == "next"


def test_people_first_then_clients_in_turn(at: Desk) -> None:
    blocker = at.ask("slow 1000", client="z")
    blocker.tokens(1)
    asked = [
        at.ask("echo p1", client="p", priority=Priority.PROGRAM),
        at.ask("echo p2", client="p", priority=Priority.PROGRAM),
        at.ask("echo q1", client="q", priority=Priority.PROGRAM),
        at.ask("echo me", client="tui"),
    ]
    blocker.job.cancelled.set()
    rows = {answer.done().text: answer.seen for answer in asked}
    created = {text: at.row(_started(seen).message).created for text, seen in rows.items()}
    assert sorted(created, key=lambda text: created[text]) == ["me", "p1", "q1", "p2"]


def _started(seen: Sequence[object]) -> Started:
    return next(event for event in seen if isinstance(event, Started))


def test_conversations_do_not_mix_in_the_cache(at: Desk) -> None:
    """The scripted model reads its question out of the sequence it is given."""
    histories: dict[str, list[Turn]] = {"a": [], "b": [], "c": [], "d": []}
    for round_ in range(6):
        for name, history in histories.items():
            text = f"echo {name}{round_}"
            done = at.ask(text, before=history, temperature=float(round_ % 2)).done()
            assert done.text == f"{name}{round_}"
            history += [Turn(Role.USER, text), Turn(Role.ASSISTANT, done.text)]


def test_next_turn_reuses_what_was_computed(at: Desk) -> None:
    first = at.ask("echo " + "word " * 40)
    done = first.done()
    history = [Turn(Role.USER, "echo " + "word " * 40), Turn(Role.ASSISTANT, done.text)]
    again = at.ask("echo next", before=history).done()
    assert again.usage["cached_tokens"] >= len(first.job.prompt)


def test_text_is_saved_while_it_streams(at: Desk) -> None:
    answer = at.ask("slow 1000")
    started = answer.started()
    deadline = time.monotonic() + 120.0
    while not at.row(started.message).text:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    row = at.row(started.message)
    assert row.status is MessageStatus.GENERATING
    answer.job.cancelled.set()
    assert answer.done().text.startswith(row.text)


def test_incognito_leaves_nothing(at: Desk) -> None:
    before = _content(at.store)
    answer = at.ask("echo secret", incognito=True)
    done = answer.done()
    assert (done.text, done.message, done.conversation) == ("secret", None, None)
    assert _content(at.store) == before


def _content(store: Store) -> list[str]:
    return list(store.conn.iterdump())


def test_lease_is_held_during_a_reply_and_released_after(at: Desk) -> None:
    with Activity(at.home) as activity:
        answer = at.ask("slow 1000")
        answer.tokens(1)
        assert activity.held
        answer.job.cancelled.set()
        answer.done()
        assert not activity.held


def test_swap_waits_for_the_turn_border(at: Desk) -> None:
    answer = at.ask("slow 6")
    answer.tokens(2)
    adapter = live_adapter(at.store, b"v1")
    during = answer.done()
    assert during.adapter is None
    assert at.row(during.message).adapter is None
    after = at.ask("version").done()
    assert after.text == f"{adapter}*1"
    row = at.row(after.message)
    assert (row.adapter, row.scale) == (adapter, 1.0)


def test_roll_back_at_the_next_turn(at: Desk) -> None:
    adapter = live_adapter(at.store, b"v1")
    assert at.ask("version").done().adapter == adapter
    adapters.rollback(at.store, BASE_HASH)
    done = at.ask("version").done()
    assert (done.text, done.adapter) == ("base", None)


def test_base_can_be_asked_for(at: Desk) -> None:
    adapter = live_adapter(at.store, b"v1")
    assert at.ask("version", serve=Serve.BASE).done().text == "base"
    assert at.ask("version").done().adapter == adapter


def test_a_version_asked_for_by_name_answers_whatever_serves(at: Desk) -> None:
    older, serving = live_adapter(at.store, b"older"), live_adapter(at.store, b"serving")
    before = adapters.active(at.store, BASE_HASH)
    assert at.ask("version", serve=Exactly(older, 1.0), incognito=True).done().text == f"{older}*1"
    assert at.ask("version").done().text == f"{serving}*1"
    assert adapters.active(at.store, BASE_HASH) == before


def test_a_version_asked_for_by_name_that_cannot_be_loaded_says_so_and_stays_what_it_is(at: Desk) -> None:
    broken, serving = live_adapter(at.store, BROKEN), live_adapter(at.store, b"serving")
    for wanted in (broken, "nosuch"):
        failure = at.ask("version", serve=Exactly(wanted, 1.0), incognito=True).failed()
        assert failure.message
    assert adapters.get(at.store, broken).state is AdapterState.RETIRED
    assert at.ask("version").done().text == f"{serving}*1"


def until_warm(at: Desk, adapter: str) -> None:
    deadline = time.monotonic() + 120.0
    while at.engine.status().version.adapter != adapter:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_comparison_does_not_cost_the_open_conversation_its_warm_prefix(at: Desk) -> None:
    text = "echo " + "word " * 60
    at.ask(text).done()
    at.ask("echo another conversation").done()
    at.ask("echo something else entirely", incognito=True, serve=Serve.BASE).done()
    at.ask("echo a title", incognito=True, priority=Priority.BACKGROUND).done()
    until_warm(at, live_adapter(at.store, b"v1"))
    assert at.ask(text, temperature=0.0).done().usage["cached_tokens"] >= 256


def test_versions_share_no_cache(at: Desk) -> None:
    text = "echo " + "word " * 60
    at.ask(text).done()
    assert at.ask(text).done().usage["cached_tokens"] > 0
    live_adapter(at.store, b"v1")
    assert at.ask(text).done().usage["cached_tokens"] == 0
    adapters.rollback(at.store, BASE_HASH)
    assert at.ask(text).done().usage["cached_tokens"] > 0


@pytest.mark.parametrize("damage", ["refused", "changed", "gone"])
def test_bad_adapter_takes_itself_out_of_service(at: Desk, damage: str) -> None:
    good = live_adapter(at.store, b"good")
    assert at.ask("version").done().adapter == good
    bad = live_adapter(at.store, BROKEN if damage == "refused" else b"bad")
    file = adapters.files(at.store, bad) / adapters.GGUF_NAME
    if damage == "changed":
        file.write_bytes(b"bat")
    elif damage == "gone":
        file.unlink()
    done = at.ask("version").done()
    assert done.adapter == good
    row = adapters.get(at.store, bad)
    assert row.state is AdapterState.REJECTED
    assert row.reason
    serving = adapters.active(at.store, BASE_HASH)
    assert serving.adapter is not None
    assert serving.adapter.id == good


def test_idle_engine_warms_the_open_conversation_for_a_new_version(at: Desk) -> None:
    text = "echo " + "word " * 60
    prompt = at.ask(text, temperature=0.0)
    prompt.done()
    adapter = live_adapter(at.store, b"v1")
    until_warm(at, adapter)
    done = at.ask(text, temperature=0.0).done()
    assert done.adapter == adapter
    assert done.usage["cached_tokens"] >= 256


def test_full_disk_is_said_and_the_next_reply_works(at: Desk) -> None:
    class Full:
        conversation: str | None = "c"
        user_message: str | None = "m"

        def begin(self, store: Store, start: ReplyStart) -> str | None:
            raise DiskFull("the disk is full")

        def checkpoint(self, store: Store, text: str) -> None:
            raise DiskFull("the disk is full")

        def finish(self, store: Store, end: ReplyEnd) -> None:
            raise DiskFull("the disk is full")

    class FullLater(Full):
        def begin(self, store: Store, start: ReplyStart) -> str | None:
            return "m1"

    assert at.ask("echo a", recorder=Full()).failed().error_class is ErrorClass.DISK_FULL
    later = at.ask("slow 15", recorder=FullLater())
    assert later.failed().error_class is ErrorClass.DISK_FULL
    assert later.text.split()[-1] == "15"
    assert at.ask("echo next").done().text == "next"


def test_reply_that_could_not_be_closed_is_closed_when_there_is_room_again(at: Desk) -> None:
    class FullAtFirst:
        conversation: str | None = "c"
        user_message: str | None = "m"
        tries = 0
        saved: ReplyEnd | None = None

        def begin(self, store: Store, start: ReplyStart) -> str | None:
            return "m1"

        def checkpoint(self, store: Store, text: str) -> None:
            pass

        def finish(self, store: Store, end: ReplyEnd) -> None:
            self.tries += 1
            if self.tries < 3:
                raise DiskFull("the disk is full")
            self.saved = end

    recorder = FullAtFirst()
    assert at.ask("echo a", recorder=recorder).failed().error_class is ErrorClass.DISK_FULL
    at.ask("echo b").done()
    at.ask("echo c").done()
    assert recorder.saved is not None
    assert (recorder.saved.text, recorder.saved.status) == ("a", MessageStatus.COMPLETE)
    at.ask("echo d").done()
    assert recorder.tries == 3


def test_closing_stops_the_reply_and_refuses_what_waits(home: Home) -> None:
    with desk(home) as at:
        running, waiting = at.ask("slow 1000", client="a"), at.ask("echo b", client="b")
        running.tokens(2)
        at.engine.close(10.0)
        assert running.done().finish_reason == "cancelled"
        assert waiting.failed().error_class is ErrorClass.HOST_DOWN
        assert at.ask("echo late").failed().error_class is ErrorClass.HOST_DOWN
