"""Read XGBoost models, from any of its files or a live booster, without the library.

XGBoost computes in float32: inputs are narrowed, `x < threshold` compares float32, and leaf values
are added up in float32, tree after tree; so do these programs.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.boosters import ubjson, xgboost_binary
from flour.boosters.booster_columns import (
    Categories,
    classified,
    coded,
    flat,
    input_type,
    kinds,
    reading,
)
from flour.boosters.stand_ins import XGBoostBooster
from flour.core import provenance
from flour.core.errors import BoosterWarning, UnsupportedSetting
from flour.core.types import Record, Scalar, Type, Vector
from flour.language.adapters import Fitted, Importer, adapts, knows_columns
from flour.language.flow import Flow, outputs, source
from flour.ops.trees.trees import TreeLeaves, Trees
from flour.ops.trees.walk import COMPARED, LEFT, RIGHT

_MAX_WORDS = 1 << 19  # XGBoost knows categories below 2**24
Data = Mapping[str, Any]


class XgboostModel(NamedTuple):
    """The content of a model file, checked as far as reading it goes."""

    width: int
    columns: int
    objective: str
    base: NDArray[np.float32]
    trees: Sequence[Data]
    info: NDArray[np.int64]
    weights: NDArray[np.float32] | None
    #: The rounds that wrappers answer with where training stopped early; 0 elsewhere.
    best: int
    #: Categories by their codes, which files before 3.1 leave to the caller.
    codes: bool
    #: Each tree is added to the base score in place, and rounded, before it is weighted.
    rounds_in_place: bool
    parallel: int
    #: The weights of a linear booster: a row for each feature, and one for the constant term.
    linear: NDArray[np.float32] | None
    names: Sequence[str]
    #: The categories of the columns that had any, in the order of their numbers.
    categories: Categories

    @property
    def vector(self) -> bool:
        """True if the leaves hold a value for every column."""
        return bool(self.trees) and _leaf_width(self.trees[0]) > 1

    @property
    def per_round(self) -> int:
        """How many trees a round has added."""
        return self.parallel * (1 if self.vector else self.columns)


def from_xgboost(
    model: object, *, rounds: int | None = None, covers: bool = False, leaves: bool = False
) -> Flow:
    """The program of an XGBoost model: a booster, a fitted wrapper, a file, JSON or UBJSON.

    Outputs: `value` is the answer of Booster.predict, `scores` its margins and, with `leaves`,
    `leaves` the leaf each tree ends in (where there are trees). `rounds` uses only the first
    boosting rounds (iteration_range). A model trained on a frame with categories takes the frame's
    own values. With `covers`, trees keep the sum of hessians that reached each node, for
    `plan.attribute`.
    """
    parsed = parse(model)
    every = len(parsed.trees) // parsed.per_round
    if rounds is None and 0 < parsed.best < every:
        _warn(
            f"training stopped early: this has all {every} rounds, as Booster.predict does, the "
            f"wrapper only {parsed.best}: import that, or from_xgboost(model, rounds={parsed.best})"
        )
    kind = input_type(parsed.names, parsed.width, parsed.categories, "float32", strict=True)
    x = source("X", kind)
    scores, ends = scores_of(parsed, columns(parsed, x, Importer()), rounds, covers=covers)
    predictions = {"value": converted(parsed, scores), "scores": flat(scores)}
    if leaves and ends is not None:
        predictions["leaves"] = ends
    return outputs(**predictions)


def columns(model: XgboostModel, x: Flow, to: Importer) -> Flow:
    """The columns as the trees number them; XGBoost knows no category it was not trained on."""
    if model.codes:
        strings = isinstance(x.type, Record) and Scalar("string") in dict(x.type.fields).values()
        to.need(not strings, _CODES, _GIVE_CODES)
        _warn(f"{_CODES}: {_GIVE_CODES}")
    found = coded(x, model.categories, to, strict=True)
    by_name = isinstance(x.type, Record) and not model.categories
    return found.cast("float32") if by_name else found


_CODES = "XGBoost before 3.1 keeps no categories, and this model was trained on some"
_GIVE_CODES = "give their codes, such as frame[name].cat.codes with those of the training"


def _warn(said: str) -> None:
    place = provenance.here()
    warnings.warn_explicit(said, BoosterWarning, place.file, place.line)


def parse(model: object) -> XgboostModel:
    """The content of a model: a file, a booster or a wrapper."""
    with reading("XGBoost"):
        return _model(_data(model))


def _data(model: object) -> Any:
    inner = model.get_booster() if hasattr(model, "get_booster") else model
    if isinstance(inner, XGBoostBooster):
        return inner.model
    if hasattr(inner, "save_raw"):
        return ubjson.loads(bytes(inner.save_raw("ubj")))
    if isinstance(inner, str) and not inner.lstrip().startswith("{"):
        inner = Path(inner)
    raw = inner.read_bytes() if isinstance(inner, Path) else inner
    if isinstance(raw, str):
        raw = raw.encode()
    if not isinstance(raw, bytes | bytearray):
        raise UnsupportedSetting(
            "this is not an XGBoost model",
            found=type(model).__name__,
            hint="pass a Booster, a fitted XGBModel, a path, or the bytes of a JSON or UBJ model",
        )
    return _decode(bytes(raw))


def _decode(raw: bytes) -> Any:
    if raw[:1] in b'["' or (raw[:1] == b"{" and not raw[1:].strip()):
        raise ValueError("JSON of something else")
    if raw[:1] != b"{":
        return xgboost_binary.loads(raw)
    # UBJSON's first key follows a length; JSON's follows a quotation mark or white space.
    return json.loads(raw) if raw[1:2] in b'" \t\r\n}' else ubjson.loads(raw)


def _model(data: Any) -> XgboostModel:
    learner = data["learner"]
    parameters = learner["learner_model_param"]
    booster, attributes = learner["gradient_booster"], learner.get("attributes", {})
    classes = int(parameters.get("num_class", 0))
    targets = int(parameters.get("num_target", 1))
    columns = max(classes, targets, 1)
    objective = str(learner["objective"]["name"])
    version = tuple(int(each) for each in data.get("version", ())[:2])
    # To 1.2, the base score of this objective is a probability.
    raw = objective == "binary:logitraw" and (1, 0) <= version < (1, 3)
    width = int(parameters["num_feature"])
    name = booster["name"]
    if name not in ("gbtree", "dart", "gblinear"):
        raise UnsupportedSetting(
            f"the booster {str(name)[:40]!r} is not known here",
            hint="train with booster='gbtree', 'dart' or 'gblinear'",
        )
    inner = (booster["gbtree"] if name == "dart" else booster)["model"]
    # Every column has weights or trees of its own, or a place in every leaf.
    trees = inner.get("trees", ())
    rows = [trees[0].get(key, ()) for key in ("leaf_weights", "base_weights")] if len(trees) else []
    most = max(map(len, (trees, inner.get("weights", ()), *rows)))
    if columns > most:
        raise ValueError(f"{columns} columns, and values for {most}")
    best, categories = attributes.get("best_iteration"), _containers(inner.get("cats"))
    common: dict[str, Any] = {
        "best": 0 if best is None else int(best) + 1,
        "codes": version < (3, 1) and "c" in learner.get("feature_types", ()),
        "width": width,
        "columns": columns,
        "objective": objective,
        "base": _margins("binary:logistic" if raw else objective, parameters, columns),
        "names": [str(item) for item in learner.get("feature_names", ())],
        "categories": categories,
        "rounds_in_place": name == "dart",
    }
    if name == "gblinear":
        table = np.asarray(inner["weights"], np.float32)
        if table.size != (width + 1) * columns:
            raise ValueError(f"{table.size} weights for {width} features and {columns} columns")
        table = table.reshape(width + 1, columns)
        none = np.empty(0, np.int64)
        return XgboostModel(**common, trees=(), info=none, weights=None, parallel=1, linear=table)
    # Since 3.3 dropped trees are a matter of every forest, which tells their weights itself.
    dropped = (booster if name == "dart" else inner).get("weight_drop")
    weights = None if dropped is None else np.array(dropped, np.float32)
    parts = _with_trees(inner, columns, weights, attributes)
    return XgboostModel(**common, **parts, linear=None)


def _with_trees(
    inner: Data, columns: int, weights: NDArray[np.float32] | None, attributes: Data
) -> dict[str, Any]:
    info = np.array(inner["tree_info"], np.int64)
    trees = inner["trees"]
    if not len(trees) or len(trees) != len(info) or np.any((info < 0) | (info >= columns)):
        raise ValueError("every tree belongs to one of the classes")
    if weights is not None and len(weights) != len(trees):
        raise ValueError("every tree of a DART model has a weight")
    parallel = int(inner["gbtree_model_param"].get("num_parallel_tree", 0) or 0)
    if not parallel and "best_ntree_limit" in attributes:  # to 1.5, which says it no other way
        best = int(attributes.get("best_iteration", 0)) + 1
        parallel = int(attributes["best_ntree_limit"]) // best
    return {"trees": trees, "info": info, "weights": weights, "parallel": max(parallel, 1)}


def _containers(data: Any) -> dict[int, Sequence[Any]]:
    """The categories a model was trained on, by column (files since version 3.1 have them)."""
    categories: dict[int, Sequence[Any]] = {}
    for column, entry in enumerate((data or {}).get("enc", ())):
        if "offsets" in entry:
            text = np.asarray(entry["values"], np.int8).tobytes()
            if not text.isascii():
                raise UnsupportedSetting(
                    "XGBoost cuts categories that are not ASCII short when it writes them down",
                    where=f"the categories of column {column}",
                    hint="encode the categories as numbers in a step before",
                )
            cuts = [int(cut) for cut in entry["offsets"]]
            values: list[Any] = [text[a:b].decode() for a, b in pairwise(cuts)]
        else:
            values = np.asarray(entry["values"]).tolist()
        if values:
            categories[column] = values
    return categories


def _margins(objective: str, parameters: Data, columns: int) -> NDArray[np.float32]:
    """The starting margins: the base score (one number, or one for each class) before the link."""
    margin = parameters.get("base_margin")
    parts = (
        str(parameters["base_score"] if margin is None else margin).strip().strip("[]").split(",")
    )
    score = np.array([float(part) for part in parts], np.float32)
    if len(score) not in (1, columns):
        raise ValueError(f"{len(score)} base scores for {columns} columns")
    score = np.repeat(score, columns // len(score))
    if margin is not None:
        return score
    with np.errstate(all="ignore"):
        if objective in ("binary:logistic", "reg:logistic"):
            score = np.clip(score, _NEVER, np.float32(1) - _NEVER)
            score = -_log(np.float32(1) / score - np.float32(1))
        elif objective in _EXPONENTIAL:
            score = _log(score)
    return score


#: After training on one class only, the library starts from this probability or one minus it.
_NEVER = np.float32(1e-6)


def _log(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logarithm rounded once, which is closest to the library's on every machine."""
    logarithm: NDArray[np.float32] = np.log(x.astype(np.float64)).astype(np.float32)
    return logarithm


