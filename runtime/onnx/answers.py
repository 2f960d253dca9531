"""From a plan's columns to ONNX's values: which are the same, and what makes the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.onnx.program import ProgramInput, ProgramOutput
from flour.onnx.words import Listed
from oven.entry.zipmap import zipmap


def is_block(entry: ProgramInput) -> bool:
    """True if an array for the input is a column, or the block of rows, that the plan reads."""
    tensor = entry.tensor
    fits = tensor.axis == 0 and tensor.rank in (1, 2) and tensor.shape[0] == 1
    return fits and entry.port.kind == "tensor"


def is_direct(answer: ProgramOutput) -> bool:
    """True if the plan's column has ONNX's shape already."""
    tensor = answer.tensor
    if isinstance(tensor, Listed):
        parts = [ProgramOutput(answer.port, item) for item in tensor.items]
        return all(is_direct(part) and not _is_lying(part) for part in parts)
    if _is_lying(answer):
        return True
    rank = 1 if tensor.shape == (1,) else 2
    return tensor.axis == 0 and tensor.rank == rank and tensor.shape[0] == 1


def _is_lying(answer: ProgramOutput) -> bool:
    """True if one value of each row lies side by side, as an ArrayFeatureExtractor leaves them."""
    tensor = answer.tensor
    return (tensor.axis, tensor.shape) == (1, (1, 1)) and tensor.labels is None


class Shape(NamedTuple):
    """The conversion of a plan's column to ONNX's value, as data."""

    #: "laid" for one value of each row side by side, "maps" for a ZipMap's, "list" for arrays.
    kind: str
    #: The labels of a ZipMap; of each array of a list its width, and whether it has two dimensions.
    parts: Sequence[Any] = ()

    def maker(self) -> Callable[[Any], Any]:
        """The function that makes it."""
        match self.kind:
            case "laid":
                return lambda column: column.reshape(1, -1)
            case "maps":
                return zipmap(self.parts)
        return _taker_apart(self.parts)


def shape_of(answer: ProgramOutput) -> Shape | None:
    """The conversion of an output; None for most tensors."""
    if isinstance(answer.tensor, Listed):
        return Shape("list", [(item.size, item.rank > 1) for item in answer.tensor.items])
    if _is_lying(answer):
        return Shape("laid")
    labels = answer.tensor.labels
    return None if labels is None else Shape("maps", labels)


def _taker_apart(items: Sequence[tuple[int, bool]]) -> Callable[[Any], Any]:
    """A function for a list of arrays, which the short way answers side by side in one block.

    One array for each costs a quarter of a microsecond.
    """
    ends = np.cumsum([size for size, _ in items]).tolist()
    whole = slice(None)
    columns = [
        (whole, slice(end - size, end) if wide else end - 1)
        for (size, wide), end in zip(items, ends, strict=True)
    ]

    widths = {size if wide else 0 for size, wide in items}
    width = widths.pop() if len(widths) == 1 else 0

    def take(block: NDArray[Any] | list[Any]) -> list[Any]:
        if isinstance(block, list):  # the general way has done so already
            return block
        if len(block) >= _MANY and width * block.itemsize == _PAIR and block.dtype != object:
            wide = np.ascontiguousarray(block).view(np.int64)
            shape = (len(block), _PAIR // block.itemsize)
            return [
                wide[:, k].copy().view(block.dtype).reshape(shape) for k in range(wide.shape[1])
            ]
        return [np.ascontiguousarray(block[column]) for column in columns]

    return take


#: Bytes of the probabilities of two classes.
_PAIR = 8
#: From so many rows on, looking at eight bytes as one number pays.
_MANY = 32


def labelled(shape: Callable[[Any], Any] | None, value: object) -> object:
    """The output of a plan as ONNX's value."""
    return value if shape is None else shape(value)
