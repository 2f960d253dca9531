"""Walking decision trees kept as a table of nodes.

A node is a test `x[feature] <= threshold` (or `<`, or membership in a set of categories); a row
that passes goes to `left`, else to `right`. At a leaf `feature` is -1 and `left` is the number of
the leaf. Children stand after their parents, so every walk ends.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy import isnan
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.chunked_array import Long, Pieces, assembled, whole
from flour.core.errors import ParameterError
from flour.core.native import Code, Memory, expression
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.sparse import Sparse, densify
from flour.core.types import FLOATS, Type, Vector
from flour.core.words import Number, Numbers, Row, cast, fitted, like

if TYPE_CHECKING:
    from flour.core.emission import Column, Emitter

#: The values of a node's `missing`: NaN is compared like any number (and so fails the test) ...
COMPARED = 0
#: ... or is sent left, or right, without a test ...
LEFT, RIGHT = 1, 2
#: ... and so are zeros, where this is added to it. Zero is what LightGBM takes for it.
ZEROS = 4
ZERO = float(np.float32(1e-35))


_TABLES = {
    **dict.fromkeys(("feature", "left", "right", "roots", "target"), "int32"),
    **dict.fromkeys(("category", "length"), "int32"),
    "threshold": "float64",
    "missing": "uint8",
    "words": "uint32",
}


class Nodes(Op, abstract=True):
    """The nodes of all trees of an ensemble in one table, and the walks over them."""

    method = ""  # a table of nodes is written by importers, not by hand
    feature: Long
    threshold: Long
    left: Long
    right: Long
    missing: Long
    roots: Array
    #: The first of a node's words of categories in `words` (-1: it has none), and their number.
    category: Long = ()  # type: ignore[assignment]  # canonicalised like any array
    length: Long = ()  # type: ignore[assignment]  # as above
    words: Long = ()  # type: ignore[assignment]  # as above
    #: The test is x < threshold rather than x <= threshold.
    strict: bool = False
    #: x is rounded to float32 before the test.
    narrow: bool = False
    #: Some nodes take zeros for missing.
    zeros: bool = False
    #: Zeros of a sparse vector are missing (XGBoost takes values that are not stored for missing).
    absent: bool = False
    #: Numbers between -1 and 0 are cut to category 0 (else no negative number is a category).
    signed: bool = True
    arity = Arity.AGGREGATE
    bound = Bound.COMPUTE
    takes_sparse = True

    def cuts_behind(self, *sources: Op) -> bool:
        # scikit-learn's thresholds are halfway between two training values, in float32.
        return self.strict or not self.narrow

    def check(self) -> None:
        self._check_tables()
        nodes = len(self.feature)
        shapes = {len(part) for part in (self.threshold, self.left, self.right, self.missing)}
        if shapes != {nodes} or not nodes or not len(self.roots):
            raise ParameterError("every node has a feature, a threshold and two ways to go")
        self._check_walks()
        self._check_categories()

    def _check_tables(self) -> None:
        """Native code reads each table in the dtype it is written in."""
        for key, dtype in _TABLES.items():
            table = self.fields().get(key)
            if table is None or not len(table):
                continue
            if table.array.ndim != 1 or table.dtype.name != dtype:
                raise ParameterError(f"{key} is a row of {dtype}", found=repr(table))

    def _check_walks(self) -> None:
        """Every walk must end at a leaf: native code follows these numbers without checks."""
        feature, left, right = raw(self.feature, self.left, self.right)
        number = np.arange(len(feature))
        inner = feature >= 0
        for child in (left, right):
            if np.any(child[inner] <= number[inner]) or np.any(child[inner] >= len(feature)):
                raise ParameterError("the children of a node stand after it, inside the table")
        (roots,) = raw(self.roots)
        if roots.min() < 0 or roots.max() >= len(feature):
            raise ParameterError("a root is outside the table of nodes")
        # Following a node that two parents share, or a root that is a child, may never end well.
        references = np.bincount(np.concatenate([left[inner], right[inner], roots]))
        if references.max() > 1:
            raise ParameterError("every node has one parent, or is the root of one tree")
        leaves = left[~inner]
        if leaves.size and (leaves.min() < 0 or leaves.max() >= self.leaf_count()):
            raise ParameterError("a leaf is outside the table of values")

    def _check_categories(self) -> None:
        if not len(self.words):
            return
        start, length = (part.astype(np.int64) for part in raw(self.category, self.length))
        if start.shape != self.feature.shape or length.shape != start.shape:
            raise ParameterError("with categories, every node says where its set is")
        if np.any(length[start >= 0] < 0) or np.any((start + length) > len(self.words)):
            raise ParameterError("a set of categories is outside its table")

    def leaf_count(self) -> int:
        """The number of leaves that `left` may point to."""
        raise NotImplementedError(f"{self.name}.leaf_count")

    def together(self) -> AbstractContextManager[None]:
        """Keep all long tables assembled for the duration."""
        return assembled(*(v for v in self.fields().values() if isinstance(v, Pieces)))

    def _needs(self, x: Type) -> Vector:
        kind = vector(x, self.name)
        last = int(raw(self.feature)[0].max())
        expect(
            last < kind.width,
            f"the trees look at column {last}, the input has {kind.width}",
            "was a column dropped before this step?",
        )
        return kind

    # --- the meaning ---------------------------------------------------------------------------

    def rows(self, x: Columns) -> NDArray[Any]:
        """The rows as the tests read them: dense, NaN where a value is missing."""
        dense = densify(x)
        if not (self.absent and isinstance(x, Sparse)):
            return np.asarray(dense)
        return np.where(dense == 0, np.asarray(np.nan, dense.dtype), dense)

    def walk(self, x: NDArray[Any], root: int) -> NDArray[np.int64]:
        """The leaf each row reaches in the tree at this root."""
        feature, left, right = raw(self.feature, self.left, self.right)
        with np.errstate(over="ignore"):
            x = x.astype(np.float32 if self.narrow else np.float64).astype(np.float64)
        at = np.full(len(x), root, np.int64)
        moving = np.flatnonzero(feature[at] >= 0)
        while moving.size:
            here = at[moving]
            passed = self.passes(x[moving, feature[here]], here)
            at[moving] = np.where(passed, left[here], right[here])
            moving = moving[feature[at[moving]] >= 0]
        leaf: NDArray[np.int64] = left[at].astype(np.int64)
        return leaf

    def passes(self, value: NDArray[np.float64], at: NDArray[np.int64]) -> Any:
        """True if each value goes left at the node of this number."""
        threshold, missing, category = raw(self.threshold, self.missing, self.category)
        threshold, missing = threshold[at], missing[at]
        passed = value < threshold if self.strict else value <= threshold
        if len(self.words):
            passed = np.where(category[at] >= 0, self._member(value, at), passed)
        gone = np.isnan(value) & (missing & 3 != COMPARED)
        if self.zeros:
            gone |= (value >= -ZERO) & (value <= ZERO) & (missing >= ZEROS)
        return np.where(gone, missing & 3 == LEFT, passed)

    def _member(self, value: NDArray[np.float64], at: NDArray[np.int64]) -> Any:
        """True if the value, cut to a whole number, is in the node's set."""
        start = np.maximum(self.category.array[at].astype(np.int64), 0)
        limit = self.length.array[at].astype(np.int64) * 32
        inside = ((value > -1) if self.signed else (value >= 0)) & (value < limit) & (limit > 0)
        code = np.where(inside, value, 0).astype(np.int64)
        word = self.words.array[np.minimum(start + code // 32, len(self.words) - 1)]
        return inside & ((word >> (code % 32).astype(np.uint32)) & 1).astype(bool)

    # --- native code ---------------------------------------------------------------------------

    def descend(self, e: Emitter, x: Column, row: str, root: str) -> str:
        """Emit the walk of one row from a root; the local that ends up holding the leaf."""
        assert isinstance(x.type, Vector)
        read = Memory(row, x.type.dtype, constant=True)
        leaf = expression(e, walked, read, Code(root, "int64"), self.tables(x.type))
        return e.let(leaf, "int64").expr

    def tables(self, kind: Vector) -> Tables:
        """The tables, for native code that reads rows of this type."""
        sets = (self.category, self.length, self.words) if len(self.words) else ()
        return Tables(
            whole(self.feature),
            whole(self.threshold),
            whole(self.left),
            whole(self.right),
            whole(self.missing),
            tuple(whole(p) for p in sets),
            self,
            self.absent and kind.sparse,
        )

    def seen(self, e: Emitter, value: str, kind: Vector, dtype: str = "float64") -> str:
        """A loaded value as the tests read it, in this float width."""
        absent = self.absent and kind.sparse
        return expression(
            e, seen, Code(value, kind.dtype), dtype, narrow=self.narrow, absent=absent
        )


class Tables(NamedTuple):
    """The nodes of trees as native code reads them, and how their tests go."""

    feature: Numbers
    threshold: Numbers
    left: Numbers
    right: Numbers
    missing: Numbers
    #: The first word and the number of words of each node's set, and the words, if there are sets.
    sets: tuple[Numbers, ...]
    how: Nodes
    #: Zeros are missing.
    absent: bool


def walked(row: Row, root: int, trees: Tables) -> Number:
    """The leaf that a row reaches from a root."""
    feature, left, right = fitted(trees.feature), fitted(trees.left), fitted(trees.right)
    threshold, missing = fitted(trees.threshold), fitted(trees.missing)
    at = root
    look = feature[at]
    while look >= 0:
        number = row[cast(look, "int64")]
        value = seen(number, "float64", narrow=trees.how.narrow, absent=trees.absent)
        passed = value < threshold[at] if trees.how.strict else value <= threshold[at]
        if len(trees.sets) > 0:
            category, length, words = trees.sets
            start = cast(fitted(category)[at], "int64")
            if start >= 0:
                limit = 32 * cast(fitted(length)[at], "int64")
                passed = is_member(value, start, limit, fitted(words), signed=trees.how.signed)
        gone = isnan(value)
        if gone or (trees.how.zeros and value >= -ZERO and value <= ZERO):
            treatment = cast(missing[at], "int64")
            directed = treatment % ZEROS != COMPARED
            if trees.how.zeros:
                directed = directed if gone else treatment >= ZEROS
            if directed:
                passed = treatment % ZEROS == LEFT
        at = cast(left[at], "int64") if passed else cast(right[at], "int64")
        look = feature[at]
    return cast(left[at], "int64")


def seen(value: Number, dtype: str, *, narrow: bool, absent: bool) -> Number:
    """A value as the tests read it: NaN where zeros are missing."""
    widened = cast(cast(value, "float32"), dtype) if narrow else cast(value, dtype)
    return widened if not absent or value != 0 else like(widened, math.nan)


def is_member(value: Number, start: int, limit: int, words: Numbers, *, signed: bool) -> Any:
    """True if the value, cut to a whole number, is in the set whose words start here."""
    found = False
    least = value > -1.0 if signed else value >= 0.0
    if least and value < cast(limit, "float64") and limit > 0:
        code = cast(value, "int64")
        word = cast(words[start + code // 32], "int64")
        found = ((word >> (code % 32)) & 1) != 0
    return found


class Walk(Nodes, abstract=True):
    """Trees that read their input only in the tests, so that thresholds can be pulled back."""


def raw(*parameters: Long) -> list[Any]:
    """The arrays of parameters, to compute with."""
    return [parameter.array for parameter in parameters]


class LeafSums(Walk, abstract=True):
    """Trees whose leaves have values that are added up: their tables, and what they mean."""

    value: Long
    #: The first output column each tree adds to.
    target: Array
    base: Array
    #: The divisor of the sums (the number of trees, for a mean); 0 for none.
    divisor: int = 0
    #: The float width that sums are computed in.
    dtype: str = "float64"
    #: How much of the training data reached each node, where it was imported: attribution averages
    #: by it, and nothing else reads it.
    cover: Long = ()  # type: ignore[assignment]  # canonicalised like any array

    later = ("cover",)
    largest_result = 1e34  # fitted numbers: none is near the end of a range

    def leaf_count(self) -> int:
        return int(self.value.shape[0])

    def check(self) -> None:
        if self.dtype not in FLOATS:
            raise ParameterError(f"leaf values are summed as floats, not as {self.dtype}")
        if self.value.array.ndim != 2 or not self.base.array.size:
            raise ParameterError("a leaf has a row of values, an ensemble at least one output")
        if len(self.cover) not in (0, len(self.feature)):
            raise ParameterError("every node has a cover, or none has")
        super().check()
        (target,), last = raw(self.target), len(self.base) - self.value.shape[1]
        if len(target) != len(self.roots) or target.min() < 0 or target.max() > last:
            raise ParameterError("a tree adds to an output that is not there")

    def infer(self, x: Type) -> Vector:
        self._needs(x)
        return Vector(len(self.base), self.dtype)

    def reference(self, x: Columns) -> Columns:
        x = self.rows(x)
        value, base = (part.astype(self.dtype) for part in raw(self.value, self.base))
        sums = np.tile(base, (len(x), 1))
        span = self.value.shape[1]
        with self.together():
            for root, first in zip(self.roots.array, self.target.array, strict=True):
                sums[:, first : first + span] += value[self.walk(x, int(root))]
        return sums / np.dtype(self.dtype).type(self.divisor) if self.divisor else sums

    def held(self) -> NDArray[Any]:
        """The content of each leaf: its value, or the position of its values."""
        value = self.value.array
        leaf = value[:, 0] if value.shape[1] == 1 else np.arange(len(value))
        return leaf.astype(self.dtype)

    def alike(self) -> NDArray[np.int64]:
        """For each leaf the first one with the same content, to the bit."""
        value = np.ascontiguousarray(self.value.array.astype(self.dtype))
        kind = f"i{value.itemsize}" if value.shape[1] == 1 else f"V{value[0].nbytes}"
        bits = value.view(kind).reshape(-1)
        _, first, which = np.unique(bits, return_index=True, return_inverse=True)
        return np.asarray(first[which.reshape(-1)], np.int64)
