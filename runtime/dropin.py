"""A compiled estimator with scikit-learn's methods: same results, shapes, dtypes and errors.

fast = runtime.compile(pipeline, verify=X[:100])
fast.predict_proba(X)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import flour
import oven
from flour.core.errors import InputError, NotRectangular
from flour.core.types import Record, Vector
from flour.data.batch import row_count
from flour.language.flow import Flow
from runtime.errors import NotOffered
from runtime.verify import verify as check_against

_R = TypeVar("_R")
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform")
_FACTS = ("classes_", "feature_names_in_", "n_features_in_", "n_outputs_", "outputs_2d_")


def compile(  # noqa: A001 (the name people expect: runtime.compile)
    source: object, sample: object = None, verify: object = None, *, exact: bool = False
) -> Compiled:
    """A drop-in for a fitted estimator (or a program), as native code.

    `sample` (a few rows) settles the input's columns and dtypes. With `verify`, these rows are
    replayed on the original, and a mismatch is refused.
    """
    flow = source if isinstance(source, Flow) else flour.from_sklearn(source, sample)
    compiled = Compiled(flow, None if isinstance(source, Flow) else source, exact=exact)
    if verify is not None and not isinstance(source, Flow):
        check_against(compiled.plan, source, verify)
    return compiled


class offered:  # noqa: N801 (used as a decorator)
    """A method that exists only where the program has one of these outputs, as in scikit-learn."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self, method: Callable[..., _R]) -> Any:
        """Take the method."""
        self.method = method
        self.__doc__ = method.__doc__
        return self

    def __get__(self, owner: Compiled | None, kind: type) -> Any:
        if owner is None:
            return self
        has_output = any(name in owner.outputs for name in self.names)
        if not has_output or self.method.__name__ in owner.missing:
            raise self.refusal(owner)
        return self.method.__get__(owner, kind)

    def refusal(self, owner: Compiled) -> NotOffered:
        """The error where the program has none of the outputs."""
        if self.method.__name__ in owner.missing:
            return NotOffered(f"the estimator has no {self.method.__name__}")
        return NotOffered(
            f"this program has no {' or '.join(self.names)}", found=", ".join(owner.outputs)
        )


class Compiled:
    """An estimator's program as native code, with the estimator's own methods."""

    def __init__(self, flow: Flow, estimator: object = None, *, exact: bool = False) -> None:
        self.flow = flow
        self.plan = oven.bake(flow, exact=exact)
        self.outputs = tuple(flow.outputs)
        self._facts = {
            name: getattr(estimator, name) for name in _FACTS if hasattr(estimator, name)
        }
        #: Methods that could be but that the estimator has not.
        self.missing: frozenset[str] = frozenset()
        if estimator is not None:
            self.missing = frozenset(name for name in METHODS if not hasattr(estimator, name))
        self._refused = refused_numbers(estimator)
        self._parts = {
            name: oven.bake(flow[name], exact=exact) if len(self.outputs) > 1 else self.plan
            for name in self.outputs
        }
        self._entries = {name: plan.entry() for name, plan in self._parts.items()}
        kinds = list(flow.inputs().values())
        # Training libraries want at least one row of numbers; texts may be none.
        self._wants_rows = estimator is not None and isinstance(kinds[0], Vector | Record)

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("_facts", {})
        if name in facts:
            return facts[name]
        # Python comes here as well where a method is there but not offered.
        method = type(self).__dict__.get(name)
        if isinstance(method, offered):
            raise method.refusal(self)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Compiled({self.plan!r})"

    # --- scikit-learn's methods --------------------------------------------------------------

    @offered("label", "value")
    def predict(self, X: object) -> Any:
        """Class labels, values or cluster numbers."""
        if "value" in self.outputs:
            return self._run("value", X)
        label = self._run("label", X)
        classes = self._facts.get("classes_")
        return label.astype(classes.dtype) if isinstance(classes, np.ndarray) else label

    @offered("probabilities", "probabilities_0")
    def predict_proba(self, X: object) -> Any:
        """Class probabilities; a list of them where there are several targets."""
        if "probabilities" in self.outputs:
            return self._run("probabilities", X)
        answers = self._checked(self.plan, X)
        return [answers[name] for name in self.outputs if name.startswith("probabilities_")]

    @offered("probabilities", "probabilities_0")
    def predict_log_proba(self, X: object) -> Any:
        """Logarithms of the class probabilities."""
        probabilities = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            if isinstance(probabilities, list):
                return [np.log(part) for part in probabilities]
            return np.log(probabilities)

    @offered("scores")
    def decision_function(self, X: object) -> Any:
        """The scores the decision is made by."""
        return self._run("scores", X)

    @offered("features", "distances")
    def transform(self, X: object) -> Any:
        """The transformed rows."""
        return self._run("features" if "features" in self.outputs else "distances", X)

    # --- running -----------------------------------------------------------------------------

    def _run(self, name: str, X: object) -> Any:
        if type(X) is np.ndarray and X.ndim == 2 and len(X):
            refuse_non_finite(X, self._refused)
            return self._entries[name](X)[0]
        return self._checked(self._parts[name], X)[name]

    def _checked(self, plan: oven.Plan, X: object) -> dict[str, Any]:
        refuse_non_finite(X, self._refused)
        if self._wants_rows and row_count(X) == 0 and hasattr(X, "__len__"):
            raise NotRectangular(
                "there are no rows, and the estimator asks for one at least",
                where="$",
                found=f"{type(X).__name__} of length 0",
                hint="answer an empty request without asking",
            )
        return plan.run(X)


