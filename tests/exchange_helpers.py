"""Stores for exchange tests: made from one migrated database, because a property needs two for each example."""

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
