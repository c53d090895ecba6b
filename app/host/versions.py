"""Which adapter computes: read from the store at each turn border, so that going live is one insert there.

The host is told nothing: whoever promotes, rolls back or chooses an adapter writes a row, and the next reply
is on it. Reading it costs 0.1 ms. A file that does not load, or is not the file its name says, takes itself out
of service with its reason, and what served before it serves on; a reply never fails for an adapter's sake.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from app.host.benches import BASE, Bench, Benches, Version
from app.host.jobs import AtStrength, Exactly, Serve, Weights
from store import adapters, settings
from store.db import Store
from store.errors import AdapterFileError

log = logging.getLogger("mynah.host")


class Versions:
    """What should serve, as the store says. For the engine's thread."""

    def __init__(self, store: Store, base_hash: str, benches: Benches) -> None:
        self._store = store
        self._base_hash = base_hash
        self._benches = benches
        self._sound: set[str] = set()

    def bench(self, serve: Weights) -> Bench:
        """The bench that a reply should be made on, its version attached.

        Raises:
            AdapterFileError: the adapter that was named cannot be used; nothing serves in its place.
        """
        if serve is Serve.BASE or isinstance(serve, Exactly):
            return self._named(self.wanted(serve))
        serving = adapters.active(self._store, self._base_hash)
        while (wanted := self._version_of(serving, serve)) != BASE:
            assert serving.adapter is not None
            try:
                return self._benches.take(wanted, self.file(wanted))
            except AdapterFileError as error:
                log.warning(
                    "adapter %s (v%s) is taken out of service: %s", wanted.adapter, wanted.number, error
                )
                serving = adapters.withdraw(self._store, serving.adapter.id, str(error))
        return self._benches.take(BASE, None)

    def _named(self, version: Version) -> Bench:
        try:
            return self._benches.take(version, self.file(version))
        except AdapterFileError as error:
            raise AdapterFileError(
                f"adapter {version.adapter} (v{version.number}) cannot be used: {error}"
            ) from error

    def wanted(self, serve: Weights) -> Version:
        """What a reply asks for: what serves now, the base, or what was named, whatever serves."""
        if serve is Serve.ACTIVE or isinstance(serve, AtStrength):
            return self._version_of(adapters.active(self._store, self._base_hash), serve)
        if not isinstance(serve, Exactly) or serve.adapter is None or serve.scale <= 0.0:
            return BASE
        found = adapters.get(self._store, serve.adapter)
        return Version(found.id, found.version, serve.scale)

    def serving(self) -> Version:
        """What should serve now."""
        return self.wanted(Serve.ACTIVE)

    def _version_of(self, serving: adapters.Serving, serve: Weights) -> Version:
        if serving.adapter is None:
            return BASE
        # To three digits: the strength is a setting that people choose, and equal ones must make one version.
        if isinstance(serve, AtStrength):
            strength = serve.strength
        else:
            strength = float(settings.get(self._store, settings.ADAPTER_STRENGTH))
        scale = round(serving.scale * min(1.0, strength), 3)
        return Version(serving.adapter.id, serving.adapter.version, scale) if scale > 0.0 else BASE

    def file(self, version: Version) -> Path | None:
        """An adapter's file, its content checked once; None for the base.

        Raises:
            AdapterFileError: it cannot be read, or is damaged.
        """
        if version.adapter is None:
            return None
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