class RefusedNumbers(NamedTuple):
    """The columns in which an estimator refuses NaN, and those in which it refuses infinity."""

    nan: NDArray[np.bool_]
    infinity: NDArray[np.bool_]


def refuse_non_finite(X: object, refused: RefusedNumbers | None) -> None:
    """Raise InputError for NaN or infinity in an array, where the training library would."""
    if refused is None or not (isinstance(X, np.ndarray) and X.dtype.kind == "f"):
        return
    # The sum of squares is finite only if all of it is; where it overflows, look again.
    if isfinite(np.vdot(X, X)):
        return
    if X.ndim != 2 or X.shape[1] != len(refused.nan):
        return  # the plan says what is wrong with its shape
    bad = (np.isnan(X) & refused.nan) | (np.isinf(X) & refused.infinity)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            "the input contains NaN or infinity, which this estimator refuses",
            where="$" + "".join(f"[{i}]" for i in where),
            found=str(X[where]),
            hint="impute missing values in a step before it",
        )


#: Wider estimators are tried with NaN or infinity in all columns at once.
_MOST_TRIED = 16


def refused_numbers(estimator: object) -> RefusedNumbers | None:
    """What the estimator itself refuses when it is tried; None if nothing, or if it takes no array.

    Its tags do not tell: those of a pipeline say no, also where its first step imputes.
    """
    width = getattr(estimator, "n_features_in_", None)
    answer = next((call for name in METHODS if (call := getattr(estimator, name, None))), None)
    if not isinstance(width, int | np.integer) or answer is None:
        return None
    row = np.zeros((1, int(width)))
    if _refuses(answer, row):
        return None
    nan, infinity = (_refused_columns(answer, row, value) for value in (np.nan, np.inf))
    return RefusedNumbers(nan, infinity) if nan.any() or infinity.any() else None


def _refused_columns(
    answer: Callable[[Any], object], row: NDArray[np.float64], value: float
) -> NDArray[np.bool_]:
    width = row.shape[1]
    every = np.full_like(row, value)
    if not _refuses(answer, every):
        return np.zeros(width, np.bool_)
    if width > _MOST_TRIED:
        return np.ones(width, np.bool_)
    tried = np.where(np.eye(width, dtype=np.bool_), value, row)
    return np.array([_refuses(answer, one[None]) for one in tried], np.bool_)


def _refuses(answer: Callable[[Any], object], rows: NDArray[np.float64]) -> bool:
    """Whether the estimator's own method raises for these rows."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            answer(rows)
        except Exception:  # noqa: BLE001 (whatever class: it refuses)
            return True
    return False
