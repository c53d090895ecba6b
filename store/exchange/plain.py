"""Reads the two plain lists of turns: OpenAI's `messages` and ShareGPT's `conversations`.

Neither has ids, times or branches. A conversation is known by its content and by how many of the same content came
before it in the file, so two equal lines stay two conversations and reading the file again adds none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from store.exchange.drafts import BadEntry, Draft, Occurrences, Source, line, one_line
from store.types import Role

_OPENAI = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_SHAREGPT = {
    "system": Role.SYSTEM,
    "human": Role.USER,
    "user": Role.USER,
    "gpt": Role.ASSISTANT,
    "chatgpt": Role.ASSISTANT,
    "assistant": Role.ASSISTANT,
    "bing": Role.ASSISTANT,
    "bard": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "function_call": Role.ASSISTANT,
    "observation": Role.TOOL,
    "tool": Role.TOOL,
}


def read_openai(entry: Mapping[str, Any], seen: Occurrences) -> Draft:
    """One line of a chat fine-tuning file, or the messages of a request. Raises BadEntry with the reason."""
    turns = list(_openai_turns(_list(entry, "messages")))
    return line(Source.OPENAI, seen.key(turns), turns, Source.OPENAI, one_line(entry.get("title")))


def read_sharegpt(entry: Mapping[str, Any], seen: Occurrences) -> Draft:
    """One ShareGPT entry, with the system prompt as a turn or beside them. Raises BadEntry with the reason."""
    turns = list(_sharegpt_turns(_list(entry, "conversations")))
    system = entry.get("system")
    if isinstance(system, str) and system:
        turns.insert(0, (Role.SYSTEM, system))
    return line(Source.SHAREGPT, seen.key(turns), turns, Source.SHAREGPT, one_line(entry.get("title")))


def _list(entry: Mapping[str, Any], key: str) -> list[Any]:
    found = entry.get(key)
    if not isinstance(found, list):
        raise BadEntry(f"it has no list of {key}")
    return found


def _openai_turns(messages: list[Any]) -> Iterator[tuple[Role, str]]:
    for number, message in enumerate(messages, start=1):
        role = _OPENAI.get(str(message.get("role"))) if isinstance(message, dict) else None
        if role is None:
            raise BadEntry(f"its message {number} has no role that is known")
        text = _content(message.get("content"))
        calls = message.get("tool_calls") or message.get("function_call")
        if not text and calls:
            text = json.dumps(calls, ensure_ascii=False)
        if text:
            yield role, text


def _content(content: object) -> str:
    """Text, or the texts of parts; a part that is not text leaves a word that says what it was."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n\n".join(_part(part) for part in content if isinstance(part, (dict, str)))


def _part(part: Mapping[str, Any] | str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part.get("text"), str):
        return str(part["text"])
    return f"[{str(part.get('type') or 'attachment').replace('_', ' ')}]"


def _sharegpt_turns(turns: list[Any]) -> Iterator[tuple[Role, str]]:
    for number, turn in enumerate(turns, start=1):
        if not isinstance(turn, dict):
            raise BadEntry(f"its turn {number} is not an object")
        role = _SHAREGPT.get(str(turn.get("from") or turn.get("role")))
        text = turn.get("value", turn.get("content"))
        if role is None or not isinstance(text, str):
            raise BadEntry(f"its turn {number} has no speaker that is known, or no text")
        if text:
            yield role, text
