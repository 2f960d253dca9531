"""The adapters of ONNX's operators: a table by domain, name and version.

    @onnx_op("Add", since=7)
    def _add(call):
        ...                                     # call.inputs -> a Tensor, or a tuple of them

The adapter with the highest `since` that the model's operator set reaches is called. It raises
`NotNative(reason)` where this use of the operator has no native code. Modules of this package
register their adapters when they are imported, which is when one of them is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from flour.core.modules import load_onnx
from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.model import GraphDef, NodeDef
from flour.onnx.tensor import Tensor, native_dtype

Adapter = Callable[["NodeUse"], "Tensor | tuple[Tensor | None, ...]"]
_F = TypeVar("_F", bound=Adapter)
#: (domain, operator) -> (since version, adapter), newest first.
ADAPTERS: dict[tuple[str, str], list[tuple[int, Adapter]]] = {}
_from_outside = [0]


def from_outside() -> int:
    """The number of adapters that are no part of this package: they change programs, too."""
    return _from_outside[0]


def onnx_op(*names: str, since: int = 1, domain: str = "") -> Callable[[_F], _F]:
    """Register an adapter for operators of a domain, from a version of its operator set on."""

    def register(adapter: _F) -> _F:
        for name in names:
            entries = ADAPTERS.setdefault((domain, name), [])
            entries.append((since, adapter))
            _from_outside[0] += not adapter.__module__.startswith(f"{__package__}.")
            entries.sort(key=lambda entry: -entry[0])
        return adapter

    return register


def adapter_of(domain: str, op_type: str, opset: int) -> Adapter:
    """The adapter of an operator in this version, or NotNative."""
    for wanted in (f"{domain}:{op_type}", ""):
        if (domain, op_type) not in ADAPTERS:
            load_onnx(wanted)
    for since, adapter in ADAPTERS.get((domain, op_type), ()):
        if since <= opset:
            return adapter
    raise NotNative("no native code for this operator")


class GraphImporter(Protocol):
    """The questions that an adapter may ask of the importer that walks the model."""

    @property
    def values(self) -> Mapping[str, Tensor]:
        """The tensors that have a name so far."""

    def inner(self, graph: GraphDef, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The outputs of an inner graph for these inputs; it sees the names around it."""

    def answers(self, node: NodeDef) -> bool:
        """True if what a node leaves is an output of the model."""


@dataclass(frozen=True)
class NodeUse:
    """One use of an operator, for an adapter."""

    node: NodeDef
    inputs: tuple[Tensor | None, ...]
    opset: int
    importer: GraphImporter
    #: A flow with the rows of the program, for constants that have to become columns.
    anchor: Flow

    def __getitem__(self, index: int) -> Tensor:
        """An input that must be there."""
        tensor = self.optional(index)
        if tensor is None:
            raise NotNative(f"input {index} is missing")
        return tensor

    def optional(self, index: int) -> Tensor | None:
        """An input, or None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def outputs(self) -> int:
        """The number of the node's outputs, absent ones in front of others included."""
        return len(self.node.outputs)

    def attribute(self, name: str, default: object = None) -> Any:
        """An attribute's value, or the default."""
        return self.node.attributes.get(name, default)

    def flag(self, name: str, *, default: bool = True) -> bool:
        """True if an attribute is 1; any other number counts as 0."""
        return bool(self.attribute(name, int(default)) == 1)

    def constant(self, index: int, what: str = "") -> NDArray[Any]:
        """An input whose value must be known at import (and hold no `Rows`)."""
        value = self.symbolic(index, what)
        if self[index].symbolic:
            raise NotNative(f"{what or f'input {index}'} depends on the number of rows")
        return value

    def symbolic(self, index: int, what: str = "") -> NDArray[Any]:
        """An input whose value must be known at import; `Rows` are allowed."""
        value = self[index].value
        if value is None:
            raise NotNative(f"{what or f'input {index}'} depends on the data")
        return value

    def integers(self, index: int, name: str) -> tuple[int, ...] | None:
        """Whole numbers that are an input in newer versions and an attribute in older ones."""
        if self.optional(index) is not None:
            return tuple(int(item) for item in self.constant(index, name).reshape(-1))
        value = self.attribute(name)
        return None if value is None else tuple(int(item) for item in np.atleast_1d(value))

    def flow(self, item: Tensor) -> Flow:
        """The tensor as the vector of a row; a constant becomes the same vector for every row."""
        if item.flow is not None:
            return item.flow
        if item.symbolic:
            raise NotNative("the number of rows would become a value")
        native_dtype(item.dtype)
        assert item.value is not None
        if item.dtype == "string":
            return self._texts(item)
        from flour.ops.source import Fill

        return Fill(item.value.reshape(-1))(self.anchor)

    def _texts(self, item: Tensor) -> Flow:
        """These strings for every row: a look-up in a table at constant indices."""
        from flour.ops.source import Fill
        from flour.ops.structure import TakeText

        assert item.value is not None
        if not item.size:
            raise NotNative("an empty tensor of strings")
        indices = Fill(np.arange(item.size))(self.anchor)
        return TakeText(item.value.reshape(-1).tolist())(indices)

    def body(self, graph: GraphDef, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs of an inner graph for these inputs; it sees the names around it."""
        return self.importer.inner(graph, inputs)
