"""The bytes on the wire: golden transcripts, requests in pieces, silence, hanging up, and requests that never end."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.host import openai_api
from app.host import openai_wire as wire
from app.host.client import HostClient
from app.host.openai_wire import Head
from store import conversations
from store.db import Store
from store.types import MessageStatus
from tests.endpoint_helpers import chat, chat_body, module_host, raw, streamed

WAIT = 120.0


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    options = ("--context", "1024", "--ping-seconds", "0.2")
    with module_host(tmp_path_factory.mktemp("wire"), *options) as client:
        yield client


@given(st.text(st.characters(codec="utf-8")), st.booleans())
def test_the_short_way_to_write_a_chunk_comes_to_the_same(text: str, asks_usage: bool) -> None:
    head = Head('c"1', 0, 'm"delta":{"content":""', "f", "m1", {"message": "m1"})
    line = openai_api.SaidLines(head, asks_usage).line(text)
    assert json.loads(line) == wire.chunk(head, {"content": text}, None, asks_usage)
    assert line == openai_api._json(wire.chunk(head, {"content": text}, None, asks_usage))


def request_bytes(body: object, *, extra: str = "", path: str = "/v1/chat/completions") -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{extra}"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


def exchange(host: HostClient, *pieces: bytes) -> bytes:
    """Send pieces, each as a packet of its own; everything that comes back."""
    with socket.create_connection(("127.0.0.1", host.endpoint.port), timeout=WAIT) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, piece in enumerate(pieces):
            if number:
                time.sleep(0.01)
            peer.sendall(piece)
        answer = b""
        while data := peer.recv(65536):
            answer += data
        return answer


def body_of(answer: bytes) -> str:
    """The body of a response, its chunks joined."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return rest.decode()
    joined = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        count = int(size, 16)
        joined, rest = joined + rest[:count], rest[count + 2 :]
    return joined.decode()


def steady(text: str) -> str:
    """A transcript without what differs from run to run."""
    text = re.sub(r"\b[mc][0-9a-hjkmnp-tv-z]{10}\b", "ID", text)
    return re.sub(r'"created":\d+', '"created":0', text)


FRAME = (
    '{"id":"chatcmpl-ID","object":"chat.completion.chunk","created":0,"model":"scripted",'
    '"system_fingerprint":"mynah-5c5c5c5c-base","choices":[%s]%s}'
)
MYNAH = ',"mynah":{"message":"ID","conversation":"ID","adapter":null}'


def choice(delta: str, finish: str = "null") -> str:
    return f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}'


def test_golden_stream(host: HostClient) -> None:
    answer = exchange(host, request_bytes(chat_body("echo one two", stream=True)))
    head = answer.partition(b"\r\n\r\n")[0].decode().lower()
    assert head.startswith("http/1.1 200 ok")
    assert "content-type: text/event-stream" in head
    assert "cache-control: no-store" in head
    assert steady(body_of(answer)) == "".join(
        f"data: {event}\n\n"
        for event in (
            FRAME % (choice('{"role":"assistant","content":""}'), MYNAH),
            FRAME % (choice('{"content":"one"}'), ""),
            FRAME % (choice('{"content":" two"}'), ""),
            FRAME % (choice("{}", '"stop"'), MYNAH),
            "[DONE]",
        )
    )


def test_golden_stream_with_usage(host: HostClient) -> None:
    body = chat_body("echo one", stream=True, stream_options={"include_usage": True})
    found = steady(body_of(exchange(host, request_bytes(body))))
    usage = re.sub(r":\d+", ":N", found.split("\n\n")[-3].partition('"usage":')[2])
    assert usage == (
        '{"prompt_tokens":N,"completion_tokens":N,"total_tokens":N,"prompt_tokens_details":{"cached_tokens":N}}}'
    )
    assert found.startswith(
        "data: " + FRAME % (choice('{"role":"assistant","content":""}'), ',"usage":null' + MYNAH) + "\n\n"
    )
    assert '"choices":[],"usage":{' in found.split("\n\n")[-3]


def test_golden_error_in_a_stream(host: HostClient) -> None:
    found = steady(body_of(exchange(host, request_bytes(chat_body("fail 1", stream=True)))))
    last = found.split("\n\n")[-2]
    assert json.loads(last.removeprefix("data: ")) == {
        "error": {
            "message": "the model host failed (RuntimeError: the script says so): see `mynah locate` for its log",
            "type": "server_error",
            "param": None,
            "code": None,
        }
    }
    assert "[DONE]" not in found


