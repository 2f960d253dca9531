"""An ONNX model as plain frozen data: nodes, constants, ports. Nothing behind this is protobuf.

`flour.onnx.reading` makes these from files; adapters and the importer use only these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Later = Callable[[], Any]


class Attributes(Mapping[str, Any]):
    """Values by name; those of `later`, most of a model's bytes, are read at their first use."""

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


#: A dimension: its length, the name of a length known only at run time, or nothing at all.
Dim = int | str | None


@dataclass(frozen=True)
class GraphPort:
    """An input or output of a graph, as the model declares it.

    `dtype` is numpy's name, "string", or the name of an ONNX type that has no numpy dtype; `kind`
    tells tensors from sequences, maps and optionals. A `shape` of None is not declared.
    A map's `dtype` is that of its values, "" if these are no single ones, and `key` its keys'.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    kind: str = "tensor"
    key: str = ""


@dataclass(frozen=True)
class NodeDef:
    """One node: its operator, its inputs and outputs by name, its attributes as Python values.

    Absent optional inputs and outputs have the empty name. Attributes are ints, floats, strings,
    arrays, `GraphDef`s, or tuples of these.
    """

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    #: The node's bytes in the file (for stages that run it unchanged).
    data: bytes = field(default=b"", repr=False)

    @property
    def title(self) -> str:
        """The operator with its domain, as in "ai.onnx.ml::Scaler"."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def place(self) -> str:
        """Its location, for messages and explanations: its operator and its name."""
        name = self.name or next((item for item in self.outputs if item), "")
        return f"{self.title} '{name}'"

    def graphs(self) -> tuple[GraphDef, ...]:
        """The graphs among its attributes."""
        graphs: list[GraphDef] = []
        values = self.attributes
        settled = values.settled() if isinstance(values, Attributes) else values.values()
        for value in settled:
            items = value if isinstance(value, tuple) else (value,)
            if items and isinstance(items[0], GraphDef):  # an attribute's items are of one kind
                graphs.extend(items)
        return tuple(graphs)


@dataclass(frozen=True)
class GraphDef:
    """Nodes in an order in which they can run, and the constants they use."""

    name: str
    nodes: tuple[NodeDef, ...]
    inputs: tuple[GraphPort, ...]
    outputs: tuple[GraphPort, ...]
    constants: Mapping[str, NDArray[Any]]

    def fixed(self, values: Mapping[str, NDArray[Any]]) -> GraphDef:
        """The graph with some of its inputs as constants."""
        rest = tuple(port for port in self.inputs if port.name not in values)
        return replace(self, inputs=rest, constants={**self.constants, **values})

    def free_names(self) -> set[str]:
        """The names it reads from the graph around it."""
        own_names = {port.name for port in self.inputs} | set(self.constants)
        own_names.update(name for node in self.nodes for name in node.outputs)
        read = {port.name for port in self.outputs}
        for node in self.nodes:
            read.update(node.inputs)
            for inner in node.graphs():
                read |= inner.free_names()
        return read - own_names - {""}


@dataclass(frozen=True)
class ModelDef:
    """A model: its graph, the version of each operator set, and its metadata."""

    graph: GraphDef
    opsets: Mapping[str, int]
    ir_version: int
    producer: str = ""
    version: int = 0
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: Functions of its own that could not be inlined: domain and name.
    functions: frozenset[tuple[str, str]] = frozenset()
    domain: str = ""

    def outline(self) -> ModelDef:
        """The model's metadata, without nodes and constants."""
        graph = GraphDef(self.graph.name, (), self.graph.inputs, self.graph.outputs, {})
        return replace(self, graph=graph)
