"""A node's attributes by name; long lists are read into Python objects only when they are used.

Thousands of weights or words are most of a model's bytes, and where an earlier model had the same
node they are never read: see `flour.onnx.steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.strings.dictionary import differ, hashes
from flour.tracing.replay import Called
from flour.tracing.traced_array import TracedArray, noted
from objectstore import Blob, Strings

Later = Callable[[], Any]


class Attributes(Mapping[str, Any]):
    """Values by name, those of `later` read at their first use."""

    def __init__(self, values: Mapping[str, Any], later: Mapping[str, Later]) -> None:
        self._values, self._later = dict(values), dict(later)

    def __getitem__(self, name: str) -> Any:
        if name in self._later:
            # Two threads may both read it, with the same result.
            self._values[name] = self._later[name]()
            self._later.pop(name, None)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._values, *self._later))

    def __len__(self) -> int:
        return len(self._values) + len(self._later)

    def settled(self) -> list[Any]:
        """The values read so far; those still to be read are all lists of numbers or texts."""
        return [*self._values.values()]


class FloatList(Sequence[float]):
    """A list of floats that is a traced array; reading a number of it records that in the trace."""

    def __init__(self, formula: TracedArray) -> None:
        #: The numbers, in float32.
        self.formula = formula

    def _seen(self) -> tuple[float, ...]:
        return tuple(map(float, self.formula.tolist()))

    def __getitem__(self, index: Any) -> Any:
        return self._seen()[index]

    def __len__(self) -> int:
        return len(self.formula)

    def __iter__(self) -> Iterator[float]:
        return iter(self._seen())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 (numpy's protocol)
        return np.array(self._seen(), dtype=dtype)


class WordList(Sequence[str]):
    """A list of words that is a traced array; reading a word of it records that in the trace."""

    def __init__(self, offsets: TracedArray, data: TracedArray) -> None:
        self._offsets, self._data = offsets, data
        self._table: Strings | None = None

    @property
    def table(self) -> Strings:
        """The words as a table of strings."""
        if self._table is None:
            self._table = Strings(Blob.of(self._offsets), Blob.of(self._data))
        return self._table

    def has(self, word: str) -> bool:
        """Whether a word is one of them."""
        raw = word.encode("utf-8", "surrogatepass")
        test = Called(partial(_has_text, raw), f"has {raw!r}", any_length=True)
        return bool(noted(test, self._offsets, self._data))

    def differ(self) -> bool:
        """Whether no two words are equal, as far as their hashes tell."""
        return differ(hashes(self.table)[0])

    def _seen(self) -> tuple[str, ...]:
        letters = bytes(np.asarray(self._data, np.uint8))
        return tuple(letters[a:b].decode() for a, b in pairwise(self._offsets.tolist()))

    def __getitem__(self, index: Any) -> Any:
        return self._seen()[index]

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen())


def _has_text(raw: bytes, offsets: NDArray[Any], data: NDArray[Any]) -> bool:
    starts = offsets[:-1][np.diff(offsets) == len(raw)]
    letters = data[starts[:, None] + np.arange(len(raw))]
    return bool((letters == np.frombuffer(raw, np.uint8)).all(axis=1).any())


def floats(values: object) -> Any:
    """Fitted numbers in float32: an array, or a traced array."""
    if isinstance(values, FloatList):
        return values.formula
    return np.asarray(() if values is None else values, np.float32)
