"""Other programs' exports: branches, times and models are kept, broken entries are told, and nothing comes twice."""

from __future__ import annotations

import copy
import json
import sqlite3
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import consent, conversations, signals, units
from store.conversations import Message
from store.db import Store
from store.errors import ExchangeFileError, NotFound
from store.exchange.drafts import Source, moment
from store.exchange.export import Format
from store.exchange.intake import Report, import_file
from store.types import Consent, Dial, Role, SignalKind, UnitState
from tests.exchange_helpers import chat, exported, fresh_store, node, written
from tests.seed import say

ROOT = Path(__file__).resolve().parent.parent


def claude(**more: Any) -> dict[str, Any]:
    said = [
        {"uuid": "1", "sender": "human", "text": "hi", "created_at": "2024-05-01T10:00:00Z"},
        {
            "uuid": "2",
            "sender": "assistant",
            "text": "This block is not supported",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hello"}],
            "created_at": "2024-05-01T10:00:05Z",
        },
    ]
    return {"uuid": "c-1", "name": "Greeting", "chat_messages": said, **more}


def bring(store: Store, tmp_path: Path, *rows: Any, source: Source | None = None) -> Report:
    return import_file(store, written(tmp_path / "in.jsonl", list(rows)), source)


def tree(store: Store) -> dict[str, str | None]:
    """Each message's text with its parent's."""
    rows = store.conn.execute(
        "SELECT messages.text, above.text AS parent FROM messages LEFT JOIN messages AS above "
        "ON above.id = messages.parent ORDER BY messages.rowid"
    )
    return {row["text"]: row["parent"] for row in rows}


def shown(store: Store) -> list[Message]:
    (found,) = conversations.list_(store)
    assert found.head is not None
    return conversations.path(store, found.head)