# --- the trees -----------------------------------------------------------------------------------


def scores_of(
    model: XgboostModel,
    x: Flow,
    rounds: int | None = None,
    *,
    in_place: bool = False,
    covers: bool = False,
) -> tuple[Flow, Flow | None]:
    """The margins, one column a class, and the leaves; those of `inplace_predict` if asked."""
    if model.linear is not None:
        absent = np.zeros(len(model.linear) - 1, np.float32)  # missing values add nothing
        columns = x.cast("float32").to_dense().impute(np.nan, absent)
        # The library adds the first column's base score to every column.
        return columns.linear(model.linear[:-1].T, model.linear[-1] + model.base[0]), None
    count = len(model.trees)
    if rounds is not None:
        count = min(count, rounds * model.per_round)
    with reading("XGBoost"):
        parts = [_tree(tree, model.columns) for tree in model.trees[:count]]
        table, value, number = _joined(parts, model, in_place=in_place)
    cover = {"cover": _covers(model.trees, parts)} if covers else {}
    target = np.zeros(count) if model.vector else model.info[:count]
    trees_op = Trees(
        **table,
        **cover,
        value=value,
        target=target.astype(np.int32),
        base=model.base,
        dtype="float32",
    )
    return trees_op(x), TreeLeaves(**table, number=number)(x)


