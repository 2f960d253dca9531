"""Columns of data for any type: ordinary values, and the odd ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.op import Columns
from flour.core.sparse import Sparse, densify
from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector

ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 1e-300, 1.0, -1.0]
WORDS = ["a", "", "Ünïcode", "日本", "🥨", "long " * 9, "\x00", "café", "cafe\u0301", "İ"]


def draw(rng: np.random.Generator, kind: Type, rows: int, *, odd: bool = False) -> Columns:
    """A column of this type."""
    match kind:
        case Record(fields):
            return {name: draw(rng, sub, rows, odd=odd) for name, sub in fields}
        case Text():
            return _words(rng, (rows,))
        case Tokens():
            return [list(_words(rng, (int(rng.integers(0, 6)),))) for _ in range(rows)]
        case Pairs():
            sizes = rng.integers(0, 6, rows)
            return [
                list(
                    zip(
                        _words(rng, (n,)),
                        _values(rng, (n,), "float64", odd=odd).tolist(),
                        strict=True,
                    )
                )
                for n in sizes
            ]
        case Vector(width, dtype, sparse):
            made = _values(rng, (rows, width), dtype, odd=odd)
            return Sparse.of(np.where(rng.random((rows, width)) < 0.5, made, 0)) if sparse else made
        case Scalar(dtype) | Category(dtype):
            return _values(rng, (rows,), dtype, odd=odd)


def _words(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.choice(np.array(WORDS, object), size=shape)


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, *, odd: bool) -> Any:
    if dtype == "string":
        return _words(rng, shape)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if not dtype.startswith("float"):
        return rng.integers(0, 50, size=shape).astype(dtype)
    made = rng.normal(size=shape)
    if odd:
        made = np.where(rng.random(shape) < 0.4, rng.choice(ODD, size=shape), made)
    with np.errstate(over="ignore"):
        return made.astype(dtype)


def assert_close(got: Any, want: Any, tolerance: float, what: str = "") -> None:
    """Equal shape, dtype and values: NaN where NaN, within `tolerance` of the row's magnitude."""
    if isinstance(want, dict):
        assert list(got) == list(want), f"{what}: columns {list(got)}"
        for name in want:
            assert_close(got[name], want[name], tolerance, f"{what}.{name}")
        return
    if isinstance(want, list):
        assert got == want, what
        return
    got, want = np.asarray(densify(got)), np.asarray(densify(want))
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, expected {want.dtype}"
    if tolerance == 0 or got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    scale = np.finfo(got.dtype).eps / np.finfo(np.float64).eps
    finite = want[np.isfinite(want)]
    floor = float(np.abs(finite).max()) if finite.size else 0.0
    loose = tolerance * scale
    np.testing.assert_allclose(got, want, rtol=loose, atol=loose * min(floor, 1e30), err_msg=what)
