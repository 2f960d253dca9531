"""The language of native code: our lowering answers as Python does, and as numba does."""

from __future__ import annotations

import math
import sys
from functools import cache as once

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oven
from oven.compiler import machine, native
from oven.compiler.kinds import Mismatch
from oven.errors import CompileError
from tests import lowered
from tests.oven.test_cases import RUNNABLE, program
from tests.small_programs import Writer

pytestmark = pytest.mark.once

_HEAD = """\
def rows(whole, floats, n, into):
    for i in range(n):
        a = ld_int64(whole, 3 * i)
        b = ld_int64(whole, 3 * i + 1)
        k = ld_int64(whole, 3 * i + 2)
        x = ld_float64(floats, 2 * i)
        y = ld_float64(floats, 2 * i + 1)
        s = float32(x)
        t = float32(y)
        u = uint64(a)
"""

#: Expressions over whole numbers a, b and k (0 to 63), floats x and y, float32 s and t, uint64 u.
WHOLE = [
    *("a + b", "a - b", "a * b", "-a", "+a", "~a", "a & b", "a | b", "a ^ b", "abs(a)"),
    *("a >> k", "(a & 255) << (k & 31)", "int64(u >> uint64(k))", "int64(u & uint64(255))"),
    *("a // 7", "a % 7", "a // -7", "a % -7", "a // (k + 1)", "a % (k + 1)", "a % (-1 - k)"),
    *("min(a, b)", "max(a, b)", "min(a, b, k)", "max(3, a)", "a if x < y else b"),
    *("int64(a < b)", "int64(a < b < k)", "int64(a <= b != k)", "int64(x < a)", "int64(x == y)"),
    *("int64(x != y)", "int64(not x < y)", "int64(a == b)", "int64(s < t)", "int64(x <= y <= x)"),
    *("int64(a < b and x < y)", "int64(a < b or x < y)", "int64((a < b) & (x < y))"),
    *("int64((a < b) ^ (x < y))", "int64(a > 0 and b > 0 or k > 3)", "int64(u > uint64(b))"),
    *("int64(bool(a)) + bool(b)", "(a < b) + (b < a)", "a ** 2", "(k ** 3) * 2", "k ** 5"),
    *("int64(int8(a))", "int64(uint8(a))", "int64(int32(a))", "int64(uint16(a))", "int(k)"),
    *("int64(x) if -1e9 < x < 1e9 else 0", "int64(s) if -1e9 < x < 1e9 else 0"),
    *("wrap_mul(a, 6364136223846793005)", "wrap_add(a, wrap_mul(b, b))", "bits(x)"),
]
FLOATS = [
    *("x + y", "x - y", "x * y", "x / y", "-x", "+x", "abs(x)", "x + a", "a / (k + 1)", "a / 2"),
    *("x % y", "x % 3.0", "x % -3.0", "x ** 2", "pow(abs(x), 0.5)", "x * 2", "1 - x"),
    *("min(x, y)", "max(x, y)", "min(x, 0.0)", "max(0.0, x)", "maximum(x, y)", "minimum(x, y)"),
    *("clip(x, -1.0, 1.0)", "x if x > y else y", "math.inf if a < b else -math.inf", "a * 1.5"),
    *("float64(s + t)", "float64(s * t)", "float64(s - float32(1.5))", "float64(s) + x", "s + x"),
    *("float64(-s)", "float64(abs(s))", "floor(x)", "ceil(x)", "trunc(x)", "rint(x)", "float(a)"),
    *("sqrt(abs(x))", "float64(float32(a))", "fmod(x, y)", "math.pi * x", "float64(a) / y"),
    *("of_bits(x, bits(x) ^ 1)", "type_of(x, a)", "x if not a < b else a"),
]
_EXPRESSIONS = [(each, "int64") for each in WHOLE] + [(each, "float64") for each in FLOATS]
_SOURCE = _HEAD + "".join(
    f"        st_{kind}(into, {len(_EXPRESSIONS)} * i + {place}, {each})\n"
    for place, (each, kind) in enumerate(_EXPRESSIONS)
)
_SOURCE += "    return 0\n"

_ODD = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 1e300, 5e-324, 2.5, -2.5, 3.0]
_rng = np.random.default_rng(7)


