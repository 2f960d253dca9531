"""trees(one_hot(codes), others)  →  trees(codes, others): categories tested by their codes

Why      a test of a one-hot column checks whether the code is that column's: a set of one category.
         So the ones and zeros are never made, and one column of codes is read instead of a column
         for every category. Tests that pass all codes up to one, or from one on, become
         thresholds.
Unless   another operator reads the one-hot columns; the codes are not known to come from an encoder
         or bins, or reach 1,024 and more, for which blocks of rows have no sets; some codes below
         zero pass and others do not; or zeros that are not stored are missing, beside columns that
         are not floats or too many.
Numerics none: each test of the ones and zeros is evaluated for every code at baking, by the
         definition of the nodes. A node that passes the codes outside its set swaps its children.
         If zeros are missing, codes are not; other columns have NaN for their zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, node
from flour.core.op import Array
from flour.core.types import FLOATS, Vector
from flour.ops.binary import CastLike
from flour.ops.categorise import UNKNOWN, Categorise, CategoriseText
from flour.ops.discretise import Bins
from flour.ops.elementwise import Cast
from flour.ops.encode import OneHot
from flour.ops.impute import Impute
from flour.ops.structure import AsVector, Concat, Select, ToDense, ToSparse
from flour.ops.trees.walk import RIGHT, Walk, raw
from objectstore import Blob
from oven.optimise.affine import dtype_of
from oven.optimise.concat_chain import ChainPart, joined, parts, seams, width_of
from oven.optimise.into_trees import chain, sent_left
from oven.optimise.pattern import BITS, Match, Rule, hole, op
from oven.optimise.rules.dense_into_trees import WIDEST
from oven.optimise.thresholds import Flags, Floats

Codes = NDArray[np.int64]


def codes_of(item: Node) -> list[Codes] | None:
    """The possible values of each column of a node, ascending; None if they are not known."""
    op = item.op
    match op:
        case Categorise():
            return _codes(op, op.missing, op.unknown)
        case CategoriseText():
            return _codes(op, op.none, op.missing, op.unknown)
        case Bins():
            return [np.arange(count + 1) for count in np.diff(op.starts.array).tolist()]
    if not isinstance(item.op, Select | AsVector | Concat):
        return None
    columns: list[Codes] = []
    for part in item.inputs:
        codes = codes_of(part)
        if codes is None:
            return None
        columns.extend(codes)
    return (
        [columns[int(j)] for j in item.op.columns.array] if isinstance(item.op, Select) else columns
    )


def _codes(op: Categorise | CategoriseText, *others: Array) -> list[Codes]:
    """The codes of each column's categories, and the codes for missing and unknown values."""
    cuts = op.starts.array
    columns = []
    for j, rest in enumerate(np.stack([other.array for other in others], axis=1)):
        every = np.concatenate([op.codes.array[cuts[j] : cuts[j + 1]], rest]).astype(np.int64)
        columns.append(np.unique(every[every != UNKNOWN] if op.strict else every))
    return columns


#: Blocks of rows look up sets of codes below this (flour.ops.trees.slices).
MOST = 1024
_BITS = 32
Indices = NDArray[np.int64]


class Hot(NamedTuple):
    """One-hot columns, the steps between them and the trees, and the codes they come from."""

    op: OneHot
    dtypes: tuple[str, ...]
    chain: tuple[Node, ...]
    codes: list[Codes]

    @property
    def below(self) -> Node:
        """The codes."""
        return self.chain[-1].inputs[0]

    def seen(self, column: int) -> tuple[int, Codes, Floats]:
        """The number of the column of codes, the possible codes, and the trees' input for each."""
        starts = self.op.starts.array
        source = int(np.searchsorted(starts, column, side="right")) - 1
        codes = self.codes[source]
        ones: Floats = (codes == column - starts[source]).astype(self.op.dtype)
        for dtype in self.dtypes:
            ones = ones.astype(dtype)
        return source, codes, ones


