"""Hold an imported estimator against the library that trained it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
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
    refuse_alike(estimator, X, program.reference if plan is None else plan.run)
    # Without rewrite rules some strings are moved by Python; what is answered is the same.
    if plan is not None and not os.environ.get("PRETZEL_WITHOUT"):
        running = {s.nodes[0].op.name for s in plan.program.stages if not s.native}
        assert running <= set(black), f"without native code: {running}"
    return program


#: Columns that are tried with odd values.
_TRIED = 4


def refuse_alike(estimator: Any, X: Any, run: Callable[[Any], Any]) -> None:
    """NaN, infinity and a number beyond float32 are refused where the estimator refuses them."""
    if not isinstance(X, np.ndarray) or X.dtype != np.float64 or X.ndim != 2 or len(X) < 2:
        return
    methods = ("predict", "transform", "predict_proba", "decision_function")
    answer = next(getattr(estimator, name) for name in methods if hasattr(estimator, name))
    # Categories of whole numbers refuse what is no category first; trees of an imputer are only
    # asked for rows with gaps.
    others = ("CategoricalNB", "IterativeImputer")
    large = () if type(estimator).__name__ in others else (1e39,)
    for value in (np.nan, np.inf, *large):
        for column in range(min(X.shape[1], _TRIED)):
            rows = X[:2].copy()
            rows[1, column] = value
            theirs, ours = _refusal(answer, rows), _refusal(run, rows)
            what = f"{type(estimator).__name__}: {value} in column {column}"
            assert (theirs is None) == (ours is None), f"{what}: {theirs!r}, and here {ours!r}"


def _refusal(answer: Callable[[Any], Any], rows: Any) -> Exception | None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            answer(rows)
        except Exception as problem:  # noqa: BLE001 (whatever class: it refuses)
            return problem
    return None


def _compare(got: dict[str, Any], want: dict[str, Any], tolerance: float, who: str) -> None:
    for name, raw in got.items():
        value, expected = map(_dense, _narrowed(raw, want[name]))
        if expected.dtype.kind in "OU":
            assert value.shape == expected.shape, f"{who} {name}: {value.shape} {expected.shape}"
            assert [_plain(v) for v in value.ravel()] == [_plain(v) for v in expected.ravel()], (
                f"{who} {name}"
            )
        else:
            assert_close(value, expected, tolerance, f"{who} {name}")


def _narrowed(got: Any, want: Any) -> tuple[Any, Any]:
    """Sparse matrices without the columns of which neither has anything: there may be a million."""
    if not (hasattr(got, "tocsr") and hasattr(want, "tocsr") and got.shape == want.shape):
        return got, want
    rows = got.tocsr(), want.tocsr()
    stored = np.union1d(rows[0].indices, rows[1].indices)
    return rows[0][:, stored], rows[1][:, stored]


def _plain(value: Any) -> Any:
    return "NaN" if value != value else value  # noqa: PLR0124 (the definition of NaN)


def _dense(value: Any) -> Any:
    if hasattr(value, "toarray"):
        value = value.toarray()
    return np.asarray(value)
