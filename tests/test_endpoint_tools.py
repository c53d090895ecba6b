"""Tools, structured output and thoughts: what they ask of a model, and how its text is taken apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.host.client import HostClient
from app.host.openai_tools import toolbox
from app.host.openai_wire import Head, Spoken
from app.host.reply_parts import Arguments, Called, Part, ReplyParts, Said, Thought
from app.host.requests import FieldError, limits
from store import conversations
from store.db import Store
from tests.endpoint_helpers import (
    chat,
    chat_body,
    module_host,
    mynah,
    openai_client,
    say,
    streamed,
    text_of,
    user,
)
from tests.scripted import MODEL

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a place",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
NAMES = frozenset({"weather"})
HEAD = Head("c", 0, "m", "f", "m1", {})


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    with module_host(tmp_path_factory.mktemp("tools")) as client:
        yield client


@pytest.fixture
def client(host: HostClient) -> Iterator[openai.OpenAI]:
    with openai_client(host) as made:
        yield made


def taken_apart(pieces: list[str], names: frozenset[str] = NAMES) -> list[Part]:
    parts = ReplyParts(names)
    found = [part for piece in pieces for part in parts.feed(piece)]
    return found + parts.finish()


def message_of(parts: list[Part]) -> dict[str, Any]:
    spoken = Spoken()
    for part in parts:
        spoken.add(part)
    return spoken.message(HEAD)


def test_a_call_is_named_first_and_its_arguments_follow_as_they_come() -> None:
    text = f"Let me look.\n{CALL}"
    assert taken_apart(list(text)) == [
        *(Said(character) for character in "Let me look.\n"),
        Called(0, "weather"),
        *(Arguments(0, character) for character in '{"city": "Oslo"}'),
    ]


@pytest.mark.parametrize(
    ("text", "content", "arguments"),
    [
        (CALL, None, ['{"city": "Oslo"}']),
        (f"{CALL}\n{CALL}", None, ['{"city": "Oslo"}'] * 2),
        (f"Wait. {CALL} Done.", "Wait. Done.", ['{"city": "Oslo"}']),
        ('{"name": "weather", "parameters": {"city": "a}\\"b"}}', None, ['{"city": "a}\\"b"}']),
        ('<tool_call>{"name":"weather","arguments":{}}', None, ["{}"]),
        ('<tool_call>{"name":"weather","arguments":"x"}</tool_call>', None, ['"x"']),
        ('{"name": "other", "arguments": {}}', '{"name": "other", "arguments": {}}', []),
        ("<tool_call>oops", "<tool_call>oops", []),
        ("a < b <tool", "a < b <tool", []),
        ("{not json", "{not json", []),
    ],
)
def test_what_is_a_call_and_what_is_text(text: str, content: str | None, arguments: list[str]) -> None:
    for pieces in ([text], list(text)):
        message = message_of(taken_apart(pieces))
        calls = message.get("tool_calls", [])
        assert message["content"] == content
        assert [call["function"]["arguments"] for call in calls] == arguments
        assert len({call["id"] for call in calls}) == len(calls)


def test_without_tools_a_call_is_text() -> None:
    assert message_of(taken_apart([CALL], frozenset()))["content"] == CALL


@pytest.mark.parametrize(
    ("text", "content", "thoughts"),
    [
        ("<think>hm</think>\n\nYes.", "Yes.", "hm"),
        ("\n<think>\nhm\n</think>Yes.", "Yes.", "hm"),
        ("<think></think>Yes.", "Yes.", None),
        ("<think>all of it", "all of it", "all of it"),
        ("no <think>x</think>", "no <think>x</think>", None),
    ],
)
def test_thoughts_are_apart_and_a_reply_is_never_empty(text: str, content: str, thoughts: str | None) -> None:
    for pieces in ([text], list(text)):
        message = message_of(taken_apart(pieces, frozenset()))
        assert (message["content"], message.get("reasoning_content")) == (content, thoughts)


_FRAGMENTS = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", CALL, "{", '"', "}", " x ", "\n", "<"]
)


@given(st.lists(_FRAGMENTS, max_size=8).map("".join), st.data())
def test_however_a_reply_is_cut_it_comes_to_the_same(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)) | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    for names in (NAMES, frozenset[str]()):
        assert message_of(taken_apart(pieces, names)) == message_of(taken_apart([text], names))


@given(st.text(max_size=60).filter(lambda text: "<think>" not in text), st.data())
def test_plain_text_passes_unchanged(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    parts = taken_apart([text[:cut], text[cut:]], frozenset())
    assert "".join(part.text for part in parts if isinstance(part, Said)) == text
    assert not any(isinstance(part, Thought) for part in parts)


def test_tools_are_told_in_the_system_prompt(client: openai.OpenAI) -> None:
    told = text_of(say(client, {"role": "system", "content": "Be kind."}, user("system"), tools=[WEATHER]))
    assert told.startswith("Be kind.\n\n# Tools")
    assert '"name": "weather"' in told
    assert "You are" in text_of(say(client, user("system"), tools=[WEATHER])), "the default prompt stays"
    assert "# Tools" not in text_of(say(client, user("system"), tools=[WEATHER], tool_choice="none"))


def test_a_call_and_its_result(client: openai.OpenAI, host: HostClient) -> None:
    terse = '<tool_call>{"name":"weather","arguments":{"city":"Oslo"}}</tool_call>'
    first = say(client, user(f"raw {terse}"), tools=[WEATHER])
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    # A client sends what it parsed, not what the model wrote; the id says which reply it was.
    parsed = choice.message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    second = say(client, user(f"raw {terse}"), parsed, result, tools=[WEATHER])
    assert text_of(second) == "You said: <tool_response>\nrain\n</tool_response>"
    assert mynah(second)["conversation"] == mynah(first)["conversation"]
    with Store.open(host.home) as store:
        path = conversations.path(store, mynah(second)["message"])
    assert [(message.role.value, message.text) for message in path][1:3] == [
        ("assistant", terse),
        ("tool", "rain"),
    ]
    assert path[1].id == mynah(first)["message"]


def test_streamed_calls_accumulate_in_the_official_client(client: openai.OpenAI) -> None:
    two = CALL + "\n" + CALL.replace("Oslo", "Bergen")
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": f"raw {two}"}], tools=[WEATHER]
    ) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert [json.loads(call.function.arguments)["city"] for call in message.tool_calls] == ["Oslo", "Bergen"]


def test_streamed_calls_on_the_wire(host: HostClient) -> None:
    events = streamed(host, chat_body(f"raw {CALL}", tools=[WEATHER]))
    calls = [call for event in events[:-1] for call in event["choices"][0]["delta"].get("tool_calls", [])]
    assert calls[0]["function"] == {"name": "weather", "arguments": ""}
    assert calls[0]["type"] == "function"
    assert len(calls) > 2
    assert all(call["index"] == 0 for call in calls)
    assert all("id" not in call and "name" not in call["function"] for call in calls[1:])
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_length_that_is_used_up_wins_over_the_call(host: HostClient) -> None:
    _, answer = chat(host, chat_body(f"raw {CALL}", tools=[WEATHER], max_tokens=6))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["tool_calls"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_demanded_call_is_a_grammar(client: openai.OpenAI, choice: Any) -> None:
    grammar = text_of(say(client, user("grammar"), tools=[WEATHER], tool_choice=choice))
    assert '"weather\\"' in grammar.replace('\\"weather', '"weather')
    assert "<tool_call>" in grammar
    assert text_of(say(client, user("grammar"), tools=[WEATHER], tool_choice="none")) == "none"


def function(name: str, parameters: object) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def test_a_call_that_was_begun_by_choice_follows_its_schema(client: openai.OpenAI) -> None:
    grammar = text_of(say(client, user("grammar"), tools=[WEATHER]))
    assert grammar.startswith("after <tool_call>: root ::= call-")
    assert '"\\n{\\"name\\": \\"weather\\", \\"arguments\\": "' in grammar
    assert '"\\"city\\": "' in grammar
    assert '"\\n<tool_call>"' in grammar, "several calls"
    once = text_of(say(client, user("grammar"), tools=[WEATHER], parallel_tool_calls=False))
    assert '"\\n<tool_call>"' not in once


def test_a_schema_that_no_grammar_keeps_is_no_reason_to_refuse_a_choice() -> None:
    odd = function("odd", {"type": "object", "properties": {"x": {"type": "string", "pattern": "a+"}}})
    found = toolbox({"tools": [WEATHER, odd]})
    assert found is not None
    grammar = found.grammar_of_a_call()
    assert '\\"odd\\", \\"arguments\\": " object' in grammar
    assert '"\\"city\\": "' in grammar, "the other keeps its schema"
    many = [function(f"f{n}", {"properties": {f"p{m}": {} for m in range(40)}}) for n in range(100)]
    found = toolbox({"tools": many})
    assert found is not None
    assert "p39" not in found.grammar_of_a_call(), "together they are more than one grammar may hold"
    with pytest.raises(FieldError):
        forced = toolbox({"tools": [odd], "tool_choice": "required"})
        assert forced is not None
        forced.grammar()


def test_penalties_reach_the_sampler_or_are_refused(host: HostClient) -> None:
    for name in ("presence_penalty", "frequency_penalty"):
        status, answer = chat(host, chat_body() | {name: 2.5})
        assert (status, answer["error"]["param"]) == (400, name)
        assert chat(host, chat_body() | {name: -2})[0] == 200
    given = limits({"presence_penalty": 1, "frequency_penalty": -0.5}).sampling
    assert (given.presence_penalty, given.frequency_penalty) == (1, -0.5)
    assert (limits({}).sampling.presence_penalty, limits({}).sampling.frequency_penalty) == (0, 0)


def test_json_is_a_grammar(client: openai.OpenAI) -> None:
    assert "root ::= object" in text_of(say(client, user("grammar"), response_format={"type": "json_object"}))
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema, "strict": True}}
    grammar = text_of(say(client, user("grammar"), response_format=form))
    assert '"\\"red\\"" | "\\"blue\\""' in grammar


def test_thoughts_on_the_wire(host: HostClient) -> None:
    _, answer = chat(host, chat_body("raw <think>hm, blue?</think>\n\nBlue."))
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Blue.", "hm, blue?")
    events = streamed(host, chat_body("raw <think>hm, blue?</think>\n\nBlue."))
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm, blue?"
    assert "".join(delta.get("content", "") for delta in deltas) == "Blue."


def test_log_probabilities(client: openai.OpenAI, host: HostClient) -> None:
    whole = say(client, user("echo one two"), logprobs=True, top_logprobs=2).choices[0].logprobs
    assert whole is not None
    assert whole.content is not None
    assert [(token.token, token.logprob) for token in whole.content] == [("one", -0.25), (" two", -0.25)]
    assert [other.token for other in whole.content[0].top_logprobs] == ["a", "b"]
    events = streamed(host, chat_body("bytes é", logprobs=True))
    scores = [
        score
        for event in events[:-1]
        for score in (event["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert [score["bytes"] for score in scores] == [[0xC3], [0xA9]]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1]) == "é"
    assert say(client, user("echo one")).choices[0].logprobs is None
    # The tokens of a stop string are not shown, but they were written and are counted.
    events = streamed(host, chat_body("echo one two", logprobs=True, stop=" two"))
    assert events[-2]["choices"][0]["logprobs"]["content"][0]["token"] == " two"


def test_tools_that_cannot_be_used() -> None:
    for fields in (
        {"tools": [WEATHER, WEATHER]},
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "other"}}},
        {"tools": [WEATHER], "parallel_tool_calls": "no"},
        {"tools": "weather"},
    ):
        with pytest.raises(FieldError):
            toolbox(fields)
