"""Verification of an import: replay rows on the original and refuse on mismatch.

The rows go to the plan as they came, and in the other forms in which callers hand in rows: as dicts
and lists, in a block and one by one. All of them have to get the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.pages import page
from flour.core.types import Record, Text, Vector
from flour.data.frames import as_column, frame_columns, is_sparse
from flour.sklearn.importer import refuse_stand_in, warn
from oven import Plan
from runtime.errors import Unfaithful

#: The library's method behind each output, and how a mismatch is named.
METHODS = {
    "label": "predict",
    "value": "predict",
    "probabilities": "predict_proba",
    "log_probabilities": "predict_log_proba",
    "scores": "decision_function",
    "features": "transform",
    "distances": "transform",
}


class OutputMismatch(NamedTuple):
    """The place of a difference in an output, and its size."""

    output: str
    rows: tuple[int, ...]
    total: int
    worst: float

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.rows[:8])) + (", ..." if len(self.rows) > 8 else "")
        size = f", at most by {self.worst:.3g}" if np.isfinite(self.worst) else ""
        return f"{self.output}: {len(self.rows)} of {self.total} rows differ (row {shown}){size}"


#: How far numbers of a width may differ, relative to the largest.
_TOLERANCE: dict[Any, float] = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-9}


def tolerance_of(values: object, plan: Plan) -> float:
    """The tolerance for numbers of this width, or of a step's, relative to the largest."""
    own = _TOLERANCE.get(getattr(values, "dtype", None), 0.0)
    kinds = (item.type for item in plan.flow.nodes() if item.inputs)
    narrow = own and any(getattr(kind, "dtype", "") == "float32" for kind in kinds)
    return _TOLERANCE[np.dtype(np.float32)] if narrow else own


def verify(plan: Plan, estimator: object, rows: object, tolerance: float | None = None) -> None:
    """Raise Unfaithful unless the plan answers these rows as the estimator does.

    Labels must be equal; numbers may differ by `tolerance` relative to the largest answer, by
    default 1e-9, and 1e-5 where the answer, or that of a step, is float32.
    """
    refuse_stand_in(estimator)
    warn(estimator, "verifying asks the installed version, not the one that fitted it")
    answers = {name: _original(name, estimator, rows) for name in plan.outputs}
    verify_answers(plan, answers, rows, type(estimator).__name__, tolerance)


def verify_answers(
    plan: Plan,
    answers: Mapping[str, Any],
    rows: object,
    original: str,
    tolerance: float | None = None,
) -> None:
    """Raise Unfaithful unless the plan gives these answers of the `original` for these rows."""
    plan = plan.variants.of(rows) or plan
    made = plan.wait().run(rows)  # native code in every form, or in none
    found = [
        bad
        for name, got in made.items()
        for near in [tolerance_of(got, plan) if tolerance is None else tolerance]
        for bad in [compare(name, got, answers.get(name), near)]
        if bad is not None
    ]
    if not found:
        verify_forms(plan, rows, made, tolerance)
    if found:
        chooses = any(item.op.name in CHOOSING for item in plan.flow.nodes())
        raise Unfaithful(
            f"the program does not answer as {original} does",
            where=f"{found[0].total} rows given to verify",
            found="; ".join(map(str, found)),
            hint=_TIES if chooses else _BUG,
        )


def _original(name: str, estimator: object, rows: object) -> Any:
    """The estimator's answer where the program has this output; None if it has no method."""
    stem, _, target = name.rpartition("_") if name[-1].isdigit() else (name, "", "")
    method = getattr(estimator, METHODS.get(stem, ""), None)
    with np.errstate(divide="ignore"):  # the logarithm of zero
        answer: Any = None if method is None else method(rows)
    if stem == "label" and getattr(answer, "ndim", 1) == 2 and answer.shape[1] == 1:
        answer = answer[:, 0]  # CatBoost's labels are a column where there are several classes
    return answer[int(target)] if target and answer is not None else answer


_BUG = "report this bug of the import, and serve the original meanwhile"
#: Operators that choose among equals, where the library's choice cannot be followed everywhere.
CHOOSING = frozenset({"ImputeNearest", "Nearest"})
_TIES = (
    "the model takes the nearest training rows; among rows that are equally near, numpy's choice "
    "depends on the processor, scikit-learn's on its threads. If these rows have such neighbours, "
    "both answers are right; else report this bug of the import: "
    + page("reference/scikit-learn", "how-exact")
)

