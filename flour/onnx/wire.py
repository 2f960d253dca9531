"""Where a model's weights are in its bytes: what is left is its structure.

    found = split(data)
    found.key                       # the same for all models that differ in their weights alone
    found.leaves                    # which numbers, and where they are

Weights are the lists of floats that nodes have as attributes, and constants of float32 or float64.
Words that are counted are some, too: models of as many words have one structure.
Names that mean nothing (the graph's own, descriptions) are no part of the structure either.
Nothing is concluded from bytes that are not understood: such a model has no structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
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

#: A list of words that is weights, and who has it.
_WORDS, _COUNTS_WORDS = "pool_strings", b"TfIdfVectorizer"
#: What it has to say: phrases of one word, which it lists from its first.
_ONE_WORD: dict[str, list[int]] = {
    "min_gram_length": [1],
    "max_gram_length": [1],
    "ngram_counts": [0],
}
#: The dtype of words: UTF-8.
_UTF8: np.dtype[Any] = np.dtype("u1")

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
    #: Of words: how many.
    words: int = 0

    @property
    def written(self) -> str:
        """What it is, apart from where."""
        size = 0 if self.words else self.stop - self.start
        return repr((self.owner, self.dtype.str, self.shape, size, self.words))

    def arrays(self, data: bytes) -> list[NDArray[Any]] | None:
        """The numbers of a model of this layout, or where its words begin, and their letters."""
        if self.words:
            found = _words(data[self.start : self.stop], self.words)
            return None if found is None else [*found]
        numbers = self._read(data)
        return None if numbers is None else [numbers]

    def _read(self, data: bytes) -> NDArray[Any] | None:
        """The numbers in a model of this layout; None where it has another one."""
        size = (self.stop - self.start) // self.dtype.itemsize
        found = np.frombuffer(data, self.dtype, size, self.start)
        if self.dtype is _LISTED:
            return found["value"].copy() if bool(np.all(found["tag"] == _FLOATS_TAG)) else None
        return found.reshape(self.shape).copy()


@dataclass(frozen=True)
class ModelLayout:
    """Where everything is in the bytes of models of one structure and one size."""

    size: int
    leaves: tuple[Leaf, ...]
    #: Names that mean nothing: where they begin and end.
    names: tuple[tuple[int, int], ...]
    #: Everything else: where it begins, and what it is.
    fixed: tuple[tuple[int, bytes], ...] = field(repr=False)
    key: bytes = b""
    #: How long parts with words are: where it is said, and how. It is no part of the structure.
    lengths: tuple[tuple[int, bytes], ...] = ()

    def fits(self, data: bytes) -> bool:
        """Whether this is a model of this structure, in this layout."""
        return (
            len(data) == self.size
            and all(data.startswith(part, start) for start, part in self.fixed)
            and all(data.startswith(part, start) for start, part in self.lengths)
            and all(data[start:stop].isascii() for start, stop in self.names)
        )

    def sharing(self, parts: Sequence[bytes]) -> ModelLayout:
        """The same, with another's parts in place of its own, which are equal."""
        starts = (start for start, _ in self.fixed)
        return replace(self, fixed=tuple(zip(starts, parts, strict=True)))

    @cached_property
    def held(self) -> int:
        """How many bytes of a model are kept to compare others with."""
        return sum(len(part) for _, part in self.fixed)

    def weights(self, data: bytes) -> list[NDArray[Any]] | None:
        """The weights of such a model."""
        made = list[NDArray[Any]]()
        for leaf in self.leaves:
            found = leaf.arrays(data)
            if found is None:
                return None
            made += found
        return made

    def own(self, data: bytes) -> tuple[bytes, ...]:
        """What such a model has that others have not: see `joined`."""
        holes = sorted([(leaf.start, leaf.stop) for leaf in self.leaves] + [*self.names])
        return tuple(data[start:stop] for start, stop in holes)

    def joined(self, own: Sequence[bytes]) -> bytes:
        """The model's bytes again."""
        holes = sorted([leaf.start for leaf in self.leaves] + [start for start, _ in self.names])
        parts = [*self.fixed, *self.lengths, *zip(holes, own, strict=True)]
        return b"".join(part for _, part in sorted(parts, key=lambda part: part[0]))


def split(data: bytes) -> ModelLayout | None:
    """The layout of a model; None where there is something that is not understood."""
    walk = _Walk(data)
    try:
        walk.model()
    except (NoStructureError, IndexError, ValueError, OverflowError):
        return None
    owners = [leaf.owner for leaf in walk.leaves]
    if len(set(owners)) != len(owners) or not walk.leaves:
        return None
    holes = sorted(
        [(leaf.start, leaf.stop, leaf.written) for leaf in walk.leaves]
        + [(*name, "name") for name in walk.names]
        + [(start, stop, f"length {size}") for start, stop, size in walk.lengths()]
    )
    starts = [0, *(stop for _, stop, _ in holes)]
    ends = [*(start for start, *_ in holes), len(data)]
    fixed = tuple((start, data[start:end]) for start, end in zip(starts, ends, strict=True))
    state = blake2b(digest_size=16)
    for _, part in fixed:
        state.update(len(part).to_bytes(8, "little") + part)
    for *_, what in holes:
        state.update(what.encode() + b"\0")
    lengths = tuple((start, data[start:stop]) for start, stop, _ in walk.lengths())
    names = tuple(walk.names)
    return ModelLayout(len(data), tuple(walk.leaves), names, fixed, state.digest(), lengths)


