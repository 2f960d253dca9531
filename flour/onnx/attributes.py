"""A node's attributes by name; long lists are read into Python objects only when they are used.

Thousands of weights or words are most of a model's bytes, and where an earlier model had the same
node they are never read: see `flour.onnx.text_ngrams`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

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


def floats(values: object) -> Any:
    """Fitted numbers in float32."""
    return np.asarray(() if values is None else values, np.float32)
