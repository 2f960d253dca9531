"""Shapes that many operators share: an element-wise function, and a reduction over columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, is_float, numeric, vector
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.native import expression
from flour.core.op import Arity, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import ANYTHING, FLOATS, Extent, Scalar, Type, Vector, extent_of, union
from objectstore import Blob


class Elementwise(Op, abstract=True, by_column=True):
    """One input, the same function on every element, parameters by column (or one for all).

    Subclasses give `compute` (numpy, over a dense array) and `element` (an expression), or one
    `function` for both, of which `native` may be another form. In native code it is given x and
    the parameters, those by column as the number of the column, in the dtype of x.
    A parameter of one element stands for all columns.
    """

    #: The dtype of the result, or None for that of the input.
    result: ClassVar[str | None] = None
    #: The function is the same for every column, so rows that lie one after the other in memory may
    #: be computed as one long row.
    alike: ClassVar[bool] = False
    function: ClassVar[Callable[..., Any]]
    native: ClassVar[Callable[..., Any] | None] = None

    def infer(self, x: Type) -> Type:
        kind = numeric(x, self.name)
        width = kind.width if isinstance(kind, Vector) else 1
        for key, value in self.fields().items():
            if isinstance(value, Blob):
                expect(
                    value.array.size in (1, width),
                    f"{self.name} has {value.array.size} values of {key} for {width} columns",
                    "was a column dropped or added before this step?",
                )
        return self.output(kind)

    def output(self, kind: Vector | Scalar) -> Type:
        """The output type for a checked input type."""
        dtype = self.result or kind.dtype
        if isinstance(kind, Scalar):
            return Scalar(dtype)
        return kind.having(dtype=dtype, sparse=kind.sparse and self.keeps_zero)

    def compute(self, x: NDArray[Any]) -> Any:
        """The function on an array whose last axis is the columns."""
        return type(self).function(x)

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        if not (self.monotone or self.widest_at_ends):
            return super().extent(inputs, kinds)
        (x,) = inputs
        results = self.at([x.largest, -x.largest, *[np.nan] * x.nan], kinds[0])
        ends = extent_of(results[:2])
        if ends.nan:
            return ANYTHING
        return union([ends, extent_of(results[2:])]) if x.nan else ends

    def at(self, numbers: Sequence[float], kind: Type) -> Any:
        """The results for these numbers: a row for each, a column for each of the parameters."""
        assert isinstance(kind, Vector | Scalar)
        sizes = [value.array.size for value in self.fields().values() if isinstance(value, Blob)]
        rows = np.array(numbers, kind.dtype if is_float(kind) else "float64")
        with np.errstate(all="ignore"):
            return self.compute(rows[:, None].repeat(max(sizes, default=1), axis=1))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        """The function as an expression; `j` is the column number."""
        given = (
            ScalarValue(e.at(value, j, x.dtype), x.dtype) if isinstance(value, Blob) else value
            for value in self.fields().values()
        )
        return expression(e, type(self).native or type(self).function, x, *given)

    def reference(self, x: Columns) -> Columns:
        if isinstance(x, Sparse):
            return x.with_data(self.on_columns(x.indices).compute(x.data))
        return self.compute(x)

    def on_columns(self, columns: NDArray[Any]) -> Elementwise:
        """This function with its per-column parameters gathered for these columns."""
        changed = {
            key: value.array.reshape(-1)[columns]
            for key, value in self.fields().items()
            if isinstance(value, Blob) and value.array.size > 1
        }
        return self.replace(**changed) if changed else self

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        def element(j: str, v: str) -> str:
            return self.element(e, j, ScalarValue(v, x.dtype))

        return e.map(element, x, dtype=self.result or x.dtype, keeps_zero=self.keeps_zero)


class FloatElementwise(Elementwise, abstract=True):
    """An element-wise function that only makes sense on floats; parameters take the input's width.

    scikit-learn casts fitted parameters to the dtype of the data before it computes, so float32
    data stays float32 throughout.
    """

    def output(self, kind: Vector | Scalar) -> Type:
        expect(
            kind.dtype in FLOATS,
            f"{self.name} computes on floats, got {kind}",
            "call as_float() first",
        )
        return super().output(kind)


class Reduction(Op, abstract=True, arity=Arity.AGGREGATE):
    """All columns of a vector to one number per row.

    Subclasses give `compute` (numpy), `start`, `step` and `finish` (expressions).
    """

    #: Zeros change nothing, so a sparse vector's stored values are enough.
    skips_zeros: ClassVar[bool] = False
    result: ClassVar[str | None] = None

    def infer(self, x: Type) -> Scalar:
        kind = vector(x, self.name)
        expect(kind.width > 0 or self.skips_zeros, f"{self.name} needs at least one column")
        return Scalar(self.result or kind.dtype)

    def compute(self, x: NDArray[Any]) -> Any:
        """The reduction over axis 1."""
        raise NotImplementedError(f"{self.name}.compute")

    def reference(self, x: Columns) -> Columns:
        return self.compute(x)


def meeting(*sides: Columns) -> list[Columns]:
    """The columns, those of one value a row as matrices of one column if any is a matrix."""
    matrices = any(side.ndim == 2 for side in sides)
    return [side[:, None] if matrices and side.ndim == 1 else side for side in sides]
