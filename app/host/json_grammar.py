"""From a JSON schema to a grammar (GBNF) that a reply has to match, so that what a client parses is what it asked for.

Written for a server: the size of what comes out is bounded by the size of what goes in, nothing is fetched, and
a keyword that a grammar cannot keep is refused rather than forgotten, because a client that asks for a pattern
relies on it. Keywords that only describe are passed over. The spacing is fixed (`", "` and `": "`, as Python
writes JSON): where white space is free, a small model writes it until its length is used up. Properties come in
the order of the schema, and none that the schema does not name, unless it names none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.host.requests import FieldError

_MAX_DEPTH = 32
_MAX_SCHEMAS = 2000
_MAX_REPEAT = 1000
_MAX_RANGE = 256

_DIGITS = "[0-9]"
_WORD = re.compile(r"[a-z]+(?:-[a-z0-9]+)*")
_BASIC = {
    "value": "object | array | string | number | boolean | null",
    "object": '"{" (string ": " value (", " string ": " value)*)? "}"',
    "array": '"[" (value (", " value)*)? "]"',
    "string": r'"\"" char* "\""',
    "char": r'[^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})',
    "number": '"-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,3})?',
    "natural-number": '("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,3})?',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
    "natural": '"0" | [1-9] [0-9]{0,15}',
    "positive": "[1-9] [0-9]{0,15}",
    "boolean": '"true" | "false"',
    "null": '"null"',
}
_DATE = f'{_DIGITS}{{4}} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] {_DIGITS} | "3" [01])'
_TIME = (
    f'([01] {_DIGITS} | "2" [0-3]) ":" [0-5] {_DIGITS} ":" [0-5] {_DIGITS} ("." {_DIGITS}{{1,6}})? '
    f'("Z" | [-+] ([01] {_DIGITS} | "2" [0-3]) ":" [0-5] {_DIGITS})'
)
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'{_DATE} "T" {_TIME}',
    "uuid": '[0-9a-f]{8} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{12}',
}
# Each says which values are right, and none can be kept by a grammar of this size.
_REFUSED = frozenset(
    "not if then else pattern patternProperties propertyNames minProperties maxProperties dependentRequired "
    "dependentSchemas unevaluatedProperties unevaluatedItems contains minContains maxContains uniqueItems multipleOf "
    "$dynamicRef $recursiveRef".split()
)


class GrammarBuilder:
    """Builds one grammar. ``field`` is the field of the request that refusals name.

    Raises (all methods): FieldError, where a schema is none, too large, or asks for what a grammar cannot keep.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._rules: dict[str, str] = {}
        self._references: dict[tuple[int, str], str] = {}
        self._heads: list[str] = []
        self._root: Any = {}
        self._depth = 0
        self._seen = 0

    def schema(self, schema: object) -> str:
        """The rule for a whole schema, whose references point into itself."""
        self._root = schema
        return self._grouped(self._visit(schema))

    def basic(self, name: str) -> str:
        """One of the basic kinds of value; with it comes what it is made of."""
        if name not in self._rules:
            self._rules[name] = _BASIC[name]
            for other in _WORD.findall(_BASIC[name]):
                if other in _BASIC:
                    self.basic(other)
        return name

    def rule(self, hint: str, body: str) -> str:
        """A rule of its own; returns its name."""
        name = f"{hint}-{len(self._rules)}"
        self._rules[name] = body
        return name

    @staticmethod
    def literal(text: str) -> str:
        """Exactly this text."""
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'"{escaped}"'

    def text(self, root: str) -> str:
        """The grammar, for a reply that is ``root``."""
        lines = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in self._rules.items())]
        grammar = "\n".join(lines) + "\n"
        try:
            grammar.encode()
        except UnicodeEncodeError:
            raise self._refusal("the schema holds half a character (an unpaired surrogate)") from None
        return grammar

    def _refusal(self, message: str) -> FieldError:
        return FieldError(self._field, f"{self._field}: {message}")

    def _visit(self, schema: object) -> str:
        """The expression for a schema."""
        self._depth += 1
        self._seen += 1
        try:
            if self._depth > _MAX_DEPTH or self._seen > _MAX_SCHEMAS:
                raise self._refusal(
                    f"the schema is nested more than {_MAX_DEPTH} deep, or has more than {_MAX_SCHEMAS} parts"
                )
            if schema is True:
                return self.basic("value")
            if not isinstance(schema, dict):
                raise self._refusal("a schema must be an object (or true)")
            return self._expression(schema)
        finally:
            self._depth -= 1

    def _expression(self, schema: dict[str, Any]) -> str:
        beyond = next((name for name in schema if name in _REFUSED), None)
        if beyond is not None and schema[beyond] not in (False, None):
            raise self._refusal(f"{beyond!r} cannot be kept to here: leave it out of the schema")
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema:
            return self._values([schema["const"]])
        if "enum" in schema:
            return self._values(schema["enum"])
        for name in ("anyOf", "oneOf"):
            if name in schema:
                if "properties" in schema or "items" in schema:
                    raise self._refusal(f"{name} beside properties or items cannot be kept to here")
                return self._either(name, schema[name])
        if "allOf" in schema:
            return self._visit(self._merged(schema))
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return self._either("type", [{**schema, "type": each} for each in dict.fromkeys(map(str, kind))])
        return self._of_kind(self._guessed(schema) if kind is None else kind, schema)

    def _of_kind(self, kind: object, schema: dict[str, Any]) -> str:
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number"):
            return self._number(str(kind), schema)
        if kind in ("boolean", "null", "value"):
            return self.basic(str(kind))
        raise self._refusal(f"{kind!r} is no type of JSON schema")

    @staticmethod
    def _guessed(schema: Mapping[str, Any]) -> str:
        if "properties" in schema or "additionalProperties" in schema or "required" in schema:
            return "object"
        return "array" if "items" in schema or "prefixItems" in schema else "value"

    def _reference(self, reference: object) -> str:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise self._refusal("only references into the schema itself ('#/…') are followed")
        known = self._references.get((id(self._root), reference))
        if known is not None:
            if known in self._heads:
                raise self._refusal(f"the reference {reference!r} refers to nothing but itself")
            return known
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise self._refusal(f"the reference {reference!r} points nowhere")
            found = found[key]
        # Named before it is made: a schema may refer to itself.
        name = self.rule("ref", "")
        self._references[id(self._root), reference] = name
        self._heads.append(name)
        self._rules[name] = self._visit(found)
        self._heads.pop()
        return name

    def _part(self, hint: str, schema: object) -> str:
        """A rule for a schema inside brackets: from here on a reference outwards is no endless loop."""
        heads, self._heads = self._heads, []
        expression = self._visit(schema)
        self._heads = heads
        return expression if _WORD.fullmatch(expression) else self.rule(hint, expression)

    def _values(self, values: object) -> str:
        if not isinstance(values, list) or not values:
            raise self._refusal("enum must be a list with at least one value")
        return " | ".join(self.literal(_json(value)) for value in values)

    def _either(self, name: str, schemas: object) -> str:
        if not isinstance(schemas, list) or not schemas:
            raise self._refusal(f"{name} must be a list with at least one schema")
        return " | ".join(self._grouped(self._visit(each)) for each in schemas)

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Objects that must all hold are one object with the properties of all."""
        parts = [*_list(schema["allOf"]), {name: value for name, value in schema.items() if name != "allOf"}]
        merged: dict[str, Any] = {}
        for part in parts:
            found = self._resolved(part)
            for name, value in found.items():
                if name == "properties" and isinstance(value, dict):
                    merged["properties"] = {**merged.get("properties", {}), **value}
                elif name == "required" and isinstance(value, list):
                    merged["required"] = [*merged.get("required", []), *value]
                elif name in merged and merged[name] != value and name not in ("title", "description"):
                    raise self._refusal(f"allOf with two values of {name!r} cannot be kept to here")
                else:
                    merged[name] = value
        return merged

    def _resolved(self, schema: object) -> dict[str, Any]:
        seen = 0
        while isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and seen < _MAX_DEPTH:
            found: Any = self._root
            for step in schema["$ref"].removeprefix("#").split("/")[1:]:
                found = (
                    found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
                )
            schema, seen = found, seen + 1
        if not isinstance(schema, dict) or "$ref" in schema:
            raise self._refusal("allOf must be a list of schemas")
        return schema

    def _object(self, schema: dict[str, Any]) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if (
            not isinstance(properties, dict)
            or not isinstance(required, list)
            or not all(isinstance(name, str) for name in required)
        ):
            raise self._refusal("properties must be an object and required a list of names")
        if not properties:
            if required:
                raise self._refusal("required names a property that properties does not have")
            return self._map(schema.get("additionalProperties"))
        if any(name not in properties for name in required):
            raise self._refusal("required names a property that properties does not have")
        pairs = [
            (
                self.rule("pair", f"{self.literal(_json(name) + ': ')} {self._part('value', each)}"),
                name in required,
            )
            for name, each in properties.items()
        ]
        return f'"{{" {self._members(pairs)} "}}"'

    def _members(self, pairs: Sequence[tuple[str, bool]]) -> str:
        """Pairs in order, those that need not be there optional, commas between those that are."""
        starts: list[str] = []
        after = ""
        for pair, needed in reversed(pairs):
            tail = f" {self.rule('rest', after)}" if after else ""
            starts = [f"{pair}{tail}", *([] if needed else starts)]
            after = f'", " {pair}{tail}' if needed else f'(", " {pair})?{tail}'
        return f"({' | '.join(starts)}){'' if any(needed for _, needed in pairs) else '?'}"

    def _map(self, values: object) -> str:
        if values is False:
            return '"{}"'
        if values is None or values is True:
            return self.basic("object")
        each = f'{self.basic("string")} ": " {self._part("value", values)}'
        return f'"{{" ({each} (", " {each})*)? "}}"'

    def _array(self, schema: dict[str, Any]) -> str:
        least = self._count(schema, "minItems", 0)
        most = self._count(schema, "maxItems", None)
        first = [self._part("item", each) for each in _list(schema.get("prefixItems"))]
        if first:
            if (most is not None and most < len(first)) or schema.get("items") not in (None, False):
                raise self._refusal("prefixItems with further items cannot be kept to here")
            return '"[" ' + ' ", " '.join(first) + ' "]"'
        items = schema.get("items")
        if items is False or most == 0:
            return '"[]"'
        each = self._part("item", True if items is None else items)
        if least is not None and most is not None and most < least:
            raise self._refusal("maxItems is less than minItems")
        upper = "" if most is None else most - 1
        more = f'{each} (", " {each}){{{max((least or 0) - 1, 0)},{upper}}}'
        return f'"[" {more} "]"' if least else f'"[" ({more})? "]"'

    def _string(self, schema: dict[str, Any]) -> str:
        shape = _FORMATS.get(str(schema.get("format")))
        if shape is not None:
            return f'"\\"" {shape} "\\""'
        least = self._count(schema, "minLength", 0)
        most = self._count(schema, "maxLength", None)
        if not least and most is None:
            return self.basic("string")
        if most is not None and most < (least or 0):
            raise self._refusal("maxLength is less than minLength")
        upper = "" if most is None else most
        return f'"\\"" {self.basic("char")}{{{least or 0},{upper}}} "\\""'

    def _number(self, kind: str, schema: dict[str, Any]) -> str:
        low, high = schema.get("minimum"), schema.get("maximum")
        if schema.get("exclusiveMinimum") is not None or schema.get("exclusiveMaximum") is not None:
            raise self._refusal("exclusive bounds cannot be kept to here: use minimum and maximum")
        if low is None and high is None:
            return self.basic(kind)
        if (
            kind == "integer"
            and isinstance(low, int)
            and isinstance(high, int)
            and 0 <= high - low < _MAX_RANGE
        ):
            return " | ".join(self.literal(str(value)) for value in range(low, high + 1))
        if high is None and low in (0, 1):
            if kind == "integer":
                return self.basic("natural" if low == 0 else "positive")
            if low == 0:
                return self.basic("natural-number")
        raise self._refusal(
            f"these bounds cannot be kept to here: integers take a range of at most {_MAX_RANGE} values, "
            "or a minimum of 0 or 1, and other numbers a minimum of 0"
        )

    def _count(self, schema: Mapping[str, Any], name: str, default: int | None) -> int | None:
        value = schema.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_REPEAT:
            raise self._refusal(f"{name} must be an integer from 0 to {_MAX_REPEAT}")
        return value

    @staticmethod
    def _grouped(expression: str) -> str:
        return expression if _WORD.fullmatch(expression) else f"({expression})"


def response_grammar(fields: Mapping[str, Any]) -> str | None:
    """The grammar that the ``response_format`` of a request stands for; None for plain text.

    Raises:
        FieldError: a form that is not known, or a schema that cannot be kept to.
    """
    wanted = fields.get("response_format")
    if wanted is None:
        return None
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    builder = GrammarBuilder("response_format")
    if kind == "text":
        return None
    if kind == "json_object":
        return builder.text(builder.basic("object"))
    described = wanted.get("json_schema") if kind == "json_schema" else None
    if not isinstance(described, dict):
        raise FieldError(
            "response_format",
            "response_format must be text, json_object, or json_schema with an object json_schema",
        )
    schema = described.get("schema")
    return builder.text(builder.schema({"type": "object"} if schema is None else schema))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
