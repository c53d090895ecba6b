"""Reads conversations of a Claude export: messages in their order, in newer exports each with its parent's id.

A message has blocks and, beside them, a plain text that older exports fill alone. Blocks win, because the plain
text puts apologies in the place of what it cannot show. Pasted documents come as attachments with their text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from store.exchange.drafts import BadEntry, Draft, DraftMessage, Source, clean, digest, moment, one_line
from store.types import Role

_ROLES = {"human": Role.USER, "user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}


def read(entry: Mapping[str, Any]) -> Draft:
    """One conversation. Raises BadEntry with the reason."""
    said = entry.get("chat_messages")
    if not isinstance(said, list):
        raise BadEntry("it has no chat_messages, so there are no messages in it")
    nodes = [each for each in said if isinstance(each, dict)]
    # Without parents a list is a chain; with them, a root names one that is not there.
    tree = any(isinstance(each.get("parent_message_uuid"), str) for each in nodes)
    messages: list[DraftMessage] = []
    kept: dict[str, str | None] = {}
    for number, node in enumerate(nodes):
        key = str(node.get("uuid") or number)
        above = node.get("parent_message_uuid") if tree else str(nodes[number - 1].get("uuid") or number - 1)
        parent = kept.get(above) if isinstance(above, str) and (tree or number) else None
        role, text = _ROLES.get(str(node.get("sender"))), _text(node)
        if role is None or not text.strip():
            kept[key] = parent
            continue
        if key in kept:
            raise BadEntry(f"two of its messages are called {key}")
        kept[key] = key
        messages.append(DraftMessage(key, parent, role, clean(text), moment(node.get("created_at"))))
    if not messages:
        raise BadEntry("it holds no message with text")
    current = entry.get("current_leaf_message_uuid")
    return Draft(
        space=Source.CLAUDE,
        key=str(entry.get("uuid") or digest([message.key for message in messages])),
        messages=tuple(messages),
        client=Source.CLAUDE,
        title=one_line(entry.get("name")),
        created=moment(entry.get("created_at")),
        updated=moment(entry.get("updated_at")),
        head=kept.get(current) if isinstance(current, str) else None,
    )


def _text(node: Mapping[str, Any]) -> str:
    blocks = node.get("content")
    text = "\n\n".join(_blocks(blocks)) if isinstance(blocks, list) else ""
    if not text.strip() and isinstance(node.get("text"), str):
        text = str(node["text"])
    return "\n\n".join(piece for piece in (text, *_attachments(node)) if piece.strip())


def _blocks(blocks: list[Any]) -> Iterator[str]:
    for block in blocks:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            yield str(block["text"])
        elif kind in ("tool_use", "tool_result"):
            yield f"[{str(kind).replace('_', ' ')}: {block.get('name') or 'unnamed'}]"


def _attachments(node: Mapping[str, Any]) -> Iterator[str]:
    for group in ("attachments", "files"):
        for each in node.get(group) or ():
            if isinstance(each, dict):
                label = f"[attachment: {each.get('file_name') or 'unnamed'}]"
                content = each.get("extracted_content")
                yield f"{label}\n{content}" if isinstance(content, str) and content.strip() else label
