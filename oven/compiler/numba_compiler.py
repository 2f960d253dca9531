"""The same sources compiled by numba: for what our lowering refuses, and to compare with in tests.

Our own lowering (`oven.compiler.lowering`) is a hundred times as fast and knows less of Python. An
operator from outside the project may use more; then numba compiles its source. Intrinsics of fixed
types are the same code in both; functions in Python are compiled by numba; what has types that
follow from its arguments (`min`, `abs`, `math.sqrt`) is numba's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature
from types import FunctionType, SimpleNamespace
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.core.errors import NumbaError
from numba.extending import intrinsic, models, overload, register_model

from oven.compiler import functions, functions_tanh, machine
from oven.compiler.intrinsics.base import Generic, Routine, Typed
from oven.compiler.kinds import BOOL, INT64, KINDS, NOTHING, Kind, Value
from oven.compiler.lowering import Lowering, Vocabulary
from oven.errors import CompileError

# Both compilers make code for the same processor; numba's own variables do not count.
config.CPU_NAME, config.CPU_FEATURES = machine.cpu(), machine.features()

# With Python's error model every float division is tested for zero and raises.
_OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}
_PLAIN = {
    **{name: getattr(types, name) for name in KINDS if name != "bool"},
    **{"bool": types.boolean, "float": types.float64, "range": range, "math": math},
    **{function.__name__: function for function in (int, abs, min, max, pow)},
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "rint", "fmod")},
    **{"exp_alone": math.exp, "log_alone": math.log},
}
_OWN = {"exp": functions.EXP, "log": functions_tanh.LOG, "tanh": functions_tanh.TANH}


class _Lanes(types.Type):  # type: ignore[misc]  # numba is untyped
    """A vector of our own."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(name=kind.name)
        self.llvm = kind.llvm


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]  # numba is untyped
    def __init__(self, manager: Any, lanes: Any) -> None:
        super().__init__(manager, lanes, lanes.llvm)


def _type(kind: Kind) -> Any:
    """numba's type for one of ours."""
    if kind.form == "vector":
        return _Lanes(kind)
    return types.void if kind is NOTHING else _PLAIN[kind.name]


def _kind(given: Any) -> Kind:
    """Ours for one of numba's."""
    return BOOL if given == types.boolean else KINDS[str(types.unliteral(given))]


def vocabulary(words: Vocabulary) -> dict[str, Any]:
    """The names that emitted code may use, as numba takes them."""
    made: dict[str, Any] = {**_PLAIN}
    made |= {name: _own(stub_of, made) for name, stub_of in _OWN.items()}
    for name, word in words.items():
        if name not in made:
            made[name] = _word(name, word, made)
    return made


def _word(name: str, word: object, space: dict[str, Any]) -> Any:
    if isinstance(word, Typed):
        return _typed(word)
    if isinstance(word, Routine):
        inline = {"forceinline": True} if word.inline else {}
        return _compiled(word.function, space, **inline)
    if isinstance(word, Generic):
        return _generic(name, word) if name in _RESULTS else getattr(math, name)
    return word  # a number known in advance


def _compiled(function: Callable[..., Any], space: dict[str, Any], **how: bool) -> Any:
    """A function in Python over the vocabulary."""
    code = cast("FunctionType", function).__code__
    return njit(FunctionType(code, space, function.__name__), **_OPTIONS, **how)


def _intrinsic(count: int, typed: Callable[..., Any]) -> Any:
    """An intrinsic of numba, which asks for the names of its arguments."""

    def made(*given: Any) -> Any:
        return typed(*given[1:])

    names = ["typingctx", *(f"a{place}" for place in range(count))]
    made.__signature__ = Signature(  # type: ignore[attr-defined]  # what numba looks at
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return intrinsic(made)


def _typed(word: Typed) -> Any:
    signature = _type(word.result)(*(_type(kind) for kind in word.kinds))

    def code(context: Any, builder: Any, _: Any, args: Sequence[ir.Value]) -> Any:
        made = word.writer(builder, args)
        return context.get_dummy_value() if made is None else made

    return _intrinsic(len(word.kinds), lambda *_: (signature, code))


#: How many arguments these take, and which of them has the type of the result (none: an int64).
_RESULTS = {"fused": (3, 2), "bits": (1, None), "of_bits": (2, 0), "type_of": (2, 0)}
_RESULTS |= {"stack_words": (1, None)}


def _generic(name: str, word: Generic) -> Any:
    """An intrinsic that numba has no function like."""
    count, like = _RESULTS[name]

    def typed(*given: Any) -> Any:
        if name == "stack_words" and not isinstance(given[0], types.IntegerLiteral):
            return None
        kinds = [_kind(each) for each in given]

        def code(_: Any, builder: Any, signature: Any, args: Sequence[ir.Value]) -> Any:
            if name == "stack_words":
                args = [ir.Constant(INT64.llvm, given[0].literal_value)]
            room = lambda kind: cgutils.alloca_once(builder, kind)  # noqa: E731 (a method there)
            lowering = cast("Lowering", SimpleNamespace(builder=builder, room=room))
            return word.writer(lowering, [*map(Value, kinds, args)]).llvm

        return _type(INT64 if like is None else kinds[like])(*given), code

    return _intrinsic(count, typed)


def _own(by_width: Mapping[str, Callable[..., Any]], space: dict[str, Any]) -> Any:
    """A function of ours for the width of its argument: numba picks one by the overload."""

    def stub(x: float) -> float:
        raise NotImplementedError(x)

    def chosen(x: Any) -> Any:
        made = _compiled(by_width.get(str(x), by_width["float64"]), space)
        return (lambda x: made(x)) if isinstance(x, types.Float) else (lambda x: made(float(x)))

    overload(stub)(chosen)
    return stub


# numba's functions return a status and write their result; C's return the result.
_FOR_C = """
define i64 @{name}({given}) {{
  %result = alloca i64
  %error = alloca ptr
  %status = call i32 @{symbol}(ptr %result, ptr %error, {given})
  %value = load i64, ptr %result
  ret i64 %value
}}
"""


@cache
def _space() -> dict[str, Any]:
    from oven.compiler import native  # which imports this module when our lowering gives up

    return vocabulary(native.vocabulary())


def ir_text(source: str, name: str) -> str:
    """The function as LLVM IR that numba has optimised, for C to call."""
    space = dict(_space())
    exec(compile(source, f"<{name}>", "exec"), space)  # noqa: S102 (vetted: one plain function)
    function = space[name]
    count = function.__code__.co_argcount
    signature = types.int64(*[types.int64] * count)
    compiler = njit(signature, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)
    try:
        result = compiler(function).overloads[signature.args]
    except NumbaError as problem:
        raise CompileError.of(name, source, str(problem)) from problem
    given = ", ".join(f"i64 %a{place}" for place in range(count))
    symbol = result.fndesc.llvm_func_name
    return str(result.library.get_llvm_str()) + _FOR_C.format(
        name=name, symbol=symbol, given=given
    )