def _joined(
    parts: list[dict[str, Any]], model: XgboostModel, *, in_place: bool
) -> tuple[dict[str, Any], Any, Any]:
    sizes = [(len(p["feature"]), int((p["feature"] < 0).sum()), len(p["words"])) for p in parts]
    firsts = np.cumsum([(0, 0, 0), *sizes], axis=0)
    nodes, leaves, words = np.repeat(firsts[:-1], [size[0] for size in sizes], axis=0).T
    table: dict[str, Any] = {key: np.concatenate([p[key] for p in parts]) for key in _COLUMNS}
    inner = table["feature"] >= 0
    table["left"] = table["left"] + np.where(inner, nodes, leaves)
    table["right"] = np.where(inner, table["right"] + nodes, 0)
    table["category"] = np.where(table["category"] >= 0, table["category"] + words, -1)
    table = {key: table[key].astype(kind) for key, kind in _COLUMNS.items()}
    table |= {"roots": firsts[:-1, 0].astype(np.int32), "strict": True, "narrow": True}
    table |= {"signed": False, "absent": True}
    if firsts[-1, 2]:
        table["words"] = np.concatenate([part["words"] for part in parts])
    else:
        del table["category"], table["length"]
    values = [
        _weighted_leaves(part["value"], model, i, in_place=in_place) for i, part in enumerate(parts)
    ]
    return table, np.concatenate(values), np.concatenate([p["number"] for p in parts])


