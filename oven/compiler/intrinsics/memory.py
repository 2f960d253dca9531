"""Reading and writing memory by address, and calling functions by address."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from oven.compiler.intrinsics.base import Generic, Typed, Values
from oven.compiler.intrinsics.builder import Builder, typed
from oven.compiler.kinds import (
    BOOL,
    BYTE,
    FLOAT64,
    INT64,
    KINDS,
    NOTHING,
    WORD,
    Kind,
    Mismatch,
    Value,
)
from oven.compiler.lowering import Intrinsic, Lowering


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
    made["fetch"] = typed((INT64,), NOTHING, lambda b, args: b.fetch(b.pointer(args[0], BYTE)))
    return made


def _load(kind: Kind, *, constant: bool = False, align: int | None = None) -> Typed:
    held = _held(kind)

    def write(b: Builder, args: Values) -> ir.Value:
        value = b.load(b.place(args, held), align=align)
        if constant:
            b.unchanging(value)
        return b.icmp_unsigned("!=", value, held(0)) if kind is BOOL else value

    return typed((INT64, INT64), kind, write)


def _store(kind: Kind, align: int | None = None) -> Typed:
    held = _held(kind)

    def write(b: Builder, args: Values) -> None:
        *where, value = args
        stored = b.zext(value, held) if kind is BOOL else value
        b.store(stored, b.place(where, held), align=align)

    return typed((INT64, INT64, kind), NOTHING, write)


def _held(kind: Kind) -> ir.Type:
    """The type in memory: a truth value takes a byte."""
    return BYTE if kind is BOOL else kind.llvm


def _call(kinds: tuple[Kind, ...], result: Kind = INT64) -> Typed:
    """Call a C function by its address.

    Pointers, sizes and ints alike are int64: the calling conventions of x86-64 and AArch64 pass
    each of the first six arguments in a register of its own, whose upper half an int ignores.
    """
    signature = ir.FunctionType(result.llvm, [kind.llvm for kind in kinds])
    return typed(
        (INT64, *kinds), result, lambda b, args: b.call(b.pointer(args[0], signature), args[1:])
    )


def _stack_words(code: Lowering, arguments: Sequence[Value]) -> Value:
    """The address of `count` int64 on the stack of the running call."""
    (count,) = arguments
    if not isinstance(count.llvm, ir.Constant):
        raise Mismatch("stack_words takes a number that is known in advance")
    memory = code.room(ir.ArrayType(WORD, count.llvm.constant))
    return Value(INT64, code.builder.ptrtoint(memory, WORD))
