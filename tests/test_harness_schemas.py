"""Schemas of guards: whole JSON Schema, nothing fetched, nothing that a reply or a schema can make fail."""

from __future__ import annotations

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
