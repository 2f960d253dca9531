"""numba as the compiler of native code: where it is chosen, and for what our lowering refuses.

Our own lowering (`oven.compiler.lowering`) is ten times as fast and knows less of Python, which
operators from outside the project may use. Both read the same source, and LLVM's passes are the
same, so answers have the same bits. Intrinsics of fixed types are the same code in both; functions
in Python are compiled by numba; what has types that follow from its arguments (`min`, `abs`,
`math.sqrt`), and operators, are numba's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from inspect import Parameter, Signature
from itertools import islice
from types import FunctionType, SimpleNamespace
from typing import Any, cast

import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.extending import intrinsic, models, overload, register_model

from oven.compiler import functions, machine
from oven.compiler.intrinsics.base import Generic, Routine, Typed
from oven.compiler.intrinsics.vocabulary import vocabulary
from oven.compiler.kinds import BOOL, INT64, KINDS, NOTHING, Kind, Mismatch, Value
from oven.compiler.lowering import Lowering

# Both compilers make code for the same processor; numba's own variables do not count.
config.CPU_NAME, config.CPU_FEATURES = machine.cpu(), machine.features()

# With Python's error model every float division is tested for zero and raises.
_OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}
_PLAIN = {
    **{name: getattr(types, name) for name in KINDS if name != "bool"},
    "bool": types.boolean,
    "float": types.float64,
    "range": range,
    "math": math,
    **{function.__name__: function for function in (int, abs, min, max, pow)},
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "rint", "fmod")},
    "exp_alone": math.exp,
    "log_alone": math.log,
}
_OWN = {"exp": functions.EXP, "log": functions.LOG, "tanh": functions.TANH}


class _VectorType(types.Type):  # type: ignore[misc]  # numba is untyped
    """A vector of our own."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(name=kind.name)
        self.llvm = kind.llvm


@register_model(_VectorType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]  # numba is untyped
    def __init__(self, manager: Any, lanes: Any) -> None:
        super().__init__(manager, lanes, lanes.llvm)


def _type(kind: Kind) -> Any:
    """numba's type for one of ours."""
    if kind.form == "vector":
        return _VectorType(kind)
    return types.void if kind is NOTHING else _PLAIN[kind.name]


def _kind(given: Any) -> Kind:
    """Ours for one of numba's."""
    return BOOL if given == types.boolean else KINDS[str(types.unliteral(given))]


@cache
def _vocabulary() -> dict[str, Any]:
    """The names that emitted code may use, as numba takes them."""
    made: dict[str, Any] = {**_PLAIN}
    made |= {name: _own(by_width, made) for name, by_width in _OWN.items()}
    rest = vocabulary().items()
    made |= {name: _word(name, word, made) for name, word in rest if name not in made}
    return made


def _word(name: str, word: object, space: dict[str, Any]) -> Any:
    if isinstance(word, Typed):
        return _typed(word)
    if isinstance(word, Routine):
        return _compiled(word.function, space, forceinline=word.inline)
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
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    made.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # numba looks at it
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
        known = [getattr(each, "literal_value", None) for each in given]
        if name == "stack_words" and known[0] is None:
            return None  # numba asks again with what it knows of the number
        kinds = [_kind(each) for each in given]

        def code(_: Any, builder: Any, __: Any, args: Sequence[ir.Value]) -> Any:
            held = [INT64.llvm(known[0])] if name == "stack_words" else args
            room = partial(cgutils.alloca_once, builder)
            lowering = cast("Lowering", SimpleNamespace(builder=builder, room=room))
            return word.writer(lowering, [*map(Value, kinds, held)]).llvm

        return _type(INT64 if like is None else kinds[like])(*given), code

    return _intrinsic(count, typed)


def _own(by_width: Mapping[str, Callable[..., Any]], space: dict[str, Any]) -> Any:
    """A function of ours for the width of its argument: numba picks one by the overload."""

    def chosen(x: Any) -> Any:
        made = _compiled(by_width.get(str(x), by_width["float64"]), space)
        return lambda x: made(float(x))

    stub = lambda x: x  # noqa: E731 (numba compares annotations, and these have none)
    overload(stub)(lambda x: chosen(x))  # noqa: PLW0108 (as above)
    return stub


# numba's functions return a status and write their result; C's return the result.
_FOR_C = """
define i64 @{name}({given}) {{
  %result = alloca i64
  %status = call i32 @{symbol}({result} %result, {error} null, {given})
  %value = load i64, {result} %result
  ret i64 %value
}}
"""


def ir_text(source: str, name: str) -> str:
    """The function as LLVM IR that is not optimised yet, for C to call.

    numba's own passes are left out: those of our lowering follow, so both have the same.
    """
    space = dict(_vocabulary())
    exec(compile(source, f"<{name}>", "exec"), space)  # noqa: S102 (vetted: plain functions)
    for each in [each for each in space if each not in _vocabulary() and each != name]:
        if isinstance(space[each], FunctionType):
            space[each] = njit(space[each], **_OPTIONS, forceinline=True)
    count = space[name].__code__.co_argcount
    signature = types.int64(*[types.int64] * count)
    options = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    with global_compiler_lock:
        before, config.OPT = config.OPT, 0
        try:
            made = njit(signature, **options)(space[name]).overloads[signature.args]
        except NumbaError as problem:
            raise Mismatch(str(problem)) from problem
        finally:
            config.OPT = before
    given = ", ".join(f"i64 %a{place}" for place in range(count))
    symbol, text = made.fndesc.llvm_func_name, made.library.get_llvm_str()
    text = _EXPORTED.sub(r"\1internal ", _WIDTHS.sub("", str(text), count=1))
    # Pointers have types up to LLVM 14.
    arguments = llvm.parse_assembly(text).get_function(symbol).arguments
    result, error = (str(each.type) for each in islice(arguments, 2))
    return text + _FOR_C.format(name=name, symbol=symbol, given=given, result=result, error=error)


#: What numba exports is for its own calls, and our code has no widths either (native.ir_text).
_EXPORTED = re.compile(
    r"^(define |@\S+ = )(?:linkonce_odr |linkonce |common )?(?=i32 @|global )", re.MULTILINE
)
_WIDTHS = re.compile(r"-n[\d:]+(?=[^\"\n]*\"$)", re.MULTILINE)
