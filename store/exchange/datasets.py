"""Lays conversations out as trainers and other programs read them: lines of turns, without branches.

None of these formats has a place for a tree, so each takes what it is for: whole chats take the branch the owner saw
last; supervised rows end before a reply that was turned down, and after one that was corrected, because what follows
answers a text that is not there; thumbs and corrections are taken from every branch. The three for training leave
out conversations that may not be trained on, and teach no reply that a program only claims was given: a thumb on one
is no word on a model's reply, as in `store.units`. The owner's correction of one is the owner's.

Shapes: TRL's "dataset formats" page (conversational; prompt, completion and label; prompt, chosen and rejected),
LLaMA-Factory's data/README.md (sharegpt), OpenAI's fine-tuning guide (messages). In LLaMA-Factory's
`dataset_info.json` an export reads: {"mynah": {"file_name": "…", "formatting": "sharegpt", "columns": {"messages":
"conversations", "system": "system"}}}.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from store.exchange.records import Node, Record
from store.types import Role

Turn = dict[str, str]

_SPEAKERS = {Role.USER: "human", Role.ASSISTANT: "gpt"}


def openai(record: Record) -> Iterator[dict[str, Any]]:
    """``{"messages": [{"role", "content"}, …]}``, the visible branch up to its last reply."""
    turns = _whole(record.visible())
    if turns:
        yield {"messages": turns}


def sharegpt(record: Record) -> Iterator[dict[str, Any]]:
    """``{"conversations": [{"from", "value"}, …], "system"?}``; human and gpt take turns, as its readers demand."""
    nodes = _answered(record.visible())
    system = "\n\n".join(node.text for node in nodes if node.role is Role.SYSTEM)
    turns: list[Turn] = []
    for node in nodes:
        if node.role is Role.SYSTEM or (not turns and node.role is Role.ASSISTANT):
            continue
        if turns and turns[-1]["from"] == _SPEAKERS[node.role]:
            turns[-1]["value"] += f"\n\n{node.text}"
        else:
            turns.append({"from": _SPEAKERS[node.role], "value": node.text})
    if turns:
        yield {"conversations": turns, **({"system": system} if system else {})}


def trl_sft(record: Record) -> Iterator[dict[str, Any]]:
    """``{"messages": …}``: the visible branch as far as the owner agreed with it, corrections in place."""
    accepted: list[Turn] = []
    for node in record.visible():
        if node.role is Role.ASSISTANT:
            if node.correction is not None:
                accepted.append(_turn(node, node.correction))
                break
            if node.claimed or not node.delivered or node.thumb < 0:
                break
        if node.role is not Role.TOOL and node.text.strip():
            accepted.append(_turn(node, node.text))
    while accepted and accepted[-1]["role"] != Role.ASSISTANT:
        accepted.pop()
    if accepted:
        yield {"messages": accepted}


def trl_kto(record: Record) -> Iterator[dict[str, Any]]:
    """``{"prompt": […], "completion": […], "label": bool}``, one for each reply with a thumb."""
    for node in record.nodes:
        prompt = _prompt(record, node)
        if prompt and node.thumb and node.text.strip() and not node.claimed:
            yield {"prompt": prompt, "completion": [_turn(node, node.text)], "label": node.thumb > 0}


def trl_dpo(record: Record) -> Iterator[dict[str, Any]]:
    """``{"prompt": […], "chosen": […], "rejected": […]}``, one for each correction; chosen is the owner's text."""
    for node in record.nodes:
        prompt = _prompt(record, node)
        if prompt and node.correction is not None and node.text.strip():
            yield {
                "prompt": prompt,
                "chosen": [_turn(node, node.correction)],
                "rejected": [_turn(node, node.text)],
            }


def _prompt(record: Record, node: Node) -> list[Turn]:
    """What a reply answered; empty for what is not a reply to a question."""
    if node.role is not Role.ASSISTANT or node.parent is None:
        return []
    before = _spoken(record.path(node)[:-1])
    return [_turn(each, each.text) for each in before] if before and before[-1].role is Role.USER else []


def _whole(nodes: Sequence[Node]) -> list[Turn]:
    return [_turn(node, node.text) for node in _answered(nodes)]


def _answered(nodes: Sequence[Node]) -> list[Node]:
    """What was said, up to the last reply; nothing where there is none."""
    spoken = _spoken(nodes)
    while spoken and spoken[-1].role is not Role.ASSISTANT:
        spoken.pop()
    return spoken


def _spoken(nodes: Sequence[Node]) -> list[Node]:
    """Without empty texts (a reply that never came), and without tools' answers, which need calls we do not record."""
    return [node for node in nodes if node.role is not Role.TOOL and node.text.strip()]


def _turn(node: Node, text: str) -> Turn:
    return {"role": str(node.role), "content": text}
