"""The layout of an ONNX model's bytes: where its weights are, and what is left, its structure.

    layout = split(data)
    layout.key                      # the same for all models that differ in their weights alone
    layout.leaves                   # the weights: offsets, dtypes, shapes

Weights are lists of floats that are attributes of nodes, and initializers of float32 or float64.
The vocabulary of a TfidfVectorizer of single words counts as weights, too: models with the same
number of words have one structure. Names without effect (the graph's name, descriptions) are left
out of the structure. A model with any field that is not known here has no layout.
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

#: Protobuf's wire types: varint, eight bytes, length-delimited, four bytes.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
#: An element of an unpacked list of floats: the field's tag, and the float.
_LISTED: np.dtype[Any] = np.dtype([("tag", "u1"), ("value", "<f4")])
_FLOAT: np.dtype[Any] = np.dtype("<f4")
_DOUBLE: np.dtype[Any] = np.dtype("<f8")
_FLOATS_TAG = 7 << 3 | _FOUR
#: Tags of the elements of an attribute's lists of integers and of strings.
_INT_TAG, _TEXT_TAG = 8 << 3 | _VARINT, 9 << 3 | _BYTES
_ELEMENT_TAGS = frozenset({_INT_TAG, _TEXT_TAG})
#: Bytes of such elements that are skipped in the time that one field takes.
_SKIPPED_BYTES = 64
#: Parsing more fields than this would take longer than importing the model.
MOST_FIELDS = 1 << 17
#: Operators whose numbers decide what code is generated, and are many.
_UNTRACEABLE = (b"TreeEnsemble", b"SVM")

#: The attribute that is a vocabulary, and its operator.
_VOCABULARY, _VECTORIZER = "pool_strings", b"TfIdfVectorizer"
#: The other attributes of a vectorizer of single words.
_ONE_WORD: dict[str, list[int]] = {
    "min_gram_length": [1],
    "max_gram_length": [1],
    "ngram_counts": [0],
}
#: The dtype of words: UTF-8.
_UTF8: np.dtype[Any] = np.dtype("u1")

#: Whose weights: ("node", the node's index, the attribute's name) or ("tensor", its name).
Owner = tuple[Any, ...]


class NoStructureError(Exception):
    """The model has a field that is not known here."""


class Leaf(NamedTuple):
    """Some weights: whose, their offsets, and how they are encoded."""

    owner: Owner
    start: int
    stop: int
    dtype: np.dtype[Any]
    #: That of an initializer; of attributes it is empty.
    shape: tuple[int, ...]
    #: The number of words, for a vocabulary.
    words: int = 0

    @property
    def described(self) -> str:
        """All but its offsets, for the key of the structure."""
        size = 0 if self.words else self.stop - self.start
        return repr((self.owner, self.dtype.str, self.shape, size, self.words))

    def arrays(self, data: bytes) -> list[NDArray[Any]] | None:
        """The numbers in a model of this layout, or the offsets and the bytes of its words."""
        if self.words:
            found = _words(data[self.start : self.stop], self.words)
            return None if found is None else [*found]
        numbers = self._read(data)
        return None if numbers is None else [numbers]

    def _read(self, data: bytes) -> NDArray[Any] | None:
        """The numbers in a model of this layout; None for another layout."""
        size = (self.stop - self.start) // self.dtype.itemsize
        found = np.frombuffer(data, self.dtype, size, self.start)
        if self.dtype is _LISTED:
            return found["value"].copy() if bool(np.all(found["tag"] == _FLOATS_TAG)) else None
        return found.reshape(self.shape).copy()


@dataclass(frozen=True)
class ModelLayout:
    """The offsets of everything in the bytes of models of one structure and one size."""

    size: int
    leaves: tuple[Leaf, ...]
    #: Names without effect: start and end.
    names: tuple[tuple[int, int], ...]
    #: Everything else: start and bytes.
    fixed: tuple[tuple[int, bytes], ...] = field(repr=False)
    key: bytes = b""
    #: Length prefixes of messages with words inside, no part of the structure: start and bytes.
    lengths: tuple[tuple[int, bytes], ...] = ()

    def fits(self, data: bytes) -> bool:
        """Whether this is a model of this layout."""
        return (
            len(data) == self.size
            and all(data.startswith(part, start) for start, part in self.fixed)
            and all(data.startswith(part, start) for start, part in self.lengths)
            and all(data[start:stop].isascii() for start, stop in self.names)
        )

    def sharing(self, parts: Sequence[bytes]) -> ModelLayout:
        """This layout with the bytes of another one's fixed parts, which are equal."""
        starts = (start for start, _ in self.fixed)
        return replace(self, fixed=tuple(zip(starts, parts, strict=True)))

    @cached_property
    def held(self) -> int:
        """The bytes that are kept to compare models with."""
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
        """What differs from other models of the layout: see `joined`."""
        holes = sorted([(leaf.start, leaf.stop) for leaf in self.leaves] + [*self.names])
        return tuple(data[start:stop] for start, stop in holes)

    def joined(self, own: Sequence[bytes]) -> bytes:
        """The bytes of the model with these parts of its own."""
        holes = sorted([leaf.start for leaf in self.leaves] + [start for start, _ in self.names])
        parts = [*self.fixed, *self.lengths, *zip(holes, own, strict=True)]
        return b"".join(part for _, part in sorted(parts, key=lambda part: part[0]))


