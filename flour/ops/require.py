"""Rows refused for NaN, infinity or missing strings, where the original refuses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy import isnan
from numpy.typing import NDArray

from flour.core.check import expect, is_string, numeric, vector
from flour.core.emission import Column, Emitter, RowValue, ScalarValue, VectorValue
from flour.core.errors import InputError, ParameterError, TypeMismatch
from flour.core.native import Code, FittedNumbers, Spelled, as_row, write
from flour.core.node import Node, node
from flour.core.op import Array, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import FLOATS, LARGEST, LARGEST_SINGLE, Extent, Scalar, Type, Vector
from flour.core.words import Number, Numbers, Row, added, cast, number, refuse, stored, string
from flour.language.flow import Flow

_ANSWER = 'on_missing="answer"'
HINT = f"impute such values in a step before it, or import with {_ANSWER}"


class RequireFinite(Op, refuses=True):
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
            if value.shape not in ((1,), (width,)):
                raise TypeMismatch(f"require_finite is for {value.array.size} columns, got {x}")
            expect(value.array.dtype == dtype, f"{value.array.dtype} where {dtype} belongs")
        expect(len(self.steps) in (0, 3, 3 * width), f"{len(self.steps)} steps of {width} columns")
        return kind

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

    @property
    def _alike(self) -> bool:
        """True if all columns are checked alike."""
        nan, largest = self.nan.array, self.largest.array
        return bool(len(nan) and (nan == nan[:1]).all() and (largest == largest[:1]).all())

    def is_about_finite(self, dtype: str) -> bool:
        """True if it refuses just what is not finite in this dtype."""
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
        if isinstance(x, VectorValue) and not all(part.stored for part in x.parts):
            x = e.keep(x)
        write(e, check_row, as_row(e, x), self._test(e, x.dtype, alone=isinstance(x, ScalarValue)))
        return x

    def check_block(self, e: Emitter, x: Column) -> None:
        """Native code that checks a whole block ahead of the loop over its rows."""
        dtype, (nan, limits) = getattr(x.type, "dtype", ""), (self.nan.array, self.largest.array)
        at = Spelled(lambda i, j: Code(e.load(x.row(i), j, dtype, constant=True), dtype))
        shape = [Code(each, "int64") for each in (e.rows, x.size, x.stride)]
        tests = [self._test(e, dtype)]
        if not self._alike and (nan == nan[:1]).all():
            # By the least limit first: what is beyond it is looked at again, by column.
            least = self.replace(nan=nan[:1], largest=limits.min(keepdims=True))
            tests.insert(0, least._test(e, dtype))
        write(e, check_numbers, at, *shape, *tests)

    def _test(self, e: Emitter, dtype: str, *, alone: bool = False) -> NumberCheck:
        """The test of numbers of this dtype, or of one alone."""
        limits, nan = self._limits(dtype), self.nan.array
        # Of two widths, "float32" is the narrower.
        width = "" if alone else min(self._width, dtype)
        return NumberCheck(
            np.dtype(dtype).itemsize,
            FittedNumbers(Array.of(limits[:1] if self._alike else limits), dtype),
            self.nan,
            (bool(nan.any()), bool(nan.all())),
            self.least if np.isfinite(self.least) else None,
            self.strict,
            self._alike,
            Code(e.number(0.0, width), width) if width else Code("0", "int64"),
        )


class NumberCheck(NamedTuple):
    """The numbers of a dtype that are refused."""

    itemsize: int
    limits: Numbers
    nan: Numbers
    #: NaN is refused in some column; in all of them.
    refuses_nan: tuple[bool, bool]
    least: float | None
    strict: bool
    #: True if it is the same in all columns.
    alike: bool
    #: A float if all that has to be seen is whether numbers are finite: a sum of numbers times
    #: zero, which uses SIMD, is NaN if one is not.
    nothing: Number


def is_refused(x: Number, j: int, test: NumberCheck) -> Any:
    """True if a number of column j is refused."""
    some, every = test.refuses_nan
    refused = not abs(x) <= test.limits[j] if every else abs(x) > test.limits[j]
    if some and not every:
        refused = refused | (isnan(x) & test.nan[j])
    if test.least is not None:
        least = number(test.least, x.dtype)
        refused = refused | (x <= least if test.strict else x < least)
    return refused


def seen(bad: Number, x: Number, j: int, test: NumberCheck) -> Number:
    """Add a number of column j to what was seen so far: not zero once a number is refused."""
    if test.nothing.dtype in FLOATS:
        return added(bad, cast(x, test.nothing.dtype) * test.nothing)
    return bad | cast(is_refused(x, j, test), "int64")


def check_row(x: Row, test: NumberCheck) -> None:
    """Refuse a row if any of its numbers is refused."""
    bad = test.nothing
    for j, v in stored(x):
        bad = seen(bad, v, j, test)
    if bad != 0:
        refuse()


def check_numbers(
    at: Callable[[int, int], Number],
    rows: int,
    width: int,
    stride: int,
    test: NumberCheck,
    then: NumberCheck | None = None,
) -> None:
    """Refuse a block if any of its numbers is refused: by one test, and then by another.

    Where rows have no gaps between them and columns are alike, they are one long row.
    """
    runs, columns = rows, width
    if test.alike and stride == test.itemsize * width:
        runs = 1
        columns = width * rows
    bad = test.nothing
    for i in range(runs):
        for j in range(columns):
            bad = seen(bad, at(i, j), j, test)
    if bad != 0:
        if then is not None:
            check_numbers(at, rows, width, stride, then)
        else:
            refuse()


class RequirePresent(Op, refuses=True, method="", makes_strings=True):
    """Strings as they are; a row is an error where one is NaN, or None if `none` is refused, too.

    `step` is the original's step that refuses them. Where None is refused, too, there is no answer
    without it: documents are read.
    """

    none: bool = False
    step: str = ""

    def infer(self, x: Type) -> Type:
        vector = isinstance(x, Vector) and x.dtype == "string"
        expect(vector or is_string(x), f"require_present needs strings, got {x}")
        return x

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

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        write(e, check_texts, as_row(e, x), none=self.none)
        return x


def check_texts(x: Row, *, none: bool) -> None:
    """Refuse a row with a missing string; one that is None only if that is refused."""
    for _, cell in stored(x):
        _, length = string(cell)
        if length < 0 if none else length == -2:
            refuse()


class RequireAny(Op, refuses=True, method=""):
    """x as it is; a row is an error if it is NaN in every column, which `step` cannot answer."""

    step: str = ""

    def infer(self, x: Type) -> Vector:
        return vector(x, "require_any")

    def reference(self, x: Columns) -> Columns:
        lost = np.isnan(x).all(axis=1)
        if lost.any():
            raise InputError(
                f"{self.step or 'this program'} answers a row without any value by the other rows "
                "of the call, which a program does not see",
                where=f"$[{int(np.argmax(lost))}]",
                found="NaN in every column",
                hint=f"leave the row out, or import with {_ANSWER}: as if it came alone",
            )
        return x

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        kept = x if all(part.stored for part in x.parts) else e.keep(x)
        write(e, check_any, as_row(e, kept))
        return kept


def check_any(x: Row) -> None:
    """Refuse a row of NaN alone."""
    present = 0
    for _, value in stored(x):
        if not isnan(value):
            present += 1
    if present == 0:
        refuse()


#: For a row that the original refuses: an error, or computing with it.
OnMissing = Literal["refuse", "answer"]


def refuses(on_missing: str) -> bool:
    """True if rows are checked, by the setting `on_missing`."""
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
    """True if it is a check of values with which there is an answer: not one for documents."""
    op = item.op
    needless = isinstance(op, RequireFinite | RequireAny)
    return needless or (isinstance(op, RequirePresent) and not op.none)
