"""Turns in which a model called a function, and what the function found: read out of their text, and put into text.

They are kept as text, in the form in which most models write calls, because that is what was said. A template that has
a form of its own for them gets them as what they are; for any other the text is what the model reads, and what a
function found is told in the user's place. Only a reply that is followed by what a function found is a call: whoever
talks about `<tool_call>` has called nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.model.turns import Turn
from store.types import Role

_CALL = re.compile(r"\s*<tool_call>\s*(\{.*?\})\s*(?:</tool_call>\s*|\Z)", re.DOTALL)
_OPEN = "<tool_call>"


@dataclass(frozen=True)
class Call:
    """One call. ``arguments`` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Calling:
    """A reply that calls: what it says before, and the calls."""

    content: str
    calls: tuple[Call, ...]


def calling(turns: Sequence[Turn], place: int) -> Calling | None:
    """The calls in a turn; None where it calls nothing, or says more than a template could be given."""
    turn = turns[place]
    if turn.role is not Role.ASSISTANT or place + 1 == len(turns) or turns[place + 1].role is not Role.TOOL:
        return None
    if turn.content.lstrip().startswith("{"):
        bare = _call(turn.content)
        return None if bare is None else Calling("", (bare,))
    content, tag, rest = turn.content.partition(_OPEN)
    calls: list[Call] = []
    rest = tag + rest
    while rest:
        found = _CALL.match(rest)
        call = None if found is None else _call(found[1])
        if found is None or call is None:
            return None
        calls.append(call)
        rest = rest[found.end() :]
    return Calling(content.strip(), tuple(calls)) if calls else None


def as_text(turns: Sequence[Turn]) -> list[Turn]:
    """The same for a template that knows no functions."""
    return [
        Turn(Role.USER, f"<tool_response>\n{turn.content}\n</tool_response>")
        if turn.role is Role.TOOL
        else turn
        for turn in turns
    ]


def _call(text: str) -> Call | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", found.get("parameters"))
    if not isinstance(arguments, dict):
        return None
    return Call(found["name"], json.dumps(arguments, ensure_ascii=False))
