"""What choosing a model needs of the service: what is here, what can be fetched, and what of it suits this machine.

Another model is another mind: adapters fit one set of weights, so each model keeps its own versions, and going back to
one finds them as they were. What is chosen is served from the next start of the host on, which `change_model` sees to.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.host.client import running_host, stop_host
from app.model import catalogue, fitting, gguf_info, known, pulling
from app.model.catalogue import ModelFile
from app.model.fitting import Advice as Advice
from app.model.fitting import Fit as Fit
from app.model.fitting import Machine as Machine
from app.model.memory import CacheShape
from app.model.pulling import Phase as Phase
from app.model.pulling import Progress as Progress
from store import options, settings
from store.db import Store
from store.errors import ModelFileError
from store.home import Home


class Place(StrEnum):
    """Where a model is."""

    IN_USE = "in use"
    HERE = "here"
    BEGUN = "partly fetched"
    AFAR = "to fetch"


@dataclass(frozen=True)
class Choice:
    """A model that can be chosen. ``pick`` is what `change_model` or `pull` take; ``size`` is the file's, in bytes.

    ``path`` and ``base`` are None for one that is not here; ``versions`` were learned on it.
    """

    pick: str
    name: str
    place: Place
    size: int
    parameters: int
    advice: Advice
    what: str
    path: Path | None = None
    base: str | None = None
    versions: int = 0


@dataclass(frozen=True)
class Running:
    """How the model is run: tokens of a conversation that it sees, and layers on a GPU, None for all that fit."""

    context: int
    gpu_layers: int | None


class Models(ABC):
    """The part of `app.service.Service` that looks after models."""

    home: Home

    @property
    @abstractmethod
    def store(self) -> Store:
        """The calling thread's connection."""

    @abstractmethod
    def base_hash(self) -> str:
        """The identity of the model in use."""

    @abstractmethod
    def models(self) -> list[ModelFile]:
        """The models that are known here."""

    @abstractmethod
    def use_model(self, name: str) -> ModelFile:
        """Choose another model."""

    def machine(self) -> Machine:
        """What this machine has."""
        return fitting.this_machine()

    def choices(self, machine: Machine) -> list[Choice]:
        """Every model that is here, then those that can be fetched by name, each with what it takes on a machine."""
        in_use = self.model_in_use()
        window = int(settings.get(self.store, settings.CONTEXT))
        here = [self._here(model, in_use, window, machine) for model in self.models()]
        bases = {choice.base for choice in here}
        return here + [self._afar(each, window, machine) for each in known.KNOWN if each.sha256 not in bases]

    def model_in_use(self) -> str | None:
        """The base in use; None where its file is gone, which must not keep the owner from choosing another."""
        try:
            return self.base_hash()
        except ModelFileError:
            return None

    def pull(
        self, typed: str, told: Callable[[Progress], None], stop: threading.Event, sha256: str | None = None
    ) -> ModelFile:
        """Fetch a model by name or address, and return it; nothing is changed about which one answers.

        Raises:
            NotFound, UsageError: nothing is called that, or the address is not safe.
            PullBroken: it did not come whole; what came is kept, and the same call goes on.
            ModelFileError: it is not what it must be.
            Interrupted: ``stop`` was set; what came is kept.
        """
        source = known.source(typed, sha256)
        target = catalogue.pulled(self.home) / source.file
        pulling.pull(pulling.Wanted(source.url, target, source.sha256, source.size), told, stop)
        return catalogue.resolve(self.home, str(target))

    def change_model(self, name: str) -> ModelFile:
        """Let another model answer: a host that serves another one is ended, and the next question starts one."""
        before = self.model_in_use()
        chosen = self.use_model(name)
        if chosen.base_hash != before and running_host(self.home) is not None:
            stop_host(self.home)
        return chosen

    def running(self) -> Running:
        """How models are run."""
        layers = settings.get(self.store, settings.GPU_LAYERS)
        return Running(
            int(settings.get(self.store, settings.CONTEXT)), None if layers is None else int(layers)
        )

    def run_with(self, key: str, typed: str) -> Running:
        """Change the context or the GPU's share as `mynah config` does, nothing typed being the default.

        A host that runs with another value is ended, and the next question starts one.

        Raises:
            UsageError: the value does not fit.
        """
        before = self.running()
        if typed.strip():
            options.change(self.store, key, typed.strip())
        else:
            options.reset(self.store, key)
        after = self.running()
        if after != before and running_host(self.home) is not None:
            stop_host(self.home)
        return after

    def _here(self, model: ModelFile, in_use: str | None, window: int, machine: Machine) -> Choice:
        info = gguf_info.read(model.path)
        size = model.path.stat().st_size
        trained = info.number(f"{info.architecture}.context_length")
        place = Place.IN_USE if model.base_hash == in_use else Place.HERE
        row = self.store.conn.execute(
            "SELECT count(*) AS versions FROM adapters WHERE base_hash = ?", (model.base_hash,)
        ).fetchone()
        return Choice(
            pick="default" if model.comes_along else str(model.path),
            name=model.name,
            place=place,
            size=size,
            parameters=model.parameters,
            advice=_advice(machine, size, model.parameters, fitting.shape_of(info), window, trained),
            what="comes with Mynah" if model.comes_along else model.path.name,
            path=model.path,
            base=model.base_hash,
            versions=int(row["versions"]),
        )

    def _afar(self, each: known.Known, window: int, machine: Machine) -> Choice:
        begun = pulling.Wanted(each.url, catalogue.pulled(self.home) / f"{each.name}.gguf").part.exists()
        return Choice(
            pick=each.name,
            name=each.name,
            place=Place.BEGUN if begun else Place.AFAR,
            size=each.size,
            parameters=each.parameters,
            advice=_advice(machine, each.size, each.parameters, each.shape, window, each.longest),
            what=f"{each.what} · {each.licence}",
        )


def _advice(
    machine: Machine, size: int, parameters: int, shape: CacheShape, window: int, trained: int
) -> Advice:
    window = min(window, trained) if trained else window
    return fitting.advise(machine, fitting.needs(size, parameters, shape, window), shape, trained)
