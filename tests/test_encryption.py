"""The database at rest: encrypted whole, opened by whoever has the passphrase, and never half of anything."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pexpect
import pytest

from app.cli.main import run
from app.doctor import Status, examine
from app.host.client import TurnRequest, ensure_host
from app.host.events import Done
from app.host.supervisor import Supervisor
from store import cipher, conversations, encryption, search, settings
from store.db import Store
from store.encryption import State
from store.errors import EncryptionError, HomeLocked, MynahError, PassphraseNeeded, UsageError
from store.exchange import backup, restore
from store.home import Home, wipe
from tests import released
from tests.conftest import ROOT
from tests.scripted import HOST_COMMAND
from tests.seed import say

PASSPHRASE = "correct horse battery"
CANARY = "pangolin in a wardrobe"


@pytest.fixture(autouse=True)
def keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that knows no passphrase yet, and counts few rounds."""
    for name in (cipher.FROM_ENVIRONMENT, cipher.KEY_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cipher, "_ROUNDS", 1000)
    lock_again()
    cipher.ask_with(None)
    cipher.give(None)


def lock_again() -> None:
    cipher._keys.clear()
    cipher._salts.clear()


def quiet(_share: float) -> None:
    """Nobody watches."""


@pytest.fixture
def talked(home: Home) -> Home:
    """A home with a gap in its row numbers, as one has in which something was deleted."""
    with Store.open(home) as store:
        gone, _, _ = say(store, "to be deleted", "soon")
        say(store, f"Tell me of the {CANARY}.", "No.")
        conversations.delete(store, gone)
    return home


def holding(home: Home, text: bytes = CANARY.encode()) -> list[str]:
    """The files of a home that hold a text."""
    return [path.name for path in home.root.rglob("*") if path.is_file() and text in path.read_bytes()]


def whole(home: Home) -> bool:
    """Whether a home's conversation and its search are all there."""
    with Store.open(home) as store:
        sound = store.conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        found = [hit.excerpt for hit in search.search(store, "pangolin")]
        return sound and found == [f"Tell me of the {CANARY}."] and len(conversations.list_(store)) == 1


class TestThereAndBack:
    def test_nothing_is_readable_and_nothing_is_lost(self, talked: Home) -> None:
        assert holding(talked) != []
        made = encryption.encrypt(talked, PASSPHRASE, quiet)
        assert made.state is encryption.state(talked) is State.ENCRYPTED
        assert holding(talked) == []
        assert whole(talked)
        assert holding(talked) == []
        with closing(sqlite3.connect(talked.db)) as plain, pytest.raises(sqlite3.DatabaseError):
            plain.execute("SELECT * FROM sqlite_master")
        assert encryption.decrypt(talked, quiet).state is State.PLAIN
        assert holding(talked) == ["mynah.db"]
        assert whole(talked)

    def test_sqlcipher_opens_it_with_the_passphrase_itself(
        self, talked: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cipher, "_ROUNDS", 256_000)
        encryption.encrypt(talked, PASSPHRASE, quiet)
        with closing(cipher.module().connect(talked.db)) as connection:
            connection.execute(f"PRAGMA key = '{PASSPHRASE}'")
            assert connection.execute("SELECT count(*) FROM messages").fetchone() == (2,)

    def test_another_passphrase(self, talked: Home) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        encryption.encrypt(talked, "another passphrase", quiet)
        lock_again()
        cipher.give(PASSPHRASE)
        with pytest.raises(EncryptionError, match="does not open"):
            Store.open(talked)
        cipher.give("another passphrase")
        assert whole(talked)

    def test_the_overwritten_file_is_noise(self, talked: Home) -> None:
        descriptor = os.open(talked.db, os.O_RDONLY)
        try:
            encryption.encrypt(talked, PASSPHRASE, quiet)
            left = os.pread(descriptor, 1 << 24, 0)
        finally:
            os.close(descriptor)
        assert len(left) > 4096
        assert CANARY.encode() not in left
        assert not left.startswith(b"SQLite")

    def test_a_home_is_migrated_when_encrypted(self, talked: Home) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        with Store.open(talked) as store:
            released.take_back(store.conn, 2)
        assert whole(talked)
        with Store.open(talked) as store:
            assert store.conn.execute("SELECT count(*) FROM consents").fetchone()[0] == 0


