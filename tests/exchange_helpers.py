"""Stores and other programs' files for exchange tests; stores from one migrated database, a property needs two each."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from store.db import Store
from store.exchange.export import Format, Request, Tally, lines
from store.exchange.records import UNREDACTED, Redaction
from store.home import Home

VERSION = "1.0"


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        home = Home(Path(scratch) / "home").open()
        with Store.open(home) as store:
            store.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return home.db.read_bytes()


@contextmanager
def fresh_store() -> Iterator[Store]:
    """An empty store in a home of its own."""
    mask = os.umask(0o077)
    root = Path(tempfile.mkdtemp())
    try:
        home = Home(root / "home").open()
        home.db.write_bytes(_migrated())
        with Store.open(home) as store:
            yield store
    finally:
        shutil.rmtree(root)
        os.umask(mask)


def exported(
    store: Store, form: Format, redaction: Redaction = UNREDACTED, conversation: str | None = None
) -> list[dict[str, Any]]:
    """An export, parsed."""
    request = Request(form, redaction, VERSION, conversation, {"b" * 64: "tiny"})
    return [json.loads(line) for line in lines(store, request, Tally())]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows as a file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def node(role: str | None, text: Any, parent: str | None, time: object = None, **more: Any) -> dict[str, Any]:
    """One node of a ChatGPT export; its children are left out on purpose."""
    message = {
        "author": {"role": role},
        "create_time": time,
        "content": {"content_type": "text", "parts": text if isinstance(text, list) else [text]},
        "metadata": {"model_slug": "gpt-x"},
        **more,
    }
    return {"message": None if role is None else message, "parent": parent, "children": []}


def chat(name: str, mapping: dict[str, Any] | None = None, current: str = "a1") -> dict[str, Any]:
    """One conversation of a ChatGPT export."""
    nodes = mapping or {
        "root": node(None, "", None),
        "q": node("user", f"question {name}", "root", 1_700_000_000.25),
        "a1": node("assistant", "first answer", "q", "2023-11-14T22:13:30Z"),
        "a2": node("assistant", "second answer", "q", None),
    }
    return {"conversation_id": name, "title": f"Chat {name}", "mapping": nodes, "current_node": current}
