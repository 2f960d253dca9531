"""Emitted code stays within its memory, whatever parameters its operator accepted.

A saved plan may come from anybody, so what keeps native code from reading elsewhere is that every
operator's `check` and type rule refuse parameters that would make it. Each operator's data is
changed in every way a file can be, and what is still accepted runs in checked memory.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest

from flour.core.errors import FlourError, InputError
from flour.core.node import Node, node
from flour.core.op import Op, Parameter, from_data, to_data
from flour.core.reference import evaluate
from flour.core.source import Source
from flour.core.sparse import densify
from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector
from flour.language.flow import Flow
from flour.ops.encode import OneHot
from objectstore import Blob, StoreError, Strings
from oven.compiler import source_check
from oven.compiler.intrinsics.vocabulary import vocabulary
from oven.plans.manifest import check_limits
from oven.plans.plan import Plan
from oven.plans.saved import STUMBLES
from tests import checked
from tests.cases import CASES, Case
from tests.columns import assert_close, draw
from tests.flour.test_cases import columns
from tests.oven.test_cases import program

pytestmark = pytest.mark.once

NATIVE = [case for case in CASES if case.native and not isinstance(case.op, Source)]
# Changes tried on each row of the table.
CHANGES = 40


class Never(Executor):
    """Compiles nothing: only the text is wanted."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


def emitted(flow: Flow) -> Plan:
    """The plan with its stages' text, uncompiled, as a file would make it."""
    return Plan(flow, flow, background=Never(), check=check_limits)


def code_stays_in_its_memory(case: Case) -> None:
    """Emitted code reads and writes what belongs to it."""
    plan = emitted(program(case))
    for rows in (0, 1, 3):
        given = {f"x{i}": value for i, value in enumerate(columns(case, rows, odd=case.odd))}
        found = checked.run(plan, given, rows)["output"]
        assert len(densify(found)) == rows


def change(data: Any, parameters: dict[str, Parameter], rng: np.random.Generator) -> Any:
    """The operator's data with one thing changed, as somebody hostile would."""
    name, fields = copy.deepcopy(data)
    spots = list(_spots(fields))
    if not spots:
        return [name, fields]
    holder, key = spots[rng.integers(len(spots))]
    holder[key] = _changed(holder[key], parameters, rng)
    return [name, fields]


def _spots(value: Any) -> Any:
    """Every (container, key) of something that is not a container of plain data."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, list):
            yield value, key
            yield from _spots(inner)
        elif isinstance(inner, dict) and "op" in inner:
            yield from _spots(inner["op"])
        else:
            yield value, key


def _changed(value: Any, parameters: dict[str, Parameter], rng: np.random.Generator) -> Any:
    digest = value.get("parameter") if isinstance(value, dict) else None
    if isinstance(digest, str) and digest in parameters:
        with np.errstate(all="ignore"):
            made = _other(parameters[digest], rng)
        parameters[made.digest] = made
        return {"parameter": made.digest}
    choices = [*_choices(value), *_choices(value), None, "None", 3, ["a"], {"float": "0x1p-3"}]
    return choices[rng.integers(len(choices))]


def _choices(value: Any) -> list[Any]:
    """What else might stand in the place of a static field."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1, 0, -1, 2 * value + 3, 1 << 31, -(1 << 62), 7]
        case str():
            return [value + "x", "", "float64", "float32", "int8", "l1"]
        case list():
            return [value[1:], value[:-1], [*value, *value[-1:]], value[::-1]]
        case {"float": _}:
            return [{"float": text} for text in ("nan", "inf", "-0x1p+1000", "0x0p+0")]
    return [{"type": ["Scalar", "float64"]}]


def _other(parameter: Parameter, rng: np.random.Generator) -> Parameter:
    """A parameter of another size, shape, dtype or content."""
    if isinstance(parameter, Strings):
        texts = parameter.to_list()
        return Strings.of(
            [texts[1:], [*texts, "more"], texts[::-1], texts + texts][rng.integers(4)]
        )
    array = np.array(parameter.array)
    return Blob.of(_OTHERS[rng.integers(len(_OTHERS))](array, rng))


