"""Which adapter computes: read from the store at each turn border, so that going live is one insert there.

The host is told nothing: whoever promotes, rolls back or chooses an adapter writes a row, and the next reply
is on it. Reading it costs 0.1 ms. A file that does not load, or is not the file its name says, takes itself out
of service with its reason, and what served before it serves on; a reply never fails for an adapter's sake.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from app.host.jobs import Serve
from app.host.runtime import Runtime
from store import adapters
from store.db import Store
from store.errors import AdapterFileError

log = logging.getLogger("mynah.host")


@dataclass(frozen=True)
class Version:
    """What a reply was computed with. ``adapter`` None is the base alone; ``number`` is what people see (v3)."""

    adapter: str | None = None
    number: int | None = None
    scale: float = 0.0


BASE = Version()


class Versions:
    """The attached version of one runtime, brought up to date when asked. For the engine's thread."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._sound: set[str] = set()
        self.current = BASE

    def attach(self, serve: Serve, adapter: str | None = None) -> Version:
        """Attach what a reply should be computed with; returns it. ``adapter`` is the one that is named.

        Raises:
            AdapterFileError: the named adapter cannot be loaded; nothing serves in its place.
        """
        if serve is Serve.BASE:
            self._switch(BASE, None)
            return BASE
        if serve is Serve.NAMED:
            assert adapter is not None
            named = Version(adapter, adapters.get(self._store, adapter).version, 1.0)
            self._switch(named, self._file(named))
            return named
        serving = adapters.active(self._store, self._runtime.info.base_hash)
        while serving.adapter is not None and serving.scale > 0.0:
            wanted = Version(serving.adapter.id, serving.adapter.version, serving.scale)
            try:
                self._switch(wanted, self._file(wanted))
            except AdapterFileError as error:
                log.warning(
                    "adapter %s (v%s) is taken out of service: %s", wanted.adapter, wanted.number, error
                )
                serving = adapters.withdraw(self._store, serving.adapter.id, str(error))
            else:
                return wanted
        self._switch(BASE, None)
        return BASE

    def outdated(self) -> bool:
        """Whether something else than the attached version should serve now."""
        serving = adapters.active(self._store, self._runtime.info.base_hash)
        chosen = serving.adapter.id if serving.adapter is not None and serving.scale > 0.0 else None
        return (chosen, serving.scale if chosen else 0.0) != (self.current.adapter, self.current.scale)

    def _switch(self, version: Version, file: Path | None) -> None:
        if version != self.current:
            self._runtime.attach(file, version.scale)
            self.current = version

    def _file(self, version: Version) -> Path:
        assert version.adapter is not None
        path = adapters.files(self._store, version.adapter) / adapters.GGUF_NAME
        if version.adapter not in self._sound:
            _check_content(path, version.adapter)
            self._sound.add(version.adapter)
        return path


def _check_content(path: Path, adapter: str) -> None:
    """Files are named by their content, so a damaged one is found before llama.cpp computes with it."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise AdapterFileError(f"its file cannot be read ({error.strerror})") from error
    if not digest.startswith(adapter):
        raise AdapterFileError("its file is damaged: the content is not what its name says")