def _hot(m: Match, part: ChainPart) -> Hot | None:
    """The one-hot encoding of a part, if only trees read it."""
    nodes = chain(m, part, OneHot, lambda item: isinstance(item.op, _ASIDE))
    if not nodes:
        return None
    encoder, codes = nodes[-1].op, codes_of(nodes[-1].inputs[0])
    assert isinstance(encoder, OneHot), "the chain ends with it"
    if codes is None or not all(
        (bool(each.size) and each[0] > -MOST and each[-1] < MOST) for each in codes
    ):
        return None
    casts = [dtype_of(item) for item in reversed(nodes) if isinstance(item.op, _CASTS)]
    return Hot(encoder, tuple(casts), tuple(nodes), codes)


#: Operators that may stand between one-hot columns and trees.
_CASTS = (Cast, CastLike)
_ASIDE = (*_CASTS, ToDense, ToSparse)


class _OneHotTrees:
    """The fields of the trees that the rule changes."""

    def __init__(self, walk: Walk, dtypes: Sequence[str], *, absent: bool) -> None:
        self.walk, self.dtypes, self.absent = walk, dtypes, absent
        # Referenced here, so that they stay whole: `passes` reads them column by column.
        self.kept = raw(walk.threshold, walk.missing, walk.category, walk.words)
        self.feature = walk.feature.array.astype(np.int64)
        self.asked = np.where(self.feature >= 0, self.feature, -1)
        self.order = np.argsort(self.asked, kind="stable")
        self.sorted = self.asked[self.order]
        self.threshold = walk.threshold.array.astype(np.float64)
        self.left, self.right = walk.left.array.copy(), walk.right.array.copy()
        self.missing = walk.missing.array.copy()
        self.category, self.length = _sets(walk)
        self.words = [walk.words.array.astype(np.uint32)]
        self.size = len(walk.words)
        self.places: dict[tuple[int, ...], int] = {}

    def asking(self, column: int) -> Indices:
        """The nodes that test a column."""
        return self.order[slice(*np.searchsorted(self.sorted, [column, column + 1]))]

    def move(self, part: ChainPart, start: int) -> None:
        """Renumber a part's columns from `start` on."""
        inside = (self.asked >= part.start) & (self.asked < part.start + part.width)
        self.feature[inside] = self.asked[inside] - part.start + start

    def decode(self, part: ChainPart, hot: Hot, start: int) -> bool:
        """Test codes, in columns from `start` on, instead of one-hot columns."""
        for column in range(part.width):
            nodes = self.asking(part.start + column)
            if not nodes.size:
                continue
            source, codes, ones = hot.seen(column)
            values, which = np.unique(ones, return_inverse=True)
            seen = values
            for dtype in self.dtypes:
                seen = seen.astype(dtype)
            if self.absent:
                seen = np.where(seen == 0, np.nan, seen)
            sent = sent_left(self.walk, seen, nodes)
            patterns, mine = np.unique(sent, axis=0, return_inverse=True)
            self.feature[nodes] = start + source
            for number, passes in enumerate(patterns[:, which.reshape(-1)]):
                if not self._decide(nodes[mine.reshape(-1) == number], codes, passes):
                    return False
        return True

    def _decide(self, nodes: Indices, codes: Codes, passes: Flags) -> bool:
        """Make these nodes pass the codes for which `passes` is true."""
        self.missing[nodes] = RIGHT  # a code is never missing
        if passes[-1] and not passes.all():
            left = self.left[nodes]
            self.left[nodes], self.right[nodes] = self.right[nodes], left
            passes = ~passes
        count = int(passes.sum())
        if np.all(passes[:count]):
            ends = np.concatenate([[codes[0] - 1], codes, [codes[-1] + 1]])
            self.threshold[nodes] = ends[count + self.walk.strict]
            self.category[nodes] = -1
            self.length[nodes] = 0
            return True
        members = codes[passes]
        if members[0] < 0:
            return False
        # The offset of a set's bitmap in `words`.
        key = tuple(members.tolist())
        if key not in self.places:
            bitmap = np.zeros(int(members[-1]) // _BITS + 1, np.uint32)
            np.bitwise_or.at(
                bitmap, members // _BITS, np.uint32(1) << (members % _BITS).astype("u4")
            )
            self.places[key] = self.size
            self.words.append(bitmap)
            self.size += len(bitmap)
        self.category[nodes] = self.places[key]
        self.length[nodes] = members[-1] // _BITS + 1
        return True

    def trees(self) -> Walk:
        """The trees with these tables."""
        changed: dict[str, NDArray[Any]] = {
            "feature": self.feature.astype(np.int32),
            "threshold": self.threshold,
            "left": self.left,
            "right": self.right,
            "missing": self.missing,
        }
        if self.size:
            sets = {"category": self.category, "length": self.length}
            changed |= sets | {"words": np.concatenate(self.words)}
        absent = self.walk.absent and not self.absent
        return self.walk.replace(
            **{key: Blob.of(value) for key, value in changed.items()}, absent=absent
        )


def _sets(walk: Walk) -> tuple[NDArray[Any], NDArray[Any]]:
    """The offset and the length of each node's set."""
    if len(walk.words):
        return walk.category.array.copy(), walk.length.array.copy()
    return np.full(len(walk.feature), -1, np.int32), np.zeros(len(walk.feature), np.int32)


class _Input(NamedTuple):
    """The input of the trees: its parts, and the casts applied to all of them."""

    whole: Node
    dtypes: tuple[str, ...]
    found: list[tuple[ChainPart, Hot | None]]
    gone: list[Node]


def _read(m: Match) -> _Input:
    """Take the input of the trees apart, looking through casts."""
    x, reader = m["x"], m.root
    casts: list[Node] = []
    while isinstance(x.op, _CASTS) and m.facts.only_for_any(x, reader, Walk):
        casts.append(x)
        reader, x = x, x.inputs[0]
    above = Match(reader, m.facts)
    hot_parts = [(part, _hot(m, part)) for part in parts(above, x)]
    gone = [item for _, hot in hot_parts if hot is not None for item in hot.chain]
    dtypes = (dtype_of(x), *(dtype_of(item) for item in reversed(casts)))
    return _Input(x, dtypes, hot_parts, [*casts, *gone, *seams(above, x)] if gone else [])


def _items(read: _Input, tables: _OneHotTrees) -> Iterator[Node | None]:
    """The new input of the trees, part by part; None for a part that cannot be replaced."""
    start, alone = 0, all(hot is not None for _, hot in read.found)
    for part, hot in read.found:
        if hot is None:
            tables.move(part, start)
            start += part.width
            yield _other_part(part.item, read, tables)
            continue
        fine = tables.decode(part, hot, start)
        start += len(hot.codes)
        # Beside floats, codes become floats of their width: the others must not become wider.
        wide = read.dtypes[-1] in FLOATS and not alone
        code = _cast(hot.below, read.dtypes) if wide else hot.below
        yield code if fine else None


def _other_part(item: Node, read: _Input, tables: _OneHotTrees) -> Node | None:
    """A part that is not one-hot, with NaN for zeros if zeros count as missing."""
    if not tables.absent:
        return _cast(item, read.dtypes) if len(read.dtypes) > 1 else item
    width = width_of(item)
    if read.dtypes[-1] not in FLOATS or width > WIDEST:
        return None
    sparse = isinstance(item.type, Vector) and item.type.sparse
    dense = _cast(node(ToDense(), [item]) if sparse else item, read.dtypes)
    return node(Impute(0.0, np.full(width, np.nan)), [dense])


def _cast(item: Node, dtypes: Sequence[str]) -> Node:
    """The node in each of these dtypes, one after the other."""
    for dtype in dtypes:
        item = item if dtype_of(item) == dtype else node(Cast(dtype), [item])
    return item


def _build(m: Match) -> Node | None:
    walk, kind, read = m.op("trees", Walk), m["x"].type, _read(m)
    assert isinstance(kind, Vector)
    if not read.gone:
        return None
    tables = _OneHotTrees(walk, read.dtypes, absent=walk.absent and kind.sparse)
    items = list(_items(read, tables))
    if any(item is None for item in items):
        return None
    m.take(*read.gone)
    return node(tables.trees(), [joined([item for item in items if item is not None], m["x"])])


RULE = Rule(op(Walk, name="trees")(hole("x")), _build, BITS, beside=(OneHot,))