def _weighted_leaves(
    value: NDArray[np.float32], model: XgboostModel, tree: int, *, in_place: bool
) -> NDArray[np.float32]:
    """The values of a tree's leaves, times the tree's weight, which DART gives each.

    In place, the library to 3.2 adds each tree to the base score, which it then subtracts again:
    the leaf as this rounds it is weighted.
    """
    if model.weights is None:
        return value
    if in_place and model.rounds_in_place and not model.vector:
        base = model.base[int(model.info[tree])]
        value = (value + base) - base
    weighted: NDArray[np.float32] = (value * model.weights[tree]).astype(np.float32)
    return weighted


#: Every number of a node, a feature or a category is smaller.
_BEYOND = 2.0**53
_COLUMNS = {
    "feature": np.int32,
    "threshold": np.float64,
    "left": np.int32,
    "right": np.int32,
    "missing": np.uint8,
    "category": np.int32,
    "length": np.int32,
}


def _leaf_width(tree: Data) -> int:
    return max(int(tree["tree_param"].get("size_leaf_vector", 1)), 1)  # it used to be 0 for one


def _leaf_values(
    tree: Data, leaves: NDArray[Any], right: NDArray[Any], columns: int
) -> NDArray[np.float32]:
    """The values of these leaves: one number, or one for each column."""
    if _leaf_width(tree) == 1:
        key, columns = "split_conditions", 1
    elif _leaf_width(tree) != columns:
        raise ValueError(f"leaves of {_leaf_width(tree)} values for {columns} columns")
    elif "leaf_weights" in tree:  # in order of the leaves, whose right child says which
        key, leaves = "leaf_weights", right[leaves]
    else:
        key = "base_weights"
    values: NDArray[np.float32] = np.asarray(tree[key], np.float32).reshape(-1, columns)[leaves]
    return values


