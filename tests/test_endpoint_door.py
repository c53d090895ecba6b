"""Who may use the endpoint: keys, pages, names of this machine; and that nobody listens beyond it without a key."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import httpx
import openai
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from app.host import lifecycle
from app.host.client import HostClient
from app.host.door import Access, Door
from app.host.lifecycle import KEY_VARIABLE, Options, key_of
from store.addresses import is_loopback
from store.errors import UsageError
from store.home import Home
from tests.endpoint_helpers import answered, chat_body, module_host, openai_client, raw
from tests.scripted import SOURCE

KEY = "key-of-sixteen-or-more"
PAGE = "app://obsidian.md"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    with module_host(tmp_path_factory.mktemp("door"), "--key", KEY, "--origin", PAGE) as client:
        yield client


def test_a_key_that_is_set_is_needed(host: HostClient) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"X-Api-Key": KEY[:-1]},
    ):
        status, text = raw(host, "GET", "/v1/models", **headers)
        assert (status, json.loads(text)["error"]["code"]) == (401, "invalid_api_key"), headers
    for headers in ({"Authorization": f"Bearer {KEY}"}, {"X-Api-Key": KEY}):
        assert raw(host, "GET", "/v1/models", **headers)[0] == 200
    assert raw(host, "GET", "/v1/models", Authorization=f"Bearer {host.endpoint.token}")[0] == 200
    assert raw(host, "GET", "/health")[0] == 200
    with openai_client(host, api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_the_key_of_programs_does_not_open_our_own_calls(host: HostClient) -> None:
    for path in ("/mynah/status", "/mynah/ping"):
        assert raw(host, "GET", path, Authorization=f"Bearer {KEY}")[0] == 401


@pytest.mark.parametrize("origin", [PAGE, "http://localhost:3000", "http://127.0.0.1:8080", "http://[::1]:1"])
def test_pages_on_the_list_may_read(host: HostClient, origin: str) -> None:
    status, _, headers = answered(host, "GET", "/v1/models", Authorization=f"Bearer {KEY}", Origin=origin)
    assert status == 200
    assert headers["access-control-allow-origin"] == origin
    assert headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in headers
    # A refusal must be readable too, or a page cannot say what is wrong.
    status, _, headers = answered(host, "GET", "/v1/models", Origin=origin)
    assert (status, headers["access-control-allow-origin"]) == (401, origin)


def test_a_browser_asks_before_it_sends(host: HostClient) -> None:
    asked = {
        "Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": "authorization, content-type, x-stainless-os, x-evil",
        "Access_Control_Request_Private_Network": "true",
    }
    status, text, headers = answered(host, "OPTIONS", "/v1/chat/completions", Origin=PAGE, **asked)
    assert (status, text) == (204, "")
    assert headers["access-control-allow-origin"] == PAGE
    assert headers["access-control-allow-headers"] == "authorization, content-type, x-stainless-os"
    assert headers["access-control-allow-private-network"] == "true"
    status, _, headers = answered(host, "OPTIONS", "/v1/models", Origin="https://evil.test", **asked)
    assert status == 403
    assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize(
    "origin", ["https://evil.test", "null", "app://other", "http://localhost.evil.test", "file://"]
)
def test_other_pages_are_refused(host: HostClient, origin: str) -> None:
    bearer = f"Bearer {KEY}"
    status, _, headers = answered(
        host, "POST", "/v1/chat/completions", chat_body(), Authorization=bearer, Origin=origin
    )
    assert status == 403
    assert not any(name.startswith("access-control") for name in headers)


def test_a_page_that_hides_its_origin_is_refused(host: HostClient) -> None:
    bearer = f"Bearer {KEY}"
    assert raw(host, "GET", "/v1/models", Authorization=bearer, Sec_Fetch_Site="cross-site")[0] == 403
    for site in ("none", "same-origin"):
        assert raw(host, "GET", "/v1/models", Authorization=bearer, Sec_Fetch_Site=site)[0] == 200


def test_our_own_calls_are_for_no_page(host: HostClient) -> None:
    bearer = f"Bearer {host.endpoint.token}"
    _, _, headers = answered(host, "GET", "/mynah/ping", Authorization=bearer, Origin=PAGE)
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "name", ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test:80", "", "[::2]", "\\"]
)
def test_other_names_are_refused(host: HostClient, name: str) -> None:
    bearer = f"Bearer {KEY}"
    status, text = raw(host, "GET", "/v1/models", Authorization=bearer, Host=name)
    assert (status, json.loads(text)["error"]["code"]) == (403, "forbidden_host")


def test_beyond_this_machine_the_host_name_is_free_and_the_key_is_not() -> None:
    assert not Access("0.0.0.0", KEY).local
    assert Access("::1").local
    assert [
        is_loopback(name)
        for name in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "::", "192.168.1.2", "host")
    ] == [
        *(True, True, True),
        *(False, False, False, False),
    ]


async def test_beyond_this_machine_nothing_is_open_even_without_a_key() -> None:
    """It cannot be started so; and if it were, an empty key would not open it."""

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("in")(scope, receive, send)

    host = SimpleNamespace(token="the-token", needed=nullcontext)
    door = Door(inside, host, Access("0.0.0.0", None))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(door), base_url="http://mynah.lan") as client:
        for headers in ({}, {"Authorization": "Bearer "}, {"X-Api-Key": ""}):
            assert (await client.get("/v1/models", headers=headers)).status_code == 401
        assert (await client.get("/v1/models", headers={"X-Api-Key": "the-token"})).text == "in"
        assert (await client.get("/health")).text == "in"


@pytest.mark.parametrize(
    "options",
    [
        Options(address="0.0.0.0"),
        Options(address="::"),
        Options(address="192.168.1.5"),
        Options(address="some.host"),
        Options(address="0.0.0.0", key="short"),
        Options(key="has spaces in it, and is long"),
        Options(key="schlüssel-mit-umlaut"),
    ],
)
def test_options_that_let_anybody_in_are_refused(options: Options) -> None:
    with pytest.raises(UsageError):
        options.checked()


def test_options_that_are_right() -> None:
    for options in (Options(), Options(address="::1"), Options(address="0.0.0.0", key=KEY), Options(key=KEY)):
        assert options.checked() is options


def test_serve_refuses_to_listen_beyond_this_machine_without_a_key(home: Home) -> None:
    command = [sys.executable, "-m", "app.cli.main", "serve", "--host", "0.0.0.0"]
    done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert "--key-file" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_key_comes_from_a_file_or_the_environment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home.root.parent / "key"
    file.write_text(f"{KEY}\n")
    monkeypatch.setenv(KEY_VARIABLE, "the-one-of-the-environment")
    assert key_of(file) == KEY
    assert KEY_VARIABLE not in os.environ, "the learner has no use for it"
    assert key_of(None) is None
    monkeypatch.setenv(KEY_VARIABLE, "the-one-of-the-environment")
    assert key_of(None) == "the-one-of-the-environment"


def test_answers_are_not_held_back(home: Home) -> None:
    """The loop turns Nagle's algorithm off only for sockets that name their protocol; else an answer takes 45 ms."""
    with lifecycle._listener(Options()) as listener:
        assert listener.proto == socket.IPPROTO_TCP
