"""Real clients on the endpoint: the official one with all its errors, LangChain, and `llm` set up by hand."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from app.host.client import HostClient
from store import conversations
from store.db import Store
from tests.endpoint_helpers import (
    chat,
    chat_body,
    module_host,
    mynah,
    openai_client,
    raw,
    say,
    text_of,
    url_of,
    user,
)
from tests.host_helpers import live_adapter
from tests.scripted import BROKEN, MODEL

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a place",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    with module_host(tmp_path_factory.mktemp("clients"), "--context", "2048") as client:
        yield client


class Counted:
    """The official client as it comes, its retries on, every request counted."""

    def __init__(self, host: HostClient, **options: Any) -> None:
        self.sent: list[int] = []
        transport = httpx.Client(event_hooks={"response": [self._note]})
        self.client = openai_client(host, max_retries=2, http_client=transport, **options)

    def _note(self, response: httpx.Response) -> None:
        self.sent.append(response.status_code)


@pytest.mark.parametrize(
    ("options", "error", "status"),
    [
        ({"messages": []}, openai.BadRequestError, 400),
        ({"messages": [user("x" * 9000)]}, openai.BadRequestError, 400),
        ({"messages": [user("hi")], "n": 2}, openai.BadRequestError, 400),
        ({"messages": [user("hi")], "temperature": 7}, openai.BadRequestError, 400),
        ({"messages": [user("hi")], "model": "gpt-9"}, openai.NotFoundError, 404),
        ({"messages": [user("fail 1")]}, openai.InternalServerError, 500),
        ({"messages": [user("x" * 9000)], "stream": True}, openai.BadRequestError, 400),
    ],
)
def test_errors_are_raised_after_one_request(
    host: HostClient, options: dict[str, Any], error: type[openai.APIStatusError], status: int
) -> None:
    counted = Counted(host)
    with counted.client as client, pytest.raises(error) as caught:
        client.chat.completions.create(**{"model": MODEL, **options})
    assert counted.sent == [status]
    assert caught.value.type in ("invalid_request_error", "server_error")
    assert caught.value.message


def test_an_origin_and_a_host_are_permission_denied(host: HostClient) -> None:
    counted = Counted(host, default_headers={"Origin": "https://evil.test"})
    with counted.client as client, pytest.raises(openai.PermissionDeniedError):
        client.models.list()
    assert counted.sent == [403]


async def test_errors_of_the_async_client(host: HostClient) -> None:
    async with openai.AsyncOpenAI(base_url=url_of(host), api_key="none") as client:
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model=MODEL, messages=[])
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other")
        assert (await client.models.list()).data[0].id == MODEL
        async with client.chat.completions.stream(
            model=MODEL, messages=[{"role": "user", "content": f"raw {CALL}"}], tools=[WEATHER]
        ) as stream:
            kinds = {event.type async for event in stream}
            final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    assert final.choices[0].message.tool_calls


def test_json_parsed_by_the_official_client(host: HostClient) -> None:
    import pydantic

    class Colour(pydantic.BaseModel):
        name: str

    with openai_client(host) as client:
        answer = client.chat.completions.parse(
            model=MODEL,
            messages=[{"role": "user", "content": 'raw {"name": "blue"}'}],
            response_format=Colour,
        )
    assert answer.choices[0].message.parsed == Colour(name="blue")


def test_versions_by_name(host: HostClient) -> None:
    """A named version answers whatever is live, and says so; one that is gone is not replaced by another."""
    with Store.open(host.home) as store:
        old, new = live_adapter(store, b"old"), live_adapter(store, b"new")
    with openai_client(host) as client:
        listed = {model.id: mynah(model) for model in client.models.list()}
        assert list(listed) == [MODEL, f"{MODEL}@base", f"{MODEL}@{new}", f"{MODEL}@{old}"]
        assert [str(each["version"]) for each in listed.values()] == ["2", "None", "2", "1"]
        wanted = {
            MODEL: f"{new}*1",
            f"{MODEL}@base": "base",
            f"{MODEL}@{old}": f"{old}*1",
            f"{MODEL}@v1": f"{old}*1",
        }
        for name, attached in wanted.items():
            answer = say(client, user("version"), model=name)
            assert text_of(answer) == attached
            expected = {"base": "base"}.get(attached, attached.removesuffix("*1"))
            assert (answer.system_fingerprint or "").endswith(f"-{expected}")
            assert answer.model == (f"{MODEL}@{old}" if name.endswith("@v1") else name)
            assert mynah(answer)["adapter"] == (None if expected == "base" else expected)
        assert client.models.retrieve(f"{MODEL}@{old}").id == f"{MODEL}@{old}"
        for name in (f"{MODEL}@v9", f"{MODEL}@", f"{MODEL}@{old[:-1]}", "other@base", "@base"):
            with pytest.raises(openai.NotFoundError):
                say(client, user("version"), model=name)
        with Store.open(host.home) as store:
            row = conversations.get_message(
                store, mynah(say(client, user("hi"), model=f"{MODEL}@{old}"))["message"]
            )
        assert (row.adapter, row.scale) == (old, 1.0)


def test_a_named_version_that_does_not_load_fails_and_what_is_live_stays(host: HostClient) -> None:
    with Store.open(host.home) as store:
        broken = live_adapter(store, BROKEN)
        sound = live_adapter(store, b"sound")
    assert chat(host, chat_body(model=f"{MODEL}@{broken}"))[0] == 500
    assert chat(host, chat_body("version"))[1]["choices"][0]["message"]["content"] == f"{sound}*1"


@pytest.fixture
def langchain(host: HostClient) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=MODEL, base_url=url_of(host), api_key="none", temperature=0.3, seed=1)  # type: ignore[arg-type]


def test_langchain_invoke_and_stream(langchain: Any) -> None:
    answer = langchain.invoke([("system", "be brief"), ("human", "echo hello there")])
    assert answer.content == "hello there"
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata["output_tokens"] == 3
    pieces = [chunk.content for chunk in langchain.stream("count 3")]
    assert "".join(pieces) == "1 2 3 "
    assert len([piece for piece in pieces if piece]) == 3


def test_langchain_tools(langchain: Any) -> None:
    bound = langchain.bind_tools([WEATHER])
    answer = bound.invoke(f"raw {CALL}")
    [call] = answer.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Oslo"})
    from langchain_core.messages import HumanMessage, ToolMessage

    result = ToolMessage("rain", tool_call_id=call["id"])
    after = bound.invoke([HumanMessage(f"raw {CALL}"), answer, result])
    assert "rain" in after.content
    from langchain_core.exceptions import ContextOverflowError

    with pytest.raises(ContextOverflowError):
        langchain.invoke([("human", "hi"), ("ai", "x" * 2000), ("human", "hi")])
    total = None
    for chunk in bound.stream(f"raw {CALL}"):
        total = chunk if total is None else total + chunk
    assert total is not None
    assert total.tool_calls[0]["args"] == {"city": "Oslo"}


def test_llm_with_an_entry_for_an_openai_model(
    host: HostClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("LLM_LOAD_PLUGINS", "")
    entry = f"- model_id: mynah-by-hand\n  model_name: {MODEL}\n  api_base: {url_of(host)}\n"
    (tmp_path / "extra-openai-models.yaml").write_text(entry)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import llm

        conversation = llm.get_model("mynah-by-hand").conversation()
        assert conversation.prompt("echo first").text() == "first"
        second = conversation.prompt("echo second", stream=False)
        assert second.text() == "second"
    assert second.response_json is not None
    with Store.open(host.home) as store:
        newest = conversations.list_(store, 1)[0]
        texts = [row.text for row in conversations.path(store, newest.head or "")]
    assert texts == ["echo first", "first", "echo second", "second"]


def test_tokens_are_counted_before_they_are_sent(host: HostClient) -> None:
    with Store.open(host.home) as store:
        before = len(conversations.list_(store, 1000))
        path = "/v1/chat/completions/input_tokens"
        for fields in ({}, {"tools": [WEATHER]}):
            counted = json.loads(raw(host, "POST", path, chat_body("echo hi", **fields))[1])["input_tokens"]
            assert counted == chat(host, chat_body("echo hi", **fields))[1]["usage"]["prompt_tokens"]
        status, text = raw(host, "POST", path, chat_body("x" * 9000))
        assert (status, json.loads(text)["error"]["code"]) == (400, "context_length_exceeded")
        assert len(conversations.list_(store, 1000)) == before + 2


def test_what_an_editor_plugin_sends(host: HostClient) -> None:
    """As Continue does: both ways to send a key, always asking for usage, and null wherever it has nothing."""
    body = chat_body(
        "echo hi", stream=True, stream_options={"include_usage": True}, tools=None, stop=None, max_tokens=None
    )
    status, text = raw(
        host, "POST", "/v1/chat/completions", body, Authorization="Bearer none", X_Api_Key="none"
    )
    assert status == 200
    assert json.loads(text.split("\n\n")[-3].removeprefix("data: "))["usage"]["completion_tokens"] == 2
