"""Values between ONNX's operators that are no rows of tensors, for the operators that take them.

ONNX's lists of tensors are such values: known by their length, they are tuples here.

A tokeniser's output is a tensor as wide as the longest document of a batch, filled up with a pad
value. Programs have only the words; operators that depend on the padding are not native.

Exporters concatenate values of all rows with other values of all rows, in front of a reshape that
puts them in order; until then a row's values are not together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from flour.onnx.errors import NotNative
from flour.onnx.tensor import Tensor

#: Stands for "as many as there are" in a shape: a number that is no product of other lengths.
MANY = 1_000_003


@dataclass(frozen=True)
class Special(Tensor):
    """A tensor that only some operators accept."""

    #: Operators that accept it, and leave its order alone.
    KEEPS: ClassVar[frozenset[str]] = frozenset()
    #: Its description, for the message of the others.
    WHAT: ClassVar[str] = ""


@dataclass(frozen=True)
class Words(Special):
    """The words of one document a row, along the last dimension of the tensor."""

    KEEPS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "TfIdfVectorizer"})
    WHAT = "a list of words of any length"

    #: Values that may be among the words: the pad value, marks of start and end.
    pads: tuple[str, ...] = ()
    #: No word has a space in it (or every word is one character), so phrases can be told apart.
    separable: bool = False

    def shaped(self, shape: Sequence[int], axis: int | None) -> Tensor:
        """These words in a shape whose last dimension is still theirs."""
        sizes = tuple(int(size) for size in shape)
        ours = sizes[-1:] == (MANY,) and all(size == 1 for size in sizes[:-1])
        if not ours or axis not in (None, 0) or (len(sizes) == 1 and axis is not None):
            raise NotNative("the words of several documents in one list")
        return Words(sizes, "string", axis, self.flow, pads=self.pads, separable=self.separable)


@dataclass(frozen=True)
class Stacked(Special):
    """Blocks one after another, each with all rows; as a tensor, the rows come after the blocks."""

    KEEPS = frozenset({"Reshape"})
    WHAT = "values of all rows behind others of all rows"

    @staticmethod
    def of_blocks(blocks: Tensor) -> Stacked:
        """Of a tensor whose first dimension is that of the blocks, and whose second the rows'."""
        assert blocks.axis == 1
        return Stacked(blocks.shape, blocks.dtype, 1, blocks.flow, blocks.value)

    def sorted_out(self) -> Tensor:
        """These values in their order, with a dimension of blocks."""
        return Tensor(self.shape, self.dtype, self.axis, self.flow, self.value)


@dataclass(frozen=True)
class Map(Special):
    """One map a row, as an input; its values have the dtype."""

    KEEPS = frozenset({"DictVectorizer", "CastMap"})
    WHAT = "a map"

    key: str = "string"


@dataclass(frozen=True)
class Listed(Special):
    """Tensors in a list whose length is known at import; the shape is that of all their values."""

    KEEPS = frozenset({"Identity", "SequenceAt", ""})  # the answer of a graph
    WHAT = "a list of tensors"

    items: tuple[Tensor, ...] = ()

    @staticmethod
    def holding(items: Sequence[Tensor]) -> Listed:
        """The list of these."""
        kinds = {item.dtype for item in items}
        odd = any(isinstance(item, Special) or item.labels is not None for item in items)
        if len(kinds) > 1 or odd:
            raise NotNative("a list of values of several types, or of lists")
        ranks = [item for item in items if item.axis is None]
        size = sum(item.size for item in items)
        return Listed((size,), kinds.pop(), None if ranks else 0, items=tuple(items))

    @property
    def known(self) -> bool:
        """True if every row has these values, known at import."""
        return all(item.known for item in self.items)


def refuse_words(op_type: str, inputs: Sequence[Tensor | None]) -> None:
    """Raise NotNative where an operator gets a special tensor that it does not accept."""
    for item in inputs:
        if isinstance(item, Special) and op_type not in item.KEEPS:
            raise NotNative(item.WHAT)
