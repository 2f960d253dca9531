"""A dozen pipelines of different kinds, each with rows to run on: what a plan may have to be."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import flour
from flour import Flow
from flour.core.types import Category, Scalar

Made = tuple[Flow, Any]
ROWS = 40


def _rng() -> np.random.Generator:
    return np.random.default_rng(20181008)


def _data(columns: int = 6, classes: int = 2) -> tuple[Any, Any]:
    rng = _rng()
    X = rng.normal(size=(120, columns))
    y = (np.abs(X[:, 0]) * 1.5 + X[:, 1]).astype(int) % classes
    y[:classes] = np.arange(classes)
    return X, y


def scaled_logistic() -> Made:
    """Two classes, numbers."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = _data()
    return flour.from_sklearn(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)), X[
        :ROWS
    ]


def worded_logistic() -> Made:
    """Three classes whose labels are words: a Python stage at the end."""
    from sklearn.linear_model import LogisticRegression

    X, y = _data(classes=3)
    words = np.array(["low", "middle", "h\u00f6her"], object)[y]
    return flour.from_sklearn(LogisticRegression().fit(X, words)), X[:ROWS]


def narrow_logistic() -> Made:
    """Float32 rows on a program made for float64."""
    program, X = scaled_logistic()
    return program, X.astype(np.float32)


def sparse_logistic() -> Made:
    """Rows of a sparse matrix."""
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    X, y = _data()
    kept = csr_matrix(np.where(np.abs(X) > 0.7, X, 0))
    return flour.from_sklearn(LogisticRegression().fit(kept, y)), kept[:ROWS]


def elementwise_chain() -> Made:
    """One fused loop."""
    rng = _rng()
    x = flour.vector("x", 5)
    made = x.subtract(rng.normal(size=5)).divide([2.0]).clip([-1.0], [1.0]).sigmoid()
    return made.named("squashed"), rng.normal(size=(ROWS, 5))


def several_inputs() -> Made:
    """Two named inputs of different types, several outputs."""
    rng = _rng()
    x, z = flour.vector("x", 4), flour.scalar("z")
    both = x.concat(z.as_vector())
    made = flour.outputs(
        total=both.sum(), top=both.max(), scaled=both.multiply(rng.normal(size=5)), as_is=x
    )
    return made, {"x": rng.normal(size=(ROWS, 4)), "z": rng.normal(size=ROWS)}


def layers() -> Made:
    """Kernels one after the other, with fused stages between."""
    rng = _rng()
    x = flour.vector("x", 8)
    hidden = x.linear(rng.normal(size=(7, 8)), rng.normal(size=7)).clip([0.0], [1e9])
    return hidden.linear(rng.normal(size=(3, 7)), rng.normal(size=3)).softmax(), rng.normal(
        size=(ROWS, 8)
    )


def records() -> Made:
    """Columns by name, one of them words nobody reads."""
    rng = _rng()
    row = flour.record(
        "row", {"age": Scalar("float64"), "city": Category(), "fare": Scalar("float64")}
    )
    made = row.columns(["fare", "age"]).divide([2.0, 3.0]).norm("l2")
    data = {"age": rng.normal(size=ROWS), "city": ["x"] * ROWS, "fare": rng.normal(size=ROWS)}
    return made, data


def selected_columns() -> Made:
    """Columns by number, some of them twice."""
    rng = _rng()
    made = flour.vector("x", 9).select([8, 0, 0, 3]).add(rng.normal(size=4))
    return flour.outputs(columns=made, best=made.arg_max()), rng.normal(size=(ROWS, 9))


def wide_linear() -> Made:
    """Parameters of some kilobytes, and code that wants them in another order."""
    rng = _rng()
    made = flour.vector("x", 300).linear(rng.normal(size=(40, 300)), rng.normal(size=40))
    return made, rng.normal(size=(ROWS, 300))


def whole_numbers() -> Made:
    """Ints become floats on the way in."""
    rng = _rng()
    return flour.vector("x", 3, "int64").as_float().sum(), rng.integers(-9, 9, size=(ROWS, 3))


def nothing_to_do() -> Made:
    """An input that is an output."""
    return flour.vector("x", 3), _rng().normal(size=(ROWS, 3))


PROGRAMS: dict[str, Callable[[], Made]] = {
    made.__name__: functools.cache(made)
    for made in (
        scaled_logistic,
        worded_logistic,
        narrow_logistic,
        sparse_logistic,
        elementwise_chain,
        several_inputs,
        layers,
        records,
        selected_columns,
        wide_linear,
        whole_numbers,
        nothing_to_do,
    )
}
