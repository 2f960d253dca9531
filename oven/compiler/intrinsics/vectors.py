"""Vectors of neighbouring numbers, as many as a register of the processor holds."""

from __future__ import annotations

from functools import partial

from llvmlite.ir import Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values
from oven.compiler.intrinsics.builder import Builder, typed
from oven.compiler.kinds import FLOAT32, FLOAT64, INT64, NOTHING, Kind, vector
from oven.compiler.lowering import Intrinsic


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

    def load(b: Builder, args: Values) -> Value:
        return b.load(b.place(args, kind.llvm, four.llvm), align=8)

    def store(b: Builder, args: Values) -> None:
        b.store(args[2], b.place(args[:2], kind.llvm, four.llvm), align=8)

    return {
        "quad": typed((INT64, INT64), four, load),
        "quad_store": typed((INT64, INT64, four), NOTHING, store),
        "quad_all": typed((kind,), four, lambda b, args: b.all(args[0], 4)),
        "quad_add": typed((four, four), four, lambda b, args: b.fadd(*args)),
        "quad_product": typed((four, four), four, lambda b, args: b.fmul(*args)),
        "quad_add_product": typed((four, four, four), four, _add_product),
    }


def _of(kind: Kind, count: int) -> dict[str, Intrinsic]:
    lanes = vector(kind, count)

    def load(b: Builder, args: Values) -> Value:
        """The vector that starts at an element, which is not written during the call."""
        where = b.place(args, kind.llvm, lanes.llvm)
        return b.unchanging(b.load(where, align=kind.bits // 8))

    def store(b: Builder, args: Values) -> None:
        """Write the first `count` numbers of a vector (all of them if it has no more)."""
        *where, value, some = args
        b.write_some(value, b.place(where, kind.llvm, lanes.llvm), b.first(some, count))

    return {
        "vset": typed((kind,), lanes, lambda b, args: b.all(args[0], count)),
        "vld": typed((INT64, INT64), lanes, load),
        "vst": typed((INT64, INT64, lanes, INT64), NOTHING, store),
        "vadd": typed((lanes, lanes), lanes, lambda b, args: b.fadd(*args)),
        "vadd_product": typed((lanes,) * 3, lanes, _add_product),
        "vadd_product_exact": typed((lanes,) * 3, lanes, partial(_add_product, flags=())),
    }


def _add_product(b: Builder, args: Values, flags: tuple[str, ...] = ("contract",)) -> Value:
    """total + a * b, fused where the flags allow it and the processor can."""
    return b.fadd(args[0], b.fmul(args[1], args[2], flags=flags), flags=flags)
