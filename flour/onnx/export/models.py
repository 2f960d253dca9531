"""The ONNX forms of trees, categories, imputation and distances."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import UnsupportedSetting
from flour.core.node import Node
from flour.core.types import Vector
from flour.onnx.export.numbers import parameter
from flour.onnx.export.writer import ML, Export, dtype_of, form
from flour.onnx.tensor import NAN_TEXT, NONE_TEXT
from flour.ops.categorise import UNKNOWN
from flour.ops.trees.walk import LEFT, ZERO, ZEROS

_LEQ, _LT, _MEMBER = 0, 1, 6


@form("Trees")
def _trees(out: Export, item: Node, x: str) -> str:
    op: Any = item.op
    sums = _walked(out, item, x, _Leaves(op.value.array, op.target.array, len(op.base)))
    sums = out("Add", sums, out.constant(op.base.array, np.float64))
    if op.divisor:
        sums = out("Div", sums, out.constant(float(op.divisor)))
    return out.cast(sums, "float64", op.dtype)


@form("TreeLeaves")
def _tree_leaves(out: Export, item: Node, x: str) -> str:
    op: Any = item.op
    return out.cast(_reached(out, item, x, op.number.array), "float64", "int64")


def _reached(out: Export, item: Node, x: str, numbers: object) -> str:
    """The number of the leaf a row reaches in every tree, as float64."""
    trees = len(item.op.fields()["roots"].array)
    leaves = np.asarray(numbers, np.float64)[:, None]
    return _walked(out, item, x, _Leaves(leaves, np.arange(trees), trees))


@form("LinearTrees")
def _linear_trees(out: Export, item: Node, x: str) -> str:
    """The leaf of every tree, then its terms as a row of slopes for all columns."""
    op: Any = item.op
    kind = item.inputs[0].type
    assert isinstance(kind, Vector), "checked by the operator"
    count = len(op.value.array)
    if count * kind.width > _MOST:
        what = f"{item.op.name} with {count} leaves over {kind.width} columns has no ONNX form"
        raise UnsupportedSetting(what, where=item.op.name)
    slopes, reads = np.zeros((count, kind.width)), np.zeros((count, kind.width), bool)
    leaf = np.repeat(np.arange(count), np.diff(op.starts.array))
    np.add.at(slopes, (leaf, op.column.array), op.slope.array)
    reads[leaf, op.column.array] = True
    place = out.cast(_reached(out, item, x, np.arange(count)), "float64", "int64")
    wide = out("Unsqueeze", out.cast(x, kind.dtype, "float64"), out.constant([1], np.int64))
    read, axis = out("Gather", out.constant(reads), place), out.constant([2], np.int64)
    terms = out("Mul", out("Gather", out.constant(slopes), place), wide)
    terms = out("ReduceSum", out("Where", read, terms, out.constant(0.0)), axis, keepdims=0)
    lost = out.cast(out("And", read, out("IsNaN", wide)), "bool", "float32")
    lost = out.cast(out("ReduceMax", lost, axis, keepdims=0), "float32", "bool")
    value, constant = (
        out("Gather", out.constant(side.array, np.float64), place)
        for side in (op.value, op.constant)
    )
    made = out("Where", lost, value, out("Add", constant, terms))
    target = op.target.array[:, None] == np.arange(len(op.base.array))
    made = out("Where", out.constant(target), out("Unsqueeze", made, axis), out.constant(0.0))
    sums = out("ReduceSum", made, out.constant([1], np.int64), keepdims=0)
    return out("Add", sums, out.constant(op.base.array, np.float64))


#: Slopes for every leaf and column that a model may have.
_MOST = 1 << 22


class _Leaves(NamedTuple):
    """Leaves' values: a row each, the output each tree begins at, the number of outputs."""

    values: Any
    targets: Any
    outputs: int


