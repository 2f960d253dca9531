"""The means of writing native code: the values of one row, and the emitter's vocabulary.

A stage is a loop over rows. Inside it a scalar is a local variable (`ScalarValue`) and a vector
is a sequence of parts (`VectorValue`): a part that can say its j-th element (`at`) costs nothing
until it is read, so fusing is calling and a concatenation is a list. A part without `at`
(sparse) can only push the elements that are not zero.

    x.each(lambda j, v: e.line(f"{acc} += {v}"))     every element (or stored element), in order
    y = e.map(lambda j, v: f"({v} * 2.0)", x, ...)   a new vector, computed where it is read
    z = e.hold(x)                                    the same vector, written to scratch once

The `j` handed to functions is the column number in the whole vector, as an expression; asking for
an element emits lines that compute it, so ask inside the loop that uses it. Everything emitted is a
Python expression or statement over int64 addresses and numbers, in the vocabulary that
`oven.compiler.native` compiles (docs/contributing/native-code.md); widths, addresses and fitted
numbers come from the parameter table, so the text depends on structure alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from flour.core.types import Type
from objectstore import Blob, Strings


class Room(NamedTuple):
    """Memory whose size depends on the data: `each` for every byte of the longest row, and `fixed`.

    Never more than `most`. Used as well for numbers of things. Rows are as long as their document,
    or as their words with a byte between them.
    """

    each: int
    fixed: int
    most: int = 2**62

    def times(self, factor: int) -> Room:
        """Room for `factor` times as much."""
        return Room(self.each * factor, self.fixed * factor, min(self.most * factor, 2**62))


#: The bytes of a value in memory.
BYTES = {"float64": 8, "float32": 4, "bool": 1, "string": 16}
BYTES |= {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (64, 32, 16, 8)}

At = Callable[[str], str]
Push = Callable[[str, str], None]


class ScalarValue(NamedTuple):
    """One number per row: an expression that is cheap to repeat (a local or a literal).

    A string is the address of its cell: two int64, where its UTF-8 bytes are and how many. A
    length of -1 is None, of -2 NaN.
    """

    expr: str
    dtype: str


class ColumnRun(NamedTuple):
    """A run of consecutive columns of a vector, `size` of them from column `start`.

    `at` takes the position within the part and may emit lines; `each` pushes (column number in
    the whole vector, value).
    """

    start: str
    size: str
    at: At | None
    each: Callable[[Push], None]
    #: `at` is one load from memory, so asking twice costs nothing.
    stored: bool = False
    #: Of a part without `at` that has its elements in the order of the columns (in ordered code)
    #: and none twice: how many are stored at most.
    most: Room | None = None


class VectorValue(NamedTuple):
    """The columns of one row, as parts in order."""

    dtype: str
    width: int
    size: str
    parts: tuple[ColumnRun, ...]

    def each(self, push: Push) -> None:
        """Emit code that pushes every element (of sparse parts: every stored one), in order."""
        for part in self.parts:
            part.each(push)

    @property
    def dense(self) -> bool:
        """True if every part can say any of its elements."""
        return all(part.at is not None for part in self.parts)


class TextValue(NamedTuple):
    """A document: where its UTF-8 bytes are, and how many. Sixteen bytes behind it may be read.

    It has at most `growth` times the bytes of the longest row.
    """

    where: str
    size: str
    growth: int


class TokensValue(NamedTuple):
    """Words: a list of slices of the bytes from `base` on (see oven.compiler.intrinsics.text), and
    their number.

    `most` says how many there are at most, `joined` how many bytes they take with a byte more each.
    """

    base: str
    slices: str
    number: str
    most: Room
    joined: Room


class PairsValue(NamedTuple):
    """Names and numbers: slices of the bytes from `base` on, as many float64, and their number.

    `most` says how many there are at most.
    """

    base: str
    slices: str
    number: str
    values: str
    most: Room


RowValue = ScalarValue | VectorValue
#: A value that one operator hands to the next; documents and words stay inside a stage.
Value = RowValue | TextValue | TokensValue | PairsValue


class Column(NamedTuple):
    """A column of a block: the address of row 0, the bytes from row to row, and its type."""

    base: str
    stride: str
    type: Type
    size: str

    def row(self, i: str) -> str:
        """The address of row `i`."""
        return f"({self.base} + {i} * {self.stride})"


class Emitter:
    """The vocabulary an operator writes its native code with."""

    exact: bool
    #: Sparse vectors have to push their elements in the order of the columns.
    ordered: bool
    #: Memory counts, so tables are small: without those for many rows at once ("rows"), or with
    #: them ("blocks"); empty where time counts alone.
    lean: str
    #: The number of rows of the block (kernels only).
    rows: str

    # --- what the text of a stage knows: see oven.codegen.emitter --------------------------------

    def line(self, text: str) -> None:
        """One statement."""
        raise NotImplementedError

    def fresh(self, stem: str = "v") -> str:
        """A local name that is not used elsewhere."""
        raise NotImplementedError

    def block(self, header: str) -> AbstractContextManager[None]:
        """Any compound statement: `if ...:`, `while ...:`, `else:`."""
        raise NotImplementedError

    def address(self, parameter: Blob | Strings, dtype: str | None = None) -> str:
        """A local holding where the parameter's values are (converted to dtype at bake time)."""
        raise NotImplementedError

    def at(self, parameter: Blob | Strings, index: str, dtype: str | None = None) -> str:
        """Element `index` of a parameter; a parameter of one element is a loop-invariant local."""
        raise NotImplementedError

    def size(self, number: int) -> str:
        """A local holding an integer that differs between programs of one structure."""
        raise NotImplementedError

    def number(self, value: float, dtype: str) -> str:
        """A local holding a number that differs between programs of one structure."""
        raise NotImplementedError

    def scratch(self, dtype: str, count: int) -> str:
        """A local holding the address of `count` elements that live for one row (or block)."""
        raise NotImplementedError

    def room(self, room: Room) -> str:
        """A local holding the address of memory for one row, as much as the data needs."""
        raise NotImplementedError

    def let(self, expr: str, dtype: str) -> ScalarValue:
        """Evaluate once, into a new local (names and literals are left alone)."""
        if expr.isidentifier():
            return ScalarValue(expr, dtype)
        name = self.fresh()
        self.line(f"{name} = {expr}")
        return ScalarValue(name, dtype)

    def var(self, expr: str, stem: str = "a") -> str:
        """A new local that will be assigned again."""
        name = self.fresh(stem)
        self.line(f"{name} = {expr}")
        return name

    @contextmanager
    def loop(self, count: str, start: str = "0") -> Iterator[str]:
        """`for j in range(start, count):`, giving the name of j; one turn needs no loop."""
        if (start, count) == ("0", "1"):
            yield "0"
            return
        name = self.fresh("j")
        span = count if start == "0" else f"{start}, {count}"
        with self.block(f"for {name} in range({span}):"):
            yield name

    def refuse(self, condition: str) -> None:
        """Leave the rows to the definition where the condition holds."""
        with self.block(f"if {condition}:"):
            self.line("return 1")

    # --- memory and arithmetic -----------------------------------------------------------------

    def load(self, base: str, index: str, dtype: str, *, constant: bool = False) -> str:
        """Element `index` at an address (`constant`: not written during the call)."""
        if dtype == "string":
            return f"({base} + 16 * ({index}))"
        return f"{'ldc' if constant else 'ld'}_{dtype}({base}, {index})"

    def store(self, base: str, index: str, value: str, dtype: str) -> None:
        """Write element `index` at an address."""
        if dtype == "string":
            for half in ("0", "1"):
                self.line(f"st_int64({base}, 2 * ({index}) + {half}, ld_int64({value}, {half}))")
        else:
            self.line(f"st_{dtype}({base}, {index}, {value})")

    def cast(self, expr: str, source: str, target: str) -> str:
        """The expression converted from one dtype to another, as numpy converts."""
        if source == target:
            return expr
        return f"({expr} != 0)" if target == "bool" else f"{target}({expr})"

    def add(self, accumulator: str, term: str, dtype: str = "float64") -> None:
        """accumulator += term, in any order unless the program must be exact."""
        if self.exact or not dtype.startswith("float"):
            self.line(f"{accumulator} = {accumulator} + {term}")
        else:
            self.line(f"{accumulator} = loose_add_{dtype}({accumulator}, {term})")

    # --- vectors -----------------------------------------------------------------------------

    def hold(self, value: VectorValue) -> VectorValue:
        """This vector, dense, written to scratch once."""
        address = self.scratch(value.dtype, value.width)
        self.write(value, address)

        def at(j: str) -> str:
            return self.load(address, j, value.dtype)

        return self.dense(value.dtype, value.width, at, size=value.size, stored=True)

    def keep(self, value: VectorValue) -> VectorValue:
        """This vector, written to scratch once; of sparse parts, the stored numbers only."""
        if value.dense or any(part.at is None and part.most is None for part in value.parts):
            return self.hold(value)
        parts = tuple(self._kept_part(part, value.dtype) for part in value.parts)
        return value._replace(parts=parts)

    def _kept_part(self, part: ColumnRun, dtype: str) -> ColumnRun:
        if part.most is None:
            return part
        columns, values = self.room(part.most.times(8)), self.room(part.most.times(BYTES[dtype]))
        count = self.var("0", "k")

        def put(j: str, v: str) -> None:
            self.store(columns, count, j, "int64")
            self.store(values, count, v, dtype)
            self.line(f"{count} += 1")

        part.each(put)

        def each(push: Push) -> None:
            with self.loop(count) as k:
                column = self.let(self.load(columns, k, "int64"), "int64").expr
                push(column, self.let(self.load(values, k, dtype), dtype).expr)

        return part._replace(each=each)

    def write(self, value: RowValue, where: str) -> None:
        """Store a value's elements at an address."""
        if isinstance(value, ScalarValue):
            self.store(where, "0", value.expr, value.dtype)
            return
        for part in value.parts:
            if part.at is None:
                with self.loop(part.size) as j:
                    zero = "0.0" if value.dtype.startswith("float") else "0"
                    self.store(where, plus(part.start, j), zero, value.dtype)
        value.each(lambda j, v: self.store(where, j, v, value.dtype))

    def write_stored(self, value: VectorValue, row: str, columns: str, values: str) -> None:
        """Store the elements that are not zero, from the position in the row's pointer on."""
        position = self.var(self.load(row, "0", "int64"), "k")

        def put(j: str, v: str) -> None:
            self.store(columns, position, j, "int64")
            self.store(values, position, v, value.dtype)
            self.line(f"{position} += 1")

        def put_unless_zero(j: str, v: str) -> None:
            number = self.let(v, value.dtype).expr
            with self.block(f"if {number} != 0:"):
                put(j, number)

        for part in value.parts:
            part.each(put if part.at is None else put_unless_zero)
        self.store(row, "1", position, "int64")

    def indexable(self, value: VectorValue) -> At:
        """A way to read any element cheaply, any number of times (held if it has to be)."""
        if not (len(value.parts) == 1 and value.parts[0].stored):
            value = self.hold(value)
        at = value.parts[0].at
        assert at is not None, "held vectors say their elements"
        return at

    def map(
        self,
        function: Callable[..., str],
        *values: RowValue,
        dtype: str,
        width: int | None = None,
        keeps_zero: bool = False,
    ) -> RowValue:
        """A vector whose element j is function(j, element j of each value); scalars repeat.

        Of scalars alone it is a scalar. With `keeps_zero`, sparse parts stay sparse; otherwise they
        are held first.
        """
        vectors = [value for value in values if isinstance(value, VectorValue)]
        if not vectors:
            scalars = [value.expr for value in values if isinstance(value, ScalarValue)]
            return self.let(function("0", *scalars), dtype)
        width = vectors[0].width if width is None else width
        if len(vectors) == 1:
            (vector,) = vectors
            if not keeps_zero and not vector.dense:
                vector = self.hold(vector)

            def call(j: str, v: str) -> str:
                items = [value.expr if isinstance(value, ScalarValue) else v for value in values]
                return self.let(function(j, *items), dtype).expr

            parts = tuple(self._mapped(part, call) for part in vector.parts)
            return VectorValue(dtype, width, vector.size, parts)
        ready = [self._single(value) for value in values]

        def at(j: str) -> str:
            items = [value.expr if isinstance(value, ScalarValue) else value(j) for value in ready]
            return self.let(function(j, *items), dtype).expr

        return self.dense(dtype, width, at, size=vectors[0].size)

    def _single(self, value: RowValue) -> ScalarValue | At:
        """A vector as one dense part's `at`, so that several can be walked together."""
        if isinstance(value, ScalarValue):
            return value
        if len(value.parts) == 1 and value.parts[0].at is not None:
            return value.parts[0].at
        return self.indexable(value)

    def _mapped(self, part: ColumnRun, call: Callable[[str, str], str]) -> ColumnRun:
        inner = part.at
        if inner is None:
            return part._replace(each=lambda push: part.each(lambda j, v: push(j, call(j, v))))
        return self._part(part.start, part.size, lambda j: call(plus(part.start, j), inner(j)))

    def dense(
        self, dtype: str, width: int, at: At, *, size: str | None = None, stored: bool = False
    ) -> VectorValue:
        """A vector that says its elements (`stored`: each is one load)."""
        size = size or self.width(width)
        return VectorValue(dtype, width, size, (self._part("0", size, at, stored=stored),))

    def width(self, width: int) -> str:
        """The number of columns: a literal 1, so that hundreds of single columns need no loops."""
        return "1" if width == 1 else self.size(width)

    def _part(self, start: str, size: str, at: At, *, stored: bool = False) -> ColumnRun:
        def each(push: Push) -> None:
            with self.loop(size) as j:
                push(plus(start, j), at(j))

        return ColumnRun(start, size, at, each, stored)

    def sparse(
        self,
        dtype: str,
        width: int,
        each: Callable[[Push], None],
        *,
        size: str | None = None,
        most: Room | None = None,
    ) -> VectorValue:
        """A vector that pushes its stored elements as (column, value), `most` of them."""
        size = size or self.width(width)
        return VectorValue(dtype, width, size, (ColumnRun("0", size, None, each, most=most),))

    def joined(self, values: Sequence[RowValue], dtype: str, width: int) -> VectorValue:
        """The values side by side, nothing copied."""
        parts: list[ColumnRun] = []
        start = "0"
        for value in values:
            parts += [self._shifted(part, start) for part in self._as_dtype(value, dtype).parts]
            size = "1" if isinstance(value, ScalarValue) else value.size
            start = plus(start, size)
            if not start.isdecimal():  # it is used many times
                start = self.let(start, "int64").expr
        return VectorValue(dtype, width, start, tuple(parts))

    def _shifted(self, part: ColumnRun, start: str) -> ColumnRun:
        if start == "0":
            return part
        first = plus(start, part.start)
        if part.at is not None:
            return self._part(first, part.size, part.at)
        return part._replace(
            start=first, each=lambda push: part.each(lambda j, v: push(plus(start, j), v))
        )

    def _as_dtype(self, value: RowValue, dtype: str) -> VectorValue:
        if isinstance(value, ScalarValue):
            expr = self.let(self.cast(value.expr, value.dtype, dtype), dtype).expr
            return self.dense(dtype, 1, lambda _: expr, size="1", stored=True)
        if value.dtype == dtype:
            return value

        def cast(_: str, v: str) -> str:
            return self.cast(v, value.dtype, dtype)

        made = self.map(cast, value, dtype=dtype, keeps_zero=True)
        assert isinstance(made, VectorValue), "made of a vector"
        return made


def plus(left: str, right: str) -> str:
    """left + right as an expression, without adding zero; the sum itself if both are literals."""
    if left.isdecimal() and right.isdecimal():
        return str(int(left) + int(right))
    if left == "0":
        return right
    return left if right == "0" else f"({left} + {right})"
