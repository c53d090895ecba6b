"""What a model takes and how that suits a machine, held against what was measured."""

from __future__ import annotations

from pathlib import Path

import llama_cpp
import pytest

from app.model import fitting, gguf_info, known
from app.model.fitting import GIB, Fit, Gpu, Machine
from app.model.llama import LlamaModel
from app.model.memory import CacheShape
from app.model_words import advice_line, facts, machine_line, pull_line
from app.models import Advice, Choice, Phase, Place, Progress
from app.service import Service
from store import options, settings
from store.db import Store
from store.home import Home
from tests import tiny_gguf
from tests.cli_helpers import Mynah, runner

mynah = pytest.fixture(name="mynah")(runner)

SMALL, LARGE = known.KNOWN


def fit(memory: int, model: known.Known, window: int = 4096) -> Fit:
    needed = fitting.needs(model.size, model.parameters, model.shape, window)
    return fitting.advise(Machine(memory * GIB, 2), needed, model.shape, model.longest).fit


@pytest.mark.parametrize(
    ("memory", "model", "says"),
    [
        (24, LARGE, Fit.LEARNS),
        (12, LARGE, Fit.CHATS),
        (2, LARGE, Fit.NOT),
        (8, SMALL, Fit.LEARNS),
        (4, SMALL, Fit.CHATS),
    ],
)
def test_how_a_model_suits_a_machine(memory: int, model: known.Known, says: Fit) -> None:
    assert fit(memory, model) is says


@pytest.mark.parametrize(
    ("size", "parameters", "measured"),
    [(SMALL.size, SMALL.parameters, 1278), (LARGE.size, LARGE.parameters, 1765)],
)
def test_the_weights_are_no_less_than_what_was_measured_and_not_much_more(
    size: int, parameters: int, measured: int
) -> None:
    """Resident MiB after loading, less the 41 MiB that the library takes: F16 form, and quantised file."""
    computed = fitting.needs(size, parameters, SMALL.shape, 0).weights / 2**20
    assert 0.9 * measured <= computed <= 1.2 * measured


@pytest.mark.parametrize(("parameters", "measured"), [(134_515_008, 1.9), (630_167_424, 5.1)])
def test_what_learning_takes_is_near_what_was_measured(parameters: int, measured: float) -> None:
    assert fitting.needs(0, parameters, SMALL.shape, 0).teaching / GIB == pytest.approx(measured, rel=0.15)


def test_a_longer_window_takes_more_and_the_longest_that_fits_is_said() -> None:
    shape = CacheShape(layers=10, key_width=100, value_width=100)
    assert fitting.needs(1, 1, shape, 1000).cache == 3 * 1000 * 10 * 200 * 2
    machine, needed = Machine(2 * GIB, 2), fitting.needs(0, 0, shape, 1000)
    longest = fitting.advise(machine, needed, shape, 0).longest
    assert fitting.needs(0, 0, shape, longest).cache <= GIB < fitting.needs(0, 0, shape, longest + 1).cache
    assert fitting.advise(machine, needed, shape, 2048).longest == 2048
    assert fitting.advise(Machine(GIB, 1), needed, shape, 2048).longest == 0


def test_the_shape_is_read_from_the_header(tmp_path: Path) -> None:
    tiny_gguf.write_base(tmp_path / "tiny.gguf")
    info = gguf_info.read(tmp_path / "tiny.gguf")
    info.metadata["llama.embedding_length"] = tiny_gguf.WIDTH
    wide = tiny_gguf.KV_HEADS * tiny_gguf.HEAD_SIZE
    assert fitting.shape_of(info) == CacheShape(1, wide, wide)


def test_gpus_are_read_from_the_list_of_the_driver() -> None:
    assert fitting.gpus_in("NVIDIA H200, 143771\nodd line\n") == [Gpu("NVIDIA H200", 143771 * 2**20)]


def test_what_is_said() -> None:
    assert machine_line(Machine(8 * GIB, 1, (Gpu("G", 24 * GIB),))) == (
        "This machine: 8.0 GiB of memory, 1 core, G with 24 GiB"
    )
    needed = fitting.needs(LARGE.size, LARGE.parameters, LARGE.shape, 4096)
    choice = Choice("x", "x", Place.AFAR, LARGE.size, 1, Advice(needed, Fit.CHATS, 0), "")
    assert facts(choice) == ("to fetch", "1.1 GB", "2.1 GiB", "chats, too large to learn", "")
    assert "context" not in advice_line(choice)
    assert pull_line(Progress(Phase.FETCHING, 5, None)) == "0 MB so far"
    assert pull_line(Progress(Phase.FETCHING, 10**8, 10**9, 10**6)).endswith("10% of 1.0 GB, 15 min left")
    assert pull_line(Progress(Phase.CHECKING, 1, 2)).endswith("checking  50%")


@pytest.mark.parametrize(("key", "wrong"), [(settings.GPU_LAYERS, "-1"), (settings.THREADS, "0")])
def test_layers_and_threads_are_checked_and_kept(mynah: Mynah, store: Store, key: str, wrong: str) -> None:
    assert mynah("config", "set", key, "3").code == 0
    assert settings.get(store, key) == 3
    assert mynah("config", "set", key, wrong).code == 2
    assert options.reset(store, key).value is None


def test_the_layers_reach_llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(path: bytes, params: object) -> None:
        asked.append(params.n_gpu_layers)  # type: ignore[attr-defined]

    default = llama_cpp.llama_model_default_params().n_gpu_layers
    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", load)
    tiny_gguf.write_base(tmp_path / "tiny.gguf")
    for layers in (None, 7):
        with pytest.raises(Exception, match="cannot load"):
            LlamaModel.load(tmp_path / "tiny.gguf", gpu_layers=layers)
    assert asked == [default, 7]


def test_the_list_says_what_fits_here(mynah: Mynah, home: Home) -> None:
    ran = mynah("models", "list")
    assert ran.code == 0
    assert "This machine:" in ran.out
    assert SMALL.name in ran.out
    assert [choice.place for choice in Service(home).choices(Machine(GIB, 1))][1:] == [Place.AFAR, Place.AFAR]