def _walked(out: Export, item: Node, x: str, leaves: _Leaves) -> str:
    """The sums over all trees, in float64."""
    op: Any = item.op
    kind = item.inputs[0].type
    assert isinstance(kind, Vector), "checked by the operator"
    have = "float32" if op.narrow else kind.dtype
    if op.absent and kind.sparse:
        zero, lost = (out.constant(value, kind.dtype) for value in (0, np.nan))
        x = out("Where", out("Equal", x, zero), lost, x)
    x = out.cast(out.cast(x, kind.dtype, have), have, "float64")
    with op.together():  # its tables are read node by node
        sees = _Sees(op, kind.width)
        attributes = _ensemble(op, sees, leaves)
    return out("TreeEnsemble", sees.columns(out, x), domain=ML, **attributes)


class _Sees:
    """The column that every node compares: as it is, without its zeros, or cut to categories.

    Each kind that some node needs is a block of columns behind the plain ones.
    """

    def __init__(self, op: Any, width: int) -> None:
        self.op = op
        count = len(op.feature.array)
        self.member = np.zeros(count, bool)
        if len(op.words):
            self.member = np.asarray(op.category.array) >= 0
        zeros = (np.asarray(op.missing.array) >= ZEROS) & op.zeros
        number = self.member.astype(int) * 2 + zeros
        inner = np.asarray(op.feature.array) >= 0
        self._kinds = sorted({0, *number[inner].tolist()})
        self.offset = np.searchsorted(self._kinds, np.where(inner, number, 0)) * width

    def columns(self, out: Export, x: str) -> str:
        """All blocks side by side."""
        blocks = [self._block(out, x, kind) for kind in self._kinds]
        return out("Concat", *blocks, axis=1) if len(blocks) > 1 else x

    def _block(self, out: Export, x: str, kind: int) -> str:
        if kind & 1:
            tiny = out("LessOrEqual", out("Abs", x), out.constant(ZERO))
            x = out("Where", tiny, out.constant(np.nan), x)
        if kind < 2:
            return x
        # Categories count from one, so that zero is none.
        whole = out("Mul", out("Sign", x), out("Floor", out("Abs", x)))
        whole = out("Add", whole, out.constant(1.0))
        limit = out.constant(-1.0 if self.op.signed else 0.0)
        none = out("LessOrEqual" if self.op.signed else "Less", x, limit)
        return out("Where", none, out.constant(0.0), whole)

    def categories(self, node: int) -> list[float]:
        """The set of a node, counted from one."""
        start, length = int(self.op.category.array[node]), int(self.op.length.array[node])
        words = np.asarray(self.op.words.array[start : start + length], "<u4")
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        return [float(code + 1) for code in np.flatnonzero(bits)]


def _ensemble(op: object, sees: _Sees, leaves_: _Leaves) -> dict[str, Any]:
    """The attributes of a TreeEnsemble: an ensemble once for each value of a leaf."""
    parts = [_LeafValue(op, sees, leaves_, column) for column in range(leaves_.values.shape[1])]
    nodes, leaves = 0, 0
    tables: dict[str, list[int]] = {key: [] for key in _TABLES}
    splits, weights, modes, members = [], [], list[int](), list[float]()
    for part in parts:
        for key, values in part.tables(nodes, leaves).items():
            tables[key] += values
        splits += part.splits
        weights += part.weights
        modes += part.modes
        members += part.members
        nodes, leaves = nodes + len(part.splits), leaves + len(part.weights)
    sets = {"membership_values": _tensor(np.array(members, np.float64))} if members else {}
    return {
        **tables,
        **sets,
        "nodes_splits": _tensor(np.array(splits, np.float64)),
        "leaf_weights": _tensor(np.array(weights, np.float64)),
        "nodes_modes": _tensor(np.array(modes, np.uint8)),
        "n_targets": leaves_.outputs,
        "aggregate_function": 1,
        "post_transform": 0,
    }


_TABLES = (
    *("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids"),
    *("nodes_trueleafs", "nodes_falseleafs", "nodes_missing_value_tracks_true"),
    *("tree_roots", "leaf_targetids"),
)


