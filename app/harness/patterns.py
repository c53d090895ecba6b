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


def unreadable(pattern: str) -> bool:
    """Whether a pattern is none."""
    try:
        regex.compile(pattern)
    except regex.error:
        return True
    return False


class Bounded:
    """The keywords of a schema that hold patterns, for one check; all its patterns together have so many seconds."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._left = seconds

    @property
    def keywords(self) -> Mapping[str, Callable[..., Iterator[Any]]]:
        """What checks them in place of the library's own."""
        return {
            "pattern": self._pattern,
            "patternProperties": self._properties,
            "additionalProperties": self._additional,
        }

    def _found(self, pattern: str, text: str) -> bool:
        """Whether a pattern is somewhere in a text. Raises TooSlow."""
        began = time.monotonic()
        try:
            return regex.search(pattern, text, timeout=max(self._left, 0.0), concurrent=True) is not None
        except TimeoutError:
            raise TooSlow(f"the pattern {pattern!r} takes too long on it") from None
        finally:
            self._left -= time.monotonic() - began

    def _pattern(self, validator: Any, wanted: str, value: Any, _schema: Any) -> Iterator[Any]:
        from jsonschema import ValidationError

        if validator.is_type(value, "string") and not self._found(wanted, value):
            yield ValidationError(f"{value!r} does not match {wanted!r}")

    def _properties(self, validator: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[Any]:
        if not validator.is_type(value, "object"):
            return
        for pattern, inner in wanted.items():
            for name in [each for each in value if self._found(pattern, each)]:
                yield from validator.descend(value[name], inner, path=name, schema_path=pattern)

    def _additional(self, validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        from jsonschema import Draft202012Validator, ValidationError

        patterns = schema.get("patternProperties", {})
        if not patterns or not validator.is_type(value, "object"):
            yield from Draft202012Validator.VALIDATORS["additionalProperties"](
                validator, wanted, value, schema
            )
            return
        for name in sorted(value.keys() - schema.get("properties", {}).keys()):
            if any(self._found(each, name) for each in patterns):
                continue
            if wanted is False:
                yield ValidationError(f"{name!r} is no property that may be there")
            else:
                yield from validator.descend(value[name], wanted, path=name)