def numbers(rows: int = 400) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Whole numbers whose products have 64 bits, shifts, and floats with all odd ones."""
    whole = _rng.integers(-(1 << 31), 1 << 31, (rows, 3))
    small = _rng.random(whole.shape) < 0.5
    whole[small] = _rng.integers(-9, 10, np.count_nonzero(small))
    whole[:, 2] &= 63
    floats = _rng.normal(size=(rows, 2)) * 10.0 ** _rng.integers(-3, 8, (rows, 2))
    odd = _rng.random(floats.shape) < 0.4
    floats[odd] = _rng.choice(_ODD, np.count_nonzero(odd))
    return whole, floats


@once
def _answers() -> tuple[NDArray[np.int64], ...]:
    """What every expression has for a value: by our code, by numba's, by Python."""
    whole, floats = numbers()
    count = len(_EXPRESSIONS)
    by_code = (lowered.ours(_SOURCE, "rows"), lowered.by_numba(_SOURCE, "rows"))
    found = [lowered.filled(function, whole, floats, count) for function in by_code]
    return *found, lowered.by_python(_SOURCE, "rows", whole, floats, count)


@pytest.mark.parametrize("place", range(len(_EXPRESSIONS)), ids=[e for e, _ in _EXPRESSIONS])
def test_an_expression_has_the_value_it_has_in_python_and_by_numba(place: int) -> None:
    ours, by_numba, by_python = (each[:, place] for each in _answers())
    lowered.same(ours, by_python)
    lowered.same(ours, by_numba)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-100, 100), st.integers(0, 63))
def test_expressions_of_any_numbers(a: int, b: int, k: int) -> None:
    whole, floats = np.array([[a, b, k]]), np.array([[a / 7, float(b)]])
    found = [
        lowered.filled(function, whole, floats, len(_EXPRESSIONS))[0]
        for function in (_compiled(), lowered.by_numba(_SOURCE, "rows"))
    ]
    lowered.same(*found)


@once
def _compiled() -> lowered.Native:
    return lowered.ours(_SOURCE, "rows")


# --- statements -----------------------------------------------------------------------------------

STATEMENTS = {
    "a variable that becomes a float in a loop": """
        made = 0
        for j in range(k):
            made = made + x
        st_float64(into, i, made)
""",
    "a float by way of another variable": """
        made, other = 0, 1
        for j in range(k):
            made = other * 2
            other = made + y
        st_float64(into, i, made)
""",
    "a range downwards": """
        made = 0
        for j in range(k, -3, -2):
            made = made * 3 % 1000 + j
        st_int64(into, i, made)
""",
    "a range of no numbers": """
        made = 7
        for j in range(5, 5 - k % 2):
            made = j
        st_int64(into, i, made)
""",
    "the variable of a loop, assigned in it": """
        made = 0
        for j in range(0, k, 3):
            j = j * 2
            made += j
        st_int64(into, i, made)
""",
    "the variable of a loop, after it": """
        j = -1
        for j in range(k % 5):
            pass
        st_int64(into, i, j)
""",
    "break and continue in nested loops": """
        made = 0
        for j in range(k):
            if j % 3 == 1:
                continue
            for h in range(j):
                if h * j > b:
                    break
                made += h
            if made > 900:
                break
        st_int64(into, i, made)
""",
    "a while with break": """
        made = k
        while True:
            if made > 40 or made % 7 == 6:
                break
            made = made * 2 + 1
        st_int64(into, i, made)
""",
    "values that change places": """
        p, q = a, b
        for j in range(k):
            p, q = q, (p ^ j) + q % 5
            p = p % 100003
        st_int64(into, i, p - q)
""",
    "a truth value kept": """
        made = a < b
        other = made or x < y
        if not made and other:
            made = b == k
        st_int64(into, i, int64(made) * 2 + int64(other))
""",
    "one name assigned twice at once": """
        p = q = a + 1
        q -= 1
        st_int64(into, i, p * 2 - q)
""",
    "memory on the stack": """
        room = stack_words(4)
        for j in range(4):
            st_int64(room, j, a + j)
        st_int64(into, i, ld_int64(room, k % 4))
""",
    "a condition known in advance": """
        if lanes_float64:
            made = a
        else:
            made = undefined_here
        st_int64(into, i, made)
""",
}


@pytest.mark.parametrize("body", STATEMENTS.values(), ids=STATEMENTS)
def test_statements_do_what_they_do_in_python_and_by_numba(body: str) -> None:
    source = f"{_HEAD}{body[1:]}    return 0\n"
    assert _agreed(source, 1, numba=True).any()


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    """Every tenth by numba as well, which takes seconds for each."""
    _agreed(Writer(seed).program(), 4, numba=seed % 10 == 0)


def _agreed(source: str, count: int, *, numba: bool) -> NDArray[np.int64]:
    """What all have for the source's answers."""
    whole, floats = numbers(50)
    made = lowered.filled(lowered.ours(source, "rows"), whole, floats, count)
    lowered.same(made, lowered.by_python(source, "rows", whole, floats, count))
    if numba:
        by_numba = lowered.filled(lowered.by_numba(source, "rows"), whole, floats, count)
        lowered.same(made, by_numba)
    return made


# --- what hardware leaves open, and what is refused -----------------------------------------------


