"""A scripted host for a whole test module, and requests to its endpoint: bare HTTP, and the official client."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from app.host.client import HostClient
from store.home import Home
from tests.scripted import MODEL, scripted_host


@contextmanager
def module_host(root: Path, *options: str) -> Iterator[HostClient]:
    """A host on a data directory of its own, for longer than one test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYNAH_HOME", str(root / "home"))
        mask = os.umask(0o077)
        try:
            with scripted_host(Home(root / "home").open(), *options) as client:
                yield client
        finally:
            os.umask(mask)


def url_of(host: HostClient) -> str:
    return f"http://127.0.0.1:{host.endpoint.port}/v1"


def openai_client(host: HostClient, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(**{"base_url": url_of(host), "api_key": "none", "max_retries": 0, **options})


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def say(client: openai.OpenAI, *messages: Any, **options: Any) -> ChatCompletion:
    answer = client.chat.completions.create(**{"model": MODEL, "messages": list(messages), **options})
    assert isinstance(answer, ChatCompletion)
    return answer


def text_of(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


def mynah(answer: object) -> dict[str, str]:
    found = getattr(answer, "mynah", None)
    assert isinstance(found, dict)
    return found


def raw(host: HostClient, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    status, text, _ = answered(host, method, path, body, **headers)
    return status, text


def answered(
    host: HostClient, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers; header names are written with underscores for dashes."""
    connection = http.client.HTTPConnection("127.0.0.1", host.endpoint.port, timeout=120)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, data, named)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, response.read().decode(), found
    finally:
        connection.close()


def chat(host: HostClient, body: object, **headers: str) -> tuple[int, Any]:
    """Status and JSON of a chat request that is not streamed."""
    status, text = raw(host, "POST", "/v1/chat/completions", body, **headers)
    return status, json.loads(text)


def streamed(host: HostClient, body: dict[str, object], **headers: str) -> list[Any]:
    """The events of a streamed chat request."""
    return data_of(raw(host, "POST", "/v1/chat/completions", {**body, "stream": True}, **headers)[1])


def chat_body(text: str = "echo hi", **fields: object) -> dict[str, object]:
    return {"model": MODEL, "messages": [user(text)], **fields}


def data_of(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
