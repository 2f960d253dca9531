"""Kernels read whole blocks: of a record's columns they are only given the ones that they mean."""

from __future__ import annotations

import numpy as np
import pytest

import flour
import oven
from flour.core.op import Array
from flour.core.types import Scalar
from flour.language.flow import Flow
from flour.ops.linear import Linear

pytestmark = pytest.mark.once

NAMES = "abcd"
DATA = {name: np.arange(1, 6, dtype=np.float32) * (k + 1) for k, name in enumerate(NAMES)}


def linear(x: Flow, outputs: int) -> Flow:
    """So many weighted sums of two columns."""
    weights = np.arange(1, 2 * outputs + 1, dtype=np.float32).reshape(outputs, 2)
    return Linear(Array.of(weights), Array.of(np.ones(outputs, np.float32)))(x)


def exponentials(x: Flow, _: int) -> Flow:
    """Few exponentials, which stand alone."""
    return x.multiply([0.25, 0.125]).exp().concat(x.exp())


@pytest.mark.parametrize("outputs", [2, 3, 20])
@pytest.mark.parametrize("made", [linear, exponentials])
@pytest.mark.parametrize("labels", [["b", "d"], ["d", "b"], ["a", "b"]])
def test_some_columns_of_a_record(labels: list[str], made: object, outputs: int) -> None:
    record = flour.record("x", {name: Scalar("float32") for name in NAMES})
    others = record.columns(["a", "c", "d"]).sum().as_vector()
    assert callable(made)
    flow = others.concat(made(record.columns(labels), outputs))
    wanted = flow.reference(DATA)["output"]
    found = oven.bake(flow).run(DATA)["output"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
