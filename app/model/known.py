"""Models that can be fetched by name, each with the hash that its file must have.

Only files whose SHA-256 was checked by loading and measuring them stand here: a name that leads to whatever a server
holds today would be no name. Anything else is fetched by its address. The hub is huggingface.co, or what
``HF_ENDPOINT`` names, as with Hugging Face's own tools.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from app.model.memory import CacheShape
from store.errors import NotFound, UsageError

_HUB = "https://huggingface.co"
_ON_THE_HUB = re.compile(r"([\w.-]+/[\w.-]+)/([\w./-]+\.gguf)")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Known:
    """A model by name. ``size`` is in bytes; ``shape`` and ``parameters`` say what it takes to run and to teach."""

    name: str
    place: str
    sha256: str
    size: int
    parameters: int
    shape: CacheShape
    longest: int
    licence: str
    what: str

    @property
    def url(self) -> str:
        """Where it is."""
        return hub_url(self.place)


KNOWN: tuple[Known, ...] = (
    Known(
        "qwen2.5-coder-0.5b-instruct",
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491_400_064,
        630_167_424,
        CacheShape(layers=24, key_width=128, value_width=128),
        32_768,
        "Apache-2.0",
        "follows instructions, terse; learns in about three times the default model's time",
    ),
    Known(
        "qwen2.5-coder-1.5b-instruct",
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
        1_777_088_000,
        CacheShape(layers=28, key_width=256, value_width=256),
        32_768,
        "Apache-2.0",
        "answers most things well; slow without a GPU",
    ),
)


def hub_url(place: str) -> str:
    """The address of ``OWNER/REPOSITORY/FILE`` on the hub."""
    found = _ON_THE_HUB.fullmatch(place)
    if found is None:
        raise UsageError(f"{place!r} is no file on the hub: OWNER/REPOSITORY/FILE.gguf")
    return f"{os.environ.get('HF_ENDPOINT', _HUB).rstrip('/')}/{found[1]}/resolve/main/{found[2]}"


@dataclass(frozen=True)
class Source:
    """Where a model comes from, what its file will be called, and what it must be, as far as that is known."""

    url: str
    file: str
    sha256: str | None = None
    size: int | None = None


def source(typed: str, sha256: str | None = None) -> Source:
    """What was meant by a name, an address, or ``OWNER/REPOSITORY/FILE.gguf``.

    Raises:
        NotFound: no model is called that.
        UsageError: the address does not end in a file's name, or the hash is none.
    """
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise UsageError("a SHA-256 is 64 hexadecimal digits")
    for known in KNOWN:
        if typed.lower() == known.name:
            return Source(known.url, f"{known.name}.gguf", sha256 or known.sha256, known.size)
    if "://" not in typed and not _ON_THE_HUB.fullmatch(typed):
        names = ", ".join(known.name for known in KNOWN)
        raise NotFound(f"no model is called {typed!r}: {names}, an address, or OWNER/REPOSITORY/FILE.gguf")
    url = typed if "://" in typed else hub_url(typed)
    file = unquote(urlsplit(url).path.rpartition("/")[2])
    if not re.fullmatch(r"[\w][\w .+-]*\.gguf", file):
        raise UsageError(f"{url} does not end in the name of a .gguf file")
    return Source(url, file, sha256)
