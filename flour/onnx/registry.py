"""Which ONNX operator becomes which program: a table by domain, name and version.

    @onnx_op("Add", since=7)
    def _add(call):
        ...                                     # call.inputs -> a Tensor, or a tuple of them

The adapter with the highest `since` that the model's operator set reaches is asked. It raises
`NotNative(reason)` where this use of the operator has no native code. Modules of this package
register themselves when `load()` imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.model import GraphDef, NodeDef
from flour.onnx.tensor import Tensor, carrier

Adapter = Callable[["Call"], "Tensor | tuple[Tensor | None, ...]"]
_F = TypeVar("_F", bound=Adapter)
#: (domain, operator) -> (since version, adapter), newest first.
ADAPTERS: dict[tuple[str, str], list[tuple[int, Adapter]]] = {}
_registered = [0]


def registered() -> int:
    """How many adapters have been registered: with others, models become other programs."""
    load()
    return _registered[0]


def onnx_op(*names: str, since: int = 1, domain: str = "") -> Callable[[_F], _F]:
    """Register an adapter for operators of a domain, from a version of its operator set on."""

    def register(adapter: _F) -> _F:
        for name in names:
            found = ADAPTERS.setdefault((domain, name), [])
            found.append((since, adapter))
            _registered[0] += 1
            found.sort(key=lambda entry: -entry[0])
        return adapter

    return register


@cache
def load() -> None:
    """Import every module of adapters."""
    for found in iter_modules([str(Path(__file__).parent)]):
        import_module(f"flour.onnx.{found.name}")


def adapter_of(domain: str, op_type: str, opset: int) -> Adapter:
    """The adapter of an operator in this version, or NotNative."""
    load()
    for since, adapter in ADAPTERS.get((domain, op_type), ()):
        if since <= opset:
            return adapter
    raise NotNative("no native code for this operator")


class Importer(Protocol):
    """What an adapter may ask of the importer that walks the model."""

    @property
    def values(self) -> Mapping[str, Tensor]:
        """The tensors that have a name so far."""

    def inner(self, graph: GraphDef, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The outputs of an inner graph for these inputs; it sees the names around it."""

    def answers(self, node: NodeDef) -> bool:
        """Whether what a node leaves is an output of the model."""


@dataclass(frozen=True)
class Call:
    """One use of an operator, as an adapter sees it."""

    node: NodeDef
    inputs: tuple[Tensor | None, ...]
    opset: int
    importer: Importer
    #: A flow that says how many rows there are, for constants that have to become columns.
    anchor: Flow

    def __getitem__(self, index: int) -> Tensor:
        """An input that must be there."""
        found = self.optional(index)
        if found is None:
            raise NotNative(f"input {index} is missing")
        return found

    def optional(self, index: int) -> Tensor | None:
        """An input, or None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def outputs(self) -> int:
        """How many outputs the node has, absent ones in front of others included."""
        return len(self.node.outputs)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default."""
        return self.node.attributes.get(name, default)

    def flag(self, name: str, *, default: bool = True) -> bool:
        """Whether an attribute that is 0 or 1 is set; any other number sets nothing."""
        return bool(self.attribute(name, int(default)) == 1)

    def constant(self, index: int, what: str = "") -> NDArray[Any]:
        """An input whose value must be known at import (and hold no `Rows`)."""
        found = self.symbolic(index, what)
        if self[index].symbolic:
            raise NotNative(f"{what or f'input {index}'} depends on the number of rows")
        return found

    def symbolic(self, index: int, what: str = "") -> NDArray[Any]:
        """An input whose value must be known at import; `Rows` are allowed."""
        found = self[index].value
        if found is None:
            raise NotNative(f"{what or f'input {index}'} depends on the data")
        return found

    def integers(self, index: int, name: str) -> tuple[int, ...] | None:
        """Whole numbers that are an input in newer versions and an attribute in older ones."""
        if self.optional(index) is not None:
            return tuple(int(item) for item in self.constant(index, name).reshape(-1))
        found = self.attribute(name)
        return None if found is None else tuple(int(item) for item in np.atleast_1d(found))

    def flow(self, item: Tensor) -> Flow:
        """The tensor as the vector of a row; a constant becomes the same vector for every row."""
        if item.flow is not None:
            return item.flow
        if item.symbolic:
            raise NotNative("the number of rows would become a value")
        carrier(item.dtype)
        assert item.value is not None
        if item.dtype == "string":
            return self._texts(item)
        from flour.ops.source import Fill

        return Fill(item.value.reshape(-1))(self.anchor)

    def _texts(self, item: Tensor) -> Flow:
        """Strings for every row: looked up in a table at places that are the same for every row."""
        from flour.ops.source import Fill
        from flour.ops.structure import TakeText

        assert item.value is not None
        if not item.size:
            raise NotNative("an empty tensor of strings")
        places = Fill(np.arange(item.size))(self.anchor)
        return TakeText(item.value.reshape(-1).tolist())(places)

    def body(self, graph: GraphDef, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs of an inner graph for these inputs; it sees the names around it."""
        return self.importer.inner(graph, inputs)