def _tensor(array: NDArray[Any]) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array, "")


class _LeafValue:
    """One value of every leaf: nodes and leaves numbered for themselves."""

    def __init__(self, op: Any, sees: _Sees, leaves: _Leaves, column: int) -> None:
        self.op, self._sees = op, sees
        feature = op.feature.array
        self._trees = list(zip(op.roots.array.tolist(), leaves.targets.tolist(), strict=True))
        self._place = {}  # of our nodes, among the inner ones or among the leaves
        self._leaves: list[tuple[int, int]] = []
        self._inner: list[int] = []
        for root, target in self._trees:
            stack = [root]
            while stack:
                node = stack.pop()
                if feature[node] >= 0:
                    self._place[node] = len(self._inner)
                    self._inner.append(node)
                    stack += [int(op.right.array[node]), int(op.left.array[node])]
                else:
                    self._place[node] = len(self._leaves)
                    # A tree that is one leaf has it twice: some runtimes know such a tree by that.
                    self._leaves += [(node, target + column)] * (1 + (node == root))
        values = leaves.values[:, column]
        self.weights = [float(values[op.left.array[node]]) for node, _ in self._leaves]
        #: A tree that is one leaf becomes a node whose two ways lead there.
        self._stumps = [root for root, _ in self._trees if feature[root] < 0]
        self.splits = [float(op.threshold.array[node]) for node in self._inner]
        self.splits += [0.0] * len(self._stumps)
        self.modes = [_LT if op.strict else _LEQ] * len(self.splits)
        #: The sets of the nodes that have one, in their order, NaN behind each.
        self.members: list[float] = []
        for place, node in enumerate(self._inner):
            if sees.member[node]:
                categories = sees.categories(node)
                self.splits[place] = 0.0 if categories else -np.inf  # which no number passes
                if categories:
                    self.modes[place] = _MEMBER
                    self.members += [*categories, np.nan]

    def tables(self, nodes: int, leaves: int) -> dict[str, list[int]]:
        """The tables of whole numbers, where so many nodes and leaves stand before."""
        made: dict[str, list[int]] = {key: [] for key in _TABLES}
        for node in self._inner:
            feature = int(self.op.feature.array[node]) + int(self._sees.offset[node])
            made["nodes_featureids"].append(feature)
            left = int(self.op.missing.array[node]) & 3 == LEFT
            made["nodes_missing_value_tracks_true"].append(int(left))
            for side, child in (("true", self.op.left), ("false", self.op.right)):
                self._way(made, side, int(child.array[node]), nodes, leaves)
        for root in self._stumps:
            made["nodes_featureids"].append(0)
            made["nodes_missing_value_tracks_true"].append(0)
            for other, side in enumerate(("true", "false")):
                self._way(made, side, root, nodes, leaves + other)
        stumps = {root: len(self._inner) + k for k, root in enumerate(self._stumps)}
        made["tree_roots"] = [
            nodes + (stumps[root] if root in stumps else self._place[root])
            for root, _ in self._trees
        ]
        made["leaf_targetids"] = [target for _, target in self._leaves]
        return made

    def _way(self, made: dict[str, list[int]], side: str, child: int, n: int, m: int) -> None:
        leaf = self.op.feature.array[child] < 0
        made[f"nodes_{side}nodeids"].append(self._place[child] + (m if leaf else n))
        made[f"nodes_{side}leafs"].append(int(leaf))


# --- missing values, categories -----------------------------------------------------------------


@form("IsMissing")
def _missing(out: Export, item: Node, x: str) -> str:
    marker, dtype = item.op.fields()["marker"], dtype_of(item.inputs[0].type)
    if np.isnan(marker):
        return out("IsNaN", out.cast(x, dtype, dtype if dtype.startswith("float") else "float64"))
    inner = dtype if np.dtype(dtype).kind == "f" else "float64"  # 0.5 is no whole number
    return out("Equal", out.cast(x, dtype, inner), out.constant(marker, inner))


