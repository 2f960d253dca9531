"""An entry's table of a plan: the code that runs, the outputs, and the memory for a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.types import Category, Scalar, Type, Vector
from flour.ops.structure import TakeText
from oven.codegen.stages import Stage
from oven.entry.builtin import Contents
from oven.entry.generator import SCALAR, Kind, numbers_of
from oven.entry.interpreter import list_items
from oven.run.native_run import LONGEST, RELEASE_BYTES, TEXT_BYTES, NativeRun, room_bytes


class PlanSteps(NamedTuple):
    """The parts of a plan that an entry opens: inputs, steps in order, nodes of the outputs."""

    inputs: Mapping[str, Type]
    steps: Sequence[NativeRun | Stage]
    outputs: Sequence[Node]


class Output(NamedTuple):
    """One output: the node that the native code computes, and the strings that it numbers."""

    node: Node
    names: NDArray[np.object_] | None = None


def named_output(item: Node) -> Output:
    """An output as native code computes it."""
    if isinstance(item.op, TakeText) and isinstance(item.type, Scalar | Category):
        names = np.array([*item.op.table.to_list(), None], dtype=object)[:-1]
        return Output(item.inputs[0], names.copy())
    return Output(item)


def leaves_all(run: NativeRun, outputs: Sequence[Output]) -> bool:
    """True if each column of the native code is a dense output, and each output one column.

    Two outputs may be the same column. Answers stored sparsely are made by `Plan.run`.
    """
    if any(isinstance(item.node.type, Vector) and item.node.type.sparse for item in outputs):
        return False
    return {item.node for item in outputs} == set(run.outputs)


def plan_contents(
    run: NativeRun, outputs: Sequence[Output], words: Mapping[str, int], *kept: object
) -> Contents:
    """The common words of every entry's table, besides these: the code to run, and its outputs."""
    columns = {item: place for place, item in enumerate((*run.inputs, *run.outputs))}
    shelf: list[None] = [None] * len(outputs)
    where = list_items(shelf)
    rows = [
        [*_output_row(item, columns[item.node]), where + 8 * place]
        for place, item in enumerate(outputs)
    ]
    table = np.array(rows, np.int64)
    texts = sum(item.names is not None for item in outputs)
    more = {"RUN": run.addresses[0], "PROGRAM": run.addresses[1], "OUTPUTS": len(outputs)}
    more |= {"OUTPUT_TABLE": table.ctypes.data, "TEXTS": texts, "SPARE": SPARE.ctypes.data}
    return Contents({**words, **more}, (run, outputs, shelf, table, SPARE, *kept))


def _output_row(item: Output, column: int) -> list[int]:
    """The words of an output that is this column, all but the address of its shelf."""
    kind = item.node.type
    assert isinstance(kind, Scalar | Category | Vector)
    dtype = np.dtype(object if item.names is not None else kind.dtype)
    name = "string" if item.names is not None else kind.dtype
    across = kind.width if isinstance(kind, Vector) else SCALAR
    size = np.dtype(kind.dtype).itemsize if item.names is None else 8
    words = {"KIND": Kind[name.upper()], "COLUMN": column, "DTYPE": id(dtype), "ACROSS": across}
    words["BYTES"] = size * (max(across, 1) if across != SCALAR else 1)
    if item.names is not None:
        words |= {"NAMES": item.names.ctypes.data, "LAST": len(item.names) - 1}
    return numbers_of(words, "output")[:-1]


# --- memory ---------------------------------------------------------------------------------------

#: Longer documents take memory of their own.
_SHORT = 4096


def aligned(size: int) -> int:
    """The next multiple of 64."""
    return -(-size // 64) * 64


class CallMemory(NamedTuple):
    """The head of a call's memory: io table, cells of one row's scalars, the stages' own."""

    cells: int
    row: int
    stages: int
    size: int

    @classmethod
    def of(cls, run: NativeRun, outputs: int, row_bytes: int = 0) -> CallMemory:
        """That of a plan with so many outputs; a vector that comes as a list lies in it too."""
        cells = aligned(16 * (1 + len(run.inputs) + len(run.outputs)))
        row = cells + aligned(8 * outputs)
        stages = row + aligned(row_bytes)
        return cls(cells, row, stages, stages + aligned(run.scratch_bytes))

    def words(self) -> dict[str, int]:
        """Its words in an entry's table."""
        made = {"CELLS": self.cells, "ROW": self.row, "STAGES": self.stages}
        return made | {"SCRATCH_BYTES": self.size}


def room_words(run: NativeRun, size: int) -> tuple[dict[str, int], NDArray[np.int64]]:
    """The words for memory that depends on documents, `size` bytes aside."""
    sizes = [
        [*room, place == len(each) - 1]
        for each in run.form.rooms
        for place, room in enumerate(each)
    ]
    rooms = np.array(sizes, np.int64).reshape(-1, 4)
    most = max((room_bytes(each, _SHORT) for each in run.form.rooms), default=0)
    words = {"SHARED_BYTES": aligned(size + _SHORT + 1024 + most), "ROOM_COUNT": len(rooms)}
    words |= {"ROOMS": rooms.ctypes.data, "ROOM_COLUMN": len(run.inputs) + len(run.outputs)}
    words |= {"ROW_WORK": run.row_work, "LONGEST": LONGEST, "RELEASE_WORK": RELEASE_BYTES}
    return words | {"BYTE_WORK": TEXT_BYTES if run.rooms else 0}, rooms


#: A block of memory that a call of many rows has left for the next, and its size: see parts.py.
SPARE = np.zeros(2, np.int64)
_scratch: list[NDArray[np.uint8]] = []
#: How much of it has been written to: pages come when they are.
_written = [0]
#: Entries keep the scratch memory they were made with, so it begins larger than most need, and
#: grows to twice as much: pages that are not written to cost nothing.
_LEAST_SCRATCH = 1 << 20
#: So much of it is there before the first call, which would wait for it otherwise.
_SCRATCH_AT_ONCE = 256 << 10


def shared_scratch(size: int) -> NDArray[np.uint8]:
    """Memory for calls that keep the interpreter's lock: one for all, as big as any needs."""
    if not _scratch or len(_scratch[-1]) < size:
        most = max(aligned(size), _LEAST_SCRATCH, *(2 * len(known) for known in _scratch))
        raw = np.empty(most + 64, np.uint8)
        start = -raw.ctypes.data % 64
        _scratch[:], _written[:] = [raw[start : most + start]], [0]
    found, there = _scratch[-1], min(size, _SCRATCH_AT_ONCE)
    if there > _written[0]:
        found[_written[0] : there] = 0
        _written[0] = there
    return found
