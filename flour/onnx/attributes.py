"""A node's attributes by name; long lists of them become Python's only when somebody asks.

Thousands of weights or words are most of a model's bytes, and where an earlier model had the very
same node they are never looked at: see `flour.onnx.steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from flour.formula import Formula

Later = Callable[[], Any]


class Attributes(Mapping[str, Any]):
    """Values by name, those of `later` made when they are first asked for."""

    def __init__(self, values: Mapping[str, Any], later: Mapping[str, Later]) -> None:
        self._values, self._later = dict(values), dict(later)

    def __getitem__(self, name: str) -> Any:
        if name in self._later:
            # Two threads may both make it: they make the same.
            self._values[name] = self._later[name]()
            self._later.pop(name, None)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._values, *self._later))

    def __len__(self) -> int:
        return len(self._values) + len(self._later)

    def settled(self) -> list[Any]:
        """The values that are there: of what comes later, all are numbers or texts."""
        return [*self._values.values()]


class FloatList(Sequence[float]):
    """A list of floats that is a formula; who takes numbers out of it has looked at them."""

    def __init__(self, formula: Formula) -> None:
        #: The numbers, in float32.
        self.formula = formula

    def _seen(self) -> tuple[float, ...]:
        return tuple(map(float, self.formula.tolist()))

    def __getitem__(self, place: Any) -> Any:
        return self._seen()[place]

    def __len__(self) -> int:
        return len(self.formula)

    def __iter__(self) -> Iterator[float]:
        return iter(self._seen())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 (numpy's protocol)
        return np.array(self._seen(), dtype=dtype)


def floats(values: Any) -> Any:
    """Fitted numbers in float32: an array, or the formula that stands for one."""
    if isinstance(values, FloatList):
        return values.formula
    return np.asarray(() if values is None else values, np.float32)
