"""Reads conversations of a ChatGPT export: a table of nodes, each of which names its parent.

Only `parent` is believed. `children` is missing or empty in some exports, and one that is walked downwards then
loses everything; walking upwards cannot. Nodes that show nothing (the empty root, hidden system messages, thoughts)
are left out, and their children hang on the nearest node that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from store.exchange.drafts import (
    BadEntry,
    Draft,
    DraftMessage,
    Source,
    clean,
    digest,
    moment,
    one_line,
    text_or_none,
)
from store.types import Role

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.TOOL}
# What the page never showed as a message: memory and instructions put into the prompt, and reasoning.
_HIDDEN = ("user_editable_context", "model_editable_context", "thoughts", "reasoning_recap")


def read(entry: Mapping[str, Any]) -> Draft:
    """One conversation. Raises BadEntry with the reason."""
    mapping = entry.get("mapping")
    if not isinstance(mapping, dict):
        raise BadEntry("it has no mapping, so there are no messages in it")
    shown = {key: found for key, node in mapping.items() if (found := _message(node)) is not None}
    if not shown:
        raise BadEntry("it holds no message with text")
    parents = {key: _kept_parent(key, mapping, shown) for key in shown}
    order = _ordered(shown, parents)
    messages = tuple(
        DraftMessage(
            key, parents[key], shown[key].role, shown[key].text, shown[key].created, shown[key].model
        )
        for key in order
    )
    current = entry.get("current_node")
    return Draft(
        space=Source.CHATGPT,
        key=str(entry.get("conversation_id") or entry.get("id") or digest(sorted(mapping))),
        messages=messages,
        client=Source.CHATGPT,
        title=one_line(entry.get("title")),
        created=moment(entry.get("create_time")),
        updated=moment(entry.get("update_time")),
        head=_kept(current, mapping, shown) if isinstance(current, str) else None,
    )


def _message(node: object) -> DraftMessage | None:
    """What a node shows, still without its place in the tree; None where it shows nothing."""
    message = node.get("message") if isinstance(node, dict) else None
    if not isinstance(message, dict):
        return None
    author, content, metadata = (message.get(key) for key in ("author", "content", "metadata"))
    role = _ROLES.get(str(author.get("role"))) if isinstance(author, dict) else None
    if role is None or not isinstance(content, dict) or content.get("content_type") in _HIDDEN:
        return None
    facts = metadata if isinstance(metadata, dict) else {}
    if facts.get("is_visually_hidden_from_conversation") is True:
        return None
    text = _text(content)
    if not text.strip():
        return None
    model = text_or_none(facts.get("model_slug")) if role is Role.ASSISTANT else None
    return DraftMessage("", None, role, clean(text), moment(message.get("create_time")), model)


def _text(content: Mapping[str, Any]) -> str:
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n\n".join(text for part in parts if (text := _part(part)))
    for key in ("text", "result", "content"):
        if isinstance(content.get(key), str):
            return str(content[key])
    return ""


def _part(part: object) -> str:
    """A part's text; for a picture or a recording, a word that says there was one."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    kind = str(part.get("content_type") or "attachment")
    return f"[{kind.removesuffix('_pointer').removesuffix('_asset').replace('_', ' ')}]"


def _kept_parent(key: str, mapping: Mapping[str, Any], shown: Mapping[str, DraftMessage]) -> str | None:
    return _kept(_parent(mapping[key]), mapping, shown)


def _kept(key: str | None, mapping: Mapping[str, Any], shown: Mapping[str, DraftMessage]) -> str | None:
    """The nearest node at or above a key that is kept. Raises BadEntry where the nodes go round in a circle."""
    for _ in range(len(mapping) + 1):
        if key is None or key in shown:
            return key
        key = _parent(mapping.get(key))
    raise BadEntry("its messages name each other as parents in a circle")


def _parent(node: object) -> str | None:
    parent = node.get("parent") if isinstance(node, dict) else None
    return parent if isinstance(parent, str) else None


def _ordered(shown: Mapping[str, DraftMessage], parents: Mapping[str, str | None]) -> list[str]:
    """Parents first, and otherwise by time: the order in which branches were made. No time counts as the parent's."""
    placed: dict[str, tuple[str, int, int]] = {}
    for number, key in enumerate(shown):
        above = [key]
        while above[-1] not in placed and (parent := parents[above[-1]]) is not None:
            if len(above) > len(shown):
                raise BadEntry("its messages name each other as parents in a circle")
            above.append(parent)
        for node in reversed(above):
            if node in placed:
                continue
            over = parents[node]
            time, depth, _ = placed[over] if over is not None else ("", -1, 0)
            placed[node] = (max(shown[node].created or "", time), depth + 1, number)
    numbers = {key: number for number, key in enumerate(shown)}
    return sorted(placed, key=lambda key: (placed[key][0], placed[key][1], numbers[key]))
