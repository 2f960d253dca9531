"""A pickle, a file of joblib or one of skops: its compression, its end, and what it holds."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import struct
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from flour.core.errors import ImportRefused
from flour.pickles.arrays import of_bytes
from flour.pickles.machine import Machine
from flour.pickles.standins import Damaged, Global
from flour.pickles.world import World

Node = dict[str, Any]


class Skops:
    """One file of skops, of at most `limit` bytes: a ZIP of `schema.json` and arrays."""

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


#: How many times as large as the file its contents may be, and at least so many bytes.
_RATIO, _AT_LEAST = 200, 1 << 28
#: How many bytes are unpacked at once, at least.
_PIECE = 1 << 24
_WRONG = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(MemoryError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error, OSError, EOFError),
)


def read_pickle(data: bytes, where: str | None = None, met: Callable[[str], object] = str) -> Any:
    """Read the object of a file; nothing in the file is run, and no module is imported.

    `met` is called with the name of each module that the file names.
    """
    machine = None
    try:
        if data.startswith(b"PK"):
            limit = max(_RATIO * len(data), _AT_LEAST)
            world = World(len(data), met)
            return world.whole(Skops(data, world, limit).run())
        raw = unpacked(data)
        machine = Machine(raw, World(len(raw), met))
        return machine.world.whole(machine.run())
    except _WRONG as problem:
        at = f" at byte {machine.at}" if machine else ""
        said = str(problem) if isinstance(problem, Damaged) else type(problem).__name__
        raise ImportRefused(
            "this pickle cannot be read",
            where=where,
            found=f"{said}{at}"[:200],
            hint="it is damaged, or no pickle: write it again with pickle, joblib or skops",
        ) from problem


def is_pickle(head: bytes) -> bool:
    """Return whether a file that begins so is a pickle of protocol 2 or later, or a packed one."""
    for magic, begin in _PACKED.items():
        if head.startswith(magic):
            with suppress(OSError, zlib.error, lzma.LZMAError, EOFError, ImportRefused):
                head = begin().decompress(head, 2)
            break
    return head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")


def parted(path: Path) -> tuple[Path, str]:
    """The file, and the key of a model in it, of a path such as "models.pkl#model"."""
    name, _, part = path.name.rpartition("#")
    return (path, "") if not name or path.exists() else (path.with_name(name), part)


def unpacked(data: bytes) -> bytes:
    """The contents of a file that joblib has compressed; others as they are."""
    limit = max(_RATIO * len(data), _AT_LEAST)
    for magic, begin in _PACKED.items():
        if data.startswith(magic):
            return _unpacked(data, begin, limit)
    return data


def _unpacked(data: bytes, begin: Callable[[], Any], limit: int) -> bytes:
    parts, size = [], 0
    for part in _pieces(data, begin, limit):
        if size <= _AT_LEAST < size + len(part):  # what is too much is found before it is kept
            deque(_pieces(data, begin, limit), maxlen=0)
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _pieces(data: bytes, begin: Callable[[], Any], limit: int) -> Iterator[bytes]:
    """The contents in pieces, whose number is bounded: each copies what is left of the file."""
    most, size, stream, more = max(len(data) // 4, _PIECE), 0, begin(), bool(data)
    while more:
        try:
            part = stream.decompress(data, most)
        except (OSError, zlib.error, lzma.LZMAError, EOFError) as problem:
            raise Damaged(f"its compression is damaged: {problem}") from problem
        size += len(part)
        if size > limit:
            raise Damaged(f"its contents are more than {limit:,} bytes")
        yield part
        if stream.eof:
            data, stream = stream.unused_data, begin()
            more = bool(data)
            continue
        data = getattr(stream, "unconsumed_tail", b"")
        if not data and getattr(stream, "needs_input", not part):
            raise Damaged("the file ends within its compression")


def _lz4() -> Any:
    try:
        from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-not-found,unused-ignore]  # it is optional
    except ImportError as problem:
        raise ImportRefused(
            "this file is compressed by LZ4", hint="pip install lz4, or compress it by zlib"
        ) from problem
    return LZ4FrameDecompressor()


_PACKED: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ": lambda: lzma.LZMADecompressor(memlimit=1 << 28),
    b"\x5d\0\0": lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=1 << 28),
    b"\x04\x22\x4d\x18": _lz4,
    b"x\x01": zlib.decompressobj,
    b"x\x5e": zlib.decompressobj,
    b"x\x9c": zlib.decompressobj,
    b"x\xda": zlib.decompressobj,
}
