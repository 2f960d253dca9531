"""Ways of saying common compositions in one word: nothing here that operators could not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flour.fluent import Fluent
from flour.provenance import here

if TYPE_CHECKING:
    from flour.flow import Flow


class Shorthands(Fluent):
    """Compositions of operators as methods of a flow."""

    __slots__ = ()

    def scale(self, mean: ArrayLike, deviation: ArrayLike) -> Flow:
        """(x - mean) / deviation, column by column."""
        return self.as_float().subtract(mean).divide(deviation)

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
        from flour.flow import outputs

        label, scores = self._decided(weights, bias, classes)
        return outputs(label=label, scores=scores)

    def logistic_classifier(
        self, weights: ArrayLike, bias: ArrayLike = 0.0, *, classes: Sequence[object]
    ) -> Flow:
        """A linear classifier that also answers `probabilities`: a sigmoid, or a softmax."""
        from flour.flow import outputs

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
        from flour.errors import ParameterError

        rows, offsets = _rows(weights, bias)
        if len(classes) < 2 or len(rows) != (1 if len(classes) == 2 else len(classes)):
            raise ParameterError(
                "two classes need one row of weights, more need one for each class",
                where=str(here()),
                found=f"{len(rows)} rows for {len(classes)} classes",
            )
        scores = self.linear(rows, offsets)
        if len(classes) > 2:
            return scores.arg_max().take(classes), scores
        single = scores.element(0)
        return single.greater([0.0]).cast("int64").take(classes), single


def _rows(weights: ArrayLike, bias: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights as one row per output, and one bias for each."""
    rows = np.atleast_2d(np.asarray(weights))
    return rows, np.broadcast_to(np.asarray(bias, dtype=float), (len(rows),)).copy()
