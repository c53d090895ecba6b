"""The F16 form: the same weights, the same metadata, made once, whole or not at all."""

from __future__ import annotations

import errno
import threading

import gguf
import numpy as np
import pytest

from app.model import catalogue, convert, gguf_info
from store.errors import DiskFull, ModelFileError
from tests import tiny_gguf


@pytest.fixture
def model(home, tmp_path, monkeypatch):
    monkeypatch.setenv("MYNAH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    tiny_gguf.write_base(path)
    return catalogue.resolve(home, str(path))


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F32"])
def test_matrices_are_the_dequantised_weights_in_f16_and_vectors_stay_f32(tmp_path, kind):
    held = tiny_gguf.write_base(tmp_path / "source.gguf", quantised=gguf.GGMLQuantizationType[kind])
    convert.write_f16(tmp_path / "source.gguf", tmp_path / "f16.gguf", lambda _: None)
    made = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "f16.gguf").tensors}
    assert set(made) == set(held)
    for name, values in held.items():
        expected = values.astype(np.float16) if values.ndim > 1 else values
        assert made[name].data.dtype == expected.dtype
        np.testing.assert_array_equal(made[name].data, expected)


def test_metadata_is_copied_and_the_file_type_told(model):
    served = convert.served_form(model)
    before, after = gguf.GGUFReader(model.path).fields, gguf.GGUFReader(served).fields
    for key in before:
        if not key.startswith("GGUF.") and key != "general.file_type":
            assert after[key].contents() == before[key].contents()
            assert after[key].types == before[key].types
    assert after["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_F16


def test_it_is_made_once_and_progress_ends_at_one(model):
    shares: list[float] = []
    served = convert.served_form(model, shares.append)
    first = served.stat()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert convert.served_form(model).stat() == first


def test_two_at_once_make_one(model):
    made = []
    threads = [threading.Thread(target=lambda: made.append(convert.served_form(model))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [model.served_path] * 4
    assert {path.name for path in model.derived.iterdir()} == {"f16.gguf", "lock"}


def test_a_full_disk_leaves_no_part_of_it(model, monkeypatch):
    written = gguf.GGUFWriter.write_tensor_data

    def full(self, tensor, *rest):
        written(self, tensor, *rest)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", full)
    with pytest.raises(DiskFull, match="the disk is full"):
        convert.served_form(model)
    assert {path.name for path in model.derived.iterdir()} == {"lock"}
    monkeypatch.undo()
    monkeypatch.setenv("MYNAH_CACHE", str(model.derived.parent.parent))
    gguf_info.read(convert.served_form(model))


def test_a_large_or_unquantised_model_is_served_as_it_is(home, tmp_path, monkeypatch, model):
    monkeypatch.setattr(catalogue, "F16_MAX_PARAMETERS", 100)
    assert catalogue.resolve(home, str(model.path)).served_as_it_is
    monkeypatch.undo()
    again = convert.served_form(model)
    assert catalogue.resolve(home, str(again)).served_path == again


def test_a_broken_source_is_a_model_file_error(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"nothing")
    with pytest.raises(ModelFileError):
        convert.write_f16(tmp_path / "x.gguf", tmp_path / "y.gguf", lambda _: None)