class TestChatGPT:
    def test_branches_times_model_and_head_are_kept(self, store: Store, tmp_path: Path) -> None:
        report = bring(store, tmp_path, chat("x"))
        assert (report.added, report.messages, report.skipped) == (1, 3, [])
        assert tree(store) == {
            "question x": None,
            "second answer": "question x",
            "first answer": "question x",
        }
        question, answer = shown(store)
        assert (answer.text, question.role) == ("first answer", Role.USER)
        assert question.created == "2023-11-14T22:13:20.250000+00:00"
        assert answer.created == "2023-11-14T22:13:30.000000+00:00"
        (found,) = conversations.list_(store)
        assert (found.title, found.source, found.train) == ("Chat x", "import:chatgpt", Consent.DENY)
        (first, *_) = exported(store, Format.ATIF)
        assert first["steps"][1]["model_name"] == "gpt-x"

    def test_what_was_never_shown_is_left_out_and_the_branch_holds(
        self, store: Store, tmp_path: Path
    ) -> None:
        hidden = {"model_slug": "m", "is_visually_hidden_from_conversation": True}
        thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "c"}]}
        bring(
            store,
            tmp_path,
            chat(
                "x",
                {
                    "s": node("system", "you are", None, metadata=hidden),
                    "q": node("user", "hi", "s"),
                    "t": node("assistant", "", "q", content=thoughts),
                    "a": node("assistant", "hello", "t"),
                    "empty": node("assistant", "  ", "a"),
                },
                current="empty",
            ),
        )
        assert tree(store) == {"hi": None, "hello": "hi"}
        assert [message.text for message in shown(store)] == ["hi", "hello"]

    def test_parts_that_are_not_text_leave_a_word(self, store: Store, tmp_path: Path) -> None:
        parts = [
            {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
            {"content_type": "audio_transcription", "text": "spoken"},
            "what is it?",
            None,
        ]
        code = {"content_type": "code", "text": "print(1)"}
        bring(
            store,
            tmp_path,
            chat("x", {"q": node("user", parts, None), "a1": node("assistant", "", "q", content=code)}),
        )
        assert list(tree(store)) == ["[image]\n\nspoken\n\nwhat is it?", "print(1)"]

    def test_a_bad_entry_is_reported_and_the_others_come(self, store: Store, tmp_path: Path) -> None:
        circle = {"a": node("user", "x", "b"), "b": node("user", "y", "a")}
        without = {"title": "No mapping", "conversation_id": "n"}
        path = tmp_path / "conversations.json"
        path.write_text(
            json.dumps([without, 7, chat("x"), chat("c", circle), chat("e", {"r": node(None, "", None)})])
        )
        report = import_file(store, path)
        assert report.added == 1
        assert [(each.entry, each.title) for each in report.skipped] == [
            ("entry 1", "No mapping"),
            ("entry 2", None),
            ("entry 4", "Chat c"),
            ("entry 5", "Chat e"),
        ]
        assert "mapping" in report.skipped[0].reason

    def test_a_zip_in_pieces(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "export.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("export/conversations-000.json", json.dumps([chat("x"), {"title": "bad"}]))
            archive.writestr("export/conversations-001.json", json.dumps([chat("y")]))
            archive.writestr("export/shared_conversations.json", json.dumps([{"id": "z"}]))
            archive.writestr("chat.html", "<html>")
        report = import_file(store, path)
        assert (report.added, len(report.skipped)) == (2, 1)
        assert report.skipped[0].entry == "export/conversations-000.json, entry 2"

    def test_a_later_export_adds_what_is_new(self, store: Store, tmp_path: Path) -> None:
        bring(store, tmp_path, chat("x"))
        (found,) = conversations.list_(store)
        consent.set_(store, found.id, Dial.TRAIN, Consent.ALLOW)
        later = chat("x", current="q2")
        later["mapping"]["q2"] = node("user", "and now?", "a1")
        report = bring(store, tmp_path, later, chat("y"))
        assert (report.added, report.extended, report.messages) == (1, 1, 4)
        grown = conversations.get(store, found.id)
        assert (grown.messages, grown.train) == (4, Consent.DENY)
        assert conversations.path(store, grown.head or "")[-1].text == "and now?"

    def test_a_branch_the_owner_went_on_with_stays_shown(self, store: Store, tmp_path: Path) -> None:
        bring(store, tmp_path, chat("x"))
        (found,) = conversations.list_(store)
        mine = conversations.append_user(store, found.id, "my own", found.head)
        later = chat("x")
        later["mapping"]["q2"] = node("user", "and now?", "a1")
        bring(store, tmp_path, later)
        assert conversations.get(store, found.id).head == mine.id


class TestClaude:
    def test_blocks_win_over_the_plain_text(self, store: Store, tmp_path: Path) -> None:
        bring(store, tmp_path, claude())
        assert tree(store) == {"hi": None, "hello": "hi"}
        assert conversations.list_(store)[0].title == "Greeting"
        assert shown(store)[1].created == "2024-05-01T10:00:05.000000+00:00"

    def test_parents_make_branches(self, store: Store, tmp_path: Path) -> None:
        entry = claude()
        root = "00000000-0000-4000-8000-000000000000"
        first, second = entry["chat_messages"]
        first["parent_message_uuid"], second["parent_message_uuid"] = root, "1"
        again = {"uuid": "3", "sender": "assistant", "text": "good day", "parent_message_uuid": "1"}
        attached = {
            "uuid": "4",
            "sender": "human",
            "text": "",
            "parent_message_uuid": "3",
            "attachments": [{"file_name": "a.txt", "extracted_content": "pasted"}],
        }
        entry["chat_messages"] += [again, attached]
        bring(store, tmp_path, entry)
        assert tree(store) == {
            "hi": None,
            "hello": "hi",
            "good day": "hi",
            "[attachment: a.txt]\npasted": "good day",
        }

    def test_an_empty_conversation_is_reported(self, store: Store, tmp_path: Path) -> None:
        report = bring(store, tmp_path, claude(), {"uuid": "2", "name": "Empty", "chat_messages": []})
        assert [(each.title, each.reason) for each in report.skipped] == [
            ("Empty", "it holds no message with text")
        ]


class TestPlain:
    def test_openai_messages(self, store: Store, tmp_path: Path) -> None:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        rows = [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "42"},
            {"role": "assistant", "content": "it is 42"},
        ]
        bring(store, tmp_path, {"messages": rows})
        assert [(message.role, message.text) for message in shown(store)] == [
            (Role.SYSTEM, "be brief"),
            (Role.USER, "hi\n\n[image url]"),
            (Role.ASSISTANT, json.dumps([call])),
            (Role.TOOL, "42"),
            (Role.ASSISTANT, "it is 42"),
        ]
        assert conversations.list_(store)[0].title == "hi"

    def test_sharegpt(self, store: Store, tmp_path: Path) -> None:
        turns = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]
        report = bring(
            store,
            tmp_path,
            {"id": "1", "conversations": turns, "system": "be kind"},
            {"conversations": [{"from": "alien", "value": "?"}]},
        )
        assert list(tree(store)) == ["be kind", "hi", "hello"]
        assert [each.entry for each in report.skipped] == ["line 2"]

    def test_equal_lines_stay_two_and_come_once(self, store: Store, tmp_path: Path) -> None:
        row = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
        assert bring(store, tmp_path, row, row).added == 2
        again = bring(store, tmp_path, row, row)
        assert (again.added, again.unchanged, again.messages) == (0, 2, 0)

    def test_a_bare_list_of_turns_and_an_indented_file(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "chat.json"
        path.write_text(json.dumps([{"role": "user", "content": "hi"}], indent=2))
        assert import_file(store, path).added == 1
        path.write_text(json.dumps({"conversations": [chat("x"), chat("y")]}, indent=2))
        assert import_file(store, path).added == 2


FOREIGN: dict[str, Any] = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s",
    "agent": {"name": "other", "version": "2", "model_name": "m"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "list", "timestamp": "2025-01-01T00:00:00Z"},
        {
            "step_id": 2,
            "source": "agent",
            "message": [{"type": "text", "text": "looking"}],
            "tool_calls": [{"tool_call_id": "1", "function_name": "ls", "arguments": {}}],
            "observation": {"results": [{"source_call_id": "1", "content": "a b"}]},
        },
    ],
}


