"""Files of skops, read as data: a ZIP of `schema.json`, a tree of nodes, and of their arrays."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from flour.pickles.arrays import of_bytes
from flour.pickles.standins import Damaged, Global
from flour.pickles.world import World

Node = dict[str, Any]


class Skops:
    """One file of skops, whose contents are at most `limit` bytes."""

    def __init__(self, data: bytes, world: World, limit: int) -> None:
        self.world, self.left, self.arrays = world, limit, dict[str, Any]()
        self.archive = zipfile.ZipFile(io.BytesIO(data))

    def run(self) -> Any:
        """The object that the file describes."""
        if "schema.json" not in self.archive.namelist():
            raise Damaged("it is a ZIP without schema.json")
        return self.read(json.loads(self.member("schema.json")))

    def member(self, name: str) -> bytes:
        """A member of the archive."""
        self.left -= self.archive.getinfo(name).file_size
        if self.left < 0:
            raise Damaged("its contents are too large")
        return self.archive.read(name)

    def read(self, node: Node) -> Any:
        """The object that a node describes."""
        if "__reduce__" in node:
            made = self.world.call(self.named(node), self.read(node["__reduce__"]["args"]))
            state = self.read(node["content"])
            return self.world.build(made, state) if state else made
        known = _NODES.get(node["__loader__"])
        if known is None:
            raise Damaged(f"of a {str(node['__loader__'])[:40]} nothing is known")
        return known(self, node)

    def many(self, nodes: list[Node]) -> list[Any]:
        """The objects of several nodes."""
        return [self.read(each) for each in nodes]

    def named(self, node: Node) -> Any:
        """The class or function of a node, as a name."""
        return self.world.named(node["__module__"], node["__class__"])

    def array(self, raw: bytes) -> Any:
        """The array in the bytes of a `.npy` file, which have to be there."""
        file = io.BytesIO(raw)
        major, _ = np.lib.format.read_magic(file)
        form = np.lib.format
        read = form.read_array_header_1_0 if major == 1 else form.read_array_header_2_0
        shape, by_columns, kind = read(file)
        rest = memoryview(raw)[file.tell() :]
        if kind.hasobject or len(rest) != int(np.prod(shape, dtype=object)) * kind.itemsize:
            raise Damaged(f"an array of shape {shape} has other values")
        return of_bytes(self.world, rest, kind, shape, "F" if by_columns else "C")


def _array(file: Skops, node: Node) -> Any:
    if node["type"] == "numpy":
        name = node["file"]
        if name not in file.arrays:  # several nodes may be the same array
            file.arrays[name] = file.array(file.member(name))
        found = file.arrays[name]
        return found if node["__class__"] == "ndarray" else found[()]
    values = file.many(node["content"])
    shape = file.read(node["shape"])
    if len(shape) > 1:
        return np.array(values, object).reshape(shape)
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _pairs(file: Skops, node: Node) -> dict[Any, Any]:
    kinds = file.read(node["key_types"])
    return {
        kind(key) if kind in (int, float) else key: file.read(value)
        for kind, (key, value) in zip(kinds, node["content"].items(), strict=True)
    }


def _tuple(file: Skops, node: Node) -> Any:
    values = tuple(file.many(node["content"]))
    named = file.named(node)
    return file.world.call(named, values) if isinstance(named, Global) else values


def _object(file: Skops, node: Node) -> Any:
    named = file.named(node)
    if named is object:  # one that only differs from others, as an index of pandas has
        return file.world.call(object, ())
    if not isinstance(named, Global):
        raise Damaged(f"{named} is an object")
    made = file.world.new(named)
    return file.world.build(made, file.read(node["content"])) if "content" in node else made


def _sparse(file: Skops, node: Node) -> Any:
    inner = Skops(file.member(node["file"]), file.world, file.left)
    names = inner.archive.namelist()
    parts = {name.removesuffix(".npy"): inner.array(inner.member(name)) for name in names}
    parts["_shape"] = tuple(parts.pop("shape").tolist())
    form = parts.pop("format").item().decode()
    return file.world.build(file.world.new(Global("scipy.sparse", f"{form}_matrix")), parts)


_NODES: dict[str, Callable[[Skops, Node], Any]] = {
    "JsonNode": lambda _, node: json.loads(node["content"]),
    "ListNode": lambda file, node: file.many(node["content"]),
    "SetNode": lambda file, node: {*file.world.keys(file.many(node["content"]))},
    "TupleNode": _tuple,
    "DictNode": _pairs,
    "DefaultDictNode": lambda file, node: file.read(node["content"]["main"]),
    "NdArrayNode": _array,
    "MaskedArrayNode": lambda file, node: file.read(node["content"]["data"]),
    "DTypeNode": lambda file, node: file.read(node["content"]).dtype,
    "SparseMatrixNode": _sparse,
    "ObjectNode": _object,
    "ConstructorFromReduceNode": lambda file, node: file.world.call(
        file.named(node), file.read(node["content"])
    ),
    "SliceNode": lambda _, node: slice(*map(node["content"].get, ("start", "stop", "step"))),
    "BytesNode": lambda file, node: file.member(node["file"]),
    "BytearrayNode": lambda file, node: bytearray(file.member(node["file"])),
    **dict.fromkeys(("RandomStateNode", "RandomGeneratorNode"), lambda *_: None),
    **dict.fromkeys(
        ("FunctionNode", "TypeNode", "OperatorFuncNode", "MethodNode", "PartialNode"),
        lambda file, node: file.named(node),
    ),
}
