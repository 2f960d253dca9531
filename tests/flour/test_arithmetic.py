"""Flows are written with the ordinary signs, and mean what numpy means by them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flour.core.errors import TypeMismatch
from flour.core.types import Scalar, Type, Vector
from flour.language.flow import source

RNG = np.random.default_rng(7)
X, Y, S = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 3)), RNG.normal(size=5)
ROW = np.array([1.0, -2.0, 0.5])

Formula = Callable[[SimpleNamespace], Any]
FORMULAS: list[Formula] = [
    lambda v: v.x + v.y,
    lambda v: v.x - v.y,
    lambda v: v.x * v.y / (v.x * v.x + 1),
    lambda v: 1 - v.x,
    lambda v: ROW - v.x,
    lambda v: ROW + v.x * ROW,
    lambda v: ROW / v.x - 2 / v.y,
    lambda v: -v.x / 3,
    lambda v: (v.x - v.s) * v.s,
    lambda v: v.s / v.x,
    lambda v: 2.0 * (v.s + v.s) - v.s,
]


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_formula_over_flows_is_the_formula_over_arrays(formula: Formula, dtype: str) -> None:
    kinds: dict[str, Type] = {"x": Vector(3, dtype), "y": Vector(3, dtype), "s": Scalar(dtype)}
    flow = formula(SimpleNamespace(**{name: source(name, kind) for name, kind in kinds.items()}))
    used = flow.inputs()
    given = {"x": X.astype(dtype), "y": Y.astype(dtype), "s": S.astype(dtype)}
    data = {name: given[name] for name in used}
    column = given["s"] if isinstance(flow.type, Scalar) else given["s"][:, None]
    want = formula(SimpleNamespace(**{**given, "s": column}))
    got = flow.reference(data)["output"]
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=1e-15 if dtype == "float64" else 1e-6)


def test_two_widths_and_strings_do_not_add() -> None:
    with pytest.raises(TypeMismatch, match="one width"):
        source("x", Vector(3)) + source("y", Vector(2))
    with pytest.raises(TypeMismatch, match="needs numbers"):
        source("x", Scalar("string")) + source("y", Scalar())


def test_a_shared_factor_is_computed_once() -> None:
    x = source("x", Vector(3))
    flow = (x - 1) * (x - 1)
    assert len(flow.nodes()) == 3
