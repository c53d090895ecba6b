"""Writes conversations as ATIF v1.8 trajectories (Agent Trajectory Interchange Format): the format that carries all.

A trajectory is a line of steps, a conversation a tree, so each branch is a trajectory of its own, one per leaf, with
the conversation's id as `session_id`. Steps that an earlier branch has shown already are marked as copied context,
which consumers must keep out of training; so no turn teaches twice. ATIF has no field for rewards, consent or
provenance: they are under the key "mynah" of `extra`, and with them an import makes the same tree again.

Log-probabilities are natural logarithms at temperature 1, one per completion token.
Fields: the ATIF v1.8 specification of harbor-framework/harbor (rfcs/0001-trajectory-format.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from store.exchange.records import Node, Record
from store.types import Role

SCHEMA = "ATIF-v1.8"
NAMESPACE = "mynah"

SOURCES = {Role.USER: "user", Role.SYSTEM: "system", Role.ASSISTANT: "agent", Role.TOOL: "agent"}


def trajectories(record: Record, version: str, models: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """One trajectory per branch. ``version`` is the program's, ``models`` names base models by their hash."""
    shown: set[str] = set()
    for leaf in record.leaves():
        path = record.path(leaf)
        steps = [
            _step(number, node, models, copied=node.id in shown) for number, node in enumerate(path, start=1)
        ]
        shown |= {node.id for node in path}
        yield {
            "schema_version": SCHEMA,
            "session_id": record.id,
            "trajectory_id": f"{record.id}-{leaf.id}",
            "agent": {"name": NAMESPACE, "version": version},
            "steps": steps,
            "extra": {NAMESPACE: _conversation(record)},
        }


def _conversation(record: Record) -> dict[str, Any]:
    return {
        "title": record.title,
        "created": record.created,
        "updated": record.updated,
        "client": record.client,
        "head": record.head,
        "consent": record.consent,
        "redaction": record.redaction,
    }


def _step(number: int, node: Node, models: Mapping[str, str], *, copied: bool) -> dict[str, Any]:
    step: dict[str, Any] = {
        "step_id": number,
        "timestamp": node.created,
        "source": SOURCES[node.role],
        "message": node.text,
        "extra": {NAMESPACE: _provenance(node)},
    }
    if node.role is Role.TOOL:
        # A tool's answer without a model call: what ATIF calls a deterministic dispatch.
        step |= {"message": "", "llm_call_count": 0, "observation": {"results": [{"content": node.text}]}}
    elif node.role is Role.ASSISTANT:
        step |= _model_call(node, models)
    if copied:
        step["is_copied_context"] = True
    return step


def _model_call(node: Node, models: Mapping[str, str]) -> dict[str, Any]:
    base = node.facts.get("base_hash")
    name = node.model or (None if base is None else models.get(base, f"sha256:{base}"))
    usage = node.facts.get("usage", {})
    metrics = {
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        "prompt_token_ids": node.prompt_tokens or None,
        "completion_token_ids": node.completion_tokens or None,
        "logprobs": node.logprobs or None,
    }
    known = {key: value for key, value in metrics.items() if value is not None}
    call: dict[str, Any] = {"metrics": known} if known else {}
    return call if name is None else {"model_name": name, **call}


def _provenance(node: Node) -> dict[str, Any]:
    told: dict[str, Any] = {
        "message": node.id,
        "parent": node.parent,
        "index": node.index,
        "role": node.role,
        "status": node.status,
        **node.facts,
    }
    if node.model is not None:
        told["model"] = node.model
    if node.replay is not None:
        told["replay"] = node.replay
    if node.steps:
        told["steps"] = list(node.steps)
    if node.signals:
        told["reward"] = {"value": node.reward, "signals": list(node.signals)}
    return told
