"""What was computed of the last conversations, kept on the disk from one host to the next, where the owner wants it.

So that yesterday's conversation opens warm: 23 kB a token for SmolLM2, read back in a tenth of the time that computing
takes. A file is keyed by everything that its numbers depend on and deleted when it has been read; one that does not
fit, or is damaged, is only deleted. What was incognito, or has been forgotten since, is never written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from array import array
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.host.benches import Bench, Benches, Version
from app.host.jobs import Serve
from app.host.machine import machine_of
from app.host.prefix import Slot
from app.host.runtime import Runtime
from app.host.versions import Versions
from store import settings, warm
from store.db import Store
from store.errors import MynahError
from store.home import PRIVATE_DIR, PRIVATE_FILE

log = logging.getLogger("mynah.host")

MOST_CONVERSATIONS = 2


def save(store: Store, runtime: Runtime, benches: Benches, versions: Versions) -> None:
    """Write the conversations used last on the version that serves; without the setting, wipe what there is."""
    warm.wipe(store.home)
    if not settings.get(store, settings.WARM_ON_DISK):
        return
    version = versions.serving()
    bench = benches.of(version)
    if bench is None:
        return
    kept = [
        slot
        for slot in bench.cache.recent(version)
        if slot.tokens and warm.may_keep(store, slot.owner, _moment(slot.since))
    ]
    directory = warm.directory(store.home)
    for number, slot in enumerate(kept[:MOST_CONVERSATIONS]):
        directory.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        _write(directory / f"{number}.warm", _header(runtime, version, slot), slot, bench)


def load(store: Store, runtime: Runtime, versions: Versions) -> None:
    """Take in what `save` wrote, if it still fits, and delete it."""
    files = sorted(warm.directory(store.home).glob("*.warm"), reverse=True)
    try:
        if files and settings.get(store, settings.WARM_ON_DISK):
            bench = versions.bench(Serve.ACTIVE)
            # The latest used comes last, so that it counts as the latest again.
            for file, slot in zip(files, bench.cache.slots, strict=False):
                _attempt(store, runtime, bench, slot, file)
    finally:
        warm.wipe(store.home)


def _attempt(store: Store, runtime: Runtime, bench: Bench, slot: Slot, file: Path) -> None:
    try:
        line, _, rest = file.read_bytes().partition(b"\n")
        header: dict[str, Any] = json.loads(line)
        held = Slot(slot.sequence, owner=header["owner"], since=float(header["since"]))
        held.exact = int(header["exact"])
        count = int(header["tokens"])
        if header != {
            **_header(runtime, bench.version, held),
            "tokens": count,
            "digest": hashlib.sha256(rest).hexdigest(),
        }:
            return
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s is not what was saved: %s", file, error)
        return
    if not warm.may_keep(store, held.owner, _moment(held.since)):
        return
    tokens = array("i")
    size = count * tokens.itemsize
    tokens.frombytes(rest[:size])
    try:
        bench.lane.restore(slot.sequence, rest[size:])
    except MynahError as error:
        log.warning("a saved conversation cannot be used: %s", error)
        return
    bench.cache.fill(slot, bench.version, tokens.tolist(), held)


def _header(runtime: Runtime, version: Version, slot: Slot) -> dict[str, Any]:
    info = runtime.info
    return {
        "machine": machine_of(info),
        "base": info.base_hash,
        "served": info.served,
        "template": info.template,
        "window": info.context,
        "chunk": runtime.chunk,
        "adapter": version.adapter,
        "scale": version.scale,
        "owner": slot.owner,
        "since": slot.since,
        "exact": slot.exact,
    }


def _write(path: Path, header: dict[str, Any], slot: Slot, bench: Bench) -> None:
    body = array("i", slot.tokens).tobytes() + bench.lane.save(slot.sequence)
    header = {**header, "tokens": len(slot.tokens), "digest": hashlib.sha256(body).hexdigest()}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.write(body)


def _moment(seconds: float) -> str:
    """Wall-clock seconds as the store writes times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
