"""Read LightGBM models, from their text or from a live booster, without the library.

The text is parsed here, line by line, with every number checked: a damaged file is an error that
names the tree and the field, even where LightGBM itself would read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.boosters import stand_ins as _stand_ins  # noqa: F401  # registers them
from flour.boosters.booster_columns import classified, coded, flat, input_type, kinds
from flour.core.errors import DamagedProgram, UnsupportedSetting
from flour.core.types import Type
from flour.language.adapters import Fitted, Importer, adapts, knows_columns
from flour.language.flow import Flow, outputs, source
from flour.ops.trees.linear_trees import LinearTrees
from flour.ops.trees.trees import TreeLeaves, Trees
from flour.ops.trees.walk import COMPARED, LEFT, RIGHT, ZERO, ZEROS

# decision_type of a node: bit 0 a set of categories, bit 1 default left, bits 2-3 what is missing.
_CATEGORICAL, _DEFAULT_LEFT, _MISSING_SHIFT = 1, 2, 2
_MISSING_ZERO, _MISSING_NAN = 1, 2
_MAX_LEAVES = 1 << 24
#: A count of sets has fewer digits than this.
_DIGITS = 10
#: The field of the text's last line, and the longest that line may be.
_FRAME = "pandas_categorical"
_MOST_CATEGORIES = 1 << 26

Fields = Mapping[str, str]


def from_lightgbm(model: object, *, covers: bool = False, leaves: bool = False) -> Flow:
    """The program of a LightGBM model: a booster, a fitted wrapper, a file or its text.

    Outputs: `value` is the answer of Booster.predict, `scores` its raw scores and, with `leaves`,
    `leaves` the leaf each tree ends in. A model trained on a frame with categories takes the
    frame's own values. With `covers`, trees keep how many training rows reached each node, for
    `plan.attribute`.
    """
    head, trees = parse(text_of(model))
    width = width_of(head)
    names = head.get("feature_names", "").split(" ")
    x = source("X", input_type(names, width, categories_of(head), "float64"))
    scores, ends = scores_of(head, trees, columns(head, x, Importer()), covers=covers)
    made = {"value": answered(head, trees, scores), "scores": flat(scores)}
    return outputs(**made, leaves=ends) if leaves else outputs(**made)


def width_of(head: Fields) -> int:
    """The number of columns that the trees read."""
    return _whole(head, "max_feature_idx") + 1


def columns(head: Fields, x: Flow, to: Importer) -> Flow:
    """The columns as the trees number them; an unknown category is missing."""
    return coded(x, categories_of(head), to, strict=False).cast("float64")


def answered(head: Fields, trees: list[Fields], scores: Flow) -> Flow:
    """The answer of Booster.predict; for a random forest a mean, where raw scores are sums."""
    rounds = len(trees) // scores.type.width  # type: ignore[union-attr]  # trees make vectors
    return converted(head, scores.divide([rounds]) if "average_output" in head else scores)


def text_of(model: object) -> str:
    """The model as LightGBM writes it to a file."""
    # The attribute behind `booster_`, which denies a model that LightGBM 2 has fitted.
    inner: Any = getattr(model, "_Booster", None) or getattr(model, "booster_", model)
    if hasattr(inner, "model_to_string"):
        return str(inner.model_to_string())
    if isinstance(model, bytes):
        return model.decode("utf-8", "replace")
    if isinstance(model, str) and "\n" in model:
        return model
    if isinstance(model, str | Path):
        return Path(model).read_text("utf-8", "replace")
    raise UnsupportedSetting(
        "this is not a LightGBM model",
        found=type(model).__name__,
        hint="pass a Booster, a fitted LGBMModel, a path or the model's text",
    )


# --- the text ------------------------------------------------------------------------------------


def parse(text: str) -> tuple[Fields, list[Fields]]:
    """The fields of the header and of every tree."""
    blocks = _blocks(text)
    head = next(blocks, None)
    if head is not None:
        # The categories of the frame a model was trained on: the last line of its text, as JSON.
        tail = text[-_MOST_CATEGORIES:].rpartition(f"\n{_FRAME}:")[2] if _FRAME in text else ""
        head = {**head, _FRAME: tail.partition("\n")[0].strip()}
    if head is None or "max_feature_idx" not in head:
        raise DamagedProgram("this is not a LightGBM model", found=repr(text[:40].strip()))
    trees = list(blocks)
    sizes = head.get("tree_sizes")
    if sizes is not None and len(sizes.split()) != len(trees):
        raise DamagedProgram(
            "the model is cut short",
            where="tree_sizes",
            found=f"{len(trees)} trees, the header tells of {len(sizes.split())}",
        )
    return head, trees


def categories_of(head: Fields) -> dict[int, Sequence[Any]]:
    """The categories of the frame's columns, in the order of their numbers, by column."""
    try:
        categories = json.loads(head.get(_FRAME) or "null") or []
        lists = [[float(v) if isinstance(v, bool) else v for v in values] for values in categories]
    except (ValueError, TypeError, RecursionError):
        raise _damaged(head, _FRAME, "lists of categories") from None
    if any(not isinstance(v, str | int | float) for values in lists for v in values):
        raise _damaged(head, _FRAME, "lists of strings or numbers")
    if not lists:
        return {}
    infos = head.get("feature_infos", "").split()
    certain = [j for j, info in enumerate(infos) if info[0] != "[" and info != "none"]
    possible = [j for j, info in enumerate(infos) if info[0] != "["]
    for candidates in (certain, possible):
        if len(candidates) == len(lists):
            return dict(zip(candidates, lists, strict=True))
    raise UnsupportedSetting(
        "the model does not say which of the frame's columns had categories",
        where="feature_infos of the LightGBM model",
        found=f"{len(lists)} columns of categories, {len(certain)} of them in the trees' terms",
        hint="encode ordered or constant categories as numbers in a step before",
    )


