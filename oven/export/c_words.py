"""The vocabulary of native code in C: helpers in the head of a file, and functions in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from oven.compiler import functions, portable
from oven.compiler.intrinsics.base import Routine
from oven.compiler.kinds import FLOAT32, FLOAT64, INT64, KINDS, NOTHING, Kind, Mismatch, common
from oven.export import scalar_words
from oven.export.c_code import CFunction, CValue, CVocabulary, CWord, c_type, converted


def head_function(name: str, kinds: Sequence[Kind], result: Kind) -> CWord:
    """A function of the file's head, with arguments of fixed types."""

    def write(code: CFunction, arguments: Sequence[CValue]) -> CValue:
        given = [converted(value, kind).text for value, kind in zip(arguments, kinds, strict=True)]
        return CValue(result, f"{code.use(name)}({', '.join(given)})")

    return write


@cache
def vocabulary(*, single: bool = False) -> CVocabulary:
    """The words that C has; where its floats have 32 bits, functions are those of this width."""
    own = {n: w for n, w in portable.vocabulary().items() if isinstance(w, Routine | int)}
    own |= dict.fromkeys(("permutes128", "bit_masks", "wide_registers"), 0)
    scalar = {function.__name__: Routine(function) for function in scalar_words.WORDS}
    return {**own, **_memory(), **_numbers("float32" * single), **_lanes(), **scalar}


def _memory() -> dict[str, CWord]:
    made: dict[str, CWord] = {}
    for name, kind in KINDS.items():
        made[f"ld_{name}"] = made[f"ldc_{name}"] = head_function(f"ld_{name}", (INT64, INT64), kind)
        made[f"st_{name}"] = head_function(f"st_{name}", (INT64, INT64, kind), NOTHING)
    made |= {f"peek_{name}": made[f"ld_{name}"] for name in ("int64", "int32")}
    made |= {"poke_int64": made["st_int64"], "stack_words": _stack}
    return made | {"ld_pointer": head_function("ld_pointer", (INT64,), INT64)}


def _stack(code: CFunction, arguments: Sequence[CValue]) -> CValue:
    (words,) = arguments
    if words.number is None:
        raise Mismatch("stack_words takes a number that is known in advance")
    return CValue(INT64, f"(int64_t)(intptr_t){code.room(words.number)}", 8)


def _numbers(width: str) -> dict[str, CWord]:
    made = {name: _to(kind) for name, kind in KINDS.items()}
    made |= {"float": made["float64"], "int": _int, "abs": _abs}
    made |= {name: _least(name) for name in ("min", "max")}
    made |= {name: _libm(name) for name in ("sqrt", "floor", "ceil", "trunc", "rint")}
    own = {"exp": functions.EXP, "log": functions.LOG, "tanh": functions.TANH}
    own |= {"exp_alone": functions.EXP, "log_alone": functions.LOG}
    made |= {name: _by_width(widths, width) for name, widths in own.items()}
    if not width:
        made |= {name: _in_float64(Routine(each)) for name, each in portable.OWN.items()}
    for kind in (FLOAT64, FLOAT32):
        made[f"loose_add_{kind.name}"] = _operation(kind, "+", 6)
        made[f"loose_mul_{kind.name}"] = _operation(kind, "*", 7)
    for name in ("wrap_add", "wrap_mul"):
        made[name] = head_function(name, (INT64, INT64), INT64)
    made["type_of"] = lambda _, given: converted(given[1], given[0].kind)
    return made | {"fused": _fused, "bits": _bits, "of_bits": _of_bits}


def _lanes() -> dict[str, CWord | Routine | int]:
    """Vectors of one number."""
    made: dict[str, CWord | Routine | int] = {}
    for kind in (FLOAT64, FLOAT32):
        name = kind.name
        made |= {f"lanes_{name}": 1, f"vset_{name}": _to(kind)}
        made[f"vld_{name}"] = head_function(f"ld_{name}", (INT64, INT64), kind)
        made[f"vst_{name}"] = head_function(f"vst_{name}", (INT64, INT64, kind, INT64), NOTHING)
        made[f"vadd_{name}"] = _operation(kind, "+", 6)
        made[f"vadd_product_{name}"] = made[f"vadd_product_exact_{name}"] = _add_product
    return made