def _one_value(array: Any, rng: np.random.Generator) -> Any:
    """One element becomes something extreme."""
    if not array.size:
        return array
    made = array.copy()
    extremes: list[Any] = [0, 1, 5, 17, 1 << 20, -1]
    if array.dtype.kind == "f":
        extremes += [np.nan, np.inf, -np.inf, 1e300]
    elif array.dtype.itemsize == 8:
        extremes += [1 << 40, -(1 << 62), (1 << 63) - 1]
    value = extremes[rng.integers(len(extremes))]
    with np.errstate(all="ignore"):
        made.flat[rng.integers(array.size)] = np.array(value).astype(array.dtype)
    return made


_OTHERS: list[Any] = [
    _one_value,
    _one_value,
    _one_value,
    lambda a, _: a.reshape(-1)[1:],
    lambda a, _: a[:-1] if a.ndim else a,
    lambda a, _: a[1:] if a.ndim else a,
    lambda a, _: np.concatenate([a, a]) if a.ndim else a,
    lambda a, _: np.concatenate([a, a[-1:]]) if a.ndim else a,
    lambda a, _: a[..., :-1] if a.ndim else a,
    lambda a, _: a[None],
    lambda a, _: a[:0] if a.ndim else a,
    lambda a, _: a.reshape(-1)[:1],
    lambda a, _: a.T.copy(),
    lambda a, _: a.reshape(-1)[::-1].reshape(a.shape),
    lambda a, _: -a if a.dtype.kind in "if" else a,
    lambda a, _: a.astype("float32"),
    lambda a, _: np.nan_to_num(a.astype("float64")).astype("int8"),
    lambda a, _: np.nan_to_num(a.astype("float64")).astype("int64"),
    lambda a, _: np.nan_to_num(a.astype("float64")).astype("uint64"),
    lambda a, _: a.astype("float16") if a.dtype.kind != "f" else a != 0,
]


def accepted(data: Any, parameters: dict[str, Parameter], kinds: Sequence[Type]) -> Plan | None:
    """The plan of the operator over inputs of these types, or None where it was refused."""
    try:
        op: Op = from_data(data, lambda digest: parameters[digest])
        inputs = [node(Source(f"x{i}", kind), []) for i, kind in enumerate(kinds)]
        made = node(op, inputs)
        if isinstance(made.type, Vector) and made.type.width > 10_000:
            return None
        plan = emitted(Flow({"output": made}))
    except (FlourError, StoreError, *STUMBLES):
        return None
    for stage in plan.program.stages:
        if stage.source:
            vetted(stage.source, stage.name)
    return plan


@cache
def vetted(source: str, name: str) -> None:
    """Let the gate see each text once: most changes are to what the same text reads."""
    source_check.vet(source, name, vocabulary())


def run(plan: Plan, given: dict[str, Any], rows: int) -> None:
    """Run in checked memory; that the program refuses these rows is fine."""
    with suppress(InputError):
        checked.run(plan, given, rows)


@pytest.mark.parametrize("case", NATIVE, ids=[case.name for case in NATIVE])
def test_no_parameter_leads_out_of_memory(case: Case) -> None:
    code_stays_in_its_memory(case)
    rng = np.random.default_rng(7)
    data = to_data(case.op)
    for _ in range(CHANGES):
        parameters = {item.digest: item for item in case.op.parameters()}
        other = change(data, parameters, rng)
        with np.errstate(all="ignore"):
            plan = accepted(other, parameters, case.inputs)
        if plan is None:
            continue
        given = {f"x{i}": v for i, v in enumerate(columns(case, 2, odd=case.odd, seed=3))}
        run(plan, given, 2)


