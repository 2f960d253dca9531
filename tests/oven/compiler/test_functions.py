"""The functions that native code computes itself, against wider arithmetic and the C library."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oven
from flour.core.types import Vector
from flour.language.flow import source
from oven.entry.array_entry import Call

pytestmark = pytest.mark.once

RANGES = {"float64": (-745.2, 709.79), "float32": (-103.9, 88.72)}
LIMIT = {"float64": 0.8, "float32": 0.9}


@pytest.fixture(params=["float64", "float32"], scope="module")
def dtype(request: pytest.FixtureRequest) -> str:
    """Either float width."""
    return str(request.param)


_calls: dict[tuple[str, int], Call] = {}


def exp(values: NDArray[Any], width: int = 16) -> NDArray[Any]:
    """e to these powers in native code; a width of 16 is vector code, of 1 is not."""
    key = values.dtype.name, width
    if key not in _calls:
        _calls[key] = oven.bake(source("x", Vector(width, values.dtype.name)).exp()).entry()
    padded = np.resize(values, (-(-len(values) // width), width))
    (made,) = _calls[key](padded)
    flat: NDArray[Any] = np.asarray(made).reshape(-1)[: len(values)]
    return flat


def samples(dtype: str) -> NDArray[Any]:
    """Powers everywhere, near zero, and near where results lose bits."""
    low, high = RANGES[dtype]
    rng = np.random.default_rng(5)
    every = [
        rng.uniform(low, high, 200_000),
        rng.normal(size=100_000),
        rng.normal(size=20_000) * 1e-6,
        np.linspace(low, low + 40, 20_000),
        np.linspace(high - 1, high - 0.01, 20_000),
        # Where k changes: the remainder is largest there.
        (np.arange(-100, 100)[:, None] + 0.5 + rng.normal(size=50) * 1e-3).ravel() * math.log(2),
    ]
    return np.concatenate(every).astype(dtype)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="there is no wider arithmetic here")
def test_exp_is_within_one_unit_in_the_last_place(dtype: str) -> None:
    values = samples(dtype)
    with np.errstate(all="ignore"):
        truth = np.exp(values.astype(np.longdouble))
        unit = np.spacing(np.abs(truth.astype(values.dtype))).astype(np.longdouble)
        away: NDArray[Any] = np.abs((exp(values).astype(np.longdouble) - truth) / unit)
    assert away.max() < LIMIT[dtype]


def test_exp_is_within_one_unit_of_the_c_library() -> None:
    values = samples("float64")[::7]
    theirs = np.array([math.exp(value) for value in values])
    assert (np.abs(exp(values) - theirs) <= np.spacing(theirs)).all()


def test_exp_of_odd_numbers(dtype: str) -> None:
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 5e-324, RANGES[dtype][0] - 1, 1000]
    got = exp(np.array(odd, dtype))
    np.testing.assert_array_equal(got, [np.nan, np.inf, 0, 1, 1, np.inf, 0, 1, 0, np.inf])


@given(st.floats(width=64), st.sampled_from(["float64", "float32"]))
def test_one_number_alone_has_the_bits_it_has_among_others(value: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        values = np.full(16, value).astype(dtype)
    alone, together = exp(values[:1], width=1), exp(values)
    np.testing.assert_array_equal(together, np.repeat(alone, 16))
    if np.isfinite(values[0]):
        with np.errstate(over="ignore", under="ignore"):
            np.testing.assert_allclose(
                alone,
                np.exp(values[:1]),
                rtol=4e-7 if dtype == "float32" else 5e-16,
                atol=1e-320 if dtype == "float64" else 3e-45,
            )


def test_exp_never_decreases(dtype: str) -> None:
    values = np.sort(samples(dtype))
    assert (np.diff(exp(values)) >= 0).all()


# --- tanh and log ---------------------------------------------------------------------------------

OTHERS: dict[str, Any] = {"tanh": np.tanh, "log": np.log}
#: Units in the last place; a million points of each kind found 1.004 and 0.84.
MOST = {"tanh": 1.05, "log": 0.9}


def native(name: str, values: NDArray[Any], width: int = 16) -> NDArray[Any]:
    """One of the others in native code."""
    key = f"{name} {values.dtype.name}", width
    if key not in _calls:
        kind = Vector(width, values.dtype.name)
        _calls[key] = oven.bake(getattr(source("x", kind), name)()).entry()
    (made,) = _calls[key](np.resize(values, (-(-len(values) // width), width)))
    flat: NDArray[Any] = np.asarray(made).reshape(-1)[: len(values)]
    return flat


def points(name: str, dtype: str) -> NDArray[Any]:
    """Numbers of every size, and many where the formulas change."""
    rng = np.random.default_rng(7)
    low, high = RANGES[dtype]
    if name == "tanh":
        every = [rng.normal(size=60_000) * scale for scale in (1e-5, 0.1, 0.5, 1, 5, 50)]
    else:
        every = [np.exp(rng.uniform(low, high, 100_000)), rng.uniform(0.5, 2, 100_000)]
        every.append(1 + rng.normal(size=100_000) * 1e-3)
    made = np.concatenate(every).astype(dtype)
    return made if name == "tanh" else made[made > 0]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="there is no wider arithmetic here")
@pytest.mark.parametrize("name", OTHERS)
def test_others_are_about_one_unit_in_the_last_place_away(name: str, dtype: str) -> None:
    values = points(name, dtype)
    truth = OTHERS[name](values.astype(np.longdouble))
    unit = np.spacing(np.abs(truth.astype(dtype))).astype(np.longdouble)
    away = np.abs((native(name, values).astype(np.longdouble) - truth) / unit)
    assert away.max() < MOST[name]


@pytest.mark.parametrize("name", OTHERS)
def test_others_of_odd_numbers(name: str, dtype: str) -> None:
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -3.0, 1e30, -1e30, 1e-40, -1e-40]
    values = np.array(odd, dtype)
    with np.errstate(all="ignore"):
        wanted = OTHERS[name](values)
    made = native(name, values)
    np.testing.assert_allclose(made, wanted, rtol=4e-7 if dtype == "float32" else 4e-16)
    known = ~np.isnan(values)
    if name == "tanh":
        np.testing.assert_array_equal(np.signbit(made[known]), np.signbit(wanted[known]))


@given(st.floats(width=64), st.sampled_from(["float64", "float32"]), st.sampled_from([*OTHERS]))
def test_others_alone_have_the_bits_they_have_in_vectors(
    value: float, dtype: str, name: str
) -> None:
    with np.errstate(over="ignore"):
        values = np.full(16, value).astype(dtype)
    alone = native(name, values[:1], width=1)
    np.testing.assert_array_equal(native(name, values), np.repeat(alone, 16))
