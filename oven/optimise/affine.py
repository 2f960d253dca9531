"""Chains of x - m, x / s, x * a and x + b as one affine function of each column.

Only a leading offset is kept separate, because only there the order of operations matters for
accuracy: x - m is exact where x is close to m, and x·a - m·a is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.op import Op
from flour.core.types import FLOATS, Scalar, Type, Vector
from flour.ops.elementwise import Add, Divide, Multiply, Subtract, WithParameter

Numbers = NDArray[np.float64]
STEPS: tuple[type[Op], ...] = (Subtract, Add, Multiply, Divide)
#: Largest ratio of an offset to the difference it leaves for which the offset may be moved. Every
#: factor of ten loses a digit; 256 leaves more than thirteen of float64's sixteen, and 4 more than
#: six of float32's seven.
MOST_CANCELLATION = {"float64": 256.0, "float32": 4.0}
#: Numbers beyond this, or closer to zero than its inverse, are left alone: products of them may
#: overflow or lose digits.
HUGE = 1e150


class Affine(NamedTuple):
    """(x - centre) * factor + shift, one of each for all columns or one for every column."""

    centre: Numbers
    factor: Numbers
    shift: Numbers

    @property
    def sane(self) -> bool:
        """True if all numbers are finite and far from overflow, and no column is wiped out."""
        return all(
            bool(np.all(np.isfinite(part)) and np.all(np.abs(part) < HUGE)) for part in self
        ) and bool(np.all(np.abs(self.factor) > 1 / HUGE))

    @property
    def offset(self) -> Numbers:
        """b of x * factor + b."""
        return self.shift - self.centre * self.factor


def compose(steps: Iterable[Op], dtype: str) -> Affine:
    """The function of steps in the order they are applied, on data of this dtype."""
    centre, factor, shift = np.zeros(1), np.ones(1), np.zeros(1)
    scaled = False
    with np.errstate(all="ignore"):
        for step in steps:
            assert isinstance(step, WithParameter)
            value = step.fitted(np.empty(0, dtype)).astype(np.float64)
            match step:
                case Multiply() | Divide():
                    value = value if isinstance(step, Multiply) else 1.0 / value
                    factor, shift, scaled = factor * value, shift * value, True
                case _ if scaled:
                    shift = shift + (value if isinstance(step, Add) else -value)
                case _:
                    centre = centre - (value if isinstance(step, Add) else -value)
    return Affine(centre, factor, shift)


def is_float(kind: Type) -> bool:
    """True if it is a float, or a vector of them."""
    return isinstance(kind, Vector | Scalar) and kind.dtype in FLOATS


def dtype_of(item: Node) -> str:
    """The dtype of a number or a vector, empty for anything else."""
    return item.type.dtype if isinstance(item.type, Vector | Scalar) else ""