def _blocks(text: str) -> Iterator[Fields]:
    """The header, then one block for each tree; the text after the trees is not read."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(("end of trees", "feature_importances", "feature importances")):
            break
        key, sign, value = line.partition("=")
        if key == "Tree":
            yield fields
            fields = {"Tree": value}
        elif sign:
            fields[key] = value
        elif line.strip():
            fields[line.strip()] = ""
    if fields:
        yield fields


def _whole(fields: Fields, key: str) -> int:
    try:
        return int(fields[key])
    except (KeyError, ValueError):
        raise _damaged(fields, key, "a whole number") from None


def _numbers(fields: Fields, key: str, count: int, dtype: str = "float64") -> NDArray[Any]:
    """A field of `count` numbers."""
    try:
        kind = float if dtype.startswith("f") else int
        numbers = np.array([kind(item) for item in fields.get(key, "").split()], dtype)
    except (ValueError, OverflowError):
        raise _damaged(fields, key, f"{count} numbers") from None
    if len(numbers) != count:
        raise _damaged(fields, key, f"{count} numbers")
    return numbers


def _damaged(fields: Fields, key: str, expected: str) -> DamagedProgram:
    block = f"tree {fields['Tree']}" if "Tree" in fields else "the header"
    return DamagedProgram(
        f"{key} should be {expected}",
        where=f"{block} of the LightGBM model",
        found=fields.get(key, "nothing")[:60],
    )


# --- the trees -----------------------------------------------------------------------------------


def scores_of(
    head: Fields, trees: list[Fields], x: Flow, *, covers: bool = False
) -> tuple[Flow, Flow]:
    """The raw scores, one column a class, and the leaves."""
    columns = _whole(head, "num_tree_per_iteration") if "num_tree_per_iteration" in head else 1
    if columns < 1 or not trees or len(trees) % columns:
        raise DamagedProgram("every iteration has one tree for each class", found=str(len(trees)))
    nodes, value, number = _table(trees)
    ends = {
        "target": np.tile(np.arange(columns, dtype=np.int32), len(trees) // columns),
        "base": np.zeros(columns),
    }
    leaves = TreeLeaves(**nodes, number=number)(x)
    if not any(_is_linear(fields) for fields in trees):
        cover = {"cover": np.concatenate([*map(_cover, trees)])} if covers else {}
        return Trees(**nodes, value=value[:, None], **ends, **cover)(x), leaves
    return LinearTrees(**nodes, value=value, **_terms(trees), **ends)(x), leaves


def _cover(fields: Fields) -> NDArray[Any]:
    """The number of training rows that reached each node, tests before leaves."""
    leaves = _whole(fields, "num_leaves")
    if leaves == 1:  # no row was sent anywhere
        return np.ones(1)
    counts = (("internal_count", leaves - 1), ("leaf_count", leaves))
    return np.concatenate([_numbers(fields, key, count) for key, count in counts])


def _is_linear(fields: Fields) -> bool:
    return fields.get("is_linear", "0").strip() not in ("", "0")


def _terms(trees: list[Fields]) -> dict[str, NDArray[Any]]:
    """The linear models of all leaves, tree after tree."""
    constants, counts, columns, slopes = [], [], [], []
    for fields in trees:
        leaves = _whole(fields, "num_leaves")
        key = "leaf_const" if _is_linear(fields) else "leaf_value"
        constants.append(_numbers(fields, key, leaves))
        count = np.zeros(leaves, np.int64)
        if _is_linear(fields):
            count = _numbers(fields, "num_features", leaves, "int64")
        if np.any((count < 0) | (count > _MAX_LEAVES)):
            raise _damaged(fields, "num_features", "counts of features")
        total = int(count.sum())
        columns.append(_numbers(fields, "leaf_features", total, "int32"))
        slopes.append(_numbers(fields, "leaf_coeff", total))
        counts.append(count)
        if np.any(columns[-1] < 0):
            raise _damaged(fields, "leaf_features", "the numbers of columns")
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    if starts[-1] > np.iinfo(np.int32).max:
        raise _damaged(trees[-1], "num_features", "counts of features")
    return {
        "constant": np.concatenate(constants),
        "starts": starts.astype(np.int32),
        "column": np.concatenate(columns),
        "slope": np.concatenate(slopes),
    }


def _table(trees: list[Fields]) -> tuple[dict[str, Any], NDArray[Any], NDArray[Any]]:
    """All trees as one table: nodes, leaf values, leaf numbers."""
    nodes: list[dict[str, NDArray[Any]]] = []
    roots, values, numbers, words = [], [], [], []
    first_node = first_leaf = first_word = 0
    for fields in trees:
        tree, value, bits = _tree(fields, first_node, first_leaf, first_word)
        roots.append(first_node)
        nodes.append(tree)
        values.append(value)
        numbers.append(np.arange(len(value)))
        words.append(bits)
        first_node, first_leaf, first_word = (
            first_node + len(tree["feature"]),
            first_leaf + len(value),
            first_word + len(bits),
        )
    table: dict[str, Any] = {key: np.concatenate([n[key] for n in nodes]) for key in nodes[0]}
    table["roots"] = np.array(roots, np.int32)
    table["zeros"] = bool(np.any(table["missing"] >= ZEROS))
    if first_word:
        table["words"] = np.concatenate(words)
    else:
        del table["category"], table["length"]
    return table, np.concatenate(values), np.concatenate(numbers)


def _tree(
    fields: Fields, first_node: int, first_leaf: int, first_word: int
) -> tuple[Any, Any, Any]:
    """One tree's nodes, leaves behind the tests, its leaf values and its sets of categories."""
    leaves = _whole(fields, "num_leaves")
    if not 1 <= leaves <= _MAX_LEAVES:
        raise _damaged(fields, "num_leaves", "a count of leaves")
    value = _numbers(fields, "leaf_value", leaves)
    if leaves == 1:
        return _leaf_nodes(first_leaf, 1), value, np.empty(0, np.uint32)
    tests, bits = _tests(fields, leaves - 1, first_node, first_word)
    ends = _leaf_nodes(first_leaf, leaves)
    return {key: np.concatenate([tests[key], ends[key]]) for key in tests}, value, bits


