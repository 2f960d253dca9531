"""The label needs no probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from oven.optimise.rewrite import trace
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "argmax_without_softmax"


def example() -> Flow:
    """A program the rule applies to."""
    return vector(4).softmax().arg_max()


def test_it_fires() -> None:
    # Scores that differ by less than an ulp of 1 are what the rule says it decides otherwise.
    assert_fires(example(), RULE, "ArgMax(x)", odd=[0.0, -0.0, 1.0, -1.0, 800.0, -1e6, 1e-9])


def test_it_declines_where_somebody_reads_the_probabilities() -> None:
    shares = vector(4).softmax()
    assert_declines(outputs(label=shares.arg_max(), probabilities=shares), RULE)
    assert_declines(outputs(label=shares.arg_max(), top=shares.max()), RULE)


def test_it_declines_a_sigmoid_because_it_saturates() -> None:
    flow = vector(2).sigmoid().arg_max()
    assert_declines(flow, RULE)
    rows = np.array([[40.0, 50.0]])
    assert flow.reference(rows)["output"] == 0
    assert vector(2).arg_max().reference(rows)["output"] == 1


def test_it_declines_the_smallest_because_it_underflows() -> None:
    flow = vector(3).softmax().arg_min()
    assert_declines(flow, RULE)
    rows = np.array([[-1000.0, -2000.0, 0.0]])
    assert flow.reference(rows)["output"] == 0
    assert vector(3).arg_min().reference(rows)["output"] == 1


def test_exact_keeps_the_softmax_because_of_near_ties() -> None:
    assert RULE not in trace(example(), exact=True).fired
    rows = np.array([[0.125, 0.125 + 2**-55, 0.0, 0.0]])
    assert example().reference(rows)["output"] == 0
    assert vector(4).arg_max().reference(rows)["output"] == 1
