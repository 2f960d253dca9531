"""A node's attributes by name; long lists of them become Python's only when somebody asks.

Thousands of weights or words are most of a model's bytes, and where an earlier model had the very
same node they are never looked at: see `flour.onnx.steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

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