def _operation(kind: Kind, sign: str, level: int) -> CWord:
    def write(_: CFunction, arguments: Sequence[CValue]) -> CValue:
        a, b = (converted(each, kind).at(level) for each in arguments)
        return CValue(kind, f"{a} {sign} {b}", level)

    return write


def _float(value: CValue) -> CValue:
    return value if value.kind.is_float else converted(value, FLOAT64)


def _int(_: CFunction, arguments: Sequence[CValue]) -> CValue:
    (value,) = arguments
    return converted(value, common(value.kind, INT64) if value.kind.is_whole else INT64)


def _abs(code: CFunction, arguments: Sequence[CValue]) -> CValue:
    (value,) = arguments
    if value.kind.is_float:
        return _libm("fabs")(code, arguments)
    number = converted(value, common(value.kind, value.kind))
    return (
        CValue(INT64, f"{code.use('abs_int64')}({number.text})") if number.kind.signed else number
    )


def _least(name: str) -> CWord:
    """Python's `min` and `max`: the first of equal ones, and never a NaN that comes second."""

    def write(code: CFunction, arguments: Sequence[CValue]) -> CValue:
        made, *rest = arguments
        for value in rest:
            kind = value.kind if value.kind == made.kind else common(value.kind, made.kind)
            made = head_function(f"{name}_{kind.name}", (kind, kind), kind)(code, (made, value))
        return made

    return write


def _libm(name: str) -> CWord:
    """A function of C whose result is exact, or rounded once, everywhere."""

    def write(_: CFunction, arguments: Sequence[CValue]) -> CValue:
        value = _float(*arguments)
        return CValue(value.kind, f"{name}{'f' * (value.kind is FLOAT32)}({value.text})")

    return write


def _by_width(widths: Mapping[str, Callable[..., float]], width: str) -> CWord:
    def write(code: CFunction, arguments: Sequence[CValue]) -> CValue:
        value = _float(*arguments)
        return code.routine(Routine(widths[width or value.kind.name]).definition, [value])

    return write


def _to(kind: Kind) -> CWord:
    return lambda _, arguments: converted(arguments[0], kind)


def _in_float64(word: Routine) -> CWord:
    def write(code: CFunction, arguments: Sequence[CValue]) -> CValue:
        single = all(value.kind is FLOAT32 for value in arguments)
        made = code.routine(word.definition, [converted(value, FLOAT64) for value in arguments])
        return converted(made, FLOAT32) if single else made

    return write


def _fused(_: CFunction, arguments: Sequence[CValue]) -> CValue:
    kind = arguments[2].kind
    a, b, c = (converted(value, kind) for value in arguments)
    return CValue(kind, f"{a.at(7)} * {b.at(7)} + {c.at(6)}", 6)


def _add_product(_: CFunction, arguments: Sequence[CValue]) -> CValue:
    total, a, b = arguments
    return CValue(total.kind, f"{total.at(6)} + {a.at(7)} * {b.at(7)}", 6)


def _bits(code: CFunction, arguments: Sequence[CValue]) -> CValue:
    kind = arguments[0].kind
    return head_function(f"bits_{kind.name}", (kind,), INT64)(code, arguments)


def _of_bits(code: CFunction, arguments: Sequence[CValue]) -> CValue:
    like, number = arguments
    return head_function(f"of_bits_{like.kind.name}", (INT64,), like.kind)(code, [number])


# --- the head of a file --------------------------------------------------------------------------


def helper(name: str) -> str:
    """The text of a helper."""
    word, _, kind = name.partition("_")
    of = INT64 if name in _HELPERS else KINDS[kind]
    text = _HELPERS.get(name) or _HELPERS[f"{word}_TYPE"]
    text = text.replace("_TYPE", f"_{of.name}").replace("TYPE", c_type(of))
    return text.replace("SIZE", str(max(of.bits, 8) // 8))


_C = Path(__file__).with_name("helpers.c").read_text(encoding="utf-8")
#: Each helper by its name, with TYPE and SIZE where it has a form for each type.
_HELPERS = {
    text.split("(", 1)[0].rsplit(" ", 1)[1]: f"static inline {text.strip()}\n"
    for text in _C.split("\n\n")
}
