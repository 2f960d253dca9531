"""Emitted source to object code, by numba. Only this folder, `oven.compiler`, imports numba.

A stage is one function `stage(params, io, n, scratch)` of four int64: the address of the parameter
table, of the input and output columns, the number of rows, and the address of scratch memory. It
is written in the vocabulary below, over raw addresses, so that the object code allocates nothing,
raises nothing, needs no interpreter and can be loaded by a process that never imports numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.core.errors import NumbaError
from numba.extending import intrinsic, models, overload, register_model

from oven.compiler import functions, functions_tanh, machine
from oven.compiler.intrinsics import blends, narrow, slices, sums, tiles, trees
from oven.compiler.intrinsics.more import more_words
from oven.errors import CompileError

# Both halves of the compiler make code for the same processor; numba's own variables say nothing.
config.CPU_NAME, config.CPU_FEATURES = machine.cpu(), machine.features()

NUMBA_TYPES: dict[str, Any] = {
    "float64": types.float64,
    "float32": types.float32,
    "int64": types.int64,
    "int32": types.int32,
    "int16": types.int16,
    "int8": types.int8,
    "uint64": types.uint64,
    "uint32": types.uint32,
    "uint16": types.uint16,
    "uint8": types.uint8,
    "bool": types.boolean,
}
# Python's error model tests every float division for zero and raises, which also stops the
# vectoriser: 2,000 x 100 divisions cost 199 us instead of 34. numpy's divides as hardware does.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
STAGE = types.int64(types.int64, types.int64, types.int64, types.int64)
# A function of two objects that Python itself calls; see oven.entry.generator.
ENTRY = types.int64(types.int64, types.int64)


class Compiled(NamedTuple):
    """One stage as relocatable machine code."""

    symbol: str
    code: bytes
    llvm: str


# --- the vocabulary: memory ---------------------------------------------------------------------


def _pointer(builder: Any, base: Any, index: Any, kind: Any) -> Any:
    storage = ir.IntType(8) if kind is types.boolean else _storage(kind)
    address = builder.inttoptr(base, storage.as_pointer())
    return builder.gep(address, [index], source_etype=storage)


def _storage(kind: Any) -> Any:
    if kind is types.float64:
        return ir.DoubleType()
    return ir.FloatType() if kind is types.float32 else ir.IntType(kind.bitwidth)


def _load(kind: Any, *, constant: bool, align: int | None = None) -> Any:
    def load(typingctx: Any, base: Any, index: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            where = _pointer(builder, args[0], args[1], kind)
            typ = where.gep_type if hasattr(where, "gep_type") else None
            value = builder.load(where, align=align, typ=typ)
            if constant:
                value.set_metadata("invariant.load", builder.module.add_metadata([]))
            if kind is types.boolean:
                return builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
            return value

        return kind(types.int64, types.int64), code

    return intrinsic(load)


def _store(kind: Any, align: int | None = None) -> Any:
    def store(typingctx: Any, base: Any, index: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            stored = args[2]
            if kind is types.boolean:
                stored = builder.zext(stored, ir.IntType(8))
            builder.store(stored, _pointer(builder, args[0], args[1], kind), align=align)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), code

    return intrinsic(store)


def _loose_add(kind: Any) -> Any:
    """a + b in any order, fused with a product if it is one: what lets a sum use SIMD."""

    def add(typingctx: Any, left: Any, right: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fadd(args[0], args[1], flags=("reassoc", "contract", "nsz"))

        return kind(kind, kind), code

    return intrinsic(add)


def _loose_mul(kind: Any) -> Any:
    """a * b that may be fused into a sum."""

    def mul(typingctx: Any, left: Any, right: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fmul(args[0], args[1], flags=("contract",))

        return kind(kind, kind), code

    return intrinsic(mul)


@intrinsic
def call_stage(typingctx: Any, function: Any, params: Any, io: Any, n: Any, scratch: Any) -> Any:
    """Call a compiled stage by its address, in numba's calling convention; what it returns."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.IntType(32), [pointer, pointer, word, word, word, word])
        cell = cgutils.alloca_once(builder, word)
        result = builder.bitcast(cell, pointer)
        error = builder.bitcast(cgutils.alloca_once(builder, pointer), pointer)
        target = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(target, [result, error, *args[1:]])
        return builder.load(cell)

    return types.int64(*([types.int64] * 5)), code


