"""Writes the code of one stage from the hooks of its operators.

`Body` is the text being written and the slots of its parameter table. `Scope` is one operator's
view of it: every operator has slots of its own, so the text does not depend on whether two
parameters are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from flour.core.emission import At, ColumnRun, Push, Room, RowValue, ScalarValue, VectorValue
from flour.core.op import Parameter
from objectstore import Blob


class ParameterSlot(NamedTuple):
    """One entry of a stage's parameter table: exactly one of its meanings is set."""

    parameter: Parameter | None = None
    size: int | None = None
    number: float | None = None
    #: Bytes of scratch memory; the entry is their offset.
    scratch: int | None = None


#: The bytes of a value in memory.
BYTES = {"float64": 8, "float32": 4, "bool": 1, "string": 16}
BYTES |= {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (64, 32, 16, 8)}


class Body:
    """The text of one stage and the slots of its parameter table."""

    def __init__(self, *, exact: bool, ordered: bool = False, lean: str = "") -> None:
        self.exact, self.ordered, self.lean = exact, exact or ordered, lean
        #: Memory whose size depends on the data, in the order of its addresses.
        self.rooms: list[Room] = []
        self._columns, self._free, self._longest = 0, "", ""
        self.slots: list[ParameterSlot] = []
        self._head: list[str] = []
        self._lines: list[str] = []
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        """One statement at the current depth."""
        self._lines.append("    " * self._depth + text)

    def head(self, text: str) -> None:
        """One statement ahead of the loop over rows."""
        self._head.append("    " + text)

    def fresh(self, stem: str) -> str:
        """A new name."""
        self._names += 1
        return f"{stem}{self._names}"

    def slot(self, stem: str, entry: ParameterSlot) -> str:
        """A local holding a new entry of the parameter table."""
        name = self.fresh(stem)
        index = len(self.slots)
        self.slots.append(entry)
        dtype = "int64" if entry.number is None else "float64"
        base = "" if entry.scratch is None else "scratch + "
        self.head(f"{name} = {base}ldc_{dtype}(params, {index})")
        return name

    def column(self, *stems: str) -> tuple[str, str]:
        """Two locals holding the next entry of the stage's table of columns."""
        first, second = map(self.fresh, stems)
        self.head(f"{first} = ldc_int64(io, {2 * self._columns})")
        self.head(f"{second} = ldc_int64(io, {2 * self._columns + 1})")
        self._columns += 1
        return first, second

    def room(self, room: Room) -> str:
        """A local with the address of memory for one row.

        All rooms are adjacent. The entry after the columns holds their address and the length of
        the longest row.
        """
        if not self.rooms:
            self._free, self._longest = self.column("f", "l")
        name, self._free = self._free, self.fresh("f")
        each, fixed, most = (self.slot("n", ParameterSlot(size=number)) for number in room)
        size = f"min({self._longest} * {each} + {fixed}, {most})"
        self.head(f"{self._free} = {name} + (({size} + 63) & -64)")
        self.rooms.append(room)
        return name

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """A compound statement."""
        self.line(header)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def text(self, name: str) -> str:
        """The whole function."""
        head = [f"def {name}(params, io, n, scratch):", *self._head]
        return "\n".join([*head, *self._lines, "    return 0"]) + "\n"


class Scope:
    """The interface by which one operator writes code: see flour.core.emission.Emitter."""

    def __init__(self, body: Body, rows: str = "n") -> None:
        self._body = body
        self.exact, self.ordered, self.lean = body.exact, body.ordered, body.lean
        self.rows = rows
        self._known: dict[tuple[str, str | None], str] = {}

    # --- text --------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """One statement."""
        self._body.line(text)

    def fresh(self, stem: str = "v") -> str:
        """A new local name."""
        return self._body.fresh(stem)

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
        with self._body.block(f"for {name} in range({span}):"):
            yield name

    def block(self, header: str) -> AbstractContextManager[None]:
        """Any compound statement."""
        return self._body.block(header)

    # --- parameters --------------------------------------------------------------------------

    def address(self, parameter: Parameter, dtype: str | None = None) -> str:
        """A local with the address of the parameter's values."""
        key = (parameter.digest, dtype)
        if key not in self._known:
            if isinstance(parameter, Blob) and dtype not in (None, parameter.dtype.name):
                parameter = Blob.of(parameter.array.astype(dtype))
            self._known[key] = self._body.slot("p", ParameterSlot(parameter=parameter))
        return self._known[key]

    def at(self, parameter: Parameter, index: str, dtype: str | None = None) -> str:
        """Element `index` of a parameter; one of a single element is read ahead of the rows."""
        assert isinstance(parameter, Blob), "string tables are read by their address"
        kind = dtype or parameter.dtype.name
        address = self.address(parameter, dtype)
        if parameter.array.size != 1:
            return f"ldc_{kind}({address}, {index})"
        key = (parameter.digest, f"{kind} alone")
        if key not in self._known:
            self._known[key] = name = self.fresh("c")
            self._body.head(f"{name} = ldc_{kind}({address}, 0)")
        return self._known[key]

    def size(self, number: int) -> str:
        """A local holding an integer that differs between programs of one structure."""
        return self._body.slot("n", ParameterSlot(size=int(number)))

    def number(self, value: float, dtype: str) -> str:
        """A local holding a number that differs between programs of one structure."""
        name = self._body.slot("c", ParameterSlot(number=float(value)))
        if dtype == "float64":
            return name
        narrow = self.fresh("c")
        self._body.head(f"{narrow} = {dtype}({name})")
        return narrow

    def scratch(self, dtype: str, count: int) -> str:
        """A local holding the address of `count` elements that live for one row (or block)."""
        return self._body.slot("s", ParameterSlot(scratch=BYTES[dtype] * max(count, 1)))

    def room(self, room: Room) -> str:
        """A local with the address of memory for one row, sized by the data."""
        return self._body.room(room)

    # --- memory and arithmetic -----------------------------------------------------------------

    def load(self, base: str, index: str, dtype: str, *, constant: bool = False) -> str:
        """Element `index` at an address."""
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
        """The expression converted as numpy's astype converts."""
        if source == target:
            return expr
        if target == "bool":
            return f"({expr} != 0)"
        return f"{target}({expr})"

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
        """A way to read any element cheaply, any number of times."""
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
        width: int,
        keeps_zero: bool = False,
    ) -> VectorValue:
        """A vector whose element j is function(j, element j of each value); scalars repeat."""
        vectors = [value for value in values if isinstance(value, VectorValue)]
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
        """A dense vector, given by its element at any index."""
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

        return self.map(cast, value, dtype=dtype, width=value.width, keeps_zero=True)


def plus(left: str, right: str) -> str:
    """left + right as an expression, without adding zero; the sum itself if both are literals."""
    if left.isdecimal() and right.isdecimal():
        return str(int(left) + int(right))
    if left == "0":
        return right
    return left if right == "0" else f"({left} + {right})"
