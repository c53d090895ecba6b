"""What guards need of JSON Schema, and the one repair that is safe: values of the wrong kind that mean one.

The checking is the `jsonschema` library's (draft 2020-12), imported when the first schema is looked at: 120 ms and
8 MB, which a host without such a guard does not pay. (`fastjsonschema` takes 10 ms, but makes code of a schema and runs
it.) A check runs on every reply and must not be what fails, so a schema is looked through when the guard is made: what
is misspelt would be passed over in silence, and what points out of itself would be fetched.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_DESCRIBING = frozenset(
    "$schema $id $anchor $defs $comment title description default examples deprecated readOnly writeOnly "
    "contentEncoding contentMediaType contentSchema definitions then else minContains maxContains".split()
)
_PATTERNED = frozenset(("pattern", "patternProperties"))
_FENCE = re.compile(r"```[a-zA-Z]*[^\S\n]*\n")
_OPENING = re.compile(r"""\{(?=\s*["}])|\[(?=\s*[\[{"\-\dtfnNI\]])""")
_READINGS, _LINES = 32, 64
"""How often a text is read over in search of a value in it, before it is given up. Each failure counts the lines before
it, which takes a 64th of the time of reading them."""
_LONGEST = 160
"""Characters of what is wrong: a value that is quoted in it may be a whole page."""


def unusable(schema: Any) -> str | None:
    """Why a schema cannot be checked; None where it can."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, best_match

    if not isinstance(schema, dict):
        return "schema must be an object"
    try:
        meta = Draft202012Validator(
            Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER
        )
        wrong: SchemaError | None = best_match(meta.iter_errors(schema))
        if wrong is not None:
            return _told(wrong.message, f"schema{wrong.json_path[1:]}")
        return _unresolved(schema) or _unknown(schema) or _unbounded(schema)
    except RecursionError:
        return "schema is too deep"


def violation(value: Any, schema: Mapping[str, Any], where: str = "it") -> str | None:
    """What of a value is not as the schema says; None where all is."""
    return _violation(value, _validator(schema), where)


def parsed(text: str) -> Any:
    """The JSON value that a text is, its fence aside. Raises ValueError."""
    inner = text.strip()
    fence = _FENCE.match(inner)
    closed = fence is not None and inner.endswith("```") and len(inner) >= fence.end() + 3
    return json.loads(inner[fence.end() : -3] if fence is not None and closed else text)


def found_in(text: str, schema: Mapping[str, Any]) -> str | None:
    """The first JSON value in a text that is as the schema says, as it stands there; None where there is none.

    A text of nothing but brackets, each of which may open a value as long as the rest, is not read to its end: what is
    read in all is bounded by a multiple of its length.
    """
    decoder, validator = json.JSONDecoder(), _validator(schema)
    left = _READINGS * max(len(text), 1)
    for opening in _OPENING.finditer(text):
        start = opening.start()
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            left -= _read(error, len(text)) - start + start // _LINES
        else:
            if _violation(value, validator, "it") is None:
                return text[start:end]
            left -= end - start
        if left <= 0:
            return None
    return None


def _read(error: Exception, length: int) -> int:
    """How far a text was read until it turned out to hold no value; an open string was looked for to the end."""
    if isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated"):
        return error.pos + 1
    return length


def coerced(value: Any, schema: Any) -> Any:
    """A value with what is meant unmistakably brought into its type: "3" is 3, 3 is "3", one of a list is a list."""
    if not isinstance(schema, Mapping):
        return value
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
            if name in schema.get("required", [])
            and name not in kept
            and isinstance(inner, Mapping)
            and "default" in inner
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


def _validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    kind = Draft202012Validator
    if any(_PATTERNED & inner.keys() for inner in _within(schema)):
        from app.harness import patterns

        kind = validators.extend(kind, patterns.Bounded().keywords)
    # Without a registry of its own the library would fetch what a schema points to.
    return kind(schema, registry=Registry())


def _violation(value: Any, validator: Draft202012Validator, where: str) -> str | None:
    from jsonschema.exceptions import best_match

    from app.harness.patterns import TooSlow

    try:
        wrong = best_match(validator.iter_errors(value))
    except RecursionError:
        return f"{where} cannot be checked: the schema or the value has no end"
    except TooSlow as error:
        return _told(str(error), f"{where} cannot be checked")
    return None if wrong is None else _told(wrong.message, f"{where}{wrong.json_path[1:]}")


def _told(message: str, where: str) -> str:
    return f"{where}: {textwrap.shorten(message, _LONGEST, placeholder=' …')}"


def _within(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all that are in it."""
    from referencing.jsonschema import DRAFT202012

    if isinstance(schema, dict):
        yield schema
        for inner in DRAFT202012.create_resource(schema).subresources():
            yield from _within(inner.contents)


def _unresolved(schema: dict[str, Any]) -> str | None:
    """The first reference that does not lead into the schema itself."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for inner in _within(schema):
        for key in ("$ref", "$dynamicRef"):
            if key not in inner:
                continue
            try:
                resolver.lookup(inner[key])
            except Unresolvable:
                return f"schema points to {inner[key]!r}, which is not in it"
    return None


def _unbounded(schema: dict[str, Any]) -> str | None:
    """A pattern that is none, or that would be matched by the library itself, without a bound on the time."""
    used = {key for inner in _within(schema) for key in inner}
    if not used & _PATTERNED:
        return None
    from app.harness import patterns

    if {"patternProperties", "unevaluatedProperties"} <= used:
        return (
            "schema uses patternProperties with unevaluatedProperties, which takes no bounded time to check"
        )
    written = (
        pattern
        for inner in _within(schema)
        for pattern in (*inner.get("patternProperties", ()), inner.get("pattern", ""))
    )
    wrong = next(filter(patterns.unreadable, written), None)
    return None if wrong is None else f"schema has the pattern {wrong!r}, which is none"


def _unknown(schema: dict[str, Any]) -> str | None:
    """The first keyword that the standard does not have."""
    from jsonschema import Draft202012Validator

    known = _DESCRIBING | set(Draft202012Validator.VALIDATORS)
    return next(
        (
            f"schema uses {key!r}, which is no keyword of JSON Schema"
            for inner in _within(schema)
            for key in inner
            if key not in known
        ),
        None,
    )
