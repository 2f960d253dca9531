"""A compiled estimator with scikit-learn's methods: same results, shapes, dtypes and errors.

fast = runtime.compile(pipeline, verify=X[:100])
fast.predict_proba(X)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

import numpy as np

import flour
import oven
from flour.core.errors import NotRectangular
from flour.core.types import Record, Vector
from flour.data.batch import row_count
from flour.language.flow import Flow
from flour.ops.require import OnMissing, refuses, without_checks
from runtime.errors import NotOffered
from runtime.verify import verify as check_against

_R = TypeVar("_R")
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform")
_FACTS = ("classes_", "feature_names_in_", "n_features_in_", "n_outputs_", "outputs_2d_")


def compile(  # noqa: A001 (the name people expect: runtime.compile)
    source: object,
    sample: object = None,
    verify: object = None,
    *,
    exact: bool = False,
    allow_python: bool = False,
    on_missing: OnMissing = "refuse",
) -> Compiled:
    """A drop-in for a fitted estimator (or a program), as native code.

    `sample` (a few rows) settles the input's columns and dtypes. With `verify`, these rows are
    replayed on the original, and a mismatch is refused. `allow_python` is `from_sklearn`'s. Rows
    with NaN or infinity are refused as the estimator does; with `on_missing="answer"` they are
    computed with.
    """
    if isinstance(source, Flow):
        flow = source if refuses(on_missing) else without_checks(source)
    else:
        flow = flour.from_sklearn(source, sample, allow_python=allow_python, on_missing=on_missing)
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

    def __copy__(self) -> Compiled:
        return self  # nothing about it changes

    def __deepcopy__(self, _: object) -> Compiled:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            "a compiled estimator cannot be pickled: pickle the estimator and compile it again, "
            "or save the plan with .plan.save(path), for oven.load(path)"
        )

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
            return self._entries[name](X)[0]
        return self._checked(self._parts[name], X)[name]

    def _checked(self, plan: oven.Plan, X: object) -> dict[str, Any]:
        if self._wants_rows and row_count(X) == 0 and hasattr(X, "__len__"):
            raise NotRectangular(
                "there are no rows, and the estimator asks for one at least",
                where="$",
                found=f"{type(X).__name__} of length 0",
                hint="answer an empty request without asking",
            )
        return plan.run(X)
