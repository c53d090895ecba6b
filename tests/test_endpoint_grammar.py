"""Grammars from JSON schemas, held against llama.cpp's own reading of them: what is allowed, and what is not."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from typing import Any

import llama_cpp
import pytest

from app.host.json_grammar import GrammarBuilder, response_grammar
from app.host.openai_tools import toolbox
from app.host.requests import FieldError
from app.model import catalogue
from app.model.llama import LlamaModel
from store.home import Home

TREE: dict[str, Any] = {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer", "minimum": 1, "maximum": 3},
                "below": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "maxItems": 2},
            },
            "required": ["value"],
        }
    },
    "$ref": "#/$defs/Node",
}
PERSON: dict[str, Any] = {
    "title": "Person",
    "type": "object",
    "properties": {
        "nick": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "name": {"type": "string", "description": "full name", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["cat", 'a "b"', 7, None]},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}


def built(schema: object) -> str:
    builder = GrammarBuilder("response_format")
    return builder.text(builder.schema(schema))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    home = Home(tmp_path_factory.mktemp("grammar") / "home").open()
    loaded = LlamaModel.load(catalogue.resolve(home, None).path, vocab_only=True)
    yield loaded
    loaded.close()


def accepts(model: LlamaModel, grammar: str, text: str) -> bool:
    """Whether llama.cpp would let a model write this text, and then end."""
    vocab, pointer = model.vocab, llama_cpp.llama_model_get_vocab(model.handle)
    sampler = llama_cpp.llama_sampler_init_grammar(pointer, grammar.encode(), b"root")
    assert sampler, grammar
    try:
        for token in (*vocab.encode(text, special=False), vocab.eos):
            one = (llama_cpp.llama_token_data * 1)(llama_cpp.llama_token_data(token, 1.0, 0.0))
            array = llama_cpp.llama_token_data_array(one, 1, -1, False)
            llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
            if one[0].logit != 1.0:
                return False
            if token != vocab.eos:
                llama_cpp.llama_sampler_accept(sampler, token)
        return True
    finally:
        llama_cpp.llama_sampler_free(sampler)


@pytest.mark.model
@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (
            True,
            [{}, [], "x", 1.5, None, {"a": [1, {"b": 'é漢 \n\t"\\'}]}, -0.25, 1e20],
            ["{", "{'a': 1}", "01", "tru", '"\n"', '{"a":1}', "[1,2]"],
        ),
        (
            PERSON,
            [
                {"name": "Ann", "kind": "cat"},
                {"nick": None, "name": "A", "age": 0, "kind": None},
                {"nick": "x", "name": "A", "kind": 'a "b"'},
                {"name": "A", "age": 12, "kind": 7},
            ],
            [
                '{"kind": "cat"}',
                '{"name": "", "kind": "cat"}',
                '{"name": "A", "kind": "dog"}',
                '{"name": "A", "age": -1, "kind": 7}',
                '{"name": "A", "kind": 7, "more": 1}',
                '{, "name": "A", "kind": 7}',
            ],
        ),
        (
            TREE,
            [{"value": 3}, {"value": 1, "below": [{"value": 2, "below": []}, {"value": 1}]}],
            [
                '{"value": 4}',
                '{"below": []}',
                '{"value": 1, "below": [{"value": 1}, {"value": 1}, {"value": 1}]}',
            ],
        ),
        (
            {"type": "object", "properties": {name: {"type": "boolean"} for name in "abc"}},
            [{}, {"a": True}, {"c": False}, {"a": True, "c": True}, {"a": True, "b": True, "c": True}],
            ['{"a": true, }', '{"b": true, "a": true}', '{"a": 1}'],
        ),
        ({"type": ["string", "null"]}, ["x", None], ["1", "[]"]),
        (
            {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2},
            [[1, 2.5], [0, 0, 0]],
            ["[1]", "[1, -1]"],
        ),
        (
            {"type": "array", "prefixItems": [{"const": "a"}, {"type": "integer"}]},
            [["a", 1]],
            ['["a"]', '["b", 1]'],
        ),
        ({"type": "array", "maxItems": 0}, [[]], ["[1]"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ['"a"', '"abcd"']),
        ({"type": "string", "format": "date"}, ["2026-11-29"], ['"2026-13-01"', '"today"']),
        ({"type": "string", "format": "date-time"}, ["2026-11-29T10:00:00Z"], ['"2026-11-29"']),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            [{}, {"a": 1, "b": 2}],
            ['{"a": "x"}'],
        ),
        ({"type": "object", "additionalProperties": False}, [{}], ['{"a": 1}']),
        (
            {
                "allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"const": 2}}, "required": ["b"]}],
                "$defs": {"A": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}},
            },
            [{"a": 1, "b": 2}],
            ['{"a": 1}'],
        ),
        ({"oneOf": [{"const": "yes"}, {"type": "integer", "minimum": 1}]}, ["yes", 10], ["0", '"no"']),
    ],
)
def test_what_a_schema_lets_a_model_write(
    model: LlamaModel, schema: object, right: list[object], wrong: list[str]
) -> None:
    grammar = built(schema)
    for value in right:
        assert accepts(model, grammar, json.dumps(value, ensure_ascii=False)), value
    for text in wrong:
        assert not accepts(model, grammar, text), text


@pytest.mark.model
def test_a_demanded_call_is_written_as_it_is_read(model: LlamaModel) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": PERSON}}
    other = {"type": "function", "function": {"name": "other"}}
    found = toolbox({"tools": [tool, other], "tool_choice": "required", "parallel_tool_calls": False})
    assert found is not None
    grammar = found.grammar()
    assert grammar is not None
    call = '<tool_call>\n{"name": "weather", "arguments": {"name": "A", "kind": 7}}\n</tool_call>'
    assert accepts(model, grammar, call)
    assert accepts(model, grammar, '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>')
    assert not accepts(model, grammar, f"{call}\n{call}")
    assert not accepts(model, grammar, "Sure!")
    several = toolbox({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "weather"}}})
    assert several is not None
    assert accepts(model, several.grammar() or "", f"{call}\n{call}")


@pytest.mark.parametrize(
    "schema",
    [
        7,
        {"type": "text"},
        {"type": []},
        {"enum": []},
        {"not": {"type": "string"}},
        {"type": "string", "pattern": "^a+$"},
        {"type": "integer", "minimum": 5},
        {"type": "integer", "minimum": 0, "maximum": 100_000},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "array", "uniqueItems": True},
        {"type": "array", "minItems": 3, "maxItems": 2},
        {"type": "array", "maxItems": 10**9},
        {"type": "string", "maxLength": -1},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"anyOf": [], "type": "object"},
        {"allOf": [{"type": "object"}, {"type": "string"}]},
        {"properties": {"a": {}}, "required": ["b"]},
        {"properties": {"a": {}}, "required": [["a"]]},
        {"properties": []},
        {"enum": ["\ud800"]},
        {"properties": {"a": False}},
    ],
)
def test_what_cannot_be_kept_to_is_refused(schema: object) -> None:
    with pytest.raises(FieldError):
        built(schema)


def test_size_is_bounded() -> None:
    """Small schemas whose grammars would be endless: each is refused, and at once."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    wide = {"type": "object", "properties": {str(index): {"type": "null"} for index in range(5000)}}
    doubling = {
        "$defs": {
            "A": {"properties": {str(index): {"allOf": [{"$ref": "#/$defs/A"}]} for index in range(10)}}
        },
        "$ref": "#/$defs/A",
    }
    for schema in (deep, wide, doubling):
        with pytest.raises(FieldError):
            built(schema)
    nested: dict[str, Any] = {"type": "null"}
    for _ in range(12):
        nested = {"type": "object", "properties": dict.fromkeys("ab", nested)}
    with pytest.raises(FieldError):
        built(nested)
    assert len(built({"type": ["array"] * 500, "items": {"type": ["array"] * 500, "items": True}})) < 2000


def test_the_forms_a_response_may_have() -> None:
    assert response_grammar({}) is None
    assert response_grammar({"response_format": {"type": "text"}}) is None
    assert "root ::= object" in (response_grammar({"response_format": {"type": "json_object"}}) or "")
    for form in ("json", {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": []}}, {}):
        with pytest.raises(FieldError):
            response_grammar({"response_format": form})