def _c_call(*kinds: Any, result: Any = types.int64) -> Any:
    """Call a C function by its address, in C's calling convention.

    Pointers, sizes and ints alike are int64: the calling conventions of x86-64 and AArch64 pass
    each of the first six arguments in a register of its own, whose upper half an int ignores.
    """

    def call(*arguments: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(_storage(result), [_storage(kind) for kind in kinds])
            target = builder.inttoptr(args[0], kind.as_pointer())
            return builder.call(target, args[1:])

        return result(types.int64, *kinds), code

    names = ", ".join(["typingctx", "function", *(f"a{place}" for place in range(len(kinds)))])
    # numba asks an intrinsic for the names of its arguments.
    return intrinsic(eval(f"lambda {names}: call({names})", {"call": call}))  # noqa: S307


@intrinsic
def stack_words(typingctx: Any, count: Any) -> Any:
    """The address of `count` (a literal) int64 on the stack of the running call."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    words = count.literal_value

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        memory = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), words))
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.int64(count), code


# --- the vocabulary: vectors of neighbouring numbers ----------------------------------------------


class Lanes(types.Type):  # type: ignore[misc]  # numba is untyped
    """As many numbers of one kind as a vector register of this processor holds."""

    def __init__(self, kind: Any) -> None:
        super().__init__(name=f"Lanes({kind})")
        self.kind, self.count = kind, machine.vector_bytes() * 8 // kind.bitwidth


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]  # numba is untyped
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(_storage(kind.kind), kind.count))


class _Vectors:
    """The vocabulary for vectors of one kind."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.lanes = kind, Lanes(kind)
        self.vector = ir.VectorType(_storage(kind), self.lanes.count)

    def words(self) -> dict[str, Any]:
        """Every word by name; lanes_float64 and its like are numbers."""
        loose, strict = self.add_product(("contract",)), self.add_product(())
        made = {"set": self.set_all(), "ld": self.load(), "st": self.store(), "add": self.add()}
        made |= {"add_product": loose, "add_product_exact": strict}
        named = {f"v{name}_{self.kind}": intrinsic(word) for name, word in made.items()}
        return {**named, f"lanes_{self.kind}": self.lanes.count}

    def _place(self, builder: Any, args: Any) -> Any:
        where = _pointer(builder, args[0], args[1], self.kind)
        return builder.bitcast(where, self.vector.as_pointer())

    def set_all(self) -> Any:
        """One number, repeated."""

        def word(typingctx: Any, value: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return _repeated(builder, args[0], self.lanes.count)

            return self.lanes(self.kind), code

        return word

    def load(self) -> Any:
        """The vector that starts at an element, which nobody writes during the call."""

        def word(typingctx: Any, base: Any, index: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                where, align = self._place(builder, args), self.kind.bitwidth // 8
                value = builder.load(where, align=align, typ=self.vector)
                value.set_metadata("invariant.load", builder.module.add_metadata([]))
                return value

            return self.lanes(types.int64, types.int64), code

        return word

    def store(self) -> Any:
        """Write the first `count` numbers of a vector (all of them if it has no more)."""

        def word(typingctx: Any, base: Any, index: Any, value: Any, count: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                _store_some(builder, self._place(builder, args), args[2], args[3])
                return context.get_dummy_value()

            return types.void(types.int64, types.int64, self.lanes, types.int64), code

        return word

    def add(self) -> Any:
        """The sum of two vectors."""

        def word(typingctx: Any, left: Any, right: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return builder.fadd(*args)

            return self.lanes(self.lanes, self.lanes), code

        return word

    def add_product(self, flags: tuple[str, ...]) -> Any:
        """total + a * b, fused where the flags allow it and the processor can."""

        def word(typingctx: Any, total: Any, left: Any, right: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                term = builder.fmul(args[1], args[2], flags=flags)
                return builder.fadd(args[0], term, flags=flags)

            return self.lanes(self.lanes, self.lanes, self.lanes), code

        return word


def _repeated(builder: Any, value: Any, count: int) -> Any:
    kind = ir.VectorType(value.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)


def _store_some(builder: Any, where: Any, value: Any, count: Any) -> None:
    """A masked store of the first `count` elements."""
    kind = value.type
    numbers = ir.VectorType(ir.IntType(64), kind.count)
    limit = _repeated(builder, count, kind.count)
    mask = builder.icmp_signed("<", ir.Constant(numbers, list(range(kind.count))), limit)
    item = "f64" if isinstance(kind.element, ir.DoubleType) else "f32"
    types_ = [kind, where.type, ir.IntType(32), mask.type]
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), types_),
        f"llvm.masked.store.v{kind.count}{item}.p0",
    )
    size = 8 if item == "f64" else 4
    builder.call(function, [value, where, ir.IntType(32)(size), mask])


# --- the vocabulary: functions ------------------------------------------------------------------


def maximum(a: Any, b: Any) -> Any:
    """The larger; NaN if either is NaN."""
    return a if a > b or a != a else b  # noqa: PLR0124 (the definition of NaN)


def minimum(a: Any, b: Any) -> Any:
    """The smaller; NaN if either is NaN."""
    return a if a < b or a != a else b  # noqa: PLR0124 (the definition of NaN)


def clip(x: Any, low: Any, high: Any) -> Any:
    """x limited to [low, high]; NaN stays NaN."""
    return minimum(maximum(x, low), high)


def exp(x: Any) -> Any:
    """e to the power x: a stub that the overload below stands in for."""
    raise NotImplementedError


def log(x: Any) -> Any:
    """The natural logarithm: a stub as well."""
    raise NotImplementedError


def tanh(x: Any) -> Any:
    """The hyperbolic tangent: a stub as well."""
    raise NotImplementedError


def _own(stub: Any, by_width: dict[str, Any]) -> None:
    """Let code that calls the stub have our function for the width of its argument."""

    def chosen(x: Any) -> Any:
        made = _compiled(by_width.get(str(x), by_width["float64"]))

        def of_float(x: Any) -> Any:
            return made(x)

        def of_whole(x: Any) -> Any:
            return made(float(x))

        return of_float if isinstance(x, types.Float) else of_whole

    overload(stub)(chosen)


_own(exp, functions.EXP)
_own(log, functions_tanh.LOG)
_own(tanh, functions_tanh.TANH)


def _compiled(function: FunctionType) -> Any:
    """A function of oven.compiler.functions, over the processor's own operations."""
    words = {"fused": fused, "bits": bits, "of_bits": of_bits, "type_of": type_of}
    return njit(FunctionType(function.__code__, words, function.__name__), **OPTIONS)


@intrinsic
def fused(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once where the processor can."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.fmul(args[0], args[1], flags=("contract",))
        return builder.fadd(product, args[2], flags=("contract",))

    return c(c, c, c), code


@intrinsic
def bits(typingctx: Any, x: Any) -> Any:
    """The bits of a float as a whole number with a sign."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = builder.bitcast(args[0], ir.IntType(x.bitwidth))
        return whole if x.bitwidth == 64 else builder.sext(whole, ir.IntType(64))

    return types.int64(x), code


@intrinsic
def of_bits(typingctx: Any, like: Any, number: Any) -> Any:
    """The float, as wide as `like`, with these bits."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = args[1] if like.bitwidth == 64 else builder.trunc(args[1], ir.IntType(32))
        return builder.bitcast(whole, _storage(like))

    return like(like, types.int64), code


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)); where exp overflows the answer is zero, as in scipy."""
    return type_of(x, 1) / (type_of(x, 1) + exp(-x))


def sigmoid_alone(x: Any) -> Any:
    """The same with the C library's exp, which is faster for one number at a time."""
    return type_of(x, 1) / (type_of(x, 1) + math.exp(-x))


def digamma(x: Any) -> Any:
    """The digamma function as scikit-learn's topic models compute it: see flour.ops.topics."""
    if x <= 1e-6:
        return -0.5772156649015329 - 1.0 / x
    made = 0.0
    while x < 6.0:
        made -= 1.0 / x
        x += 1.0
    inverse = 1.0 / x
    made += math.log(x) - 0.5 * inverse
    square = inverse * inverse
    return made - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0)))


