"""The exchange commands: exact words, exit codes, and nothing changed by a wrong command."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from app.cli import output
from store import consent
from store.db import Store
from store.home import Home
from store.types import Consent, Dial
from tests.cli_helpers import Mynah, runner, talk, teach
from tests.exchange_helpers import written
from tests.seed import say


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


class TestExport:
    def test_to_standard_output_redacted(self, mynah: Mynah, store: Store) -> None:
        talk(store, "write to ann@example.com", "done")
        ran = mynah("export", "--format", "openai")
        (row,) = [json.loads(line) for line in ran.out.splitlines()]
        assert row["messages"][0]["content"] == "write to [EMAIL_1]"
        assert (ran.code, ran.err) == (0, "wrote 1 line of 1 conversation\n")

    def test_as_it_is_when_asked(self, mynah: Mynah, store: Store) -> None:
        talk(store, "write to ann@example.com", "done")
        ran = mynah("export", "--format", "openai", "--no-redact")
        assert "ann@example.com" in ran.out
        assert ran.err.splitlines()[1].startswith("nothing was redacted")

    def test_to_a_new_private_file(self, mynah: Mynah, store: Store, tmp_path: Path) -> None:
        talk(store, "hi", "hello")
        out = tmp_path / "out.jsonl"
        ran = mynah("export", "--format", "atif", "--out", str(out))
        assert (ran.code, ran.out) == (0, "")
        assert ran.err == f"wrote 1 line of 1 conversation to {out}\n"
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
        again = mynah("export", "--format", "atif", "--out", str(out))
        assert (again.code, again.err) == (2, f"mynah: {out} exists already: choose a new file\n")

    def test_one_conversation_and_those_without_consent(self, mynah: Mynah, store: Store) -> None:
        first = talk(store, "hi", "hello").conversation
        second = talk(store, "yes?", "no").conversation
        consent.set_(store, first, Dial.TRAIN, Consent.DENY)
        assert mynah("export", "--format", "trl-sft").err == (
            "wrote 1 line of 1 conversation\nleft out 1 conversation that may not be trained on\n"
        )
        alone = mynah("conversations", "export", second[:8], "--format", "atif")
        assert json.loads(alone.out)["session_id"] == second
        assert mynah("export", "--format", "atif", "--conversation", "czzz").code == 3

    @pytest.mark.parametrize("words", [(), ("--format", "csv"), ("--format", "atif", "extra")])
    def test_wrong_words(self, mynah: Mynah, words: tuple[str, ...]) -> None:
        ran = mynah("export", *words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


class TestImport:
    def rows(self) -> list[dict[str, object]]:
        return [
            {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]},
            {"title": "Torn", "messages": "gone"},
        ]

    def test_says_what_came_and_what_did_not(self, mynah: Mynah, tmp_path: Path) -> None:
        path = str(written(tmp_path / "in.jsonl", self.rows()))
        ran = mynah("conversations", "import", path)
        assert (ran.code, ran.out) == (0, "added 1 conversation (2 messages), skipped 1\n")
        assert ran.err == "skipped line 2 (Torn): it is no conversation in a format that is known\n"
        again = json.loads(mynah("conversations", "import", path, "--json").out)
        assert again == {
            "added": 0,
            "extended": 0,
            "unchanged": 1,
            "messages": 0,
            "skipped": [
                {
                    "entry": "line 2",
                    "title": "Torn",
                    "reason": "it is no conversation in a format that is known",
                }
            ],
        }

    def test_a_format_can_be_forced(self, mynah: Mynah, tmp_path: Path) -> None:
        path = str(written(tmp_path / "in.jsonl", self.rows()[:1]))
        ran = mynah("conversations", "import", path, "--format", "sharegpt")
        assert (ran.code, ran.out) == (1, "")
        assert "it has no list of conversations" in ran.err

    def test_what_cannot_be_read(self, mynah: Mynah, tmp_path: Path) -> None:
        assert mynah("conversations", "import", str(tmp_path / "absent")).code == 3
        (tmp_path / "notes.txt").write_text("shopping list")
        ran = mynah("conversations", "import", str(tmp_path / "notes.txt"))
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert mynah("conversations", "import", str(tmp_path)).code == 1

    def test_progress_is_for_people(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = iter(range(10))
        monkeypatch.setattr("time.monotonic", lambda: next(clock))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        with output.progress("importing") as told:
            told(0.25)
        assert capsys.readouterr().err == "\rimporting  25%\r" + " " * 14 + "\r"
        monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
        with output.progress("importing") as told:
            told(0.5)
        assert capsys.readouterr().err == ""


class TestBackup:
    def test_there_and_back(self, mynah: Mynah, store: Store, tmp_path: Path, monkeypatch) -> None:
        say(store, "hi", "hello")
        path = str(tmp_path / "b.tar.gz")
        ran = mynah("backup", path)
        assert ran.out == f"saved 1 conversation with 2 messages and 0 adapters to {path}\n"
        assert mynah("backup", path).code == 2
        refused = mynah("restore", path)
        assert (refused.code, refused.out) == (2, "")
        assert "holds conversations already" in refused.err
        assert (
            mynah("restore", path, "--replace").out
            == "restored 1 conversation with 2 messages and 0 adapters\n"
        )
        monkeypatch.setenv("MYNAH_HOME", str(tmp_path / "new"))
        data = json.loads(mynah("restore", path, "--json").out)
        assert (data["conversations"], data["messages"], data["adapters"], data["kept_aside"]) == (
            1,
            2,
            0,
            None,
        )
        assert len(json.loads(mynah("conversations", "list", "--json").out)) == 1
        assert mynah("restore", str(tmp_path / "absent")).code == 3
        (tmp_path / "notes.txt").write_text("shopping list")
        ran = mynah("restore", str(tmp_path / "notes.txt"), "--replace")
        assert (ran.code, ran.err.count("\n")) == (1, 1)


class TestMerged:
    def test_of_another_model_or_with_spoilt_files(self, mynah: Mynah, store: Store, tmp_path: Path) -> None:
        from store import signals, units
        from store.types import SignalKind

        reply = talk(store, "hi", "hello")
        signals.record(store, reply.id, SignalKind.CORRECTION, text="Good day.")
        unit = units.of_message(store, reply.id)
        assert unit is not None
        adapter = teach(store, "one", unit)
        out = tmp_path / "whole.gguf"
        both = mynah("adapters", "export", adapter, "--merged", str(out), "--out", str(tmp_path / "dir"))
        assert both.code == 2
        # It takes the name of an adapter's file, and holds nothing of the kind.
        ran = mynah("adapters", "export", adapter, "--merged", str(out))
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert not out.exists()
        assert [path.name for path in tmp_path.iterdir()] == ["home"]
