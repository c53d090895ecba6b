"""The weights that are trained are the weights that are served, for the base and for a trained adapter."""

from __future__ import annotations

import pytest

from app.model import catalogue
from store.home import Home

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    from tests.benchmarks import parity

    model = catalogue.resolve(Home.default(), None)
    return parity.measure(model, steps=6, scratch=tmp_path_factory.mktemp("parity"))


def test_the_base_agrees_on_both_sides(report):
    assert report.base.positions >= 200
    assert report.base_agrees, report.base


def test_a_trained_adapter_agrees_as_well_as_the_base(report):
    assert report.adapter_agrees(report.adapter), (report.adapter, report.base)


def test_a_wrong_head_permutation_is_noticed(report):
    assert not report.adapter_agrees(report.wrong_order), report.wrong_order