def _tree(tree: Data, columns: int) -> dict[str, Any]:
    """One tree's nodes in depth-first order (children behind their parents), checked."""
    left, right = _ints(tree, "left_children"), _ints(tree, "right_children")
    order = _depth_first(left, right)
    new = np.full(len(left), -1, np.int64)
    new[order] = np.arange(len(order))
    value = _leaf_values(tree, order[left[order] < 0], right, columns)
    left, right = left[order], right[order]
    inner = left >= 0
    condition = np.asarray(tree["split_conditions"], np.float32)[order]
    feature = _ints(tree, "split_indices")[order]
    default = _ints(tree, "default_left")[order] != 0
    categorical, start, length, words = _categories(tree, order, inner)
    # A category in the set goes right here, and left in our table: those nodes are mirrored.
    goes, stays = (np.where(categorical, right, left), np.where(categorical, left, right))
    default = default ^ categorical
    return {
        "feature": np.where(inner, feature, -1),
        "threshold": np.where(inner & ~categorical, condition, 0.0),
        "left": np.where(inner, new[goes], np.cumsum(~inner) - 1),
        "right": np.where(inner, new[stays], 0),
        "missing": np.where(inner, np.where(default, LEFT, RIGHT), COMPARED),
        "category": start,
        "length": length,
        "words": words,
        "value": value,
        "number": order[~inner],
        "order": order,
    }


def _covers(trees: Sequence[Data], parts: list[dict[str, Any]]) -> NDArray[np.float64]:
    """The sum of hessians that reached each node."""
    if any("sum_hessian" not in tree for tree in trees):
        raise UnsupportedSetting(
            "this file does not say how much of the training data reached each node",
            where="sum_hessian of the XGBoost model",
            hint="save the model as UBJSON or JSON, or attribute against a background",
        )
    pairs = zip(trees, parts, strict=False)  # fewer rounds may be read
    return np.concatenate(
        [np.asarray(tree["sum_hessian"], np.float64)[part["order"]] for tree, part in pairs]
    )


def _ints(tree: Data, key: str) -> NDArray[np.int64]:
    numbers = np.asarray(tree[key])
    if numbers.dtype.kind == "f" and not np.all(np.abs(numbers) < _BEYOND):
        raise ValueError(f"{key} are whole numbers")
    return numbers.astype(np.int64)