def _leaf_nodes(first_leaf: int, count: int) -> dict[str, NDArray[Any]]:
    zeros = np.zeros(count, np.int32)
    return {
        "feature": np.full(count, -1, np.int32),
        "threshold": np.zeros(count),
        "left": (first_leaf + np.arange(count)).astype(np.int32),
        "right": zeros,
        "missing": np.full(count, COMPARED, np.uint8),
        "category": np.full(count, -1, np.int32),
        "length": zeros,
    }


def _tests(
    fields: Fields, count: int, first_node: int, first_word: int
) -> tuple[Any, NDArray[Any]]:
    """The inner nodes of a tree; a negative child is the leaf of that complement."""
    kind = _numbers(fields, "decision_type", count, "int64")
    threshold = _numbers(fields, "threshold", count)
    feature = _numbers(fields, "split_feature", count, "int64")
    children = [_numbers(fields, key, count, "int64") for key in ("left_child", "right_child")]
    if np.any(feature < 0) or any(np.any((c >= count) | (c < -count - 1)) for c in children):
        raise _damaged(fields, "left_child", "the numbers of nodes and leaves")
    left, right = (np.where(c >= 0, first_node + c, first_node + count + ~c) for c in children)
    categorical = (kind & _CATEGORICAL) != 0
    start, length, bits = _sets(fields, categorical, threshold, first_word)
    # The tiniest numbers count as zero, as when LightGBM reads a row.
    tiny = np.abs(threshold) < ZERO
    below = np.nextafter(-ZERO, -np.inf)
    moved = np.where(threshold >= 0, ZERO, below)
    beside_zero = np.where(tiny | (threshold == -ZERO), moved, threshold)
    # The direction of NaN: the default one, or that of zero; a set of categories has no NaN.
    missing = (kind >> _MISSING_SHIFT) & 3
    default = np.where((kind & _DEFAULT_LEFT) != 0, LEFT, RIGHT)
    as_zero = np.where(threshold >= 0, LEFT, RIGHT)
    direction = np.where(missing == _MISSING_NAN, default, as_zero)
    direction = np.where(missing == _MISSING_ZERO, default + ZEROS, direction)
    return {
        "feature": feature.astype(np.int32),
        "threshold": np.where(categorical, 0.0, beside_zero),
        "left": left.astype(np.int32),
        "right": right.astype(np.int32),
        "missing": np.where(categorical, RIGHT, direction).astype(np.uint8),
        "category": start,
        "length": length,
    }, bits


