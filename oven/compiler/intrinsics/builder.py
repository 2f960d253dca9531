"""LLVM's builder with words for vectors of rows, and whole numbers in the place of constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from llvmlite.ir import Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Typed, Values
from oven.compiler.kinds import BIT, BYTE, INT, INT64, NOTHING, SHORT, WORD, Kind

FLOATS = {"float32": ir.FloatType(), "float64": ir.DoubleType()}
#: The types of leaves' numbers.
WHOLE = {"uint8": BYTE, "uint16": SHORT}
#: Rows that are computed together, and the number of rows up to which no others are looked at.
ROWS, FEW_ROWS = 64, 16


def size_of(kind: ir.Type) -> int:
    """The bytes of a number."""
    return {ir.DoubleType(): 8, ir.FloatType(): 4}.get(kind) or kind.width // 8


def same(kind: ir.Type, number: float) -> Value:
    """A constant: of vectors, with one number in all lanes."""
    vector = isinstance(kind, ir.VectorType)
    return ir.Constant(kind, [number] * kind.count if vector else number)


def in_order(count: int, start: int = 0, kind: ir.Type = INT) -> Value:
    """A constant vector of numbers that follow each other."""
    return ir.Constant(ir.VectorType(kind, count), [*range(start, start + count)])


def declared(
    builder: ir.IRBuilder, name: str, given: Sequence[ir.Type], result: ir.Type
) -> ir.Function:
    """A function of the compiler itself, or of the C library."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, given), name)