@pytest.mark.parametrize("op", ["//", "%"])
@pytest.mark.parametrize(("a", "b"), [(7, 0), (-7, 0), (0, 0), (-(1 << 63), 0)])
def test_division_by_zero_is_zero(op: str, a: int, b: int) -> None:
    assert _word(f"a {op} b", a, b) == 0


@pytest.mark.parametrize("op", ["//", "%"])
def test_the_least_number_by_minus_one_is_zero(op: str) -> None:
    """The quotient has no place in 64 bits: the processor would stop the program."""
    assert _word(f"a {op} b", -(1 << 63), -1) == 0


def _word(expression: str, a: int, b: int) -> int:
    return lowered.ours(f"def rows(a, b, c, d):\n    return {expression}\n", "rows")(a, b, 0, 0)


def test_whole_numbers_without_a_sign_are_shifted_and_compared_as_such() -> None:
    assert _word("int64(uint64(a) >> 63)", -1, 0) == 1
    assert _word("int64(uint64(a) > uint64(b))", -1, 1) == 1
    assert _word("int64(uint64(a) > b)", -1, -1) == 1
    assert _word("int64(uint64(a) // uint64(2) == uint64(b))", -1, (1 << 63) - 1) == 1


REFUSED = {
    "a = b + missing": "line 2 of rows: missing has no value yet",
    "a = missing(b)": "line 2 of rows: 'missing' is not in the vocabulary of native code",
    "a = b ** c": "line 2 of rows: a power has a float or a small whole number for its exponent",
    "for j in abs(a):\n        pass": "line 2 of rows: a loop runs over a range, not over abs(a)",
    "a = float32(b) + int8(c)": "line 2 of rows: convert int8 before it meets float32",
    "a = 1.0 & 2.0": "line 2 of rows: floats have no BitAnd in native code",
    "a = a / 2 // 1": "line 2 of rows: floats have no FloorDiv in native code",
    "a = float32(b)\n    a = a + 1.5": "one variable is given float32 and float64: convert one",
    "a = vset_float64(1.0) + 1": "have no type in common",
    "a = stack_words(b)": "line 2 of rows: stack_words takes a number that is known in advance",
    "x, y = a": "line 2 of rows: a is one value",
    "a = min": "line 2 of rows: min has no value yet",
    "a = ld_int64(b)": "line 2 of rows: 1 arguments where there are 2",
    "a = [b]": "line 2 of rows: List has no place in native code",
    "a = range(3)": "a range is what a loop runs over, and nothing else",
    "while a:\n        break\n    else:\n        a = 1": "line 2 of rows: While has no place",
    "a = text_width(a, b)": "line 2 of rows: text_width has 1 arguments, not 2",
}


@pytest.mark.parametrize(("body", "message"), REFUSED.items(), ids=REFUSED)
def test_what_mixes_types_is_refused_with_its_line(body: str, message: str) -> None:
    with pytest.raises(Mismatch) as raised:
        native.ir_text(f"def rows(a, b, c, d):\n    {body}\n    return a\n", "rows")
    assert message in str(raised.value)


# --- numba, where our lowering gives up -----------------------------------------------------------

_MORE = "def rows(a, b, c, d):\n    return int64(a / 2 // 1) + b ** c\n"


def test_numba_compiles_what_our_lowering_refuses() -> None:
    made = native.compile_source(_MORE.replace("rows", "by_numba_1"), "by_numba_1")
    assert machine.STAGE(machine.load(made.code, made.symbol))(9, 3, 2, 0) == 13


@pytest.mark.parametrize("body", ["missing(a)", "a ** b"])
def test_without_numba_the_message_is_ours(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oven.compiler.numba_compiler", None)
    monkeypatch.delattr("oven.compiler.numba_compiler", raising=False)
    with pytest.raises(CompileError, match=r"line 2 of rows: (a power|'missing')"):
        native.compile_source(f"def rows(a, b, c, d):\n    return {body}\n", "rows")


def test_what_numba_refuses_too_has_our_message() -> None:
    with pytest.raises(CompileError, match="'missing' is not in the vocabulary"):
        native.compile_source("def rows(a, b, c, d):\n    return missing(a)\n", "rows")


# --- the code of operators ------------------------------------------------------------------------

#: One case of each operator by name; tests/oven/test_numba.py compares what numba makes of all.
_OPERATORS = list({case.op.name: case for case in RUNNABLE if case.native}.values())


def test_our_lowering_takes_the_code_of_every_operator() -> None:
    """Nothing of ours is left to numba, which may not be there."""
    sources = {
        stage.source: stage.name
        for case in _OPERATORS
        for stage in oven.bake(program(case)).program.stages
        if stage.source
    }
    for source, name in sources.items():
        native.ir_text(source, name)
    assert len(sources) > len(_OPERATORS) // 2
