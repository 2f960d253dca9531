"""Where a model's weights are in its bytes: what is left is its structure.

    found = split(data)
    found.key                       # the same for all models that differ in their weights alone
    found.leaves                    # which numbers, and where they are

Weights are the lists of floats that nodes have as attributes, and constants of float32 or float64.
Names that mean nothing (the graph's own, descriptions) are no part of the structure either.
Nothing is concluded from bytes that are not understood: such a model has no structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: The wire types of protobuf: a number, eight bytes, a length and so many bytes, four bytes.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
#: A float of a list that is not packed: a byte that says what it is, and the float.
_LISTED: np.dtype[Any] = np.dtype([("tag", "u1"), ("value", "<f4")])
_FLOAT: np.dtype[Any] = np.dtype("<f4")
_DOUBLE: np.dtype[Any] = np.dtype("<f8")
_FLOATS_TAG = 7 << 3 | _FOUR
#: An integer and a text of an attribute's lists, one by one.
_INT_TAG, _TEXT_TAG = 8 << 3 | _VARINT, 9 << 3 | _BYTES
_ONE_BY_ONE = frozenset({_INT_TAG, _TEXT_TAG})
#: So many bytes of them are as long in passing as one field in being looked at.
_QUICK = 64
#: Going through more fields than this would take longer than is gained.
MOST_FIELDS = 1 << 17
#: Their numbers decide what code there is, and they are long.
_DECIDING = (b"TreeEnsemble", b"SVM")

#: Who a leaf belongs to: ("node", its number, the attribute's name) or ("tensor", its name).
Owner = tuple[Any, ...]


class NoStructureError(Exception):
    """The bytes say something that is not understood here."""


class Leaf(NamedTuple):
    """Some weights: whose they are, where, and how they are written."""

    owner: Owner
    start: int
    stop: int
    dtype: np.dtype[Any]
    #: A constant's; attributes are lists.
    shape: tuple[int, ...]

    def read(self, data: bytes) -> NDArray[Any] | None:
        """The numbers in a model of this layout; None where it has another one."""
        size = (self.stop - self.start) // self.dtype.itemsize
        found = np.frombuffer(data, self.dtype, size, self.start)
        if self.dtype is _LISTED:
            return found["value"].copy() if bool(np.all(found["tag"] == _FLOATS_TAG)) else None
        return found.reshape(self.shape).copy()


@dataclass(frozen=True)
class Layout:
    """Where everything is in the bytes of models of one structure and one size."""

    size: int
    leaves: tuple[Leaf, ...]
    #: Names that mean nothing: where they begin and end.
    names: tuple[tuple[int, int], ...]
    #: Everything else: where it begins, and what it is.
    fixed: tuple[tuple[int, bytes], ...] = field(repr=False)
    key: bytes = b""

    def fits(self, data: bytes) -> bool:
        """Whether this is a model of this structure, in this layout."""
        return (
            len(data) == self.size
            and all(data.startswith(part, start) for start, part in self.fixed)
            and all(data[start:stop].isascii() for start, stop in self.names)
        )

    @property
    def held(self) -> int:
        """How many bytes of a model are kept to compare others with."""
        return sum(len(part) for _, part in self.fixed)

    def weights(self, data: bytes) -> list[NDArray[Any]] | None:
        """The weights of such a model."""
        found = [leaf.read(data) for leaf in self.leaves]
        return None if any(one is None for one in found) else found  # type: ignore[return-value]  # just looked

    def own(self, data: bytes) -> tuple[bytes, ...]:
        """What such a model has that others have not: see `joined`."""
        holes = sorted([(leaf.start, leaf.stop) for leaf in self.leaves] + [*self.names])
        return tuple(data[start:stop] for start, stop in holes)

    def joined(self, own: Sequence[bytes]) -> bytes:
        """The model's bytes again."""
        holes = sorted([leaf.start for leaf in self.leaves] + [start for start, _ in self.names])
        parts = [*self.fixed, *zip(holes, own, strict=True)]
        return b"".join(part for _, part in sorted(parts, key=lambda part: part[0]))


def split(data: bytes) -> Layout | None:
    """The layout of a model; None where there is something that is not understood."""
    walk = _Walk(data)
    try:
        walk.model()
    except (NoStructureError, IndexError, ValueError, OverflowError):
        return None
    owners = [leaf.owner for leaf in walk.leaves]
    if len(set(owners)) != len(owners) or not walk.leaves:
        return None
    holes = sorted([(leaf.start, leaf.stop) for leaf in walk.leaves] + walk.names)
    starts = [0, *(stop for _, stop in holes)]
    ends = [*(start for start, _ in holes), len(data)]
    fixed = tuple((start, data[start:end]) for start, end in zip(starts, ends, strict=True))
    state = blake2b(digest_size=16)
    for _, part in fixed:
        state.update(len(part).to_bytes(8, "little") + part)
    for leaf in sorted(walk.leaves, key=lambda leaf: leaf.start):
        state.update(
            repr((leaf.owner, leaf.dtype.str, leaf.shape, leaf.stop - leaf.start)).encode()
        )
    return Layout(len(data), tuple(walk.leaves), tuple(walk.names), fixed, state.digest())