@form("Impute")
def _impute(out: Export, item: Node, x: str) -> str:
    values = parameter(out, item, item.op.fields()["values"].array, dtype_of(item.type))
    return out("Where", _missing(out, item, x), values, x)


def _columns(out: Export, item: Node, x: str) -> list[str]:
    """The columns of a vector, or the one value per row, each as a matrix of one column."""
    kind = item.inputs[0].type
    if not isinstance(kind, Vector):
        return [out.column(x)]
    places = (out.constant([j], np.int64) for j in range(kind.width))
    return [out("Gather", x, place, axis=1) for place in places]


def _side_by_side(out: Export, item: Node, parts: list[str]) -> str:
    if isinstance(item.type, Vector):
        return out("Concat", *parts, axis=1)
    return out("Squeeze", parts[0], out.constant([1], np.int64))


@form("Categorise")
def _categorise(out: Export, item: Node, x: str) -> str:
    """Numbers are compared with every category of their column; the code of the one that is met.

    What the program refuses (`strict`) has the code -1.
    """
    op: Any = item.op
    have = dtype_of(item.inputs[0].type)
    wide = np.result_type(have, op.values.dtype).name
    cuts, made = op.starts.array, []
    for j, column in enumerate(_columns(out, item, x)):
        run = slice(int(cuts[j]), int(cuts[j + 1]))
        values, codes = op.values.array[run], op.codes.array[run]
        unknown, missing = _code(op.unknown.array[j]), _code(op.missing.array[j])
        met = out("Equal", out.cast(column, have, wide), out.constant(values[None], wide))
        met = out.cast(met, "bool", "float64")
        # The code in one column, whether there is one in another.
        facts = np.stack([codes, np.ones(len(codes))], axis=1).astype(np.float64)
        both = out.cast(out("MatMul", met, out.constant(facts)), "float64", "int64")
        code, known = (out("Gather", both, out.constant([k], np.int64), axis=1) for k in (0, 1))
        known = out.cast(known, "int64", "bool")
        code = out("Where", known, code, out.constant(unknown, np.int64))
        if have.startswith("float"):
            code = out("Where", out("IsNaN", column), out.constant(missing, np.int64), code)
        made.append(code)
    return _side_by_side(out, item, made)


def _code(code: Any) -> int:
    return -1 if int(code) == UNKNOWN else int(code)


@form("CategoriseText")
def _categorise_text(out: Export, item: Node, x: str) -> str:
    """Strings are looked up, missing ones by the texts that stand for them."""
    op: Any = item.op
    texts, cuts, made = op.texts.to_list(), op.starts.array, []
    for j, column in enumerate(_columns(out, item, x)):
        run, unknown = slice(int(cuts[j]), int(cuts[j + 1])), _code(op.unknown.array[j])
        pairs = zip(texts[run], op.codes.array[run].tolist(), strict=True)
        codes = dict(reversed(list(pairs)))  # the first of equal texts counts
        for text, code in ((NONE_TEXT, op.none.array[j]), (NAN_TEXT, op.missing.array[j])):
            if _code(code) != unknown:
                codes.setdefault(text, _code(code))
        how = {"keys_strings": list(codes) or [""], "values_int64s": [*codes.values()] or [unknown]}
        made.append(out("LabelEncoder", column, domain=ML, default_int64=unknown, **how))
    return _side_by_side(out, item, made)


@form("OneHot")
def _one_hot(out: Export, item: Node, x: str) -> str:
    cuts, made = item.op.fields()["starts"].array, []
    have = dtype_of(item.inputs[0].type)
    for j, column in enumerate(_columns(out, item, out.cast(x, have, "int64"))):
        codes = np.arange(int(cuts[j + 1] - cuts[j]), dtype=np.int64)[None]
        made.append(
            out.cast(out("Equal", column, out.constant(codes)), "bool", dtype_of(item.type))
        )
    return out("Concat", *made, axis=1)