class TestRefusals:
    def test_a_wrong_passphrase_and_none(self, talked: Home) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        before = talked.db.read_bytes()
        lock_again()
        with pytest.raises(PassphraseNeeded, match="MYNAH_PASSPHRASE"):
            Store.open(talked)
        cipher.give("wrong passphrase")
        for _ in range(2):
            with pytest.raises(EncryptionError, match="the passphrase does not open") as caught:
                Store.open(talked)
            assert "\n" not in str(caught.value)
        assert talked.db.read_bytes() == before
        cipher.give(PASSPHRASE)
        assert whole(talked)

    def test_without_the_extra(self, talked: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        lock_again()
        monkeypatch.setitem(sys.modules, "sqlcipher3", None)
        monkeypatch.delitem(sys.modules, "sqlcipher3.dbapi2", raising=False)
        with pytest.raises(EncryptionError, match=r"pip install 'mynah-chat\[encryption\]'"):
            Store.open(talked)

    def test_a_plain_home_needs_no_extra(self, talked: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "sqlcipher3", None)
        monkeypatch.delitem(sys.modules, "sqlcipher3.dbapi2", raising=False)
        assert whole(talked)

    def test_a_short_passphrase_and_a_plain_home(self, talked: Home) -> None:
        with pytest.raises(UsageError, match="8 characters"):
            encryption.encrypt(talked, "short", quiet)
        with pytest.raises(UsageError, match="not encrypted"):
            encryption.decrypt(talked, quiet)

    def test_a_database_that_is_open_elsewhere_is_left_alone(self, talked: Home) -> None:
        script = (
            "import sys; from store.db import Store; from store.home import Home\n"
            "with Store.open(Home.default()) as store: print('open', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"
            with pytest.raises(HomeLocked, match="close every chat"):
                encryption.encrypt(talked, PASSPHRASE, quiet)
            other.communicate(b"")
        assert whole(talked)
        assert sorted(path.name for path in talked.root.glob("mynah.db*")) == ["mynah.db"]

    def test_a_damaged_page_is_one_line(self, talked: Home) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        content = bytearray(talked.db.read_bytes())
        content[100] ^= 1
        talked.db.write_bytes(content)
        lock_again()
        cipher.give(PASSPHRASE)
        with pytest.raises(MynahError, match="restore a backup"):
            Store.open(talked)


class Killed:
    """Runs a conversion in a child that kills itself at its nth step on the disk."""

    STEPS = ("os.link", "os.rename", "os.remove", "sqlite3.connect/handle")

    def __init__(self, home: Home) -> None:
        self._home = home

    def at(self, step: int, *, back: bool) -> bool:
        """Whether the child came to its end before that step."""
        child = os.fork()
        if child == 0:
            self._child(step, back=back)
        _, status = os.waitpid(child, 0)
        lock_again()
        return not os.WIFSIGNALED(status)

    def _child(self, step: int, *, back: bool) -> None:
        taken = 0

        def count() -> None:
            nonlocal taken
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)
            taken += 1

        def half(descriptor: int) -> None:
            count()
            os.pwrite(descriptor, b"\xaa" * 2000, 0)
            count()
            real(descriptor)

        real = wipe
        pytest.MonkeyPatch().setattr("store.encryption.wipe", half)
        sys.addaudithook(lambda name, _: count() if name in self.STEPS else None)
        try:
            if back:
                encryption.decrypt(self._home, quiet)
            else:
                encryption.encrypt(self._home, PASSPHRASE, quiet)
        finally:
            os._exit(0)


@pytest.mark.parametrize("back", [False, True], ids=["encrypt", "decrypt"])
def test_killed_at_any_step_it_is_the_old_or_the_new(talked: Home, *, back: bool) -> None:
    killed, states = Killed(talked), []
    for step in range(60):
        cipher.give(PASSPHRASE)
        if encryption.state(talked) is (State.PLAIN if back else State.ENCRYPTED):
            (encryption.encrypt(talked, PASSPHRASE, quiet) if back else encryption.decrypt(talked, quiet))
            lock_again()
        ended = killed.at(step, back=back)
        states.append(encryption.state(talked))
        talked.open()
        assert whole(talked), step
        left = sorted(path.name for path in talked.root.glob("mynah.db*"))
        assert set(left) <= {"mynah.db", "mynah.db-wal", "mynah.db-shm"}, step
        if states[-1] is State.ENCRYPTED and not back:
            assert holding(talked) == [], step
        if ended:
            break
    else:
        pytest.fail("it never came to its end")
    assert len(states) > 6
    assert set(states) == {State.PLAIN, State.ENCRYPTED}


class TestProcesses:
    def test_host_and_learner_get_the_key_and_nobody_sees_it(
        self, talked: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        lock_again()
        monkeypatch.setenv(cipher.FROM_ENVIRONMENT, PASSPHRASE)
        monkeypatch.setattr("app.host.client.host_command", lambda: HOST_COMMAND)
        client = ensure_host(talked)
        key = cipher.key_of(talked.db)
        assert key is not None
        [*_, last] = client.turn(TurnRequest(text="echo hello"))
        assert isinstance(last, Done)
        seen = b"".join(
            Path(f"/proc/{client.endpoint.pid}/{name}").read_bytes() for name in ("cmdline", "environ")
        )
        for secret in (PASSPHRASE.encode(), key.secret, key.secret.hex().encode()):
            assert secret not in seen
            assert holding(talked, secret) == []
        script = (
            "import os; from store.db import Store; from store.home import Home\n"
            "assert 'MYNAH_PASSPHRASE' not in os.environ\n"
            "with Store.open(Home.default()) as store:\n"
            "    print(store.conn.execute('SELECT count(*) FROM messages').fetchone()[0])"
        )
        learner = Supervisor(talked, lambda: 0.0, [sys.executable, "-c", script])._start()
        assert learner.wait() == 0
        assert (talked.logs / "learner.log").read_text() == "4\n"
        client.shutdown()

    def test_a_host_without_the_key_says_so(self, talked: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        environment = {**os.environ, "MYNAH_HOME": str(talked.root)}
        ran = subprocess.run(HOST_COMMAND, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert json.loads(ran.stdout)["error"]["kind"] == "PassphraseNeeded"
        assert ran.returncode == 1

    def test_a_passphrase_through_a_descriptor(self, talked: Home) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        command = [sys.executable, "-m", "app.cli.main"]
        for typed, code in ((PASSPHRASE, 0), ("wrong passphrase", 1)):
            reader, writer = os.pipe()
            os.write(writer, f"{typed}\n".encode())
            os.close(writer)
            # A child counts the real number of rounds: the key made here was made with few.
            script = "from store import cipher; cipher._ROUNDS = 1000; from app.cli.main import main; main()"
            words = ["--passphrase-fd", str(reader), "conversations", "list"]
            ran = subprocess.run(
                [command[0], "-c", script, *words],
                cwd=ROOT,
                pass_fds=(reader,),
                start_new_session=True,
                capture_output=True,
                text=True,
            )
            os.close(reader)
            assert ran.returncode == code, ran.stderr
            assert len(ran.stderr.splitlines()) == code


class TestCommands:
    def test_there_and_back(
        self, talked: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(cipher.FROM_ENVIRONMENT, PASSPHRASE)
        assert run(["encrypt", "--json"]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["state"] == "encrypted"
        assert "adapters" in said.err
        assert "backups made before" in said.err
        lock_again()
        assert run(["conversations", "search", "pangolin"]) == 0
        assert "pangolin" in capsys.readouterr().out
        assert run(["encrypt"]) == 2
        monkeypatch.setenv("MYNAH_NEW_PASSPHRASE", "another passphrase")
        assert run(["encrypt", "--change"]) == 0
        lock_again()
        assert run(["conversations", "list"]) == 1
        said = capsys.readouterr()
        assert said.err.splitlines()[-1].startswith("mynah: the passphrase does not open")
        monkeypatch.setenv(cipher.FROM_ENVIRONMENT, "another passphrase")
        assert run(["decrypt"]) == 0
        assert run(["decrypt"]) == 2
        assert whole(talked)

    def test_it_is_asked_for_twice_at_the_terminal(
        self, talked: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        typed = iter([PASSPHRASE, "something else", PASSPHRASE, PASSPHRASE])
        monkeypatch.setattr("app.cli.encryption.prompt", lambda _question: next(typed))
        assert run(["encrypt"]) == 2
        assert "differ" in capsys.readouterr().err
        assert encryption.state(talked) is State.PLAIN
        assert run(["encrypt"]) == 0
        assert encryption.state(talked) is State.ENCRYPTED

    def test_the_terminal_is_asked_and_nothing_typed_is_shown(self, talked: Home) -> None:
        def command(*words: str, typed: list[tuple[str, str]]) -> tuple[int | None, str]:
            child = pexpect.spawn(
                sys.executable, ["-m", "app.cli.main", *words], cwd=ROOT, encoding="utf-8", timeout=240
            )
            for question, answer in typed:
                child.expect(question)
                child.sendline(answer)
            shown = child.read()
            child.close()
            return child.exitstatus, shown

        twice = [("new passphrase: ", PASSPHRASE), ("the same again: ", PASSPHRASE)]
        code, shown = command("encrypt", typed=twice)
        assert (code, "is now encrypted" in shown, PASSPHRASE in shown) == (0, True, False)
        code, shown = command(
            "conversations", "search", "pangolin", typed=[("passphrase of .*: ", PASSPHRASE)]
        )
        assert (code, CANARY in shown, PASSPHRASE in shown) == (0, True, False)
        code, shown = command("conversations", "list", typed=[("passphrase of .*: ", "not this one")])
        assert (code, "does not open" in shown) == (1, True)

    def test_doctor_tells(self, talked: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        def told() -> tuple[Status, str]:
            [check] = [each for each in examine(talked) if each.name == "database"]
            return check.status, check.detail

        assert "not encrypted" in told()[1]
        encryption.encrypt(talked, PASSPHRASE, quiet)
        assert told()[0] is Status.OK
        assert told()[1].startswith("encrypted, schema")
        lock_again()
        assert told()[0] is Status.NOTE
        assert "not looked into" in told()[1]


class TestBackups:
    def test_an_encrypted_home_makes_an_encrypted_backup(self, talked: Home, tmp_path: Path) -> None:
        encryption.encrypt(talked, PASSPHRASE, quiet)
        saved, elsewhere = tmp_path / "saved.tar.gz", Home(tmp_path / "elsewhere").open()
        with Store.open(talked) as store:
            assert backup.write(store, saved, "1").messages == 2
        lock_again()
        with pytest.raises(PassphraseNeeded):
            restore.restore(elsewhere, saved, replace=False)
        cipher.give(PASSPHRASE)
        made = restore.restore(elsewhere, saved, replace=False)
        assert (made.state, made.messages) == (State.ENCRYPTED, 2)
        assert holding(elsewhere) == []
        assert whole(elsewhere)

    def test_a_backup_under_an_earlier_passphrase_is_put_back_with_it(
        self, talked: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        saved = tmp_path / "saved.tar.gz"
        encryption.encrypt(talked, PASSPHRASE, quiet)
        with Store.open(talked) as store:
            backup.write(store, saved, "1")
        encryption.encrypt(talked, "another battery", quiet)
        lock_again()
        cipher.give("another battery")
        with pytest.raises(PassphraseNeeded, match=cipher.OF_BACKUP):
            restore.restore(talked, saved, replace=True)
        cipher.ask_with(lambda _path: "no battery")
        with pytest.raises(EncryptionError, match="nothing was changed"):
            restore.restore(talked, saved, replace=True)
        assert whole(talked)
        monkeypatch.setenv(cipher.OF_BACKUP, PASSPHRASE)
        assert restore.restore(talked, saved, replace=True).state is State.ENCRYPTED
        monkeypatch.delenv(cipher.OF_BACKUP)
        lock_again()
        cipher.give(PASSPHRASE)
        assert whole(talked)

    def test_a_backup_that_forgetting_cannot_open_is_named_before_and_after(
        self,
        talked: Home,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        saved = tmp_path / "saved.tar.gz"
        encryption.encrypt(talked, PASSPHRASE, quiet)
        with Store.open(talked) as store:
            backup.write(store, saved, "1")
            conversation = conversations.list_(store)[0].id
        monkeypatch.setenv(cipher.FROM_ENVIRONMENT, PASSPHRASE)
        monkeypatch.setenv("MYNAH_NEW_PASSPHRASE", "another battery")
        assert run(["encrypt", "--change"]) == 0
        assert f"backup {saved} keeps the passphrase it was made under" in capsys.readouterr().err
        lock_again()
        monkeypatch.setenv(cipher.FROM_ENVIRONMENT, "another battery")
        for words in (["--dry-run"], []):
            assert run(["forget", "conversation", conversation, "--yes", *words]) == 0
            said = capsys.readouterr().out
            assert (
                f"backup {saved}: made under another passphrase, so it was not opened; it still holds" in said
            )
            assert "written anew" not in said

    def test_a_plain_backup_makes_an_encrypted_home_plain_and_says_so(
        self, talked: Home, tmp_path: Path
    ) -> None:
        saved = tmp_path / "saved.tar.gz"
        with Store.open(talked) as store:
            backup.write(store, saved, "1")
        encryption.encrypt(talked, PASSPHRASE, quiet)
        with Store.open(talked) as store:
            settings.put(store, settings.MIN_UNITS, 9)
        assert restore.restore(talked, saved, replace=True).state is State.PLAIN
        assert whole(talked)
        with Store.open(talked) as store:
            assert settings.get(store, settings.MIN_UNITS) == 4
