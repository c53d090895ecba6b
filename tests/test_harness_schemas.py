"""Schemas of guards: whole JSON Schema, nothing fetched, nothing that a reply or a schema can make fail."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from app.harness import schemas

TREE = {
    "type": "object",
    "properties": {"inner": {"$ref": "#"}, "kind": {"anyOf": [{"const": "leaf"}, {"const": "fork"}]}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (TREE, {"inner": {"inner": {"kind": "leaf"}}}, {"inner": {"inner": {"kind": "root"}}}),
        ({"$defs": {"n": {"minimum": 2}}, "items": {"$ref": "#/$defs/n"}}, [2, 3], [2, 1]),
        ({"definitions": {"n": {"type": "null"}}, "$ref": "#/definitions/n"}, None, 0),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"c": 1}, {"a": 1}),
        ({"type": "integer"}, 3.0, True),
        ({"properties": {"never": False}}, {}, {"never": 1}),
    ],
)
def test_what_the_standard_says_is_checked(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert schemas.unusable(schema) is None
    assert schemas.violation(good, schema) is None
    assert schemas.violation(bad, schema) is not None


def test_what_is_wrong_is_told_with_its_place_in_a_line() -> None:
    told = schemas.violation({"inner": {"kind": "x" * 5000}}, TREE, "the arguments")
    assert told is not None
    assert told.startswith("the arguments.inner.kind: ")
    assert len(told) < 250
    assert "\n" not in told


def test_a_schema_that_never_ends_fails_no_reply() -> None:
    endless = {"anyOf": [{"$ref": "#"}]}
    assert schemas.unusable(endless) is None
    assert "no end" in str(schemas.violation({}, endless))
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"not": deep}
    assert schemas.unusable(deep) == "schema is too deep"


def test_what_is_put_right_takes_any_schema() -> None:
    schema = {"required": ["a", "b"], "properties": {"a": True, "b": {"type": "integer", "default": 2}}}
    assert schemas.unusable(schema) is None
    assert schemas.coerced({"a": "1"}, schema) == {"a": "1", "b": 2}
    assert schemas.coerced(["1"], {"type": "array", "items": True}) == ["1"]


def test_the_library_is_loaded_for_a_schema_alone() -> None:
    script = "import sys, app.harness.guards; print('jsonschema' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "False"


FOR_EVER, SLUG = "^(a|aa)+$", "^[a-z]+(-[a-z]+)*$"
A_LOT = "a" * 40 + "!"
"""What `re` goes back over for seconds, and for twice as long with each two letters more."""


def test_a_pattern_is_matched_as_ever() -> None:
    schema = {
        "additionalProperties": False,
        "patternProperties": {SLUG: {"pattern": "^x"}},
        "properties": {"A": {}},
    }
    assert schemas.unusable(schema) is None
    assert schemas.violation({"a-slug": "xy", "A": 1}, schema) is None
    assert schemas.violation({"a-slug": "y"}, schema) == "it['a-slug']: 'y' does not match '^x'"
    assert schemas.violation({"No": "x"}, schema) == "it: 'No' is no property that may be there"
    also = {"patternProperties": {"^x": {}}, "additionalProperties": {"type": "null"}}
    assert "is not of type 'null'" in str(schemas.violation({"y": 1}, also))
    assert schemas.violation({"x": 1, "y": None}, also) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": FOR_EVER}, A_LOT),
        ({"patternProperties": {FOR_EVER: False}}, {A_LOT: 1}),
        ({"patternProperties": {FOR_EVER: {}}, "additionalProperties": True}, {A_LOT: 1}),
        ({"propertyNames": {"pattern": FOR_EVER}}, {A_LOT: 1}),
    ],
)
def test_a_pattern_that_takes_for_ever_is_broken_off(schema: dict[str, Any], value: Any) -> None:
    assert schemas.unusable(schema) is None
    told = schemas.violation(value, schema)
    assert told == f"it cannot be checked: the pattern {FOR_EVER!r} takes too long on it"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"pattern": "(a"}, "is not a 'regex'"),
        (
            {"properties": {"a": {"unevaluatedProperties": False, "patternProperties": {"a": {}}}}},
            "no bounded time",
        ),
    ],
)
def test_what_cannot_be_bounded_is_refused_when_the_guard_is_made(schema: dict[str, Any], why: str) -> None:
    assert why in str(schemas.unusable(schema))


@pytest.mark.parametrize("opening", ["[1,", "[", '{"a":', '["a", '])
def test_a_text_of_brackets_is_not_read_again_for_each(opening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, read = opening * 20_000, 0
    decode = json.JSONDecoder.raw_decode

    def counted(decoder: json.JSONDecoder, given: str, start: int = 0) -> Any:
        nonlocal read
        read += 1
        return decode(decoder, given, start)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counted)
    assert schemas.found_in(text, {"type": "object"}) is None
    assert read < 2000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('for (;;) { x[1] }\n{"a": [1, {"b": 2}]} and more', '{"a": [1, {"b": 2}]}'),
        ('[1] [ {"a": 1} ]', '{"a": 1}'),
        ("{ x } [ " * 500 + '{"a": 1}', '{"a": 1}'),
        ("{ } here", "{ }"),
        ('{"a": ', None),
    ],
)
def test_the_first_value_that_fits_is_found(text: str, found: str | None) -> None:
    assert schemas.found_in(text, {"type": "object"}) == found


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '```json\n{"a": 1}\n```', ' ```\n\n{"a": 1}```\n', '```JSON  \n{"a": 1}\n\n```']
)
def test_a_fence_around_a_value_is_no_part_of_it(text: str) -> None:
    assert schemas.parsed(text) == {"a": 1}


@pytest.mark.parametrize("text", ["```json", "```\n{}", "``````", "```js x\n{}\n```"])
def test_what_is_no_fence_is_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        schemas.parsed(text)
