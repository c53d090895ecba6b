"""The patterns of a JSON Schema, matched in bounded time.

Python's own `re` goes back over a text for as long as it takes: `(a+)+$` needs a minute for thirty characters, and the
text is a model's. Whether a pattern can take that long cannot be told from its looks without refusing good ones (the
usual pattern of a slug nests one repetition in another). So they are matched by the `regex` library, which reads the
same patterns, stops when it is told to, and lets the other threads of the host go on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import regex

SECONDS = 0.25
"""For all patterns of one check. What is usual takes microseconds."""


class TooSlow(Exception):
    """A pattern takes too long on a text."""


class Clock:
    """The time that the patterns of one check have together."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._left = seconds

    def found(self, pattern: str, text: str) -> bool:
        """Whether a pattern is somewhere in a text. Raises TooSlow."""
        began = time.monotonic()
        try:
            return regex.search(pattern, text, timeout=max(self._left, 0.0), concurrent=True) is not None
        except TimeoutError:
            raise TooSlow(f"the pattern {pattern!r} takes too long on it") from None
        finally:
            self._left -= time.monotonic() - began


def unreadable(pattern: str) -> bool:
    """Whether a pattern is none."""
    try:
        regex.compile(pattern)
    except regex.error:
        return True
    return False


def keywords(clock: Clock) -> Mapping[str, Callable[..., Iterator[Any]]]:
    """What checks the keywords of a schema that hold patterns, in place of the library's own."""
    from jsonschema import Draft202012Validator, ValidationError

    usual = Draft202012Validator.VALIDATORS["additionalProperties"]

    def pattern(validator: Any, wanted: str, value: Any, _schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "string") and not clock.found(wanted, value):
            yield ValidationError(f"{value!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[Any]:
        if not validator.is_type(value, "object"):
            return
        for each, inner in wanted.items():
            for name in value:
                if clock.found(each, name):
                    yield from validator.descend(value[name], inner, path=name, schema_path=each)

    def additional_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        named = schema.get("patternProperties", {})
        if not named or not validator.is_type(value, "object"):
            yield from usual(validator, wanted, value, schema)
            return
        others = value.keys() - schema.get("properties", {}).keys()
        for name in sorted(others):
            if any(clock.found(each, name) for each in named):
                continue
            if wanted is False:
                yield ValidationError(f"{name!r} is no property that may be there")
            else:
                yield from validator.descend(value[name], wanted, path=name)

    return {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }
