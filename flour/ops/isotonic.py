"""Isotonic regression: a curve through fitted points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core import words
from flour.core.check import numeric
from flour.core.emission import Emitter, ScalarValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, expression
from flour.core.op import Array, Op
from flour.core.types import Type
from flour.core.words import Number, like
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.bases import FloatElementwise
from flour.ops.interpolate import last_place


class Interpolate(FloatElementwise):
    """The height at x of the straight lines between (knots, heights); NaN outside them.

    Knots ascend. In float64 a number that is a knot gets exactly its height; in float32 it is
    reached along the line from the left (numpy interpolates float64, scipy the rest).
    """

    knots: Array
    heights: Array

    def cuts_behind(self, *sources: Op) -> bool:
        return sources[0].name != "Clip"  # only beyond the ends, where it answers NaN

    def check(self) -> None:
        knots: Any = self.knots.array
        if knots.ndim != 1 or len(knots) < 2 or self.heights.shape != knots.shape:
            raise ParameterError("two knots or more are needed, and a height for each")
        if not np.all(knots[1:] > knots[:-1]):
            raise ParameterError("knots must ascend")

    def infer(self, x: Type) -> Type:
        return self.output(numeric(x, "interpolate"))

    def _exact(self, dtype: str) -> bool:
        return dtype == "float64"

    def compute(self, x: NDArray[Any]) -> Any:
        knots, heights = (side.array.astype(x.dtype) for side in (self.knots, self.heights))
        inside = (x >= knots[0]) & (x <= knots[-1])
        if self._exact(x.dtype.name):
            return np.where(inside, np.interp(x, knots, heights), np.nan)
        high = np.searchsorted(knots, x).clip(1, len(knots) - 1)
        low = high - 1
        slope = (heights[high] - heights[low]) / (knots[high] - knots[low])
        height = slope * (x - knots[low]) + heights[low]
        return np.where(inside, height, x.dtype.type(np.nan))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        end = ScalarValue(e.size(len(self.knots) - 1), "int64")
        knots, heights = FittedNumbers(self.knots, x.dtype), FittedNumbers(self.heights, x.dtype)
        return expression(e, height, x, knots, heights, end, exact=self._exact(x.dtype))


def height(
    x: Number, knots: words.Numbers, heights: words.Numbers, end: int, *, exact: bool
) -> Number:
    """The height of the lines at x."""
    result = like(x, math.nan)
    if x >= knots[0] and x <= knots[end]:
        low = last_place(knots, end, x, np.less_equal if exact else np.less)
        high = low + 1
        rise = (heights[high] - heights[low]) / (knots[high] - knots[low])
        result = rise * (x - knots[low]) + heights[low]
        if exact:
            for index in (low, high):
                if x == knots[index]:
                    result = heights[index]
    return result


@adapts("sklearn.isotonic.IsotonicRegression")
def _isotonic(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    to.need(
        fit.out_of_bounds != "raise",
        "out_of_bounds='raise' stops the library at rows outside the range it was fitted on",
        "use out_of_bounds='clip' or 'nan'",
    )
    value = isotonic(fit, to.matrix(x).cast(str(fit.X_thresholds_.dtype.name)).element(0))
    return {"value": value, "features": value}


def isotonic(fit: Fitted, x: Flow) -> Flow:
    """The fitted curve at x, which is a number in the dtype of its knots."""
    if len(fit.X_thresholds_) == 1:
        return x.fill(fit.y_thresholds_.astype(fit.X_thresholds_.dtype), scalar=True)
    if fit.out_of_bounds == "clip":
        x = x.clip(fit.X_min_, fit.X_max_)
    return x.interpolate(fit.X_thresholds_, fit.y_thresholds_)
