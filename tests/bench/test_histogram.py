"""Histograms: percentiles within a bucket of the truth, whatever was merged or written."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.histogram import Histogram

TIMES = st.lists(st.integers(1, 10**10), min_size=1, max_size=200)


@given(TIMES, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_percentiles_are_within_a_bucket(times: list[int], share: float) -> None:
    exact = float(np.percentile(times, 100 * share, method="inverted_cdf"))
    assert Histogram(times).percentile(share) == pytest.approx(exact, rel=0.011)


@given(TIMES, TIMES)
def test_merged_is_counted_together(some: list[int], more: list[int]) -> None:
    merged = Histogram(some)
    merged.merge(Histogram(more))
    both = Histogram(some + more)
    assert merged.as_json() == both.as_json()
    assert merged.mean == pytest.approx(np.mean(some + more))


@given(TIMES)
def test_survives_being_written(times: list[int]) -> None:
    made = Histogram(times)
    read = Histogram.of_json(json.loads(json.dumps(made.as_json())))
    assert read.percentile(1.0) == made.percentile(1.0) == max(times)
    assert read.curve() == made.curve()


def test_the_curve_rises_to_all_calls() -> None:
    shares = [share for _, share in Histogram([5, 100, 100, 7000]).curve()]
    assert shares == [0.25, 0.75, 1.0]


def test_nothing_has_no_percentile() -> None:
    assert np.isnan(Histogram().percentile(0.5))
