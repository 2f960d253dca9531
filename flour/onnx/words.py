"""Lists of words between ONNX's operators: as long as a document has words.

A tokeniser's answer is a tensor as wide as the longest document of a batch, filled up with a pad
value. Programs have the words alone; what can tell the difference is not native.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flour.onnx.errors import NotNative
from flour.onnx.tensor import Tensor

#: What stands for "as many as there are" in a shape: no product of other lengths.
MANY = 1_000_003
#: Operators that take a list of words as it is, and leave its order alone.
KEEPS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "TfIdfVectorizer"})


@dataclass(frozen=True)
class Words(Tensor):
    """The words of one document a row, along the last dimension of the tensor."""

    pad: str = ""
    #: No word has a space in it (or every word is one character), so phrases can be told apart.
    separable: bool = False

    def shaped(self, shape: Sequence[int], axis: int | None) -> Tensor:
        """The same words in a shape whose last dimension is still theirs."""
        sizes = tuple(int(size) for size in shape)
        ours = sizes[-1:] == (MANY,) and all(size == 1 for size in sizes[:-1])
        if not ours or axis not in (None, 0) or (len(sizes) == 1 and axis is not None):
            raise NotNative("the words of several documents in one list")
        return Words(sizes, "string", axis, self.flow, pad=self.pad, separable=self.separable)


def refuse_words(op_type: str, inputs: Sequence[Tensor | None]) -> None:
    """Raise NotNative where an operator would see how long a list of words is."""
    if op_type not in KEEPS and any(isinstance(item, Words) for item in inputs):
        raise NotNative("a list of words of any length")
