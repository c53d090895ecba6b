"""The guards on what a reply calls: arguments as a schema says, and paths that stay inside one directory.

A call is what stands between ``<tool_call>`` tags, the form in which replies hold them here. A path is judged by
where it leads, not by how it is spelt: "..", a home's tilde and a link are followed before it is compared.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.harness import schemas
from app.harness.template import Parameter, Parameters, Template, words

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_PATHLIKE = re.compile(r"^(?:~|\.{1,2}(?:/|$)|/)|/|\\|\.\w{1,8}$")
_NAMED = ("path", "file", "filename", "dir", "directory", "folder", "cwd", "target", "source", "destination")


def calls(reply: str) -> Iterator[tuple[re.Match[str], dict[str, Any]]]:
    """The calls in a reply, with where they stand."""
    for found in _CALL.finditer(reply):
        try:
            call = json.loads(found[1])
        except (ValueError, RecursionError):
            continue
        if isinstance(call, dict) and isinstance(call.get("arguments"), dict):
            yield found, call


def _arguments(reply: str, wanted: Parameters) -> str | None:
    for _, call in calls(reply):
        if call.get("name") == wanted["tool"]:
            wrong = schemas.violation(call["arguments"], wanted["schema"], "the arguments")
            if wrong is not None:
                return f"the call of {wanted['tool']} is not as wanted: {wrong}"
    return None


def _coerced(reply: str, wanted: Parameters) -> str | None:
    made, last = [], 0
    for found, call in calls(reply):
        if call.get("name") != wanted["tool"]:
            continue
        right = {**call, "arguments": schemas.coerced(call["arguments"], wanted["schema"])}
        made += [reply[last : found.start(1)], json.dumps(right, ensure_ascii=False)]
        last = found.end(1)
    return "".join((*made, reply[last:]))


def _inside(reply: str, wanted: Parameters) -> str | None:
    root = Path(os.path.realpath(wanted["root"]))
    for _, call in calls(reply):
        for path in _paths(call["arguments"]):
            if not _within(root, path):
                return f"the path {path!r} leads out of {wanted['root']}"
    return None


def _paths(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, str(key).lower())
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, name)
    elif isinstance(value, str) and "\n" not in value and "://" not in value:
        named = any(part in name for part in _NAMED)
        if named or (" " not in value and _PATHLIKE.search(value)):
            yield value


def _within(root: Path, path: str) -> bool:
    if "\x00" in path:
        return False
    try:
        meant = Path(path.replace("\\", "/")).expanduser()
    except RuntimeError:
        return False
    return Path(os.path.realpath(root / meant)).is_relative_to(root)


def _schema(value: object) -> object:
    if (wrong := schemas.unusable(value)) is not None:
        raise ValueError(wrong)
    return value


def _directory(value: Any) -> str:
    root = Path(words(value)).expanduser()
    if not root.is_absolute():
        raise ValueError("it must be the whole path of a directory")
    return str(root)


TEMPLATES = (
    Template(
        "arguments",
        "calls of a tool with arguments as a schema says",
        {"tool": Parameter("a tool's name", words), "schema": Parameter("a JSON schema", _schema)},
        _arguments,
        _coerced,
    ),
    Template(
        "path_inside",
        "calls that reach no path outside a directory",
        {"root": Parameter("the whole path of a directory", _directory)},
        _inside,
    ),
)