class _Walk:
    """Goes through the bytes once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.leaves: list[Leaf] = []
        self.names: list[tuple[int, int]] = []
        self._seen = 0

    def model(self) -> None:
        """ModelProto: the graph, and what is said about the model."""
        graphs = 0
        for number, kind, start, stop in self._fields(0, len(self.data)):
            if number == 7 and kind == _BYTES:
                graphs += 1
                self._graph(start, stop)
            elif number == 6 and kind == _BYTES:
                self.names.append((start, stop))
            elif number not in _MODEL:
                raise NoStructureError(number)
        if graphs != 1:
            raise NoStructureError("graphs")

    def _graph(self, start: int, stop: int) -> None:
        nodes, seen = 0, set[int]()
        for number, kind, first, last in self._fields(start, stop):
            if number == 1 and kind == _BYTES:
                self._node(nodes, first, last)
                nodes += 1
            elif number == 5 and kind == _BYTES:
                self._constant(first, last)
            elif number in {2, 10} and kind == _BYTES and number not in seen:
                seen.add(number)
                self.names.append((first, last))
            elif number not in _GRAPH:
                raise NoStructureError(number)

    def _node(self, place: int, start: int, stop: int) -> None:
        for number, kind, first, last in self._fields(start, stop):
            if number == 5 and kind == _BYTES:
                self._attribute(place, first, last)
            elif number not in _NODE:
                raise NoStructureError(number)
            elif number == 4 and self.data.startswith(_DECIDING, first):
                raise NoStructureError("an operator")

    def _attribute(self, place: int, start: int, stop: int) -> None:
        """An attribute: weights if it is a list of floats, else part of the structure."""
        name, found, kinds = "", list[tuple[int, int, np.dtype[Any]]](), list[int]()
        for number, kind, first, last in self._fields(start, stop, lists=True):
            if number == 1:
                name = self.data[first:last].decode("utf-8")
            elif number == 7:
                found.append((first, last, _LISTED if kind == _FOUR else _FLOAT))
            elif number == 20:
                kinds.append(self.data[first])
            elif number == 5 and {13, 14} & {each[0] for each in self._fields(first, last)}:
                raise NoStructureError("data in a file")
            elif number in _NESTED:
                raise NoStructureError(number)
        if found:
            ((first, last, dtype),) = found
            if kinds != [6] or (last - first) % dtype.itemsize:
                raise NoStructureError("floats")
            self._leaf(Leaf(("node", place, name), first, last, dtype, ()))

    def _constant(self, start: int, stop: int) -> None:
        """A constant of the graph: weights if it is of floats in one piece."""
        dims, kind, name, data = list[int](), 0, "", list[tuple[int, int, int]]()
        for number, wire, first, last in self._fields(start, stop):
            if number == 1 and wire == _VARINT:
                dims.append(self._varint(first)[0])
            elif number == 2:
                kind = self._varint(first)[0]
            elif number == 8:
                name = self.data[first:last].decode("utf-8")
            elif number in {4, 9, 10} and wire == _BYTES:
                data.append((number, first, last))
            elif number in {1, 3, 4, 10, 13, 14}:
                raise NoStructureError(number)
        dtype = {1: _FLOAT, 11: _DOUBLE}.get(kind)
        if dtype is None or not data:
            return
        ((number, first, last),) = data
        if number not in {9, 4 if kind == 1 else 10} or not name:
            raise NoStructureError("data")
        if prod(dims) * dtype.itemsize != last - first:
            raise NoStructureError("size")
        self._leaf(Leaf(("tensor", name), first, last, dtype, tuple(dims)))

    def _leaf(self, leaf: Leaf) -> None:
        if leaf.stop > leaf.start:
            self.leaves.append(leaf)

    # --- protobuf -----------------------------------------------------------------------------

    def _fields(
        self, at: int, stop: int, *, lists: bool = False
    ) -> Iterator[tuple[int, int, int, int]]:
        """Number, wire type, and where the value is, of every field; floats in a row are one.

        Where these are an attribute's `lists`, integers and texts are passed over.
        """
        while at < stop:
            self._seen += 1
            if self._seen > MOST_FIELDS:
                raise NoStructureError("fields")
            tag, start = self._varint(at)
            if lists and tag in _ONE_BY_ONE:
                at = self._past(tag, at, stop)
                continue
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                end = self._varint(start)[1]
            elif kind == _BYTES:
                size, start = self._varint(start)
                end = start + size
            elif kind == _FOUR:
                end = start + 4
                if tag == _FLOATS_TAG:
                    start, end = at, self._run(at, stop)
            elif kind == _EIGHT:
                end = start + 8
            else:
                raise NoStructureError(kind)
            if end > stop:
                raise NoStructureError("ends")
            yield number, kind, start, end
            at = end

    def _past(self, tag: int, at: int, stop: int) -> int:
        """Behind integers or texts that follow each other one by one."""
        data = self.data
        self._seen += (stop - at) // _QUICK
        while at < stop and data[at] == tag:
            size, at = self._varint(at + 1) if data[at + 1] > 127 else (data[at + 1], at + 2)
            at += size if tag == _TEXT_TAG else 0
        if at > stop:
            raise NoStructureError("ends")
        return at

    def _run(self, at: int, stop: int) -> int:
        """Where floats that follow each other one by one end."""
        found = np.frombuffer(self.data, _LISTED, (stop - at) // _LISTED.itemsize, at)
        other = np.flatnonzero(found["tag"] != _FLOATS_TAG)
        return at + _LISTED.itemsize * int(other[0] if len(other) else len(found))

    def _varint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
            if shift > 63:
                raise NoStructureError("a number")


#: Fields that may be there and are compared byte by byte.
_MODEL = frozenset({1, 2, 3, 4, 5, 8, 14})
_GRAPH = frozenset({11, 12, 13, 14, 16})
_NODE = frozenset({1, 2, 3, 4, 6, 7, 8})
#: Graphs and tensors within attributes.
_NESTED = frozenset({6, 10, 11, 22, 23})
