"""The part of JSON Schema that guards check, and the one repair that is safe: values of the wrong kind that mean one.

Type, properties, required, additionalProperties, items, enum, const, lengths, ranges and patterns: what a small model
can be asked to fill in. A keyword beyond these is refused when the guard is made, rather than passed over in silence
when it matters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_KNOWN = frozenset(
    "$schema title description default examples type properties required additionalProperties items enum const "
    "minimum maximum minLength maxLength minItems maxItems pattern format".split()
)
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_FENCED = re.compile(r"^\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*$", re.DOTALL)


def unusable(schema: Any, where: str = "schema") -> str | None:
    """Why a schema cannot be checked; None where it can."""
    if not isinstance(schema, dict):
        return f"{where} must be an object"
    for key in schema:
        if key not in _KNOWN:
            return f"{where} uses {key!r}, which is not checked here"
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind not in _TYPES:
            return f"{where} has the type {kind!r}, which JSON does not know"
    for name, inner in schema.get("properties", {}).items():
        if (wrong := unusable(inner, f"{where}.{name}")) is not None:
            return wrong
    if isinstance(schema.get("items"), dict):
        return unusable(schema["items"], f"{where}[]")
    try:
        re.compile(schema.get("pattern", ""))
    except re.error:
        return f"{where} has a pattern that is none"
    return None


def violation(value: Any, schema: Mapping[str, Any], where: str = "it") -> str | None:
    """What of a value is not as the schema says; None where all is."""
    kinds = schema.get("type")
    if kinds is not None:
        wanted = [kinds] if isinstance(kinds, str) else list(kinds)
        if not any(_is(value, kind) for kind in wanted):
            return f"{where} must be {' or '.join(wanted)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {json.dumps(schema['enum'], ensure_ascii=False)}"
    if "const" in schema and value != schema["const"]:
        return f"{where} must be {json.dumps(schema['const'], ensure_ascii=False)}"
    if isinstance(value, dict):
        return _object(value, schema, where)
    if isinstance(value, list):
        return _array(value, schema, where)
    return _scalar(value, schema, where)


def parsed(text: str) -> Any:
    """The JSON value that a text is, its fence aside. Raises ValueError."""
    fenced = _FENCED.match(text)
    return json.loads(fenced[1] if fenced else text)


def found_in(text: str, schema: Mapping[str, Any]) -> str | None:
    """The first JSON value in a text that is as the schema says, as it stands there; None where there is none."""
    decoder = json.JSONDecoder()
    for opening in re.finditer(r"[\[{]", text):
        try:
            value, end = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            continue
        if violation(value, schema) is None:
            return text[opening.start() : end]
    return None


def coerced(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value with what is meant unmistakably brought into its type: "3" is 3, 3 is "3", one of a list is a list."""
    kind = schema.get("type")
    if isinstance(value, dict) and kind in (None, "object"):
        known = schema.get("properties", {})
        kept = {
            name: coerced(inner, known.get(name, {}))
            for name, inner in value.items()
            if name in known or schema.get("additionalProperties", True) is not False
        }
        missing = {
            name: inner["default"]
            for name, inner in known.items()
            if name in schema.get("required", []) and name not in kept and "default" in inner
        }
        return {**kept, **missing}
    if isinstance(value, list) and kind == "array":
        return [coerced(inner, schema.get("items", {})) for inner in value]
    if kind == "array" and not isinstance(value, list):
        return [coerced(value, schema.get("items", {}))]
    return _plain(value, str(kind))


def _plain(value: Any, kind: str) -> Any:
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        text = value.strip()
        if kind == "integer" and re.fullmatch(r"[+-]?\d{1,18}", text):
            return int(text)
        if kind == "number" and re.fullmatch(r"[+-]?\d{1,18}(\.\d{1,18})?", text):
            return float(text)
        if kind == "boolean" and text.lower() in ("true", "false"):
            return text.lower() == "true"
    return value


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _object(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> str | None:
    known = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            return f"{where} lacks {name!r}"
    for name, inner in value.items():
        if name in known:
            wrong = violation(inner, known[name], f"{where}.{name}")
        elif schema.get("additionalProperties", True) is False:
            wrong = f"{where} has {name!r}, which it should not"
        else:
            wrong = None
        if wrong is not None:
            return wrong
    return None


def _array(value: list[Any], schema: Mapping[str, Any], where: str) -> str | None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{where} has {len(value)} entries"
    each = schema.get("items")
    if isinstance(each, dict):
        for place, inner in enumerate(value):
            if (wrong := violation(inner, each, f"{where}[{place}]")) is not None:
                return wrong
    return None


def _scalar(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return f"{where} has {len(value)} characters"
        if "pattern" in schema and re.search(schema["pattern"], value) is None:
            return f"{where} does not fit {schema['pattern']}"
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{where} is out of range"
    return None