@lru_cache(maxsize=4)
def _words(data: bytes, count: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Where words begin in their letters, and these; None if they are others, or no UTF-8.

    Models one after the other often have the same, and then these are the same arrays.
    """
    offsets, parts, at = [0], list[bytes](), 0
    try:
        for _ in range(count):
            tag, size, at = data[at], data[at + 1], at + 2
            if tag != _TEXT_TAG or size > 127:
                return None
            parts.append(data[at : at + size])
            at += size
            offsets.append(at)
        if not data.isascii():
            for part in parts:
                part.decode("utf-8")
    except (IndexError, UnicodeDecodeError):
        return None
    if at != len(data):
        return None
    starts = np.array(offsets, np.int64) - 2 * np.arange(count + 1)
    starts.flags.writeable = False
    return starts, np.frombuffer(b"".join(parts), _UTF8)


class _Message(NamedTuple):
    """A part of the model that says how long it is: where that is said, and the part."""

    said: int
    start: int
    stop: int


class _Walk:
    """Goes through the bytes once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.leaves: list[Leaf] = []
        self.names: list[tuple[int, int]] = []
        self._seen = 0
        #: Where the length of what was last come to is said, and the last texts, and how many.
        self._said, self._texts = 0, (0, 0, 0)
        #: Parts with words in them.
        self._around: dict[_Message, None] = {}
        #: Of the node that is gone through: words, and the part they are in; what else it says.
        self._pool: list[tuple[Leaf, _Message]] = []
        self._says: dict[str, list[int]] = {}

    def lengths(self) -> list[tuple[int, int, int]]:
        """Where the lengths of parts with words are said, and how long these are without."""
        words = [leaf for leaf in self.leaves if leaf.words]
        found = []
        for said, start, stop in sorted(self._around):
            inner = [leaf.stop - leaf.start for leaf in words if start <= leaf.start < stop]
            inner += [one.start - one.said for one in self._around if start <= one.said < stop]
            found.append((said, start, stop - start - sum(inner)))
        return found

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
        nodes, seen, here = 0, set[int](), _Message(self._said, start, stop)
        for number, kind, first, last in self._fields(start, stop):
            if number == 1 and kind == _BYTES:
                self._node(nodes, first, last, here)
                nodes += 1
            elif number == 5 and kind == _BYTES:
                self._constant(first, last)
            elif number in {2, 10} and kind == _BYTES and number not in seen:
                seen.add(number)
                self.names.append((first, last))
            elif number not in _GRAPH:
                raise NoStructureError(number)

    def _node(self, place: int, start: int, stop: int, graph: _Message) -> None:
        here, counts = _Message(self._said, start, stop), False
        self._pool, self._says = [], {}
        for number, kind, first, last in self._fields(start, stop):
            if number == 5 and kind == _BYTES:
                self._attribute(place, first, last)
            elif number not in _NODE:
                raise NoStructureError(number)
            elif number == 4 and self.data.startswith(_DECIDING, first):
                raise NoStructureError("an operator")
            elif number == 4:
                counts = self.data[first:last] == _COUNTS_WORDS
        if counts and self._says == _ONE_WORD:
            for leaf, attribute in self._pool:
                self.leaves.append(leaf)
                self._around |= dict.fromkeys((graph, here, attribute))

    def _attribute(self, place: int, start: int, stop: int) -> None:
        """An attribute: weights if it is a list of floats, else part of the structure."""
        here, self._texts = _Message(self._said, start, stop), (0, 0, 0)
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
        self._lists(("node", place, name), found, kinds, here)
        if name in _ONE_WORD:
            self._says[name] = self._integers(start, stop)

    def _lists(
        self,
        owner: Owner,
        found: Sequence[tuple[int, int, np.dtype[Any]]],
        kinds: Sequence[int],
        here: _Message,
    ) -> None:
        """What an attribute lists: floats are weights, words may be."""
        if found:
            ((first, last, dtype),) = found
            if kinds != [6] or (last - first) % dtype.itemsize:
                raise NoStructureError("floats")
            self._leaf(Leaf(owner, first, last, dtype, ()))
        first, last, count = self._texts
        if owner[2] == _WORDS and count and kinds == [8]:
            self._pool.append((Leaf(owner, first, last, _UTF8, (), count), here))

    def _integers(self, start: int, stop: int) -> list[int]:
        """The integers of an attribute."""
        every = [each for each in self._fields(start, stop) if each[0] in {3, 8}]
        if any(kind != _VARINT for _, kind, *_ in every):
            return []  # written some other way
        return [self._varint(first)[0] for _, _, first, _ in every]

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
                self._said = start
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
        data, start, count = self.data, at, 0
        self._seen += (stop - at) // _QUICK
        if tag == _INT_TAG:
            while at < stop and data[at] == tag:
                at += 1
                while data[at] > 127:
                    at += 1
                at += 1
        else:
            while at < stop and data[at] == tag:
                size = data[at + 1]
                at += 2
                if size > 127:
                    size, at = self._varint(at - 1)
                at += size
                count += 1
            # In two places they are not the list as it is written.
            self._texts = (start, at, 0 if self._texts[1] else count)
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
