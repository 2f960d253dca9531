"""Functions as the text that is compiled: helpers first, constants as numbers, no types."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from types import FunctionType

import pytest

from oven.compiler import driver, gil_yield, native, shared_rows, source_check, written
from oven.compiler.intrinsics.vocabulary import vocabulary
from oven.compiler.kinds import INT64
from oven.compiler.words import int64, ld_int64
from oven.errors import CompileError
from oven.explain.attribution import tree_code
from oven.plans import string_views
from runtime.http.codec import array_pieces, number_arrays, number_texts

LIMIT, MISSING = 0x10, -1
Place = IntEnum("Place", "FIRST SECOND", start=0)


def clipped(value: int, LIMIT: int) -> tuple[int, bool]:
    """A helper, whose own variable has the name of a constant."""
    return min(value, LIMIT), value <= LIMIT


def twice(value: int) -> int:
    made, fits = clipped(2 * value, 40)
    return made if fits else int64(MISSING)


def total(params: int, io: int, n: int, scratch: int) -> int:
    """The sum of what is at most half of 40, and of one constant."""
    made = LIMIT
    for i in range(n):
        value = ld_int64(io, i + Place.FIRST)
        if value != ld_int64(params, Place.SECOND):
            made += twice(value)
    return made + scratch


FUNCTIONS = [
    *(driver.run_stages, gil_yield.run_aside, string_views.string_views),
    *(number_arrays.json_numbers, number_texts.json_texts, array_pieces.json_outline),
    *(tree_code.attribute_by_covers, tree_code.attribute_to_background),
]
WRITTEN = """\
def clipped(value, LIMIT):
    return (min(value, LIMIT), value <= LIMIT)


def twice(value):
    made, fits = clipped(2 * value, 40)
    return made if fits else int64(-1)


def total(params, io, n, scratch):
    made = 16
    for i in range(n):
        value = ld_int64(io, i + 0)
        if value != ld_int64(params, 1):
            made += twice(value)
    return made + scratch
"""


def test_helpers_come_first_and_constants_are_numbers() -> None:
    assert written.text(total) == WRITTEN
    source_check.vet(WRITTEN, "total", vocabulary())
    assert native.compile_source(WRITTEN, "total").code


@pytest.mark.parametrize("function", [*shared_rows.FUNCTIONS.values(), *FUNCTIONS])
def test_our_own_compiler_takes_them_all(function: Callable[..., int]) -> None:
    text, name = written.text(function), function.__name__
    module, definition = native.opened(text, {**vocabulary(), **shared_rows.atomics()})
    assert module.write(definition, name, (INT64,) * 4)


def test_it_depends_on_constants_and_on_those_of_helpers() -> None:
    known = total.__globals__
    helper = FunctionType(twice.__code__, {**known, "MISSING": -2}, "twice")
    changed: list[dict[str, object]] = [{"LIMIT": 17}, {"twice": helper}, {}]
    made = [written.inputs(FunctionType(total.__code__, {**known, **each})) for each in changed]
    assert len({*made}) == 3
    assert made[-1] == written.inputs(total)


REFUSED = {
    "def a(x):\n    return a(x)\n": "'a' is not in",
    "def min(x):\n    return x\n": "min is a name of its own",
    "def total(x):\n    return x\n": "total is a name of its own",
    "def a(x):\n    return open(x)\n": "'open' is not in",
    "a = 1\n": "not one function",
}


@pytest.mark.parametrize("helper", REFUSED)
def test_a_helper_is_checked_as_the_function_is(helper: str) -> None:
    with pytest.raises(CompileError, match=REFUSED[helper]):
        source_check.vet(helper + WRITTEN, "total", vocabulary())