def _depth_first(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nodes reachable from the root; a node met twice is not a tree."""
    size = len(left)
    order: list[int] = []
    visited = bytearray(size)
    stack = [0]
    while stack:
        at = stack.pop()
        if not 0 <= at < size or visited[at]:
            raise ValueError(f"node {at} is outside the tree, or met twice")
        visited[at] = 1
        order.append(at)
        if left[at] >= 0:
            stack += [int(right[at]), int(left[at])]
    return np.array(order, np.int64)


def _categories(tree: Data, order: NDArray[Any], inner: NDArray[Any]) -> tuple[Any, Any, Any, Any]:
    """The nodes that test for a set, and the sets as bitmaps."""
    start = np.full(len(order), -1, np.int64)
    length = np.zeros(len(order), np.int64)
    kinds = tree.get("split_type", ())
    categorical = np.zeros(len(order), bool)
    words: list[NDArray[np.uint32]] = []
    if len(kinds) and np.any(np.asarray(kinds)):
        categorical = (np.asarray(kinds).astype(np.int64)[order] == 1) & inner
        number = {int(old): i for i, old in enumerate(order)}
        codes = _ints(tree, "categories")
        spans = (_ints(tree, f"categories_{key}") for key in ("nodes", "segments", "sizes"))
        used = 0
        for old, first, size in zip(*spans, strict=True):
            if int(old) not in number:
                continue
            bits = _bits(codes[first : first + size])
            start[number[int(old)]], length[number[int(old)]] = used, len(bits)
            words.append(bits)
            used += len(bits)
        if np.any(categorical & (start < 0)):
            raise ValueError("a node that tests for categories has none")
    packed = np.concatenate(words) if words else np.empty(0, np.uint32)
    return categorical, start, length, packed


def _bits(codes: NDArray[np.int64]) -> NDArray[np.uint32]:
    if np.any((codes < 0) | (codes >= 32 * _MAX_WORDS)):
        raise ValueError("a category is a whole number below 2**24")
    words = np.zeros(int(codes.max(initial=0)) // 32 + 1, np.uint32)
    np.bitwise_or.at(words, codes // 32, (1 << (codes % 32)).astype(np.uint32))
    return words


# --- what the margins mean -----------------------------------------------------------------------


_EXPONENTIAL = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft")


def converted(model: XgboostModel, scores: Flow) -> Flow:
    """The answer of Booster.predict from the margins, by the objective."""
    name = model.objective
    link = _LINKS.get(name, flat if name.startswith("rank:") else None)
    if link is None:
        raise UnsupportedSetting(
            f"the objective {name!r} is not known here",
            hint=f"train with one of {', '.join(_LINKS)}, rank:*",
        )
    if name == "reg:expectileerror" and model.columns > 1:
        raise UnsupportedSetting("several expectiles in one model", hint="train a model for each")
    return link(scores)


_LINKS: dict[str, Callable[[Flow], Flow]] = {
    **dict.fromkeys(("reg:squarederror", "reg:linear", "reg:squaredlogerror"), flat),
    "reg:expectileerror": flat,
    **dict.fromkeys(("reg:pseudohubererror", "reg:absoluteerror", "reg:quantileerror"), flat),
    **dict.fromkeys(("binary:logistic", "reg:logistic"), lambda x: flat(x.sigmoid())),
    **dict.fromkeys(_EXPONENTIAL, lambda x: flat(x.exp())),
    "binary:logitraw": flat,
    "binary:hinge": lambda x: flat(x.greater([0.0]).cast("float32")),
    "multi:softmax": lambda x: x.arg_max().cast("float32"),
    "multi:softprob": lambda x: x.softmax(),
}


# --- the wrappers for scikit-learn, inside pipelines ------------------------------------------


@adapts("xgboost.sklearn.XGBRegressor", "xgboost.sklearn.XGBRFRegressor")
@adapts("xgboost.sklearn.XGBRanker")
def _regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return {"value": _wrapper_value(fit, x, to)}


@adapts("xgboost.sklearn.XGBClassifier", "xgboost.sklearn.XGBRFClassifier")
def _classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    value = _wrapper_value(fit, x, to)
    if isinstance(value.type, Vector) and fit.n_classes_ == 2:  # a label of its own each column
        return {"label": value.greater([0.5]).cast("float64"), "probabilities": value}
    made = classified(fit, value, to)
    if fit.objective != "multi:softmax":
        return made
    # The library hands on what its booster says: whole numbers of another width.
    return {**made, "label": made["label"].cast("int32")}


def _wrapper_value(fit: Fitted, x: Flow, to: Importer) -> Flow:
    model = parse(fit)
    # Training that stopped early answers with its best round, through the wrapper only.
    best = fit.get_booster().attr("best_iteration")
    rounds = None if best is None else int(best) + 1
    given = _marked(fit, columns(model, x, to).cast("float32"), to)
    # The wrappers call inplace_predict, which rounds the margins of DART otherwise.
    scores, _ = scores_of(model, given, rounds, in_place=True, covers=to.covers)
    return scores.softmax() if model.objective == "multi:softmax" else converted(model, scores)


def _marked(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """NaN where a number stands that the wrapper was told to take for missing; NaN is so anyway."""
    if np.isnan(fit.missing):
        return x
    kind, marker = x.type, np.float32(fit.missing)
    numbers = "c" not in (fit.get_booster().feature_types or ())
    to.need(numbers, f"missing={fit.missing} beside categories", "train with missing=NaN")
    assert isinstance(kind, Vector)
    if kind.sparse and marker == 0:
        return x  # zeros of sparse rows are missing, stored or not
    return x.impute(float(marker), np.full(kind.width, np.nan, np.float32))


@knows_columns("xgboost.sklearn")
def _column_types(fit: Fitted) -> list[Type] | None:
    """The types of the frame's columns that a wrapper was fitted on."""
    known = parse(fit).categories
    return kinds(int(fit.n_features_in_), known) if known else None
