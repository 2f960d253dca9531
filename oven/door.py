"""The door of a plan: one call from a row, or a block of rows, to the answers.

    call = plan.door()
    label, probabilities = call(row)         # numbers (or str), and an array for a vector
    labels, probabilities = call(block)      # arrays

The outputs come as a tuple, in the order of `plan.outputs`. A row is a numpy vector, a list or a
tuple of numbers; where the plan is all native code and reads one vector of floats, its door is a
function of machine code (oven.door_code), and costs a fifth of a microsecond besides the plan's
own work. Everything else (data of another type or layout, frames, dicts, plans with Python stages)
goes through `Plan.run` and gives the same answers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.node import Node
from flour.ops.structure import TakeText
from flour.types import FLOATS, Category, Scalar, Type, Vector
from oven import cache, door_code
from oven.interpreter import addresses
from oven.native_run import RELEASE_BYTES, NativeRun
from oven.ports import Port
from oven.stages import Stage

Answers = tuple[Any, ...]
Call = Callable[[object], Answers]


class Output(NamedTuple):
    """One output: the node that the native code computes, and the strings that it numbers."""

    node: Node
    names: NDArray[np.object_] | None = None


class Layout(NamedTuple):
    """What a door needs to know of a plan."""

    run: NativeRun
    kind: Vector
    outputs: tuple[Output, ...]


def layout(
    inputs: Mapping[str, Type], steps: Sequence[NativeRun | Stage], outputs: Sequence[Node]
) -> Layout | None:
    """The door a plan can have: one native call over one vector of floats, labels looked up."""
    kinds = list(inputs.values())
    if len(kinds) != 1 or not steps or not isinstance(steps[0], NativeRun):
        return None
    run, kind = steps[0], kinds[0]
    if not isinstance(kind, Vector) or kind.sparse or kind.dtype not in FLOATS:
        return None
    plain = all(isinstance(value, Port) and not value.fields for value in run.inputs)
    if not plain or run.rooms or run.stored:
        return None
    if any(isinstance(item.type, Vector) and item.type.sparse for item in outputs):
        return None  # answers stored sparsely are made by Plan.run
    found = tuple(_output(item) for item in outputs)
    # Each column that the native code leaves is one output, and each output is one column.
    if len(found) != len(run.outputs) or {item.node for item in found} != set(run.outputs):
        return None
    return Layout(run, kind, found)


def _output(item: Node) -> Output:
    if isinstance(item.op, TakeText) and isinstance(item.type, Scalar | Category):
        names = np.array([*item.op.table.to_list(), None], dtype=object)[:-1]
        return Output(item.inputs[0], names.copy())
    return Output(item)


# --- the table ------------------------------------------------------------------------------------


class Table(np.ndarray[Any, Any]):
    """A door's table, which Python hands to the door as its `self`; it keeps all it refers to."""

    kept: tuple[Any, ...]


class _Method(ctypes.Structure):
    """PyMethodDef: how Python's C interface describes a built-in function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_ONE_ARGUMENT = 8  # METH_O


def open_door(found: Layout, fallback: Call) -> Call | None:
    """The door as a built-in function, or None where this interpreter can have none."""
    known = addresses()
    if known is None:
        return None
    code = cache.machine_code(cache.key(door_code.SOURCE), door_code.NAME, _build)
    method = _Method(b"door", code, _ONE_ARGUMENT, b"Answers for a row or a block of rows.")
    table = _table(found, fallback, known, method)
    made: Call = _new_function(ctypes.addressof(method), table, None)
    return made


def _build(name: str) -> cache.Code:
    from oven import native  # numba is imported only to compile

    source = door_code.SOURCE.replace(f"def {door_code.NAME}(", f"def {name}(", 1)
    return native.compile_source(source, name)


_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))


def _table(found: Layout, fallback: Call, known: Mapping[str, int], method: _Method) -> Table:
    run, kind = found.run, found.kind
    dtype = np.dtype(kind.dtype)
    cells = _aligned(16 * (1 + len(found.outputs)))
    row = cells + _aligned(8 * len(found.outputs))
    stages = row + _aligned(kind.width * dtype.itemsize)
    size = stages + run.scratch_bytes
    scratch = shared_scratch(size)
    words = dict(known)
    words |= {"DTYPE": id(dtype), "ITEM_BYTES": dtype.itemsize, "WIDTH": kind.width}
    words |= {"RUN": run.entry[0], "PROGRAM": run.entry[1], "FALLBACK": id(fallback)}
    words |= {"SCRATCH": scratch.ctypes.data, "SCRATCH_BYTES": size}
    words |= {"CELLS": cells, "ROW": row, "STAGES": stages}
    words["RELEASE_ROWS"] = max(1, RELEASE_BYTES // max(run.row_work, 1))
    words["OUTPUTS"] = len(found.outputs)
    words["TEXTS"] = sum(item.names is not None for item in found.outputs)
    numbers = [words[name] for name in door_code.WORDS[:-1]]
    columns = {item: place for place, item in enumerate((*run.inputs, *run.outputs))}
    for item in found.outputs:
        numbers += _output_words(item, columns[item.node])
    table = np.array(numbers, np.int64).view(Table)
    table.kept = (run, dtype, fallback, method, scratch, found)
    return table


def _output_words(item: Output, column: int) -> list[int]:
    kind = item.node.type
    assert isinstance(kind, Scalar | Category | Vector)
    dtype = np.dtype(object if item.names is not None else kind.dtype)
    name = "string" if item.names is not None else kind.dtype
    width = kind.width if isinstance(kind, Vector) else door_code.SCALAR
    across = max(width, 1) if width != door_code.SCALAR else 1
    size = (np.dtype(kind.dtype).itemsize if item.names is None else 8) * across
    names = item.names
    where, last = (names.ctypes.data, len(names) - 1) if names is not None else (0, 0)
    return [door_code.KINDS.index(name), column, id(dtype), width, size, where, last]


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


_scratch: list[NDArray[np.uint8]] = []


def shared_scratch(size: int) -> NDArray[np.uint8]:
    """Memory for calls that keep the interpreter's lock: one for all doors, as big as any needs."""
    if not _scratch or len(_scratch[-1]) < size:
        raw = np.empty(max(_aligned(size), 1 << 16) + 64, np.uint8)
        start = -raw.ctypes.data % 64
        _scratch[:] = [raw[start : len(raw) - 64 + start]]
    return _scratch[-1]


# --- the way around -------------------------------------------------------------------------------


def around(run: Callable[[object], Mapping[str, Any]]) -> Call:
    """The same answers through `Plan.run`, for whatever the machine code does not take."""

    def call(data: object) -> Answers:
        block = _as_block(data)
        if block is None:
            return tuple(run(data).values())
        return tuple(_only(value) for value in run(block).values())

    return call


def _as_block(data: Any) -> Any:
    """A row as a block of one row; None for what already is a block."""
    if isinstance(data, np.ndarray):
        return data[None] if data.ndim == 1 and data.dtype.names is None else None
    if isinstance(data, Mapping):
        alone = {name: [value] for name, value in data.items() if _is_value(value)}
        return alone if len(alone) == len(data) else None
    if isinstance(data, list | tuple) and data and all(map(_is_value, data)):
        return [list(data)]
    return None


def _is_value(value: object) -> bool:
    return value is None or isinstance(value, str | bool | int | float | np.generic)


def _only(value: Any) -> Any:
    """The first row of an output, a scalar as Python's own number."""
    first = value[0]
    return first.item() if isinstance(first, np.generic) else first
