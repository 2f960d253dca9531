"""Reading and writing memory by address, and calling functions by address."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from oven.compiler.intrinsics.base import Generic, Typed, Values
from oven.compiler.kinds import (
    BOOL,
    FLOAT64,
    INT64,
    KINDS,
    NOTHING,
    Kind,
    Mismatch,
    Value,
    storage,
)
from oven.compiler.lowering import Intrinsic, Lowering

_WORD = ir.IntType(64)


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every intrinsic by name."""
    made: dict[str, Intrinsic | int] = {"stack_words": Generic(_stack_words)}
    for name, kind in KINDS.items():
        made[f"ld_{name}"] = _load(kind)
        made[f"ldc_{name}"] = _load(kind, constant=True)
        made[f"st_{name}"] = _store(kind)
    for name in ("int64", "int32"):
        made[f"peek_{name}"] = _load(KINDS[name], align=1)
    made["poke_int64"] = _store(INT64, align=1)
    made |= {f"c_call_{count}": _call((INT64,) * count) for count in range(5)}
    made["c_call_float"] = _call((FLOAT64,))
    made["c_call_to_float"] = _call((INT64,), FLOAT64)
    made["call_stage"] = _call((INT64,) * 4)
    return made


def element(builder: ir.IRBuilder, base: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
    """A pointer to an element of an array at an address."""
    pointer = builder.inttoptr(base, kind.as_pointer())
    return builder.gep(pointer, [index], source_etype=kind)


def unchanging(builder: ir.IRBuilder, value: ir.LoadInstr) -> ir.LoadInstr:
    """A value from memory that is not written during the call."""
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def _load(kind: Kind, *, constant: bool = False, align: int | None = None) -> Typed:
    held = storage(kind)

    def write(builder: ir.IRBuilder, args: Values) -> ir.Value:
        base, index = args
        value = builder.load(element(builder, base, index, held), align=align, typ=held)
        if constant:
            unchanging(builder, value)
        return builder.icmp_unsigned("!=", value, held(0)) if kind is BOOL else value

    return Typed((INT64, INT64), kind, write)


def _store(kind: Kind, align: int | None = None) -> Typed:
    held = storage(kind)

    def write(builder: ir.IRBuilder, args: Values) -> None:
        base, index, value = args
        stored = builder.zext(value, held) if kind is BOOL else value
        builder.store(stored, element(builder, base, index, held), align=align)

    return Typed((INT64, INT64, kind), NOTHING, write)


def _call(kinds: tuple[Kind, ...], result: Kind = INT64) -> Typed:
    """Call a C function by its address.

    Pointers, sizes and ints alike are int64: the calling conventions of x86-64 and AArch64 pass
    each of the first six arguments in a register of its own, whose upper half an int ignores.
    """
    signature = ir.FunctionType(result.llvm, [kind.llvm for kind in kinds])

    def write(builder: ir.IRBuilder, args: Values) -> ir.Value:
        return builder.call(builder.inttoptr(args[0], signature.as_pointer()), args[1:])

    return Typed((INT64, *kinds), result, write)


def _stack_words(code: Lowering, arguments: Sequence[Value]) -> Value:
    """The address of `count` int64 on the stack of the running call."""
    (count,) = arguments
    if not isinstance(count.llvm, ir.Constant):
        raise Mismatch("stack_words takes a number that is known in advance")
    memory = code.room(ir.ArrayType(_WORD, count.llvm.constant))
    return Value(INT64, code.builder.ptrtoint(memory, _WORD))


def declared(
    builder: ir.IRBuilder, name: str, given: Sequence[ir.Type], result: ir.Type
) -> ir.Function:
    """A function of the compiler itself, or of the C library."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, given), name)


def stack(builder: ir.IRBuilder, kind: ir.Type) -> ir.Value:
    """Memory of the running call."""
    with builder.goto_entry_block():
        return builder.alloca(kind)
