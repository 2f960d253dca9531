"""An imported model: its program, and the conversion of ONNX's arrays to rows and back.

The program is all that serving needs. This has, for callers with ONNX's arrays, the names, types
and shapes of inputs and outputs, and the conversion in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import MissingColumn, NotRectangular, WrongDtype
from flour.core.types import Record
from flour.language.flow import Flow
from flour.onnx.model import GraphPort, ModelDef
from flour.onnx.tensor import Tensor
from flour.onnx.words import Listed

#: The input of a program whose model has none: it only gives the number of rows.
ROWS = "rows"


@dataclass(frozen=True)
class ProgramInput:
    """An input: its declaration, and the tensor of a row."""

    port: GraphPort
    tensor: Tensor

    def rows_of(self, array: NDArray[Any]) -> int | None:
        """The number of rows of an array for this input; None for an input without rows."""
        if self.tensor.axis is None:
            return None
        if self.port.kind == "map":
            if isinstance(array, Mapping):
                return 1
            if isinstance(array, list | tuple | np.ndarray):
                return len(array)
            raise WrongDtype(
                "expected a map, or a list of maps",
                where=self.port.name,
                found=type(array).__name__,
                hint="a dict from the model's keys to numbers for each row",
            )
        return int(np.shape(array)[self.tensor.axis]) if np.ndim(array) else None

    def with_one_row(self, array: NDArray[Any]) -> Any:
        """An array with a row of zeros or empty strings, where it has no rows."""
        if self.port.kind == "map":
            return array if len(array) else [{}]
        values = np.asarray(array)
        if self.rows_of(values) != 0:
            return values
        shape = [1 if axis == self.tensor.axis else n for axis, n in enumerate(values.shape)]
        return (
            np.full(shape, "", object)
            if values.dtype.kind in "OUS"
            else np.zeros_like(values, shape=shape)
        )

    def columns(self, array: NDArray[Any], rows: int) -> Any:
        """The array as the program takes it: rows of flat vectors, or one value per row.

        A map alone is one row; several are a list.
        """
        if self.port.kind == "map":
            return [array] if isinstance(array, Mapping) else array
        values = np.asarray(array)
        axis = self.tensor.axis
        want = list(self.tensor.shape)
        if not (
            len(values.shape) == len(want)
            and all(index == axis or size == want[index] for index, size in enumerate(values.shape))
        ):
            raise NotRectangular(
                "an array has another shape than the model's input",
                where=self.port.name,
                found=str(values.shape),
                hint=f"the model declares {self.port.shape}",
            )
        width = self.tensor.size
        if self.tensor.axis is None:
            return np.broadcast_to(values.reshape(1, width), (rows, width))
        if values.size != rows * width:
            raise NotRectangular(
                "the inputs have different numbers of rows",
                where=self.port.name,
                found=str(values.shape),
                hint=f"another input has {rows} rows",
            )
        return values.reshape(rows) if self.single else values.reshape(rows, width)

    @property
    def single(self) -> bool:
        """True if the program takes one value per row instead of a vector."""
        return is_single(self.tensor)


def is_single(tensor: Tensor) -> bool:
    """True if a row is one value: an ONNX vector of one value per row, or a column of strings."""
    text = tensor.dtype == "string" and tensor.size == 1
    return tensor.axis == 0 and (tensor.shape == (1,) or text)


@dataclass(frozen=True)
class ProgramOutput:
    """An output: its declaration, and the tensor of a row (with a ZipMap's labels)."""

    port: GraphPort
    tensor: Tensor

    def array(self, column: Any) -> Any:
        """The program's output column in ONNX's shape and dtype; for a list, one array for each."""
        tensor = self.tensor
        if isinstance(tensor, Listed):
            blocks = apart(tensor, np.asarray(column))
            return [
                ProgramOutput(self.port, t).array(b)
                for t, b in zip(tensor.items, blocks, strict=True)
            ]
        if tensor.value is not None and tensor.axis is None:
            return tensor.value
        values = np.asarray(column).reshape(len(column), *tensor.shape)
        if tensor.axis is None:
            return np.asarray(values[0], values.dtype)
        moved = np.moveaxis(values, 0, tensor.axis)
        shape = list(tensor.shape)
        shape[tensor.axis] *= len(values)
        return moved.reshape(shape)

    def without_rows(self, array: NDArray[Any]) -> Any:
        """The output for no rows, from the one for some rows."""
        if isinstance(self.tensor, Listed):
            pairs = zip(self.tensor.items, array, strict=True)
            return [ProgramOutput(self.port, item).without_rows(values) for item, values in pairs]
        axis = self.tensor.axis
        return array if axis is None else array[(slice(None),) * axis + (slice(0),)]


def apart(listed: Listed, block: NDArray[Any]) -> list[NDArray[Any]]:
    """The columns of each tensor of a list, which are side by side in a block of rows."""
    ends = np.cumsum([item.size for item in listed.items]).tolist()
    rows = block.reshape(len(block), ends[-1])
    return [rows[:, end - item.size : end] for item, end in zip(listed.items, ends, strict=True)]


@dataclass(frozen=True)
class OnnxProgram:
    """A program made from an ONNX model; `flow` is all that serving needs."""

    model: ModelDef
    flow: Flow
    inputs: tuple[ProgramInput, ...]
    outputs: tuple[ProgramOutput, ...]
    #: The model's shapes are all static, so the program runs one row at a time.
    static: bool

    def feed(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """ONNX's arrays by input name, as the program's columns."""
        for entry in self.inputs:
            if entry.port.name not in arrays:
                raise MissingColumn(
                    f"there is no array for the input {entry.port.name!r}",
                    where="$",
                    found=", ".join(arrays) or "nothing",
                )
        counts = (entry.rows_of(arrays[entry.port.name]) for entry in self.inputs)
        rows = next((count for count in counts if count is not None), 1)
        columns = {
            item.port.name: item.columns(arrays[item.port.name], rows) for item in self.inputs
        }
        read = self.flow.inputs()
        # The columns of a record are the model's inputs, one of which may have its name.
        if any(isinstance(kind, Record) for kind in read.values()):
            return columns
        if len(read) == 1 and not read.keys().isdisjoint(
            columns
        ):  # inputs that are never read are left out
            return {name: columns[name] for name in read}
        if ROWS in read and not columns:
            return {ROWS: np.zeros(rows)}
        return {name: columns[name] for name in read}

    def run(
        self, run: Callable[[Any], Mapping[str, Any]], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """ONNX's answers to ONNX's arrays, by what runs the program on columns.

        An output that is the same for every row has a value for no rows, too: it is computed for a
        made-up row.
        """
        if not self._is_empty(arrays):
            return self.answer(run(self.feed(arrays)))
        full = {item.port.name: item.with_one_row(arrays[item.port.name]) for item in self.inputs}
        results = self.answer(run(self.feed(full)))
        return {item.port.name: item.without_rows(results[item.port.name]) for item in self.outputs}

    def _is_empty(self, arrays: Mapping[str, Any]) -> bool:
        """True if there are no rows, and an output without rows."""
        if all(item.tensor.axis is not None or item.tensor.known for item in self.outputs):
            return False
        counts = [item.rows_of(arrays.get(item.port.name, ())) for item in self.inputs]
        return not any(counts) and 0 in counts

    def answer(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The program's answers by output name, as ONNX's arrays, or lists of these."""
        return {item.port.name: item.array(columns[item.port.name]) for item in self.outputs}

    def without_model(self) -> OnnxProgram:
        """This program without the model's own constants and nodes."""
        return replace(self, model=self.model.outline())

    def widths(self) -> int:
        """The number of values in a row of all inputs."""
        return sum(prod(entry.tensor.shape) for entry in self.inputs)