class TestAtif:
    def test_another_agents_trajectory(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "trajectory.json"
        path.write_text(json.dumps(FOREIGN, indent=1))
        assert import_file(store, path).added == 1
        assert tree(store) == {"list": None, "looking": "list", "a b": "looking"}
        assert [message.role for message in shown(store)] == [Role.USER, Role.ASSISTANT, Role.TOOL]

    def test_ratings_come_back_and_wait_for_consent(self, store: Store, tmp_path: Path) -> None:
        with fresh_store() as other:
            _, _, reply = say(other, "hi", "hello")
            signals.record(other, reply, SignalKind.CORRECTION, text="good day")
            rows = exported(other, Format.ATIF)
        bring(store, tmp_path, *rows)
        (signal_,) = signals.all_of(store, reply)
        assert (signal_.text, signal_.kind) == ("good day", SignalKind.CORRECTION)
        unit = units.of_message(store, reply)
        assert unit is not None
        assert unit.state is UnitState.REFUSED
        assert units.waiting(store) == []

    def test_ratings_that_come_later_wait_too(self, store: Store, tmp_path: Path) -> None:
        with fresh_store() as other:
            conversation, _, reply = say(other, "hi", "hello")
            bring(store, tmp_path, *exported(other, Format.ATIF))
            consent.set_(store, conversation, Dial.TRAIN, Consent.ALLOW)
            signals.record(other, reply, SignalKind.CORRECTION, text="good day")
            report = bring(store, tmp_path, *exported(other, Format.ATIF))
        assert (report.extended, report.messages) == (1, 0)
        assert conversations.get(store, conversation).train is Consent.DENY
        assert units.waiting(store) == []

    def test_a_conversation_that_was_held_here_is_never_added_to(self, store: Store, tmp_path: Path) -> None:
        conversation, _, reply = say(store, "hi", "hello")
        (row,) = exported(store, Format.ATIF)
        forged = json.loads(json.dumps(row).replace(reply, "mzzzzzzzzzz").replace("hello", "forged"))
        report = bring(store, tmp_path, forged)
        assert (report.unchanged, report.messages) == (1, 0)
        assert conversations.get(store, conversation).messages == 2

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (["message"], "../../etc"),
            (["index"], "first"),
            (["status"], "generating"),
            (["role"], "king"),
            (["scale"], "big"),
            (["parent"], "mzzzzzzzzzz"),
        ],
    )
    def test_a_spoilt_export_is_reported(
        self, store: Store, tmp_path: Path, path: list[str], value: object
    ) -> None:
        with fresh_store() as other:
            say(other, "hi", "hello")
            say(other, "yes", "no")
            spoilt, good = exported(other, Format.ATIF)
        spoilt["steps"][1]["extra"]["mynah"][path[0]] = value
        report = bring(store, tmp_path, spoilt, good)
        assert (report.added, len(report.skipped), report.skipped[0].title) == (1, 1, "hi")

    def test_a_probability_that_32_bits_do_not_hold_is_reported(self, store: Store, tmp_path: Path) -> None:
        """It would be infinite here, and no export could be written with it again."""
        with fresh_store() as other:
            say(other, "hi", "hello")
            say(other, "yes", "no")
            spoilt, good = exported(other, Format.ATIF)
        spoilt["steps"][1]["metrics"]["logprobs"][0] = 1e300
        report = bring(store, tmp_path, spoilt, good)
        assert (report.added, len(report.skipped)) == (1, 1)
        assert len(exported(store, Format.ATIF)) == 1