def test_the_checker_sees_a_read_too_far() -> None:
    case = next(case for case in NATIVE if case.op.name == "Subtract")
    plan = emitted(program(case))
    stage = plan.program.stages[0]
    further = stage.source.replace("ldc_float64(r", "ldc_float64(8 + r")
    assert further != stage.source
    worse = [type(stage)(**{**vars(stage), "source": further})]
    given = {f"x{i}": value for i, value in enumerate(columns(case, 1, odd=False))}
    with pytest.raises(checked.OutOfBoundsError):
        checked.run(plan, given, 1, worse)


KINDS: list[Type] = [
    *(Vector(width, dtype) for width in (0, 1, 3, 8) for dtype in ("float64", "float32", "int64")),
    *(Vector(3, dtype) for dtype in ("bool", "int8", "uint64", "string")),
    *(Vector(width, "float64", sparse=True) for width in (0, 3, 20)),
    *(Scalar(dtype) for dtype in ("float64", "float32", "int64", "uint8", "bool", "string")),
    Category("string"),
    Category("int64"),
    Record((("a", Scalar("float64")), ("b", Category()))),
    Text(),
    Tokens(),
    Pairs(),
]
# One row of the table for each operator and number of inputs.
DISTINCT = list({(case.op.digest, len(case.inputs)): case for case in NATIVE}.values())


def extreme(rng: np.random.Generator, kind: Type, rows: int) -> Any:
    """A column with the numbers that make arithmetic overflow among the others."""
    made = draw(rng, kind, rows, odd=True)
    if isinstance(made, np.ndarray) and made.dtype.kind in "iu" and made.size:
        limits = np.iinfo(made.dtype)
        edges = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2]
        edge = np.array([edges[i] for i in rng.integers(len(edges), size=made.size)], made.dtype)
        made = np.where(rng.random(made.shape) < 0.5, edge.reshape(made.shape), made)
    return made


def no_data_leads_out_of_memory(case: Case) -> None:
    """Numbers at the ends of their types stay where they belong."""
    rng = np.random.default_rng(5)
    plan = emitted(program(case))
    for rows in (1, 4, 4):
        given = {f"x{i}": extreme(rng, kind, rows) for i, kind in enumerate(case.inputs)}
        run(plan, given, rows)


@pytest.mark.parametrize("case", DISTINCT, ids=[case.name for case in DISTINCT])
def test_no_input_leads_out_of_memory(case: Case) -> None:
    no_data_leads_out_of_memory(case)
    stored_elements_are_handed_on(case)
    rng = np.random.default_rng(11)
    for _ in range(len(KINDS)):
        # Types for the operator's inputs: mostly its own, one or two of them another.
        kinds = list(case.inputs)
        for place in rng.integers(len(kinds), size=rng.integers(1, 3)):
            kinds[place] = KINDS[rng.integers(len(KINDS))]
        plan = accepted(to_data(case.op), {p.digest: p for p in case.op.parameters()}, kinds)
        if plan is not None:
            given = {f"x{i}": extreme(rng, kind, 2) for i, kind in enumerate(kinds)}
            run(plan, given, 2)


def sparse_source(name: str, width: int) -> Node:
    """A vector of this width that only says its elements that are not zero."""
    codes = node(Source(name, Vector(2, "int64")), [])
    return node(OneHot([0, width // 2, width]), [codes])


def stored_elements_are_handed_on(case: Case) -> None:
    """A sparse vector inside a stage is not in memory: every operator has to do with that."""
    rng = np.random.default_rng(13)
    kinds = [kind for kind in case.inputs if isinstance(kind, Vector) and kind.dtype == "float64"]
    if len(kinds) != len(case.inputs):
        return
    try:
        made = node(case.op, [sparse_source(f"x{i}", k.width) for i, k in enumerate(kinds)])
    except FlourError:
        return
    plan = emitted(Flow({"output": made}))
    given = {f"x{i}": rng.integers(-1, 4, size=(5, 2)) for i in range(len(kinds))}
    found = densify(checked.run(plan, given, 5)["output"])
    want = densify(evaluate([made], given)[made])
    if np.isfinite(want).all():  # Python's min and max have their own idea of NaN
        assert_close(found, want, max(case.tolerance, 1e-12), case.name)
