"""Strings joined, cut and matched, as onnxruntime does.

A program cannot hold a number of strings that depends on the data, so operators that drop or cut
strings are computed at import, where the strings are known. Two documents joined are a document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from flour.onnx.errors import NotNative
from flour.onnx.re2 import translated, with_ends
from flour.onnx.registry import Call, onnx_op
from flour.onnx.tensor import Tensor, broadcast
from flour.onnx.text_words import document
from flour.ops.onnx_match import JoinTexts, MatchesWhole
from flour.strings.patterns import automaton, first_is_longest


def _known(item: Tensor) -> NDArray[np.object_] | None:
    """Strings known at import, the same for all rows."""
    if item.dtype != "string":
        raise NotNative(f"strings are needed, not {item.dtype}")
    return None if item.value is None or item.axis is not None else item.value


def texts(values: Sequence[str], shape: Sequence[int]) -> Tensor:
    """Strings as a tensor of this shape."""
    strings = np.empty(len(values), object)
    strings[:] = values
    return Tensor((*shape,), "string", None, None, strings.reshape(shape))


@onnx_op("StringConcat", since=20)
def _concat(call: Call) -> Tensor:
    pair = [call[0], call[1]]
    left, right = map(_known, pair)
    if left is not None and right is not None:
        sides = np.broadcast_arrays(left, right)
        both = zip(*(side.reshape(-1).tolist() for side in sides), strict=True)
        return texts([one + other for one, other in both], sides[0].shape)
    if call.importer.answers(call.node):
        raise NotNative("a string made by native code cannot be an output")
    if any(item.known for item in pair):
        raise NotNative("a constant string joined with the strings of all rows")
    shape, axis = broadcast(pair)
    return Tensor.of(JoinTexts()(document(call), document(call, 1)), shape, axis)


# --- cut ------------------------------------------------------------------------------------------


@onnx_op("StringSplit", since=20)
def _split(call: Call) -> tuple[Tensor, Tensor]:
    item = call[0]
    values = _known(item)
    if values is None:
        raise NotNative("the number of parts depends on the data")
    cut = _cutter(str(call.attribute("delimiter") or ""), int(call.attribute("maxsplit", -1)))
    parts = [cut(text) for text in values.reshape(-1).tolist()]
    most = max(map(len, parts), default=0)
    padded = [text for part in parts for text in (*part, *[""] * (most - len(part)))]
    counts = np.array([len(part) for part in parts], np.int64).reshape(item.shape)
    return texts(padded, (*item.shape, most)), Tensor.constant(counts)


def _cutter(separator: str, most: int) -> Callable[[str], list[str]]:
    """A function that cuts a string, at most `most` times: at runs of spaces without a separator.

    ONNX says white space, and its reference uses Python's; onnxruntime cuts at spaces only.
    """
    most = max(most, -1)
    if separator:
        return lambda text: text.split(separator, most) if text else []

    def at_spaces(text: str) -> list[str]:
        inner = text.strip(" ")
        if not inner:
            return []
        return [inner] if most == 0 else re.split(" +", inner, maxsplit=max(most, 0))

    return at_spaces


# --- matched --------------------------------------------------------------------------------------


@onnx_op("RegexFullMatch", since=20)
def _match(call: Call) -> Tensor:
    item, expression = call[0], str(call.attribute("pattern", ""))
    values = _known(item)
    if values is not None:
        regex = re.compile(with_ends(expression))
        flat = [regex.fullmatch(text) is not None for text in values.reshape(-1).tolist()]
        return Tensor.constant(np.array(flat, bool).reshape(item.shape))
    pattern = translated(expression)
    if automaton(pattern) is None or not first_is_longest(pattern):
        raise NotNative(f"the longest match of the pattern {expression!r} is another than Python's")
    return Tensor.of(MatchesWhole(pattern)(call.flow(item)), item.shape, item.axis)
