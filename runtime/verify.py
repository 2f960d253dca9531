"""The gate of an import: replay rows on the original and refuse on mismatch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oven import Plan
from runtime.errors import Unfaithful

#: The library's method behind each output, and how a mismatch is named.
METHODS = {
    "label": "predict",
    "value": "predict",
    "probabilities": "predict_proba",
    "scores": "decision_function",
    "features": "transform",
    "distances": "transform",
}


class Mismatch(NamedTuple):
    """Where one output differs, and by how much."""

    output: str
    rows: tuple[int, ...]
    total: int
    worst: float

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.rows[:8])) + (", ..." if len(self.rows) > 8 else "")
        size = f", at most by {self.worst:.3g}" if np.isfinite(self.worst) else ""
        return f"{self.output}: {len(self.rows)} of {self.total} rows differ (row {shown}){size}"


def verify(plan: Plan, estimator: Any, rows: Any, tolerance: float = 1e-9) -> None:
    """Raise Unfaithful unless the plan answers these rows as the estimator does.

    Labels must be equal; numbers may differ by `tolerance` relative to the largest answer.
    """
    made = plan.run(rows)
    found = [
        bad
        for name, method in METHODS.items()
        if name in made and hasattr(estimator, method)
        for bad in [compare(name, made[name], getattr(estimator, method)(rows), tolerance)]
        if bad is not None
    ]
    if found:
        raise Unfaithful(
            f"the program does not answer as {type(estimator).__name__} does",
            where=f"{found[0].total} rows given to verify",
            found="; ".join(map(str, found)),
            hint="this is a bug of the import; serve the original and report it",
        )


def compare(name: str, got: Any, want: Any, tolerance: float) -> Mismatch | None:
    """Where `got` is not `want`, or None."""
    got, want = _dense(got), _dense(want)
    if got.shape != want.shape:
        return Mismatch(name, tuple(range(len(want))), len(want), np.inf)
    if want.dtype.kind in "OUSb" or got.dtype.kind in "OUSb":
        bad = np.asarray(got != want)
        return _mismatch(name, bad, np.inf)
    gap = np.abs(got.astype(np.float64) - want.astype(np.float64))
    finite = np.abs(want[np.isfinite(want)])
    limit = tolerance * max(float(finite.max()) if finite.size else 0.0, 1e-300)
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (gap <= limit)
    worst = gap[~same]
    return _mismatch(name, ~same, float(worst.max()) if worst.size else 0.0)


def _mismatch(name: str, bad: NDArray[np.bool_], worst: float) -> Mismatch | None:
    if not bad.any():
        return None
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
    return Mismatch(name, tuple(int(i) for i in rows), len(bad), worst)


def _dense(value: Any) -> NDArray[Any]:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value)
