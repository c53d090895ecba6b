"""The labelled corpus: large and broad enough to mean something, and found well enough to be worth having."""

from __future__ import annotations

import pytest

from store.redaction import Kind, Redactor
from tests.redaction_corpus import WORDS, Score, score, sentences


@pytest.fixture(scope="module")
def scored() -> Score:
    return score(Redactor(WORDS), sentences())


def test_the_corpus_is_broad() -> None:
    corpus = sentences()
    assert len(corpus) >= 300
    assert {sentence.language for sentence in corpus} == {"en", "ko"}
    assert sum(not sentence.labels for sentence in corpus) >= 300
    assert len({sentence.case for sentence in corpus}) >= 14
    for kind in Kind:
        labelled = [sentence for sentence in corpus if kind in {label.kind for label in sentence.labels}]
        assert len(labelled) >= 50
        assert {sentence.language for sentence in labelled} == {"en", "ko"}


@pytest.mark.parametrize("kind", Kind)
def test_precision_and_recall(scored: Score, kind: Kind) -> None:
    assert scored.counts[kind].precision >= 0.95
    assert scored.counts[kind].recall >= 0.95


def test_redacted_sentences_stay_redacted() -> None:
    redactor = Redactor(WORDS)
    for sentence in sentences():
        once = redactor.redact(sentence.text).text
        assert redactor.redact(once).text == once