class Builder(ir.IRBuilder):  # type: ignore[misc]  # llvmlite is untyped
    """Writes code: the methods of llvmlite's builder, with numbers where it takes constants."""

    def field(self, nodes: Value, k: Value, field: int, kind: ir.Type = SHORT) -> Value:
        """Sixteen bits of the k-th node, or the lower eight of them."""
        # From memory, a vector is filled with it in one step.
        address = self.add(nodes, self.add(self.shl(k, 3), WORD(2 * field)))
        return self.unchanging(self.read(address, kind))

    def unchanging(self, value: Value) -> Value:
        """A loaded value that nobody writes during the call."""
        value.set_metadata("invariant.load", self.module.add_metadata([]))
        return value

    def far(self, base: Value, index: Value, size: int) -> Value:
        """An address, `index` times `size` behind another one."""
        return self.add(base, self.mul(index, size))

    def pointer(self, address: Value, kind: ir.Type) -> Value:
        """The address as a pointer."""
        return self.inttoptr(address, kind.as_pointer())

    def place(self, where: Values, kind: ir.Type, held: ir.Type | None = None) -> Value:
        """A pointer to an element, by its array's address and its index; or to what it holds."""
        base, index = where
        found = self.gep(self.pointer(base, kind), [index])
        return found if held is None else self.bitcast(found, held.as_pointer())

    def read(self, address: Value, kind: ir.Type, align: int = 1) -> Value:
        """A number or a vector at an address."""
        return self.load(self.pointer(address, kind), align=align)

    def write(self, value: Value, address: Value, align: int = 1) -> None:
        """Store a number or a vector at an address."""
        self.store(value, self.pointer(address, value.type), align=align)

    def item(self, base: Value, index: Value, kind: ir.Type, *, constant: bool = True) -> Value:
        """An element; what is constant nobody writes during the call."""
        value = self.load(self.place((base, index), kind))
        return self.unchanging(value) if constant else value

    def put(self, base: Value, index: Value, value: Value) -> None:
        """Write an element."""
        self.store(value, self.place((base, index), value.type))

    def chunk(self, base: Value, number: int, kind: ir.VectorType) -> Value:
        """The vector of this number in a row of them."""
        return self.read(self.add(base, number * kind.count * size_of(kind.element)), kind)

    def first(self, count: Value, lanes: int) -> Value:
        """True if each of so many lanes is among the first `count`."""
        return self.icmp_signed("<", in_order(lanes, kind=WORD), self.all(count, lanes))

    def without_nan(self, known: Values, found: Values) -> Values:
        """The ranks that were found for values; the last rank for NaN."""
        return [
            self.select(self.fcmp_unordered("uno", value, value), same(rank.type, 0xFFFF), rank)
            for value, rank in zip(known, found, strict=True)
        ]

    def all(self, value: Value, count: int = ROWS) -> Value:
        """One number in every lane."""
        kind = ir.VectorType(value.type, count)
        one = self.insert_element(ir.Constant(kind, ir.Undefined), value, INT(0))
        return self.picked(one, same(ir.VectorType(INT, count), 0))

    def picked(self, value: Value, order: Value) -> Value:
        """The elements of a vector at these places."""
        return self.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), order)

    def intrinsic(self, name: str, args: Values, result: ir.Type) -> Value:
        """A call of a function of the compiler itself."""
        return self.call(declared(self, name, [each.type for each in args], result), args)

    def room(self, kind: ir.Type) -> Value:
        """Memory of the running call."""
        with self.goto_entry_block():
            return self.alloca(kind)

    def fetch(self, place: Value) -> None:
        """Ask for the line of memory at a pointer, to be kept in all caches."""
        given = [self.bitcast(place, BYTE.as_pointer()), INT(0), INT(3), INT(1)]
        self.intrinsic("llvm.prefetch.p0", given, ir.VoidType())

    def gather(self, base: Value, place: Value, kind: ir.Type) -> Value:
        """The elements at these places, lane by lane."""
        count, size = place.type.count, size_of(kind)
        where = self.gep(self.pointer(base, kind), [WORD(0)])
        # As many pointers as there are places, which llvmlite's builder does not know.
        where.indices, where.type = [place], ir.VectorType(kind.as_pointer(), count)
        result = ir.VectorType(kind, count)
        every, rest = same(ir.VectorType(BIT, count), 1), ir.Constant(result, ir.Undefined)
        name = f"llvm.masked.gather.v{count}f{8 * size}.v{count}p0"
        return self.intrinsic(name, [where, INT(size), every, rest], result)

    def read_some(self, address: Value, inside: Value, kind: ir.VectorType) -> Value:
        """The elements of a vector at an address that are inside, zero for the others."""
        size, where = size_of(kind.element), self.pointer(address, kind)
        name = f"llvm.masked.load.v{kind.count}f{8 * size}.p0"
        return self.intrinsic(name, [where, INT(size), inside, same(kind, 0.0)], kind)

    def write_some(self, value: Value, where: Value, inside: Value) -> None:
        """Store the elements of a vector that are inside, at a pointer."""
        size = size_of(value.type.element)
        name = f"llvm.masked.store.v{value.type.count}f{8 * size}.p0"
        self.intrinsic(name, [value, where, INT(size), inside], ir.VoidType())

    def looked_up(self, table: Values, place: Value) -> Value:
        """The elements of two registers of floats at these places."""
        kind = table[0].type
        if machine.has("avx512f"):
            item = "pd" if size_of(kind.element) == 8 else "ps"
            name = f"llvm.x86.avx512.vpermi2var.{item}.512"
            return self.intrinsic(name, [table[0], place, table[1]], kind)
        made = ir.Constant(kind, ir.Undefined)
        for lane in range(kind.count):
            at = self.extract_element(place, INT(lane))
            low, high = (
                self.extract_element(half, self.and_(at, kind.count - 1)) for half in table
            )
            is_low = self.icmp_signed("<", at, at.type(kind.count))
            made = self.insert_element(made, self.select(is_low, low, high), INT(lane))
        return made

    def exceeded(self, pivots: Values, value: Value, places: ir.VectorType) -> Value:
        """The number of pivots (two registers; the last is not one) that each value exceeds."""
        place, half = same(places, 0), int(value.type.count)
        while half:
            limit = self.looked_up(pivots, self.add(place, half - 1))
            above = self.fcmp_unordered(">", value, limit)
            place = self.select(above, self.add(place, half), place)
            half //= 2
        return place

    def joined(self, found: Values) -> Value:
        """Vectors of whole numbers, one behind the other, as two bytes each."""
        narrow = ir.VectorType(SHORT, found[0].type.count)
        parts = [self.trunc(part, narrow) for part in found]
        while len(parts) > 1:
            order = in_order(2 * parts[0].type.count)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.shuffle_vector(low, high, order) for low, high in pairs]
        return parts[0]

    def loop(self, count: Value, start: Values, step: Callable[[Value, Values], Values]) -> Values:
        """`for k in range(count)`, handing values from turn to turn; what they are in the end."""
        return self.while_(
            [WORD(0), *start],
            lambda phis: self.icmp_signed("<", phis[0], count),
            lambda phis: [self.add(phis[0], 1), *step(phis[0], phis[1:])],
        )[1:]

    def while_(
        self, start: Values, test: Callable[[Values], Value], step: Callable[[Values], Values]
    ) -> Values:
        """Hand values from turn to turn as long as a test of them is true."""
        before = self.block
        look, body, end = (self.append_basic_block(name) for name in ("look", "body", "end"))
        self.branch(look)
        self.position_at_end(look)
        phis = [self.phi(value.type) for value in start]
        self.cbranch(test(phis), body, end)
        self.position_at_end(body)
        after = step(phis)
        last = self.block
        self.branch(look)
        for phi, first, then in zip(phis, start, after, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(then, last)
        self.position_at_end(end)
        return phis

    def for_so_many(
        self, rows: Value, sizes: Sequence[int], write: Callable[[int], object]
    ) -> None:
        """Write code for the first of the sizes that is no less than the number of rows."""
        size, *more = sizes
        if not more:
            write(size)
            return
        with self.if_else(self.icmp_signed("<=", rows, WORD(size))) as (here, other):
            with here:
                write(size)
            with other:
                self.for_so_many(rows, more, write)


def _with_numbers(name: str) -> None:
    """Let an operation of the builder take a number on its right."""
    plain = getattr(ir.IRBuilder, name)

    def operation(self: Builder, left: Value, right: Any, **how: Any) -> Value:
        given = same(left.type, right) if isinstance(right, int) else right
        return plain(self, left, given, **how)

    setattr(Builder, name, operation)


for _name in ("add", "sub", "mul", "udiv", "shl", "lshr", "ashr", "and_", "or_", "xor"):
    _with_numbers(_name)

Writes = Callable[[Builder, Values], Value | None]


def typed(kinds: tuple[Kind, ...], result: Kind, writes: Writes) -> Typed:
    """An intrinsic that is written with this builder."""

    def write(builder: ir.IRBuilder, args: Values) -> Value | None:
        ours = Builder(builder.block)
        made = writes(ours, args)
        builder.position_at_end(ours.block)
        return made

    return Typed(kinds, result, write)


def on_words(count: int, writes: Writes) -> Typed:
    """An intrinsic of `count` int64 that has no result."""
    return typed((INT64,) * count, NOTHING, writes)
