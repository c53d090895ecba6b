"""The OpenAI interface, as the official client and bare HTTP see it. One scripted host serves the whole module."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator

import openai
import pytest

from app.host.client import HostClient
from store import conversations, signals
from store.db import Store
from store.types import MessageStatus, SignalKind
from tests.endpoint_helpers import (
    chat_body,
    data_of,
    module_host,
    mynah,
    openai_client,
    raw,
    say,
    url_of,
    user,
)
from tests.host_helpers import live_adapter
from tests.scripted import MODEL

OPTIONAL = [
    *(
        "temperature",
        "top_p",
        "n",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "seed",
        "stream",
        "stream_options",
    ),
    *("user", "tools", "logprobs", "logit_bias", "response_format", "presence_penalty", "frequency_penalty"),
    *("metadata", "store"),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    with module_host(tmp_path_factory.mktemp("openai"), "--context", "1024") as client:
        yield client


@pytest.fixture
def client(host: HostClient) -> Iterator[openai.OpenAI]:
    with openai_client(host) as made:
        yield made


@pytest.fixture
def store(host: HostClient) -> Iterator[Store]:
    with Store.open(host.home) as opened:
        yield opened


def test_completion(client: openai.OpenAI, store: Store) -> None:
    answer = say(client, user("echo hello there"))
    assert answer.choices[0].message.content == "hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.system_fingerprint is not None
    assert answer.system_fingerprint.endswith("-base")
    row = conversations.get_message(store, mynah(answer)["message"])
    assert row.text == "hello there"
    assert conversations.get(store, mynah(answer)["conversation"]).source == "api"


def test_stream_joins_to_the_same_text(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "count 20"}], stream=True
    )
    chunks = list(stream)
    assert all(chunk.choices for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "".join(
        f"{n} " for n in range(1, 21)
    )
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert mynah(chunks[0]) == mynah(chunks[-1])


def test_stream_helper_of_the_client(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "count 5"}]
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "1 2 3 4 5 "


async def test_async_client(host: HostClient) -> None:
    async with openai.AsyncOpenAI(base_url=url_of(host), api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "count 5"}], stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == "1 2 3 4 5 "


def test_wire_form_of_a_stream(host: HostClient) -> None:
    status, text = raw(host, "POST", "/v1/chat/completions", chat_body("echo one two", stream=True))
    assert status == 200
    events = data_of(text)
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "one"},
        {"content": " two"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_comes_in_a_stream_where_asked_for(host: HostClient) -> None:
    body = chat_body("echo one", stream=True, stream_options={"include_usage": True})
    events = data_of(raw(host, "POST", "/v1/chat/completions", body)[1])
    *chunks, usage, done = events
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 2
    assert all(chunk["usage"] is None for chunk in chunks)


def test_null_is_absent(host: HostClient) -> None:
    body = {**chat_body(), **dict.fromkeys(OPTIONAL)}
    status, _ = raw(host, "POST", "/v1/chat/completions", body)
    assert status == 200


def test_harmless_fields_and_headers_are_ignored(host: HostClient) -> None:
    body = chat_body(
        store=True, metadata={"a": "b"}, service_tier="auto", user="me", x_unknown=1, n=1, tools=[]
    )
    status, _ = raw(
        host, "POST", "/v1/chat/completions", body, **{"x-stainless-lang": "python", "x-api-key": "k"}
    )
    assert status == 200


def test_developer_role_and_content_parts(client: openai.OpenAI, store: Store) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "echo "}, {"type": "text", "text": "parts"}],
            },
        ],
    )
    assert answer.choices[0].message.content == "parts"
    path = conversations.path(store, mynah(answer)["message"])
    assert [message.role.value for message in path] == ["system", "user", "assistant"]


def test_length_and_its_two_names(client: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        answer = say(client, user("count 50"), **{name: 3})
        assert answer.choices[0].message.content == "1 2 3 "
        assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stop", ["4", ["x", "4"]])
def test_stop_strings_are_not_returned(client: openai.OpenAI, stop: str | list[str]) -> None:
    answer = say(client, user("count 9"), stop=stop)
    assert answer.choices[0].message.content == "1 2 3 "
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_overflow_is_400_before_any_stream(client: openai.OpenAI, store: Store, stream: bool) -> None:
    before = len(conversations.list_(store, 1000))
    with pytest.raises(openai.BadRequestError) as caught:
        say(client, user("x" * 3000), stream=stream)
    assert caught.value.code == "context_length_exceeded"
    assert len(conversations.list_(store, 1000)) == before


@pytest.mark.parametrize("stream", [False, True])
def test_transcript_that_would_have_to_be_cut_is_refused(client: openai.OpenAI, stream: bool) -> None:
    transcript = [user("x" * 300), {"role": "assistant", "content": "y"}] * 4
    with pytest.raises(openai.BadRequestError) as caught:
        say(client, *transcript, user("echo hi"), stream=stream)
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 3}, "n"),
        ({"logprobs": "yes"}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": "json_object"}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            "response_format",
        ),
        ({"tools": [{"type": "web"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 9}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": 5}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
    ],
)
def test_what_cannot_be_honoured_is_refused(host: HostClient, fields: dict[str, object], param: str) -> None:
    status, text = raw(host, "POST", "/v1/chat/completions", {**chat_body(), **fields})
    error = json.loads(text)["error"]
    assert (status, error["param"], error["type"]) == (400, param, "invalid_request_error")


@pytest.mark.parametrize("body", [b"{not json", b"[1]", b"[" * 100_000])
def test_body_that_is_no_object(host: HostClient, body: bytes) -> None:
    status, text = raw(host, "POST", "/v1/chat/completions", body)
    assert status == 400
    assert json.loads(text)["error"]["type"] == "invalid_request_error"


def test_unknown_model_is_404(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "hi"}])
    assert caught.value.code == "model_not_found"


def test_models(client: openai.OpenAI) -> None:
    model, base = client.models.list().data
    assert (model.id, model.object) == (MODEL, "model")
    assert base.id == f"{MODEL}@base"
    assert client.models.retrieve(MODEL).created == model.created
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_fault_in_mid_stream_is_an_error_event(client: openai.OpenAI, host: HostClient) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "fail 2"}], stream=True
    )
    with pytest.raises(openai.APIError):
        list(stream)
    events = data_of(raw(host, "POST", "/v1/chat/completions", chat_body("fail 2", stream=True))[1])
    assert "error" in events[-1]
    assert "[DONE]" not in events


def test_fault_without_stream_is_not_tried_again(host: HostClient) -> None:
    with Store.open(host.home) as store, openai_client(host, max_retries=2) as client:
        before = len(conversations.list_(store, 1000))
        with pytest.raises(openai.InternalServerError):
            say(client, user("fail 2"))
        assert len(conversations.list_(store, 1000)) == before + 1


def test_resent_transcript_lands_in_one_conversation(client: openai.OpenAI, store: Store) -> None:
    system = {"role": "system", "content": "be kind"}
    first = say(client, system, user("echo blue"))
    said = {"role": "assistant", "content": str(first.choices[0].message.content)}
    second = say(client, system, user("echo blue"), said, user("echo green"))
    assert mynah(second)["conversation"] == mynah(first)["conversation"]
    path = conversations.path(store, mynah(second)["message"])
    assert [message.text for message in path] == ["be kind", "echo blue", "blue", "echo green", "green"]
    assert path[2].id == mynah(first)["message"]
    again = say(client, system, user("echo blue"), said, user("echo green"))
    pair = conversations.siblings(store, mynah(second)["message"])
    assert [message.id for message in pair] == [mynah(second)["message"], mynah(again)["message"]]


def test_same_first_message_is_two_conversations(client: openai.OpenAI) -> None:
    one, two = say(client, user("echo same")), say(client, user("echo same"))
    assert mynah(one)["conversation"] != mynah(two)["conversation"]


def test_foreign_transcript_is_kept_whole(client: openai.OpenAI, store: Store) -> None:
    elsewhere = [user("what is up"), {"role": "assistant", "content": "the sky, said another model"}]
    answer = say(client, *elsewhere, user("echo mine"))
    path = conversations.path(store, mynah(answer)["message"])
    assert [message.text for message in path] == [
        "what is up",
        "the sky, said another model",
        "echo mine",
        "mine",
    ]
    assert path[1].base_hash is None
    assert path[3].base_hash is not None


def test_client_that_hangs_up_stops_its_reply(client: openai.OpenAI, host: HostClient, store: Store) -> None:
    with client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "slow 1000"}], stream=True
    ) as stream:
        chunk = next(iter(stream))
    message = mynah(chunk)["message"]
    deadline = time.monotonic() + 120.0
    while conversations.get_message(store, message).status is MessageStatus.GENERATING:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert conversations.get_message(store, message).status is MessageStatus.STOPPED
    assert host.status()["generating"] is None


def test_hanging_up_without_stream_stops_it_too(host: HostClient, store: Store) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", host.endpoint.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(chat_body("slow 1000")).encode())
    deadline = time.monotonic() + 120.0
    # Until its row is there a reply goes by its job.
    while not (message := str(host.status()["generating"])).startswith("m"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    connection.close()
    while conversations.get_message(store, message).status is MessageStatus.GENERATING:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert conversations.get_message(store, message).status is MessageStatus.STOPPED


def test_foreign_host_and_origin_are_refused(host: HostClient) -> None:
    for headers in (
        {"Host": "evil.test"},
        {"Host": "evil.test:80"},
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
    ):
        status, text = raw(host, "POST", "/v1/chat/completions", chat_body(), **headers)
        assert status == 403, headers
        assert "error" in json.loads(text)
    for headers in (
        {"Host": f"localhost:{host.endpoint.port}"},
        {"Host": "[::1]"},
        {"Origin": "http://localhost:3000"},
    ):
        assert raw(host, "GET", "/v1/models", **headers)[0] == 200, headers


def test_own_calls_need_the_token(host: HostClient) -> None:
    for path in ("/mynah/status", "/mynah/ping"):
        assert raw(host, "GET", path)[0] == 401
        assert raw(host, "GET", path, Authorization="Bearer wrong")[0] == 401
    assert raw(host, "POST", "/mynah/shutdown", {})[0] == 401
    assert raw(host, "GET", "/health") == (200, '{"status":"ok"}')


def test_feedback(client: openai.OpenAI, host: HostClient, store: Store) -> None:
    message = mynah(say(client, user("echo teach me")))["message"]
    body = {"message": message, "kind": "correction", "text": "taught"}
    status, text = raw(host, "POST", "/v1/feedback", body)
    assert status == 200
    assert json.loads(text)["fate"] == "queued"
    status, _ = raw(host, "POST", "/v1/feedback", {"message": message, "kind": "thumb", "value": -1})
    assert status == 200
    kinds = [signal.kind for signal in signals.all_of(store, message)]
    assert kinds == [SignalKind.CORRECTION, SignalKind.THUMB]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"message": "mnone", "kind": "thumb", "value": 1}, 404),
        ({"message": "mnone", "kind": "thumb", "value": 5}, 400),
        ({"message": "mnone", "kind": "dance"}, 400),
        ({"kind": "thumb", "value": 1}, 400),
        ({"message": "mnone", "kind": "correction", "text": " "}, 400),
    ],
)
def test_feedback_that_cannot_be_used(host: HostClient, body: dict[str, object], status: int) -> None:
    got, text = raw(host, "POST", "/v1/feedback", body)
    assert got == status
    assert json.loads(text)["error"]["message"]


def test_no_request_fails_while_versions_change(client: openai.OpenAI, store: Store) -> None:
    """Last in the module: it leaves an adapter live."""
    seen: set[str | None] = set()
    for round_ in range(12):
        if round_ in (3, 6, 9):
            live_adapter(store, f"swap{round_}".encode())
        stream = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "count 30"}], stream=True
        )
        chunks = list(stream)
        assert chunks[-1].choices[0].finish_reason == "stop"
        adapter = mynah(chunks[0])["adapter"]
        seen.add(adapter)
        assert (chunks[0].system_fingerprint or "").endswith(adapter or "base")
    assert len(seen) == 4
