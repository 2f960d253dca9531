"""A network of 40 inputs, 32 and 8 hidden units and three classes."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

import flour
import oven
from tests.oven.bench.contest import BLOCK, c_kernel, contest


@pytest.mark.bench
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_network(benchmark: Any) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(BLOCK, 40))
    target = np.digitize(data[:, :4].sum(axis=1), [-1, 1])
    model = MLPClassifier((32, 8), max_iter=20).fit(data[:500], target[:500])
    call = oven.bake(flour.from_sklearn(model)).entry()
    layers = zip(model.coefs_, model.intercepts_, strict=True)
    parameters = [np.ascontiguousarray(value) for value in chain.from_iterable(layers)]
    label, probabilities = np.empty(BLOCK, np.int64), np.empty((BLOCK, 3))
    c = c_kernel("network", BLOCK, data, *parameters, label, probabilities)
    c(None)
    ours = call(data)
    np.testing.assert_array_equal(ours[0], label)
    np.testing.assert_allclose(ours[1], probabilities, rtol=1e-9)
    verdict = contest(call, c, model, data)
    verdict.show(benchmark)
    benchmark(call, data)
    assert verdict.c_by_ours > 1 / 3
    assert verdict.row_p99 > 6