def _sets(
    fields: Fields, categorical: NDArray[Any], threshold: NDArray[Any], first_word: int
) -> tuple[Any, Any, Any]:
    """The position of each node's set of categories; its threshold is the number of the set."""
    written = fields.get("num_cat") or "0"
    count = int(written) if written.isdecimal() and len(written) < _DIGITS else -1
    if count < 0 or (np.any(categorical) and not count):
        raise _damaged(fields, "num_cat", "a count of sets")
    none = np.full(len(categorical), -1, np.int32)
    if not count:
        return none, np.zeros(len(categorical), np.int32), np.empty(0, np.uint32)
    bounds = _numbers(fields, "cat_boundaries", count + 1, "int64")
    if bounds[0] != 0 or np.any(np.diff(bounds) < 0) or bounds[-1] > _MAX_LEAVES:
        raise _damaged(fields, "cat_boundaries", "ascending numbers from 0")
    bits = _numbers(fields, "cat_threshold", int(bounds[-1]), "uint32")
    number = np.where(categorical, threshold, 0)
    if np.any((number < 0) | (number >= count)):
        raise _damaged(fields, "threshold", "the numbers of sets")
    which = number.astype(np.int64)
    start = np.where(categorical, first_word + bounds[which], -1).astype(np.int32)
    length = np.where(categorical, bounds[which + 1] - bounds[which], 0).astype(np.int32)
    return start, length, bits


# --- what the scores mean ------------------------------------------------------------------------


def converted(head: Fields, scores: Flow) -> Flow:
    """The answer of Booster.predict from the raw scores, by the objective."""
    name, *settings = head.get("objective", "").split() or [""]
    options = dict(item.partition(":")[::2] for item in settings)
    link = _LINKS.get(name)
    if link is None:
        raise UnsupportedSetting(
            f"the objective {name!r} is not known here",
            where="the header of the LightGBM model",
            hint="the raw scores of any objective can be had by removing the line",
        )
    return flat(link(scores, options))


def _identity(x: Flow, options: Fields) -> Flow:
    return x if "sqrt" not in options else x.sign() * x * x


def _sigmoid(x: Flow, options: Fields) -> Flow:
    slope = float(options.get("sigmoid", "1"))
    return (x if slope == 1.0 else x.multiply([slope])).sigmoid()


_LINKS: dict[str, Callable[[Flow, Fields], Flow]] = {
    **dict.fromkeys(
        ("", "none", "custom", "regression", "regression_l2", "regression_l1", "huber", "fair"),
        _identity,
    ),
    **dict.fromkeys(("quantile", "mape", "lambdarank", "rank_xendcg"), _identity),
    **dict.fromkeys(("binary", "multiclassova", "cross_entropy"), _sigmoid),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), lambda x, _: x.exp()),
    "multiclass": lambda x, _: x.softmax(),
    "cross_entropy_lambda": lambda x, _: x.exp().log1p(),
}


# --- the wrappers for scikit-learn, inside pipelines ------------------------------------------


@adapts("lightgbm.sklearn.LGBMRegressor", "lightgbm.sklearn.LGBMRanker")
def _regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return {"value": _wrapper_answers(fit, x, to)[0]}


@adapts("lightgbm.sklearn.LGBMClassifier")
def _classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    value, scores = _wrapper_answers(fit, x, to)
    if not isinstance(getattr(fit, "_objective", None) or "", str):
        return {"value": scores, "scores": scores}  # of an objective of one's own it knows no link
    made = classified(fit, value, to)
    return {**made, "scores": scores} if hasattr(fit, "decision_function") else made


def _wrapper_answers(fit: Fitted, x: Flow, to: Importer) -> tuple[Flow, Flow]:
    """The answers of the booster, and its raw scores."""
    head, trees = parse(text_of(fit))
    scores, _ = scores_of(head, trees, columns(head, x, to), covers=to.covers)
    return answered(head, trees, scores), flat(scores)


@knows_columns("lightgbm.sklearn")
def _column_types(fit: Fitted) -> list[Type] | None:
    """The types of the frame's columns that a wrapper was fitted on."""
    if not fit.booster_.pandas_categorical:
        return None
    head, _ = parse(text_of(fit))
    return kinds(int(fit.n_features_in_), categories_of(head))
