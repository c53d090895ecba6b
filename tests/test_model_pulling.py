"""Fetching a model from a server on this machine: whole, broken off, resumed, replaced, wrong."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.model import known, pulling
from app.model.pulling import Phase, Progress, PullBroken, Wanted
from app.service import Service
from store import adapters, runs
from store.errors import DiskFull, Interrupted, ModelFileError, NotFound, UsageError
from store.home import Home
from store.types import Trigger
from tests import tiny_gguf
from tests.cli_helpers import Mynah, runner

mynah = pytest.fixture(name="mynah")(runner)


@dataclass
class Shelf:
    """What the server has and how it behaves; ``asked`` are the Range headers it saw."""

    content: bytes
    etag: str | None = '"one"'
    ranges: bool = True
    breaks_after: int | None = None
    elsewhere: str | None = None
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("MYNAH_CACHE", str(tmp_path / "cache"))
    tiny_gguf.write_base(tmp_path / "made.gguf")
    made = Shelf((tmp_path / "made.gguf").read_bytes())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            made.asked.append(wanted)
            if made.elsewhere is not None:
                self.send_response(302)
                self.send_header("Location", made.elsewhere)
                self.end_headers()
                return
            start = 0
            if wanted and made.ranges and self.headers.get("If-Range") in (None, made.etag):
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(made.content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(made.content) - 1}/{len(made.content)}"
                )
            if made.etag:
                self.send_header("ETag", made.etag)
            self.send_header("Content-Length", str(len(made.content) - start))
            self.end_headers()
            end = len(made.content) if made.breaks_after is None else start + made.breaks_after
            self.wfile.write(made.content[start:end])

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}/tiny.gguf"
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def wanted(shelf: Shelf, tmp_path: Path, sha256: str | None = "") -> Wanted:
    right = hashlib.sha256(shelf.content).hexdigest()
    return Wanted(shelf.url, tmp_path / "pulled" / "tiny.gguf", right if sha256 == "" else sha256)


def fetch(what: Wanted) -> list[Progress]:
    heard: list[Progress] = []
    pulling.pull(what, heard.append, threading.Event())
    return heard


def left(what: Wanted) -> list[str]:
    return sorted(path.name for path in what.target.parent.iterdir())


def test_a_file_comes_whole_and_is_checked(shelf: Shelf, tmp_path: Path) -> None:
    what = wanted(shelf, tmp_path)
    heard = fetch(what)
    assert what.target.read_bytes() == shelf.content
    assert left(what) == ["tiny.gguf"]
    assert heard[0].total == len(shelf.content)
    assert heard[-1] == Progress(Phase.CHECKING, len(shelf.content), len(shelf.content))
    assert what.target.stat().st_mode & 0o077 == 0
    assert fetch(what) == []


def test_one_that_broke_off_goes_on_where_it_was(shelf: Shelf, tmp_path: Path) -> None:
    what = wanted(shelf, tmp_path)
    shelf.breaks_after = 1000
    with pytest.raises(PullBroken, match="goes on from there"):
        fetch(what)
    assert what.part.stat().st_size == 1000
    assert not what.target.exists()
    shelf.breaks_after = None
    fetch(what)
    assert shelf.asked == [None, "bytes=1000-"]
    assert what.target.read_bytes() == shelf.content


def test_a_file_that_was_replaced_meanwhile_is_fetched_from_its_start(shelf: Shelf, tmp_path: Path) -> None:
    what = wanted(shelf, tmp_path, None)
    shelf.breaks_after = 1000
    with pytest.raises(PullBroken):
        fetch(what)
    changed = bytearray(shelf.content)
    changed[-1] ^= 1
    shelf.content, shelf.etag, shelf.breaks_after = bytes(changed), '"two"', None
    fetch(what)
    assert what.target.read_bytes() == shelf.content


def test_without_hash_and_validator_the_rest_cannot_be_told_to_belong(shelf: Shelf, tmp_path: Path) -> None:
    what = wanted(shelf, tmp_path, None)
    shelf.etag, shelf.breaks_after = None, 1000
    with pytest.raises(PullBroken):
        fetch(what)
    shelf.breaks_after = None
    fetch(what)
    assert shelf.asked == [None, None]
    assert what.target.read_bytes() == shelf.content


def test_a_server_without_ranges_sends_it_all_again(shelf: Shelf, tmp_path: Path) -> None:
    what = wanted(shelf, tmp_path)
    shelf.ranges, shelf.breaks_after = False, 1000
    with pytest.raises(PullBroken):
        fetch(what)
    shelf.breaks_after = None
    fetch(what)
    assert what.target.read_bytes() == shelf.content


def test_a_part_that_is_whole_already_is_only_checked(shelf: Shelf, tmp_path: Path) -> None:
    what = wanted(shelf, tmp_path)
    what.target.parent.mkdir()
    what.part.write_bytes(shelf.content)
    fetch(what)
    assert what.target.read_bytes() == shelf.content


@pytest.mark.parametrize("sha256", ["0" * 64, None])
def test_what_is_not_the_file_is_refused_and_gone(shelf: Shelf, tmp_path: Path, sha256: str | None) -> None:
    shelf.content = b"<html>sign in</html>" if sha256 is None else shelf.content
    what = wanted(shelf, tmp_path, sha256)
    with pytest.raises(ModelFileError) as refused:
        fetch(what)
    assert ".part" not in str(refused.value)
    assert left(what) == []


def test_another_size_than_the_catalogue_says_is_refused_before_it_comes(
    shelf: Shelf, tmp_path: Path
) -> None:
    what = wanted(shelf, tmp_path)
    with pytest.raises(ModelFileError, match="it is another file"):
        fetch(Wanted(what.url, what.target, what.sha256, 12))
    assert left(what) == []


def test_a_disk_that_is_too_small_is_said_before_it_is_full(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "SPARE_DISK", 2**60)
    with pytest.raises(DiskFull, match="free some space"):
        fetch(wanted(shelf, tmp_path))


def test_a_stop_keeps_what_has_come(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "BLOCK", 500)
    what, stop = wanted(shelf, tmp_path), threading.Event()
    with pytest.raises(Interrupted):
        pulling.pull(what, lambda now: stop.set(), stop)
    assert 0 < what.part.stat().st_size < len(shelf.content)
    fetch(what)
    assert what.target.read_bytes() == shelf.content


def test_two_at_once_is_one(shelf: Shelf, tmp_path: Path) -> None:
    what = wanted(shelf, tmp_path)

    def again(_: Progress) -> None:
        with pytest.raises(UsageError, match="is being fetched already"):
            fetch(what)

    pulling.pull(what, again, threading.Event())
    assert what.target.read_bytes() == shelf.content


@pytest.mark.parametrize(
    "url", ["http://models.test/x.gguf", "ftp://127.0.0.1/x.gguf", "file:///x.gguf", "x"]
)
def test_only_encrypted_addresses(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError):
        fetch(Wanted(url, tmp_path / "x.gguf"))
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_sent_on_to_a_plain_address(shelf: Shelf, tmp_path: Path) -> None:
    shelf.elsewhere = "http://models.test/x.gguf"
    with pytest.raises(PullBroken, match="not encrypted"):
        fetch(wanted(shelf, tmp_path))


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PullBroken, match=r"could not be fetched from 127\.0\.0\.1") as refused:
        fetch(Wanted("http://127.0.0.1:9/x.gguf", tmp_path / "x.gguf"))
    assert "\n" not in str(refused.value)


def test_names_addresses_and_places_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.test/")
    for each in known.KNOWN:
        found = known.source(each.name.upper())
        assert (found.sha256, found.size) == (each.sha256, each.size)
        assert found.url.startswith("https://hub.test/Qwen/")
    assert known.source("a/b/c.gguf").url == "https://hub.test/a/b/resolve/main/c.gguf"
    assert known.source("https://x.test/some%20model.gguf?download=true").file == "some model.gguf"
    for wrong in ("https://x.test/page", "https://x.test/..gguf", "https://x.test/%2e%2e%2fx.gguf"):
        with pytest.raises(UsageError):
            known.source(wrong)
    with pytest.raises(NotFound, match="no model is called 'gpt-99'"):
        known.source("gpt-99")
    with pytest.raises(UsageError, match="64 hexadecimal"):
        known.source("a/b/c.gguf", "abc")


def test_a_model_that_was_fetched_is_listed_and_chosen_by_its_name(shelf: Shelf, home: Home) -> None:
    service = Service(home)
    fetched = service.pull(shelf.url, lambda _: None, threading.Event())
    assert fetched.base_hash == hashlib.sha256(shelf.content).hexdigest()
    assert fetched.path in [model.path for model in service.models()]
    assert service.change_model("tiny").path == fetched.path
    assert service.base_hash() == fetched.base_hash
    service.close()


def test_each_model_keeps_its_own_versions(shelf: Shelf, home: Home, tmp_path: Path) -> None:
    service = Service(home)
    one = service.pull(shelf.url, lambda _: None, threading.Event())
    other = tmp_path / "other.gguf"
    tiny_gguf.write_base(other, extra={"general.author": "somebody else"})
    service.change_model(str(one.path))
    run = runs.request(service.store, Trigger.MANUAL)
    made = home.scratch / run.id
    made.mkdir(parents=True)
    (made / adapters.GGUF_NAME).write_bytes(b"an adapter")
    adapter = adapters.install(service.store, made)
    adapters.add_candidate(service.store, adapter, base_hash=one.base_hash, run=run.id, manifest={}, uses=[])
    adapters.publish(service.store, adapter, {"passed": True})
    assert service.serving().adapter is not None

    service.change_model(str(other))
    assert (service.adapters(), service.serving().adapter) == ([], None)

    service.change_model("tiny")
    served = service.serving().adapter
    assert served is not None
    assert served.id == adapter
    assert [each.id for each in service.adapters()] == [adapter]
    versions = {choice.base: choice.versions for choice in service.choices(service.machine())}
    assert versions[one.base_hash] == 1
    service.close()


def test_the_command_fetches_goes_on_and_lets_it_answer(shelf: Shelf, mynah: Mynah) -> None:
    shelf.breaks_after = 1000
    broken = mynah("models", "pull", shelf.url)
    assert (broken.code, broken.out, broken.err.count("\n")) == (1, "", 1)
    shelf.breaks_after = None
    ran = mynah("models", "pull", shelf.url, "--sha256", hashlib.sha256(shelf.content).hexdigest(), "--use")
    assert (ran.code, shelf.asked[-1]) == (0, "bytes=1000-")
    assert mynah("models", "use", "tiny").code == 0
    wrong = mynah("models", "pull", shelf.url.replace("tiny", "other"), "--sha256", "0" * 64)
    assert (wrong.code, wrong.err.count("\n")) == (1, 1)
    assert mynah("models", "pull", "gpt-99").code == 3