def split(data: bytes) -> ModelLayout | None:
    """The layout of a model; None where it has a field that is not known here."""
    walk = _Walk(data)
    try:
        walk.model()
    except (NoStructureError, IndexError, ValueError, OverflowError):
        return None
    owners = [leaf.owner for leaf in walk.leaves]
    if len(set(owners)) != len(owners) or not walk.leaves:
        return None
    holes = sorted(
        [(leaf.start, leaf.stop, leaf.described) for leaf in walk.leaves]
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
    """The offsets of words in their bytes, and the bytes; None for another number, or no UTF-8.

    For the same words as lately the arrays are the same: see `ArrayTrace.leaf`, `common`.
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
    """A message inside the model: the offset of its length prefix, its start and its end."""

    prefix: int
    start: int
    stop: int


class _Walk:
    """One pass over the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.leaves: list[Leaf] = []
        self.names: list[tuple[int, int]] = []
        self._fields_read = 0
        #: The offset of the length prefix that was read last.
        self._prefix = 0
        #: The list of strings that was skipped last: start, end, and how many.
        self._strings = (0, 0, 0)
        #: Messages with words inside.
        self._around: dict[_Message, None] = {}
        #: Of the current node: vocabularies with their messages, and lists of integers.
        self._vocabularies: list[tuple[Leaf, _Message]] = []
        self._settings: dict[str, list[int]] = {}

    def lengths(self) -> list[tuple[int, int, int]]:
        """Length prefixes of messages with words: start, end, and the length without the words."""
        words = [leaf for leaf in self.leaves if leaf.words]
        found = []
        for prefix, start, stop in sorted(self._around):
            inner = [leaf.stop - leaf.start for leaf in words if start <= leaf.start < stop]
            inner += [one.start - one.prefix for one in self._around if start <= one.prefix < stop]
            found.append((prefix, start, stop - start - sum(inner)))
        return found

    def model(self) -> None:
        """ModelProto: one graph, and metadata."""
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
        nodes, seen, here = 0, set[int](), _Message(self._prefix, start, stop)
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
        here, counts = _Message(self._prefix, start, stop), False
        self._vocabularies, self._settings = [], {}
        for number, kind, first, last in self._fields(start, stop):
            if number == 5 and kind == _BYTES:
                self._attribute(place, first, last)
            elif number not in _NODE:
                raise NoStructureError(number)
            elif number == 4 and self.data.startswith(_UNTRACEABLE, first):
                raise NoStructureError("an operator")
            elif number == 4:
                counts = self.data[first:last] == _VECTORIZER
        if counts and self._settings == _ONE_WORD:
            for leaf, attribute in self._vocabularies:
                self.leaves.append(leaf)
                self._around |= dict.fromkeys((graph, here, attribute))

    def _attribute(self, place: int, start: int, stop: int) -> None:
        """AttributeProto: weights if it is a list of floats, else part of the structure."""
        here, self._strings = _Message(self._prefix, start, stop), (0, 0, 0)
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
            self._settings[name] = self._integers(start, stop)

    def _lists(
        self,
        owner: Owner,
        found: Sequence[tuple[int, int, np.dtype[Any]]],
        kinds: Sequence[int],
        here: _Message,
    ) -> None:
        """The lists of an attribute: floats are weights, a vocabulary may be."""
        if found:
            ((first, last, dtype),) = found
            if kinds != [6] or (last - first) % dtype.itemsize:
                raise NoStructureError("floats")
            self._leaf(Leaf(owner, first, last, dtype, ()))
        first, last, count = self._strings
        if owner[2] == _VOCABULARY and count and kinds == [8]:
            self._vocabularies.append((Leaf(owner, first, last, _UTF8, (), count), here))

    def _integers(self, start: int, stop: int) -> list[int]:
        """The integers of an attribute; none if they are packed."""
        every = [each for each in self._fields(start, stop) if each[0] in {3, 8}]
        if any(kind != _VARINT for _, kind, *_ in every):
            return []
        return [self._varint(first)[0] for _, _, first, _ in every]

    def _constant(self, start: int, stop: int) -> None:
        """TensorProto, an initializer: weights if it is of floats in one field."""
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
        """Number, wire type, start and end of the value of every field; adjacent floats are one.

        With `lists`, the integers and strings of an attribute's lists are skipped.
        """
        while at < stop:
            self._fields_read += 1
            if self._fields_read > MOST_FIELDS:
                raise NoStructureError("fields")
            tag, start = self._varint(at)
            if lists and tag in _ELEMENT_TAGS:
                at = self._skipped(tag, at, stop)
                continue
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                end = self._varint(start)[1]
            elif kind == _BYTES:
                self._prefix = start
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

    def _skipped(self, tag: int, at: int, stop: int) -> int:
        """The offset behind adjacent elements with this tag."""
        data, start, count = self.data, at, 0
        self._fields_read += (stop - at) // _SKIPPED_BYTES
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
            # A list in two pieces is not taken for a vocabulary.
            self._strings = (start, at, 0 if self._strings[1] else count)
        if at > stop:
            raise NoStructureError("ends")
        return at

    def _run(self, at: int, stop: int) -> int:
        """The offset behind adjacent floats."""
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


#: Numbers of the fields that may be there; they are compared byte by byte.
_MODEL = frozenset({1, 2, 3, 4, 5, 8, 14})
_GRAPH = frozenset({11, 12, 13, 14, 16})
_NODE = frozenset({1, 2, 3, 4, 6, 7, 8})
#: Fields of attributes that are graphs and tensors.
_NESTED = frozenset({6, 10, 11, 22, 23})