class TestLlm:
    def test_prompts_and_responses(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "logs.db"
        with sqlite3.connect(path) as logs:
            logs.executescript(
                """
                CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
                CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT,
                  conversation_id TEXT, datetime_utc TEXT);
                CREATE TABLE fragments (id INTEGER PRIMARY KEY, content TEXT);
                CREATE TABLE prompt_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
                INSERT INTO conversations VALUES ('c1', 'Birds', 'm');
                INSERT INTO fragments VALUES (1, 'a long text');
                INSERT INTO prompt_fragments VALUES ('r1', 1, 0);
                INSERT INTO responses VALUES ('r1', 'm', 'sum up', 'be brief', 'short', 'c1', '2024-01-01T00:00:00'),
                  ('r2', 'm', 'shorter', 'be brief', 'shrt', 'c1', '2024-01-01T00:01:00'),
                  ('r3', 'm', 'alone', NULL, 'yes', NULL, '2024-01-02T00:00:00'),
                  ('r4', 'm', '', NULL, '', NULL, '2024-01-03T00:00:00');
                """
            )
        before = path.read_bytes()
        report = import_file(store, path)
        assert (report.added, report.messages) == (2, 7)
        assert tree(store) == {
            "be brief": None,
            "a long text\n\nsum up": "be brief",
            "short": "a long text\n\nsum up",
            "shorter": "short",
            "shrt": "shorter",
            "alone": None,
            "yes": "alone",
        }
        assert import_file(store, path).unchanged == 2
        assert path.read_bytes() == before

    @pytest.mark.filterwarnings("ignore")
    def test_what_the_program_itself_writes_now(self, store: Store, tmp_path: Path) -> None:
        llm = pytest.importorskip("llm.logs")
        parts = pytest.importorskip("llm.parts")
        import sqlite_utils

        def said(role: str, text: str) -> Any:
            return parts.Message(role=role, parts=[parts.TextPart(text=text)])

        path = tmp_path / "logs.db"
        logs = llm.LogStore(sqlite_utils.Database(path))
        thread = logs.create_thread("Birds")
        logs.append(thread, [said("user", "hi"), said("assistant", "hello")])
        fork = logs.fork(logs.thread_tip(thread), "Fork", thread)
        logs.append(fork, [said("user", "and?"), said("assistant", "so")])
        logs.db.close()
        report = import_file(store, path)
        assert (report.added, report.messages, report.skipped) == (2, 6, [])
        assert [each.title for each in conversations.list_(store)] == ["Fork", "Birds"]

    def test_another_database_is_refused(self, store: Store, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "other.db") as other:
            other.execute("CREATE TABLE t (x)")
        with pytest.raises(ExchangeFileError, match="not one of the llm program"):
            import_file(store, tmp_path / "other.db")


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"", "is empty"),
            (b"hello", "not JSON"),
            (b'[{"mapping": ', "cut short"),
            (b"[]", "no conversation"),
            (b'{"x": 1}\n', "no conversation"),
            (b"\xff\xfe\x00", "not JSON"),
            (b"PK\x03\x04rubbish", "damaged or locked ZIP"),
            (b"SQLite format 3\x00rubbish", "cannot be read"),
        ],
    )
    def test_what_cannot_be_read_is_one_line(
        self, store: Store, tmp_path: Path, content: bytes, says: str
    ) -> None:
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(ExchangeFileError, match=says) as caught:
            import_file(store, path)
        assert "\n" not in str(caught.value)
        assert conversations.list_(store) == []

    def test_a_missing_file(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(NotFound):
            import_file(store, tmp_path / "absent")

    def test_a_broken_line_and_half_a_character(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "in.jsonl"
        path.write_bytes(
            b"\xef\xbb\xbf"
            + json.dumps({"messages": [{"role": "user", "content": "half \ud83d"}]}).encode()
            + b'\n{"messages": [NaN]}\n{"mess'
        )
        report = import_file(store, path)
        assert [each.entry for each in report.skipped] == ["line 2", "line 3"]
        assert list(tree(store)) == ["half \ufffd"]

    def test_progress_goes_from_nothing_to_all(self, store: Store, tmp_path: Path) -> None:
        told: list[float] = []
        path = written(tmp_path / "in.jsonl", [chat(str(number)) for number in range(5)])
        import_file(store, path, None, told.append)
        assert told == sorted(told)
        assert told[-1] == 1.0


def test_a_copy_does_not_draw_a_client_away(store: Store, tmp_path: Path) -> None:
    _, _, reply = say(store, "hi", "hello")
    held = conversations.path_hash(conversations.path_hash("", Role.USER, "hi"), Role.ASSISTANT, "hello")
    bring(store, tmp_path, *exported(store, Format.OPENAI))
    assert len(conversations.list_(store)) == 2
    assert [found.id for found in conversations.by_path(store, held)] == [reply]


JUNK = st.sampled_from([None, 7, "x", [], {}, [1], {"a": 1}, True, 1e300, 2**70, "\ud800"])


@cache
def ours() -> dict[str, Any]:
    """A trajectory of our own, rated and corrected."""
    with fresh_store() as store:
        _, _, reply = say(store, "hi", "hello")
        signals.record(store, reply, SignalKind.THUMB, value=1.0)
        signals.record(store, reply, SignalKind.THUMB, value=-1.0)
        signals.record(store, reply, SignalKind.CORRECTION, text="good day")
        (row,) = exported(store, Format.ATIF)
        return row


@hypothesis.settings(max_examples=150)
@given(st.data())
def test_no_entry_is_so_odd_that_it_keeps_the_others_out(data: st.DataObject) -> None:
    sharegpt = {"conversations": [{"from": "human", "value": "hi"}], "system": "s"}
    openai = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
    spoilt = copy.deepcopy(
        data.draw(st.sampled_from([chat("x"), claude(), FOREIGN, openai, sharegpt, ours(), ours()]))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        spoil(spoilt, data)
    with fresh_store() as store:
        report = bring(store, store.home.scratch, spoilt, chat("y"))
        assert report.added + len(report.skipped) == 2
        assert report.added >= 1
        assert len(exported(store, Format.ATIF)) >= 2
        for conversation in conversations.list_(store):
            assert conversations.path(store, conversation.head or "")


def spoil(value: Any, data: st.DataObject) -> None:
    """Put junk somewhere inside a value."""
    while value:
        key = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        if not isinstance(value[key], (dict, list)) or data.draw(st.booleans()):
            value[key] = copy.deepcopy(data.draw(JUNK))
            return
        value = value[key]


def test_a_deleted_import_can_be_brought_again(store: Store, tmp_path: Path) -> None:
    bring(store, tmp_path, chat("x"))
    conversations.delete(store, conversations.list_(store)[0].id)
    assert store.conn.execute("SELECT count(*) FROM origins").fetchone()[0] == 0
    assert bring(store, tmp_path, chat("x")).added == 1


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (1_700_000_000, "2023-11-14T22:13:20.000000+00:00"),
        (1_700_000_000_250, "2023-11-14T22:13:20.250000+00:00"),
        ("2024-05-01T10:00:00", "2024-05-01T10:00:00.000000+00:00"),
        ("2024-05-01T12:00:00+02:00", "2024-05-01T10:00:00.000000+00:00"),
        (None, None),
        (True, None),
        ("yesterday", None),
        (float("nan"), None),
        (1e300, None),
        (-5, None),
    ],
)
def test_times(value: object, read: str | None) -> None:
    assert moment(value) == read
