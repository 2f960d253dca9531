"""Flows are written with the ordinary signs, and mean what numpy means by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flour.errors import TypeMismatch
from flour.flow import source
from flour.types import Scalar, Vector

RNG = np.random.default_rng(7)
X, Y, S = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 3)), RNG.normal(size=5)
ROW = np.array([1.0, -2.0, 0.5])

Formula = Callable[[Any, Any, Any], Any]
FORMULAS: list[Formula] = [
    lambda x, y, s: x + y,
    lambda x, y, s: x - y,
    lambda x, y, s: x * y / (x * x + 1),
    lambda x, y, s: 1 - x,
    lambda x, y, s: ROW - x,
    lambda x, y, s: ROW + x * ROW,
    lambda x, y, s: ROW / x - 2 / y,
    lambda x, y, s: -x / 3,
    lambda x, y, s: (x - s) * s,
    lambda x, y, s: s / x,
    lambda x, y, s: 2.0 * (s + s) - s,
]


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_formula_over_flows_is_the_formula_over_arrays(formula: Formula, dtype: str) -> None:
    flow = formula(
        source("x", Vector(3, dtype)), source("y", Vector(3, dtype)), source("s", Scalar(dtype))
    )
    used = flow.inputs()
    given = {"x": X.astype(dtype), "y": Y.astype(dtype), "s": S.astype(dtype)}
    data = {name: given[name] for name in used}
    column = given["s"] if isinstance(flow.type, Scalar) else given["s"][:, None]
    want = formula(given["x"], given["y"], column)
    got = flow.reference(data)["output"]
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=1e-15 if dtype == "float64" else 1e-6)


def test_vectors_of_two_widths_do_not_add() -> None:
    with pytest.raises(TypeMismatch, match="one width"):
        source("x", Vector(3)) + source("y", Vector(2))


def test_strings_do_not_add() -> None:
    with pytest.raises(TypeMismatch, match="needs numbers"):
        source("x", Scalar("string")) + source("y", Scalar())


def test_a_shared_factor_is_computed_once() -> None:
    x = source("x", Vector(3))
    flow = (x - 1) * (x - 1)
    assert len(flow.nodes()) == 3