#: How many rows are replayed as blocks of other forms, and how many one by one.
FORM_ROWS, SINGLE_ROWS = 1_000, 50


def verify_forms(
    plan: Plan, rows: object, answers: Mapping[str, Any], tolerance: float | None = None
) -> None:
    """Raise Unfaithful unless the plan gives these answers for the rows in every other form.

    Without a `tolerance`, numbers may differ in the last places of their width.
    """
    typed = plan.variants.of(rows) or plan
    entry = typed.entry()
    for form, place, data in _forms(plan, rows):
        made = dict(zip(typed.outputs, entry(data), strict=True))
        for name, value in made.items():
            if isinstance(value, Mapping):
                continue  # a record for each row: its columns came with the other outputs
            got, want = _dense(value), _dense(answers[name])
            want = want[place] if place is not None else want[: len(got)]
            near = tolerance_of(got, plan) if tolerance is None else tolerance
            if place is not None and got.ndim == 2:
                got = got[0]  # one row of a sparse output is a matrix
            bad = compare(name, np.atleast_1d(got), np.atleast_1d(want), near)
            if bad is not None:
                where = f"row {place}" if place is not None else f"the first {len(got)} rows"
                raise Unfaithful(
                    f"the program answers otherwise when rows come as {form}",
                    where=f"{where} given to verify",
                    found=str(bad),
                    hint=_BUG,
                )


def _forms(plan: Plan, rows: object) -> Iterator[tuple[str, int | None, Any]]:
    """Other forms of these rows: what they are called, which row it is or None for a block."""
    if len(plan.inputs) > 1 or is_sparse(rows):
        return
    (kind,) = plan.inputs.values()
    columns = frame_columns(rows) if isinstance(kind, Record) else None
    if columns is not None and set(kind.names) <= set(columns):  # type: ignore[union-attr]  # as above
        plain = {
            name: as_column(columns[name])[:FORM_ROWS].tolist()
            for name in kind.names  # type: ignore[union-attr]  # a record has names
        }
        known = plan.reader.nulls.learn()  # None means NaN there, and None in a frame
        if any(v is None for name in known.nan - known.none for v in plain.get(name, ())):
            return
        records = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        lists = [list(row.values()) for row in records]
        yield "a dict of lists", None, plain
        yield "a list of dicts", None, records
        yield "a list of lists", None, lists
        for place in range(min(SINGLE_ROWS, len(records))):
            yield "a dict", place, records[place]
            yield "a list", place, lists[place]
    elif isinstance(kind, Vector | Text) and isinstance(rows, np.ndarray | list | tuple):
        many = rows[:FORM_ROWS]
        listed = many.tolist() if isinstance(many, np.ndarray) else list(many)
        yield "a list", None, listed
        for place in range(min(SINGLE_ROWS, len(listed))):
            yield "a single row", place, listed[place]


def compare(name: str, got: object, want: object, tolerance: float) -> OutputMismatch | None:
    """The difference of `got` from `want`, or None; a value without a counterpart is right."""
    if want is None:
        return None
    got, want = _dense(got), _dense(want)
    if got.shape != want.shape:
        return OutputMismatch(name, tuple(range(len(want))), len(want), np.inf)
    if _has_texts(got) or _has_texts(want) or "b" in got.dtype.kind + want.dtype.kind:
        bad = np.asarray(got != want) & ~np.asarray((got != got) & (want != want))  # noqa: PLR0124 (NaN)
        return _mismatch(name, bad, np.inf)
    got, want = (each.astype(np.float64) if each.dtype == object else each for each in (got, want))
    with np.errstate(invalid="ignore"):  # infinities, which are compared below
        gap = np.abs(got.astype(np.float64) - want.astype(np.float64))
    finite = np.abs(want[np.isfinite(want)])
    limit = tolerance * max(float(finite.max()) if finite.size else 0.0, 1e-300)
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (gap <= limit)
    worst = gap[~same]
    return _mismatch(name, ~same, float(worst.max()) if worst.size else 0.0)


def _mismatch(name: str, bad: NDArray[np.bool_], worst: float) -> OutputMismatch | None:
    if not bad.any():
        return None
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
    return OutputMismatch(name, tuple(int(i) for i in rows), len(bad), worst)


def _has_texts(values: NDArray[Any]) -> bool:
    """True if not all cells are numbers."""
    if values.dtype.kind == "O":
        return any(not isinstance(each, Real | np.bool_) for each in values.flat)
    return values.dtype.kind in "US"


def _dense(value: object) -> NDArray[Any]:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value)
