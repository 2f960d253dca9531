"""Vectors of neighbouring numbers, as many as a register of the processor holds."""

from __future__ import annotations

from llvmlite import ir

from oven.compiler import machine
from oven.compiler.intrinsics.base import Typed, Values, Writer
from oven.compiler.intrinsics.memory import declared, element, unchanging
from oven.compiler.kinds import FLOAT32, FLOAT64, INT64, NOTHING, Kind, vector
from oven.compiler.lowering import Intrinsic

_INT = ir.IntType(32)
_LOOSE, _EXACT = ("contract",), ()


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every intrinsic by name; lanes_float64 and its like are numbers."""
    made: dict[str, Intrinsic | int] = {}
    for kind in (FLOAT64, FLOAT32):
        count = machine.vector_bytes() * 8 // kind.bits
        made |= {f"{name}_{kind.name}": word for name, word in _of(kind, count).items()}
        made[f"lanes_{kind.name}"] = count
    return made | _quads()


def _quads() -> dict[str, Intrinsic]:
    """Vectors of four float64 on every processor, in memory that the call writes, too."""
    kind, four = FLOAT64, vector(FLOAT64, 4)

    def load(builder: ir.IRBuilder, args: Values) -> ir.Value:
        return builder.load(_place(builder, args, kind, four), align=8, typ=four.llvm)

    def store(builder: ir.IRBuilder, args: Values) -> None:
        builder.store(args[2], _place(builder, args, kind, four), align=8)

    return {
        "quad": Typed((INT64, INT64), four, load),
        "quad_store": Typed((INT64, INT64, four), NOTHING, store),
        "quad_all": Typed((kind,), four, lambda b, args: repeated(b, args[0], 4)),
        "quad_add": Typed((four, four), four, lambda b, args: b.fadd(*args)),
        "quad_product": Typed((four, four), four, lambda b, args: b.fmul(*args)),
        "quad_add_product": _add_product(four, _LOOSE),
    }


def _of(kind: Kind, count: int) -> dict[str, Intrinsic]:
    lanes = vector(kind, count)
    return {
        "vset": Typed((kind,), lanes, lambda b, args: repeated(b, args[0], count)),
        "vld": Typed((INT64, INT64), lanes, _load(kind, lanes)),
        "vst": Typed((INT64, INT64, lanes, INT64), NOTHING, _store(kind, lanes)),
        "vadd": Typed((lanes, lanes), lanes, lambda b, args: b.fadd(*args)),
        "vadd_product": _add_product(lanes, _LOOSE),
        "vadd_product_exact": _add_product(lanes, _EXACT),
    }


def _load(kind: Kind, lanes: Kind) -> Writer:
    """The vector that starts at an element, which is not written during the call."""

    def write(builder: ir.IRBuilder, args: Values) -> ir.Value:
        where = _place(builder, args, kind, lanes)
        return unchanging(builder, builder.load(where, align=kind.bits // 8, typ=lanes.llvm))

    return write


def _store(kind: Kind, lanes: Kind) -> Writer:
    """Write the first `count` numbers of a vector (all of them if it has no more)."""

    def write(builder: ir.IRBuilder, args: Values) -> None:
        _store_some(builder, _place(builder, args, kind, lanes), *args[2:])

    return write


def _add_product(lanes: Kind, flags: tuple[str, ...]) -> Typed:
    """total + a * b, fused where the flags allow it and the processor can."""

    def write(builder: ir.IRBuilder, args: Values) -> ir.Value:
        term = builder.fmul(args[1], args[2], flags=flags)
        return builder.fadd(args[0], term, flags=flags)

    return Typed((lanes, lanes, lanes), lanes, write)


def _place(builder: ir.IRBuilder, args: Values, kind: Kind, lanes: Kind) -> ir.Value:
    where = element(builder, args[0], args[1], kind.llvm)
    return builder.bitcast(where, lanes.llvm.as_pointer())


def repeated(builder: ir.IRBuilder, value: ir.Value, count: int) -> ir.Value:
    """One number in every lane."""
    kind = ir.VectorType(value.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    order = ir.Constant(ir.VectorType(_INT, count), [0] * count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)


def _store_some(builder: ir.IRBuilder, where: ir.Value, value: ir.Value, count: ir.Value) -> None:
    """A masked store of the first `count` elements."""
    kind = value.type
    numbers = ir.VectorType(ir.IntType(64), kind.count)
    limit = repeated(builder, count, kind.count)
    mask = builder.icmp_signed("<", ir.Constant(numbers, list(range(kind.count))), limit)
    size = 8 if isinstance(kind.element, ir.DoubleType) else 4
    name = f"llvm.masked.store.v{kind.count}f{8 * size}.p0"
    function = declared(builder, name, [kind, where.type, _INT, mask.type], ir.VoidType())
    builder.call(function, [value, where, _INT(size), mask])
