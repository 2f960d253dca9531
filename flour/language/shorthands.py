"""Ways of saying common compositions in one word: nothing here that operators could not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flour.core.errors import ParameterError
from flour.core.provenance import here
from flour.language.fluent import Fluent

if TYPE_CHECKING:
    from flour.core.types import Type
    from flour.language.flow import Flow


class Shorthands(Fluent):
    """Compositions of operators as methods of a flow."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def type(self) -> Type:
            """What the one output of the flow is."""

    def scale(self, mean: ArrayLike, deviation: ArrayLike) -> Flow:
        """(x - mean) / deviation, column by column."""
        return self.as_float().subtract(mean).divide(deviation)

    def ordinal(self, categories: Sequence[Any], *, unknown: int = -1) -> Flow:
        """The place of each value among the categories; `unknown` for one that is not there.

        Of a vector, `categories` is a list of lists: one for each column.
        """
        runs = _runs(self.type, categories)
        starts = np.cumsum([0, *map(len, runs)])
        none = np.full(len(runs), unknown)
        if getattr(self.type, "dtype", "") == "string":
            codes = np.concatenate([np.arange(len(run)) for run in runs])
            texts = [str(value) for run in runs for value in run]
            return self.categorise_text(texts, codes, starts, none, none, none)
        order = [np.argsort(run, kind="stable") for run in runs]
        values = np.concatenate([np.asarray(r)[o] for r, o in zip(runs, order, strict=True)])
        return self.categorise(values, np.concatenate(order), starts, none, none)

    def one_hot(self, categories: Sequence[Any]) -> Flow:
        """A column for each category (of each column), with a one where the value is that one."""
        from flour.core.types import Vector

        codes = self.ordinal(categories)
        runs = _runs(self.type, categories)
        codes = codes if isinstance(codes.type, Vector) else codes.as_vector()
        return codes.one_hot_codes(np.cumsum([0, *map(len, runs)]))

    def linear_regressor(self, weights: ArrayLike, bias: ArrayLike = 0.0) -> Flow:
        """A program that answers `value`: weights times x plus bias, one number or several."""
        rows, offsets = _rows(weights, bias)
        found = self.linear(rows, offsets)
        return (found.element(0) if len(rows) == 1 else found).named("value")

    def linear_classifier(
        self, weights: ArrayLike, bias: ArrayLike = 0.0, *, classes: Sequence[object]
    ) -> Flow:
        """A program that answers `label` and `scores`.

        Two classes need one row of weights: above zero is the second class. More need a row for
        each class, and the largest score wins.
        """
        from flour.language.flow import outputs

        label, scores = self._decided(weights, bias, classes)
        return outputs(label=label, scores=scores)

    def logistic_classifier(
        self, weights: ArrayLike, bias: ArrayLike = 0.0, *, classes: Sequence[object]
    ) -> Flow:
        """A linear classifier that also answers `probabilities`: a sigmoid, or a softmax."""
        from flour.language.flow import outputs

        label, scores = self._decided(weights, bias, classes)
        if len(classes) > 2:
            probabilities = scores.softmax()
        else:
            second = scores.sigmoid()
            probabilities = second.one_minus().concat(second)
        return outputs(label=label, probabilities=probabilities, scores=scores)

    def _decided(
        self, weights: ArrayLike, bias: ArrayLike, classes: Sequence[object]
    ) -> tuple[Flow, Flow]:
        """The label and the scores of a linear classifier."""
        if not _listed(classes):
            raise ParameterError(
                "the classes are a list of labels",
                where=str(here()),
                found=repr(classes)[:60],
                hint="classes=['no', 'yes']",
            )
        rows, offsets = _rows(weights, bias)
        if len(classes) < 2 or len(rows) != (1 if len(classes) == 2 else len(classes)):
            raise ParameterError(
                "two classes need one row of weights, more need one for each class",
                where=str(here()),
                found=f"{len(rows)} rows for {len(classes)} classes",
                hint="weights of shape (1, columns), or (classes, columns)",
            )
        scores = self.linear(rows, offsets)
        if len(classes) > 2:
            return scores.arg_max().take(classes), scores
        single = scores.element(0)
        return single.greater([0.0]).cast("int64").take(classes), single


def _runs(kind: object, categories: Sequence[Any]) -> list[Sequence[Any]]:
    """The categories of each column; one value per row has one list of them."""
    from flour.core.types import Vector

    runs = list(categories) if isinstance(kind, Vector) and _listed(categories) else [categories]
    for run in runs:
        if not _listed(run):
            raise ParameterError(
                "the categories of a column are a list of values",
                where=str(here()),
                found=repr(run)[:60],
                hint="['red', 'green'] for one value a row, a list of lists for a vector",
            )
    return runs


def _listed(values: object) -> bool:
    return isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)


def _rows(weights: ArrayLike, bias: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights as one row per output, and one bias for each."""
    rows = np.atleast_2d(np.asarray(weights))
    return rows, np.broadcast_to(np.asarray(bias, dtype=float), (len(rows),)).copy()
