"""Rows refused for NaN, infinity or missing strings, where the original refuses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, is_string, numeric
from flour.core.emission import Column, Emitter, RowValue, ScalarValue
from flour.core.errors import InputError, ParameterError
from flour.core.node import Node, node
from flour.core.op import Array, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import FLOATS, LARGEST, LARGEST_SINGLE, Extent, Scalar, Type, Vector
from flour.language.flow import Flow

HINT = 'impute such values in a step before it, or import with on_missing="answer"'


class RequireFinite(Op):
    """x as it is; a row is an error that has NaN, or a number beyond `largest`, in some columns.

    `nan` says by column (or one for all) whether NaN is refused; a `largest` of infinity refuses no
    number. Of the original's steps, `nan_step` refuses NaN and `step` large numbers; `labels` name
    the columns. Numbers below `least` are refused as well, and with `strict` itself. `steps` are
    the steps that refuse NaN, infinity and large numbers, in all columns or in each.
    """

    method = ""
    takes_sparse = True
    keeps_zero = True
    by_column = True
    same_values = True

    nan: Array
    largest: Array
    nan_step: str = ""
    step: str = ""
    labels: tuple[str, ...] = ()
    least: float = -np.inf
    strict: bool = False
    steps: tuple[str, ...] = ()

    def digested(self) -> list[str]:
        """As without the last fields, where they say nothing."""
        parts = super().digested()
        return parts if self.steps else parts[: -1 if np.isfinite(self.least) else -3]

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        # Numbers near the end of a range are not taken into account.
        limited = np.isfinite(self.largest.array).all()
        largest = min(inputs[0].largest, 1e15 if limited else np.inf)
        return Extent(inputs[0].nan and not self.nan.array.all(), largest)

    def infer(self, x: Type) -> Vector | Scalar:
        kind = numeric(x, "require_finite")
        width = kind.width if isinstance(kind, Vector) else 1
        for value, dtype in ((self.nan, "bool"), (self.largest, "float64")):
            fine = value.shape in ((1,), (width,))
            expect(fine, f"require_finite is for {value.array.size} columns, got {x}")
            expect(value.array.dtype == dtype, f"{value.array.dtype} where {dtype} belongs")
        expect(len(self.steps) in (0, 3, 3 * width), f"{len(self.steps)} steps of {width} columns")
        return kind

    def refuses_rows(self) -> bool:
        return True

    def reference(self, x: Columns) -> Columns:
        if isinstance(x, Sparse):
            rows = np.repeat(np.arange(len(x)), np.diff(x.indptr))
            self._complain(x.data, rows, x.indices, x.shape[1])
        elif x.dtype.kind == "f":
            values = x[:, None] if x.ndim == 1 else x
            rows, columns = (np.arange(size) for size in values.shape)
            self._complain(values, rows[:, None], columns, values.shape[1])
        return x

    def _complain(self, values: NDArray[Any], rows: Any, columns: Any, width: int) -> None:
        if values.dtype.kind != "f":
            return
        limits, nan = self._limits(values.dtype.name), self.nan.array
        limit, refused = (np.broadcast_to(each, width)[columns] for each in (limits, nan))
        with np.errstate(over="ignore"):  # the least of float64 is less than all float32
            below = values <= self.least if self.strict else values < self.least
        bad = (np.abs(values) > limit) | (np.isnan(values) & refused) | below
        if not bad.any():
            return
        place = np.unravel_index(int(np.argmax(bad)), bad.shape)
        row, column = (int(np.broadcast_to(each, bad.shape)[place]) for each in (rows, columns))
        name = f"$.{self.labels[column]}[{row}]" if self.labels else f"$[{row}][{column}]"
        value = values[place]
        step = self.nan_step if np.isnan(value) else self.step
        if self.steps:
            each = len(self.steps) // 3
            kind = 0 if np.isnan(value) else 1 + int(np.isfinite(value))
            step = self.steps[kind * each + column % each]
        most = np.broadcast_to(limit, bad.shape)[place]
        raise InputError(
            f"{step or 'this program'} refuses {self._described(float(value), float(most))}",
            where=name,
            found=str(value),
            hint=HINT,
        )

    def _described(self, value: float, most: float) -> str:
        if abs(value) <= most:
            return f"a number {'that is not above' if self.strict else 'below'} {self.least:g}"
        if np.isfinite(value):
            return "a number " + ("beyond float32" if most == LARGEST_SINGLE else "that overflows")
        return "NaN" if np.isnan(value) else "infinity"

    def _limits(self, dtype: str) -> NDArray[np.float64]:
        """The largest number by column, of those that this dtype has."""
        most = float(np.finfo(dtype).max)
        limits: Any = self.largest.array
        return np.where(np.isfinite(limits), np.minimum(limits, most), np.inf)

    def structure(self) -> tuple[object, ...]:
        nan = self.nan.array
        return (
            self._width,
            self._alike,
            bool(nan.any()),
            bool(nan.all()),
            np.isfinite(self.least),
            self.strict,
        )

    @property
    def _alike(self) -> bool:
        """Whether it refuses the same in every column."""
        nan, largest = self.nan.array, self.largest.array
        return bool(len(nan) and (nan == nan[:1]).all() and (largest == largest[:1]).all())

    def is_about_finite(self, dtype: str) -> bool:
        """Whether it refuses just what is not finite in this dtype."""
        return bool(self._width) and min(self._width, dtype) == dtype

    @property
    def _width(self) -> str:
        """The float width in which every column has to be finite; empty where it is not that."""
        widths = {LARGEST: "float64", LARGEST_SINGLE: "float32"}
        whole = self._alike and self.nan.array.any() and np.isinf(self.least)
        return widths.get(float(self.largest.array[0]), "") if whole else ""

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        if x.dtype not in FLOATS:
            return x
        if isinstance(x, ScalarValue):
            with e.block(f"if {self._test(e, '0', x.expr, x.dtype)}:"):
                e.line("return 1")
            return x
        if not all(part.stored for part in x.parts):
            x = e.keep(x)
        bad, look = self._looking(e, x.dtype)
        x.each(look)
        with e.block(f"if {bad} != 0:"):
            e.line("return 1")
        return x

    def check_block(self, e: Emitter, x: Column) -> None:
        """Native code that checks a whole block ahead of the loop over its rows."""
        nan, limits = self.nan.array, self.largest.array
        if self._alike or not (nan == nan[:1]).all():
            self._check_block(e, x, lambda: e.line("return 1"))
            return
        # By the least limit first: what is beyond it is looked at again, by column.
        least = self.replace(nan=nan[:1], largest=limits.min(keepdims=True))
        least._check_block(e, x, lambda: self._check_block(e, x, lambda: e.line("return 1")))

    def _check_block(self, e: Emitter, x: Column, refused: Callable[[], None]) -> None:
        """Native code for a whole block, and for what follows where a number of it is refused.

        Where rows have no gaps between them and columns are alike, they are one long row.
        """
        dtype = getattr(x.type, "dtype", "")
        rows, size = e.var(e.rows, "m"), e.var(x.size, "m")
        if self._alike:
            with e.block(f"if {x.stride} == {np.dtype(dtype).itemsize} * {size}:"):
                e.line(f"{rows}, {size} = 1, {size} * {e.rows}")
        bad, look = self._looking(e, dtype)
        with e.loop(rows) as i, e.loop(size) as j:
            look(j, e.load(x.row(i), j, dtype, constant=True))
        with e.block(f"if {bad} != 0:"):
            refused()

    def _looking(self, e: Emitter, dtype: str) -> tuple[str, Callable[[str, str], None]]:
        """A number, and a function that emits the look at one value: it is not 0 if refused."""
        # Zero times a number is zero, and NaN for all that is refused: a sum uses SIMD.
        width = min(self._width, dtype)  # of two widths, "float32" is the narrower
        zero = e.number(0.0, width) if width else "0"
        bad = e.var(zero)

        def look(j: str, v: str) -> None:
            if width:
                e.add(bad, f"({e.cast(v, dtype, width)} * {zero})", width)
            else:
                e.line(f"{bad} |= int64({self._test(e, j, v, dtype)})")

        return bad, look

    def _test(self, e: Emitter, j: str, v: str, dtype: str) -> str:
        """Whether the value is one that is refused, as an expression."""
        limits, nan = self._limits(dtype), self.nan.array
        limit = e.at(Array.of(limits[:1] if self._alike else limits), j, dtype)
        several = (nan.any() and not nan.all()) or np.isfinite(self.least)
        value = e.let(v, dtype).expr if several else v
        tests = [f"(not abs({value}) <= {limit})" if nan.all() else f"(abs({value}) > {limit})"]
        if nan.any() and not nan.all():
            tests.append(f"(({value} != {value}) & {e.at(self.nan, j)})")
        if np.isfinite(self.least):
            tests.append(f"({value} {'<=' if self.strict else '<'} {e.number(self.least, dtype)})")
        return f"({' | '.join(tests)})" if several else tests[0]


class RequirePresent(Op):
    """Strings as they are; a row is an error where one is NaN, or None if `none` is refused, too.

    `step` is the original's step that refuses them. Where None is refused, too, there is no answer
    without it: documents are read.
    """

    method = ""
    makes_strings = True

    none: bool = False
    step: str = ""

    def infer(self, x: Type) -> Type:
        vector = isinstance(x, Vector) and x.dtype == "string"
        expect(vector or is_string(x), f"require_present needs strings, got {x}")
        return x

    def refuses_rows(self) -> bool:
        return True

    def reference(self, x: Columns) -> Columns:
        for place, value in np.ndenumerate(x):
            if not isinstance(value, str) and (self.none or value is not None):
                raise InputError(
                    f"{self.step or 'this program'} refuses missing strings",
                    where="$" + "".join(f"[{index}]" for index in place),
                    found=str(value),
                    hint=HINT,
                )
        return x

    def structure(self) -> tuple[object, ...]:
        return (self.none,)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        def look(_: str, cell: str) -> None:
            length = e.let(f"ld_int64({cell}, 1)", "int64").expr
            with e.block(f"if {length} {'< 0' if self.none else '== -2'}:"):
                e.line("return 1")

        if isinstance(x, ScalarValue):
            look("0", x.expr)
        else:
            x.each(look)
        return x


#: Whether a row that the original refuses is an error, or is computed with.
OnMissing = Literal["refuse", "answer"]


def refuses(on_missing: str) -> bool:
    """Whether rows are checked, by the setting `on_missing`."""
    if on_missing not in ("refuse", "answer"):
        raise ParameterError(
            "there is no such setting of on_missing",
            where="on_missing",
            found=repr(on_missing)[:80],
            hint='"refuse" rows with NaN or infinity as the original does, or "answer" them',
        )
    return on_missing == "refuse"


def above(x: Flow, least: float, step: str, *, strict: bool = False) -> Flow:
    """x, of which a step refuses numbers below `least`; with `strict` that number, too."""
    return RequireFinite([False], [np.inf], step=step, least=least, strict=strict)(x)


def without_checks(program: Flow) -> Flow:
    """The program as it answers rows that the original refuses."""
    if not any(map(_is_answered, program.nodes())):
        return program
    return program.rebuilt(
        lambda old, inputs: inputs[0] if _is_answered(old) else node(old.op, inputs)
    )


def _is_answered(item: Node) -> bool:
    """Whether it is a check of values with which there is an answer: not one for documents."""
    op = item.op
    return isinstance(op, RequireFinite) or (isinstance(op, RequirePresent) and not op.none)