@pytest.mark.parametrize("stream", [False, True])
def test_golden_refusal(host: HostClient, stream: bool) -> None:
    answer = exchange(host, request_bytes(chat_body("hi", stream=stream, n=2)))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body_of(answer)) == {
        "error": {
            "message": "n is not supported here: leave it out",
            "type": "invalid_request_error",
            "param": "n",
            "code": None,
        }
    }


@settings(max_examples=15)
@given(st.data())
def test_however_a_request_is_split(host: HostClient, data: st.DataObject) -> None:
    whole = request_bytes(chat_body("echo é漢 twice", stream=True))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=4)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert '"content":"é漢"' in body_of(exchange(host, *pieces))


def test_a_request_in_chunks(host: HostClient) -> None:
    data = json.dumps(chat_body("echo chunks")).encode()
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        "Host: localhost",
        "Transfer-Encoding: chunked",
        "Connection: close",
    )
    head = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (data[:20], data[20:])]
    assert b'"content":"chunks"' in exchange(host, head, *chunks, b"0\r\n\r\n")


def test_silence_is_filled_with_comments(host: HostClient) -> None:
    """While another reply is made, a stream has its head and says that it is alive."""
    with socket.create_connection(("127.0.0.1", host.endpoint.port), timeout=WAIT) as first:
        first.sendall(request_bytes(chat_body("slow 40", stream=True)))
        assert first.recv(100)
        found = body_of(exchange(host, request_bytes(chat_body("echo after", stream=True))))
    before, _, after = found.partition("data: ")
    assert before.count(": ping\n\n") >= 1
    assert before.replace(": ping\n\n", "") == ""
    assert '"content":"after"' in after


def test_hanging_up_while_waiting_takes_the_reply_back(host: HostClient) -> None:
    with socket.create_connection(("127.0.0.1", host.endpoint.port), timeout=WAIT) as first:
        first.sendall(request_bytes(chat_body("slow 1000", stream=True)))
        assert first.recv(100)
        with socket.create_connection(("127.0.0.1", host.endpoint.port), timeout=WAIT) as second:
            second.sendall(request_bytes(chat_body("echo never", stream=True)))
            wait_for(lambda: host.status()["queue"] == 1)
    wait_for(lambda: host.status()["generating"] is None and host.status()["queue"] == 0)
    with Store.open(host.home) as store:
        newest = conversations.list_(store, 1)[0]
        rows = [conversations.path(store, newest.head or "")[-1]]
    assert all(row.status is not MessageStatus.GENERATING for row in rows)
    assert chat(host, chat_body("echo still here"))[1]["choices"][0]["message"]["content"] == "still here"


def wait_for(true: object) -> None:
    assert callable(true)
    deadline = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_request_that_is_too_large_is_refused_unread(host: HostClient) -> None:
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Length: {17 * 2**20}\r\nConnection: close\r\n\r\n"
    )
    answer = exchange(host, head.encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body_of(answer))["error"]["param"] == "body"


def test_more_than_can_wait_is_told_to_come_back(host: HostClient) -> None:
    peers = []
    try:
        for _ in range(65):
            peer = socket.create_connection(("127.0.0.1", host.endpoint.port), timeout=WAIT)
            peers.append(peer)
            peer.sendall(request_bytes(chat_body("slow 1000", stream=True)))
        wait_for(lambda: host.status()["queue"] == 64)
        answer = exchange(host, request_bytes(chat_body("echo no")))
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 5" in answer.lower()
        assert json.loads(body_of(answer))["error"]["code"] == "rate_limit_exceeded"
    finally:
        for peer in peers:
            peer.close()
    wait_for(lambda: host.status()["queue"] == 0 and host.status()["generating"] is None)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nowhere", 404, "unknown_url"),
        ("POST", "/v1/completions", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ],
)
def test_paths_that_are_not_there(host: HostClient, method: str, path: str, status: int, code: str) -> None:
    got, text = raw(host, method, path)
    assert (got, json.loads(text)["error"]["code"]) == (status, code)


@settings(max_examples=20)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40))
def test_deltas_join_to_the_whole_reply(host: HostClient, said: str) -> None:
    body = chat_body(f"raw {said}", temperature=0)
    whole = chat(host, body)[1]["choices"][0]["message"]["content"]
    events = streamed(host, body)
    joined = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert joined == whole
