"""Hold an imported estimator against the library that trained it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import flour
import oven
from flour import Flow
from tests.columns import assert_close

CLUSTERERS = ("clusterer",)


def library(estimator: Any, X: Any) -> dict[str, Any]:
    """What the estimator itself answers, under our names for its outputs."""
    kind = estimator.__sklearn_tags__().estimator_type
    found: dict[str, Any] = {}
    if hasattr(estimator, "predict"):
        found["value" if kind == "regressor" else "label"] = estimator.predict(X)
    if hasattr(estimator, "predict_proba"):
        found |= _several("probabilities", estimator.predict_proba(X))
    if hasattr(estimator, "decision_function"):
        found |= _several("scores", estimator.decision_function(X))
    if hasattr(estimator, "transform"):
        clusters = kind == "clusterer" and hasattr(estimator, "predict")
        found["distances" if clusters else "features"] = estimator.transform(X)
    return found


def _several(name: str, value: Any) -> dict[str, Any]:
    """Estimators with several targets answer with a list: one output for each."""
    if isinstance(value, list):
        return {f"{name}_{i}": item for i, item in enumerate(value)}
    return {name: value}


def check(
    estimator: Any,
    X: Any,
    *,
    tolerance: float = 1e-12,
    sample: Any = None,
    narrow: bool = True,
    skip: tuple[str, ...] = (),
    black: tuple[str, ...] = (),
    native: bool = True,
) -> Flow:
    """The imported program, and its native code, answer as the fitted estimator does.

    Checked on all rows, on one row, and (`narrow`) on float32 data; `skip` names outputs of the
    library that are not imported, `black` the operators that may run without native code;
    `native=False` checks the reference alone.
    """
    program = flour.from_sklearn(estimator, sample)
    plan = oven.bake(program) if native else None
    blocks = [X, X[:1], X[:2]]
    if narrow and hasattr(X, "astype") and getattr(X, "dtype", None) == np.float64:
        blocks.append(X.astype(np.float32))
    for block in blocks:
        want = library(estimator, block)
        assert set(program.outputs) == set(want) - set(skip), "outputs have the agreed names"
        loose = tolerance
        _compare(program.reference(block), want, loose, f"{type(estimator).__name__} reference")
        if plan is not None:
            _compare(plan.run(block), want, loose, f"{type(estimator).__name__} native")
    # Without rewrite rules some strings are moved by Python; what is answered is the same.
    if plan is not None and not os.environ.get("PRETZEL_WITHOUT"):
        running = {s.nodes[0].op.name for s in plan.stages if not s.native}
        assert running <= {"TakeText", *black}, f"without native code: {running}"
    return program


def _compare(got: dict[str, Any], want: dict[str, Any], tolerance: float, who: str) -> None:
    for name, raw in got.items():
        expected, value = _dense(want[name]), _dense(raw)
        if expected.dtype.kind in "OU":
            assert value.shape == expected.shape, f"{who} {name}: {value.shape} {expected.shape}"
            assert [_plain(v) for v in value.ravel()] == [_plain(v) for v in expected.ravel()], (
                f"{who} {name}"
            )
        else:
            assert_close(value, expected, tolerance, f"{who} {name}")


def _plain(value: Any) -> Any:
    return "NaN" if value != value else value  # noqa: PLR0124 (the definition of NaN)


def _dense(value: Any) -> Any:
    if hasattr(value, "toarray"):
        value = value.toarray()
    return np.asarray(value)
