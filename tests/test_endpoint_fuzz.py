"""Whatever is sent, the answer is an answer: no fault of ours, no hang, and a form that clients can read.

Twice over: requests drawn by hand around the fields that matter, wrong in every way JSON allows, and requests that
schemathesis makes of the published description, whose answers must then be what that description says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from app.host import openai_api
from app.host.client import HostClient
from app.host.openapi import description
from tests.conftest import ROOT
from tests.endpoint_helpers import module_host, raw
from tests.scripted import MODEL

PLENTY = settings(max_examples=120, suppress_health_check=list(HealthCheck))
SOME = settings(max_examples=40, suppress_health_check=list(HealthCheck))
ERROR_FIELDS = {"message", "type", "param", "code"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    with module_host(tmp_path_factory.mktemp("fuzz"), "--context", "1024") as client:
        yield client


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
SCHEMAS = st.recursive(
    st.sampled_from(
        [{"type": "string"}, {"type": "integer", "minimum": 0}, {"enum": [1, "a"]}, {"$ref": "#"}, True]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda each: {"type": "object", "properties": each}, st.dictionaries(st.text(max_size=4), inner)
        ),
        st.builds(lambda each: {"anyOf": each}, st.lists(inner, max_size=3)),
    ),
    max_leaves=5,
)
CONTENT = st.sampled_from(["echo hi", "count 3", "", "fine", None]) | st.just(
    [{"type": "text", "text": "echo a"}]
)
CALLS = st.just([{"id": "call_m1_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "wizard"]),
            "content": CONTENT,
        },
        optional={"tool_calls": CALLS | ANYTHING, "tool_call_id": st.just("call_m1_0"), "name": ANYTHING},
    ),
    max_size=4,
)
TOOL = st.builds(
    lambda schema: {"type": "function", "function": {"name": "f", "parameters": schema}}, SCHEMAS | ANYTHING
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from([MODEL, f"{MODEL}@base", f"{MODEL}@v1", "other", None]),
    "stream": st.booleans(),
    "stream_options": st.sampled_from([None, {"include_usage": True}, {}]),
    "max_tokens": st.sampled_from([None, 0, 1, 5, 10**6, 10**20]),
    "max_completion_tokens": st.sampled_from([None, 2, -1]),
    "temperature": st.sampled_from([None, 0, 0.5, 2, 2.1]),
    "top_p": st.sampled_from([None, 0, 1]),
    "top_k": st.sampled_from([None, 0, 40]),
    "seed": st.integers() | st.none(),
    "stop": st.sampled_from([None, "2", ["2", ""], ["x"] * 17]),
    "n": st.sampled_from([None, 1, 2]),
    "logprobs": st.booleans() | st.none(),
    "top_logprobs": st.sampled_from([None, 0, 2, 21]),
    "tools": st.lists(TOOL, max_size=2) | st.none(),
    "tool_choice": st.sampled_from(
        ["none", "auto", "required", {"type": "function", "function": {"name": "f"}}]
    ),
    "response_format": st.builds(
        lambda schema: {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        SCHEMAS | ANYTHING,
    )
    | st.sampled_from([None, {"type": "text"}, {"type": "json_object"}]),
    "logit_bias": st.sampled_from([None, {}, {"1": 1}]),
    "user": st.sampled_from([None, "me"]),
}
NEARLY_RIGHT = st.fixed_dictionaries({"messages": MESSAGES}, optional=FIELDS)
WRONG = st.fixed_dictionaries(
    {"messages": MESSAGES | ANYTHING}, optional={name: ANYTHING | right for name, right in FIELDS.items()}
)


def answer_of(host: HostClient, path: str, data: bytes) -> tuple[int, str]:
    status, text = raw(host, "POST", path, data)
    assert status in (200, 400, 404, 413), (status, text)
    if status != 200:
        assert set(json.loads(text)["error"]) == ERROR_FIELDS
    return status, text


@PLENTY
@given(NEARLY_RIGHT | WRONG)
@example(
    {
        "messages": [
            {"role": "user", "content": "count 3"},
            {"role": "user", "content": [{"type": "text", "text": "echo a"}]},
        ]
    }
)
def test_requests_for_chat(host: HostClient, body: dict[str, Any]) -> None:
    status, text = answer_of(host, "/v1/chat/completions", json.dumps(body).encode())
    if status != 200:
        return
    if body.get("stream"):
        assert text.endswith("data: [DONE]\n\n")
        return
    choice = json.loads(text)["choices"][0]
    assert choice["finish_reason"] in ("stop", "length", "tool_calls")
    assert choice["message"]["role"] == "assistant"


@SOME
@given(
    st.dictionaries(
        st.sampled_from(["message", "kind", "value", "text"]), ANYTHING | st.sampled_from(["thumb", 1])
    )
)
def test_requests_for_feedback(host: HostClient, body: dict[str, Any]) -> None:
    answer_of(host, "/v1/feedback", json.dumps(body).encode())


@SOME
@given(
    st.binary(max_size=40)
    | st.sampled_from([b"", b"null", b"[" * 5000, b'{"messages":', b"\xff", b"NaN", b'{"a":1}{'])
)
def test_bodies_that_are_no_requests(host: HostClient, data: bytes) -> None:
    assert answer_of(host, "/v1/chat/completions", data)[0] == 400


@SOME
@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_names_of_models(host: HostClient, name: str) -> None:
    from urllib.parse import quote

    status, _ = raw(host, "GET", f"/v1/models/{quote(name, safe='')}")
    assert status in ((200, 404) if name == MODEL else (404, 405))


@cache
def described() -> Any:
    return schemathesis.openapi.from_dict(description())


def cases(path: str, method: str, mode: GenerationMode) -> st.SearchStrategy[Any]:
    strategy: st.SearchStrategy[Any] = described()[path][method].as_strategy(generation_mode=mode)
    return strategy


def validated(host: HostClient, case: Any, *unless: str) -> None:
    """Send a case: its answer is no fault, has a documented status, and the form that goes with it."""
    checks = schemathesis.checks.CHECKS.get_by_names(unless)
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{host.endpoint.port}", timeout=120, excluded_checks=checks
    )


@pytest.mark.parametrize("mode", list(GenerationMode))
@SOME
@given(st.data())
def test_chat_is_as_described(host: HostClient, mode: GenerationMode, data: st.DataObject) -> None:
    # A schema cannot say that the last message must be somebody's who can be answered.
    for path in ("/v1/chat/completions", "/v1/chat/completions/input_tokens"):
        validated(host, data.draw(cases(path, "POST", mode)), "positive_data_acceptance")


@pytest.mark.parametrize("mode", list(GenerationMode))
@SOME
@given(st.data())
def test_feedback_is_as_described(host: HostClient, mode: GenerationMode, data: st.DataObject) -> None:
    validated(host, data.draw(cases("/v1/feedback", "POST", mode)))


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/{name}", "/health"])
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_rest_is_as_described(host: HostClient, path: str, data: st.DataObject) -> None:
    validated(host, data.draw(cases(path, "GET", GenerationMode.POSITIVE)))


def test_every_path_is_described_and_documented() -> None:
    described = {
        (method.upper(), path) for path, methods in description()["paths"].items() for method in methods
    }
    served = {(method, path.replace(":path", "")) for method, path, _ in openai_api.ROUTES}
    assert described == served - {("GET", "/openapi.json")} | {("GET", "/health")}
    page = (ROOT / "docs" / "endpoint.md").read_text()
    assert all(f"`{method} {path}`" in page for method, path in served)


def test_the_description_is_published(host: HostClient) -> None:
    status, text = raw(host, "GET", "/openapi.json")
    assert status == 200
    assert json.loads(text) == json.loads(json.dumps(description()))


def test_it_still_works_after_all_that(host: HostClient) -> None:
    """Last in the module."""
    status = host.status()
    assert (status["queue"], status["generating"]) == (0, None)
    body = {"messages": [{"role": "user", "content": "echo fine"}]}
    assert "fine" in raw(host, "POST", "/v1/chat/completions", body)[1]
