"""An adapter and its model as one file: the door between the command line, which loads no arrays, and the writer.

The adapter's manifest, not the present setting, says which weights it fits; those must be the model in use, because
no other one can be found by its hash.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.model import convert, merge
from app.service import Service
from store import adapters
from store.errors import AdapterFileError, UsageError


def export_merged(mynah: Service, adapter: str, target: Path, progress: Callable[[float], None]) -> Path:
    """Write the model in use with an adapter worked into it to a new file; returns its path.

    Raises:
        UsageError: the file exists, or the adapter is of another model.
        AdapterFileError: its files are gone or damaged.
    """
    found = adapters.get(mynah.store, adapter)
    if target.exists():
        raise UsageError(f"{target} exists already: choose a new file")
    model = mynah.model()
    if model.base_hash != found.base_hash:
        raise UsageError(f"adapter {found.id} was made for another model: `mynah models use` that one first")
    made = adapters.files(mynah.store, found.id) / adapters.GGUF_NAME
    if not made.exists():
        raise AdapterFileError(f"the files of adapter {found.id} are gone")
    served = convert.served_form(model)
    merge.write_merged(
        served,
        made,
        target,
        name=f"v{found.version} {found.id}",
        base_hash=found.base_hash,
        progress=progress,
    )
    return target
