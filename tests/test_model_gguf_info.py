"""Reading a GGUF header: the right numbers, and one clear line for every way in which a file can be wrong."""

from __future__ import annotations

import contextlib

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.model import gguf_info
from store.errors import ModelFileError
from tests import tiny_gguf


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tiny_gguf.write_base(path)
    return path


def test_metadata_and_tensors_are_those_of_the_package(file):
    ours, theirs = gguf_info.read(file), gguf.GGUFReader(file)
    assert {tensor.name for tensor in theirs.tensors} == set(ours.tensors)
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert (mine.kind, mine.offset, mine.nbytes) == (
            tensor.tensor_type,
            tensor.data_offset,
            tensor.n_bytes,
        )
    for key, value in ours.metadata.items():
        assert theirs.fields[key].contents() == value
    assert ours.text("tokenizer.chat_template") == "{{ messages }}"
    assert (ours.architecture, ours.name, ours.heads, ours.kv_heads) == ("llama", "Tiny", 4, 2)
    assert ours.parameters == sum(int(tensor.n_elements) for tensor in theirs.tensors)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a GGUF"),
        (b"GG", "not a GGUF"),
        (b"PK\x03\x04 a zip file", "not a GGUF"),
        (b"GGUF", "cut short"),
    ],
)
def test_a_foreign_file_is_named_as_such(tmp_path, content, says):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=says) as caught:
        gguf_info.read(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory(tmp_path):
    with pytest.raises(ModelFileError, match="there is no file"):
        gguf_info.read(tmp_path / "nowhere.gguf")
    with pytest.raises(ModelFileError, match="directory"):
        gguf_info.read(tmp_path)


def test_an_old_version_is_refused(tmp_path, file):
    path = tmp_path / "old.gguf"
    content = bytearray(file.read_bytes())
    content[4] = 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="version 1"):
        gguf_info.read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.floats(0.0, 0.999))
def test_a_file_cut_anywhere_is_refused(tmp_path, file, share):
    content = file.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelFileError):
        gguf_info.read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(st.integers(4, 1200), st.binary(min_size=1, max_size=9))
def test_damage_in_the_header_never_raises_anything_else(tmp_path, file, place, damage):
    content = bytearray(file.read_bytes())
    content[place : place + len(damage)] = damage
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    with contextlib.suppress(ModelFileError):
        gguf_info.read(path)