@intrinsic
def type_of(typingctx: Any, like: Any, value: Any) -> Any:
    """The whole number `value` in the type of `like`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[1], signature.args[1], signature.return_type)

    return like(like, value), code


def vocabulary() -> dict[str, Any]:
    """The names emitted code may use; made once."""
    if not _vocabulary:
        _vocabulary.update(_make_vocabulary())
    return _vocabulary


_vocabulary: dict[str, Any] = {}


def _make_vocabulary() -> dict[str, Any]:
    made: dict[str, Any] = {
        "math": math,
        "abs": abs,
        "int": int,
        "min": min,
        "max": max,
        "range": range,
    }
    made["call_stage"] = call_stage
    made["stack_words"] = stack_words
    made |= {f"c_call_{count}": _c_call(*[types.int64] * count) for count in range(5)}
    made["c_call_float"] = _c_call(types.float64)
    made["c_call_to_float"] = _c_call(types.int64, result=types.float64)
    made |= {name: getattr(math, name) for name in _MATH}
    made |= {"exp": exp, "log": log, "tanh": tanh, "exp_alone": math.exp}
    # The C library's, which has numpy's bits for the whole numbers that words are counted in.
    made["log_alone"] = math.log
    made |= {function.__name__: function for function in _ROUNDING}
    for name, kind in NUMBA_TYPES.items():
        made[f"ld_{name}"] = _load(kind, constant=False)
        made[f"ldc_{name}"] = _load(kind, constant=True)
        made[f"st_{name}"] = _store(kind)
        made[name] = kind
        if name.startswith("float"):
            made |= _Vectors(kind).words()
            made[f"loose_add_{name}"] = _loose_add(kind)
            made[f"loose_mul_{name}"] = _loose_mul(kind)
    for name in ("int64", "int32"):
        made[f"peek_{name}"] = _load(NUMBA_TYPES[name], constant=False, align=1)
    made["poke_int64"] = _store(types.int64, align=1)
    # Only code for trees needs these.

    for page in (trees, slices, blends, tiles, sums, narrow):
        made |= page.words()
    function: Callable[..., Any]
    for function in (maximum, minimum):
        globals()[function.__name__] = made[function.__name__] = njit(function, **OPTIONS)
    for function in (clip, sigmoid, sigmoid_alone, digamma):
        made[function.__name__] = njit(function, **OPTIONS)
    return made | more_words(made, OPTIONS)


_MATH = [
    "sqrt",
    "expm1",
    "log1p",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "erf",
]
# math's own functions answer with integers, which have no NaN and no infinity.
_ROUNDING = [np.floor, np.ceil, np.trunc, np.rint]


# --- compiling ----------------------------------------------------------------------------------


def compile_source(source: str, name: str) -> Compiled:
    """Object code of the function `name` in the source: a stage, or an entry for Python to call."""
    space = dict(vocabulary())
    exec(compile(source, f"<{name}>", "exec"), space)  # noqa: S102 (our own emitted text)
    function = space[name]
    signature = ENTRY if function.__code__.co_argcount == len(ENTRY.args) else STAGE
    try:
        made = njit(signature, no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)(function)
    except NumbaError as problem:
        raise CompileError.of(name, source, str(problem)) from problem
    result = made.overloads[signature.args]
    symbol, text = result.fndesc.llvm_func_name, result.library.get_llvm_str()
    if signature is ENTRY:
        symbol, text = f"{name}_entry", text + _ENTRY.format(entry=f"{name}_entry", symbol=symbol)
    return Compiled(symbol, _object(text), text)


# numba's functions return a status and write their result; Python wants the result itself.
_ENTRY = """
define i64 @{entry}(i64 %self, i64 %argument) {{
  %result = alloca i64
  %error = alloca ptr
  %status = call i32 @{symbol}(ptr %result, ptr %error, i64 %self, i64 %argument)
  %value = load i64, ptr %result
  ret i64 %value
}}
"""


def _object(text: str) -> bytes:
    from oven.compiler.machine import target_machine

    return bytes(target_machine().emit_object(llvm.parse_assembly(text)))


def assembly(text: str) -> str:
    """The machine code of LLVM IR, as text."""
    from oven.compiler.machine import target_machine

    return str(target_machine().emit_assembly(llvm.parse_assembly(text)))
