"""Read CatBoost models from their files, binary or JSON, without the library.

CatBoost narrows numbers to float32 and asks whether they are above a border; the values of leaves
are float64, added up tree after tree.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.boosters import catboost_binary
from flour.boosters.booster_columns import input_type, reading
from flour.boosters.catboost_categories import Categories, categories, columns_of, with_categories
from flour.boosters.stand_ins import CatBoost
from flour.core.errors import DamagedProgram, UnsupportedSetting
from flour.core.types import Record, Type, Vector
from flour.language.adapters import Fitted, Importer, adapts, knows_columns
from flour.language.flow import Flow, outputs, source
from flour.ops.trees.oblivious import MOST_LEVELS, ObliviousTrees
from flour.ops.trees.trees import Trees
from flour.ops.trees.walk import LEFT, RIGHT

Data = Mapping[str, Any]
#: Losses of several labels, each of which is true or not.
_SEVERAL = {"MultiLogloss", "MultiCrossEntropy"}
_CLASSES = {*("Logloss", "CrossEntropy", "Focal", "MultiClass", "MultiClassOneVsAll"), *_SEVERAL}


class CatboostModel(NamedTuple):
    """The content of a model file, checked as far as reading it goes."""

    width: int
    names: Sequence[str]
    #: The columns of features of numbers, and of categories.
    numbers: Sequence[int]
    categories: Sequence[int]
    #: The columns of the former as the trees number them.
    columns: Sequence[int]
    #: For each column of the trees 1 if NaN is above every border.
    above: NDArray[np.uint8]
    #: Features made of categories, if there are any.
    made: Categories | None
    data: Data
    scale: float
    bias: NDArray[np.float64]
    loss: str
    #: The classes of a classifier; none for other models.
    classes: NDArray[Any] | None
    #: The score above which the second of two classes is answered.
    limit: float


def from_catboost(model: object) -> Flow:
    """The program of a CatBoost model: a fitted object, a file (binary or JSON) or its content.

    Outputs: `value` is the answer of a regressor's or ranker's predict; classifiers have `label`,
    `probabilities` and `scores` (raw values). Categories are strings or whole numbers, in columns
    by name. Features of text and embeddings are refused.
    """
    parsed = parse(model)
    if parsed.made is None:
        kind = input_type(parsed.names, parsed.width, {}, "float32", strict=True)
    else:
        names = parsed.names or [f"x{j}" for j in range(parsed.width)]
        kinds = columns_of(parsed.width, parsed.categories)
        kind = Record(tuple(zip(names, kinds, strict=True)), not parsed.names)
    return outputs(**answers(parsed, source("X", kind), Importer()))


def parse(model: object) -> CatboostModel:
    """The content of a model."""
    with reading("CatBoost"):
        data = _data(model)
        found = _model(data)
        options = data["model_info"]["params"].get("data_processing_options", {})
    since = _CHANGED.get(found.loss, "")
    if since and options and since not in options and not hasattr(model, "save_model"):
        raise UnsupportedSetting(
            f"this model's CatBoost had other answers for {found.loss}, and it does not say which",
            hint="load it with a CatBoost of today, and import the fitted object: it answers as "
            "that one does",
        )
    return found


#: Losses with other answers once, and an option that is named in files since.
_CHANGED = {
    **dict.fromkeys(("Poisson", "Tweedie"), "auto_class_weights"),
    "MultiClassOneVsAll": "target_border",
}


def _data(model: object) -> Data:
    if isinstance(model, CatBoost):
        return dict(model.model)
    save: Any = getattr(model, "save_model", None)
    if save is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.cbm"
            save(str(path), format="cbm")
            return catboost_binary.loads(path.read_bytes())
    if isinstance(model, Path) or (isinstance(model, str) and not model.lstrip().startswith("{")):
        model = Path(model).read_bytes()
    if not isinstance(model, str | bytes):
        raise UnsupportedSetting(
            "this is not a CatBoost model",
            found=type(model).__name__,
            hint="pass a fitted model, a path, or the content of a file (.cbm or JSON)",
        )
    binary = isinstance(model, bytes) and model.startswith(catboost_binary.MAGIC)
    content: Data = catboost_binary.loads(model) if binary else json.loads(model)  # type: ignore[arg-type]  # bytes
    return content


def _model(data: Data) -> CatboostModel:
    info, features = data["model_info"], data["features_info"]
    for kind in ("text", "embedding"):
        if features.get(f"{kind}_features"):
            raise UnsupportedSetting(
                f"a CatBoost model with {kind} features is not imported",
                found=f"{len(features[f'{kind}_features'])} of them",
                hint="make numbers of them in a step before, and train on those",
            )
    floats = sorted(features.get("float_features") or (), key=lambda f: int(f["feature_index"]))
    texts = features.get("categorical_features") or ()
    columns = [int(each["flat_feature_index"]) for each in floats]
    named = catboost_binary.columns(data)
    width = max(named) + 1
    most = _MOST_GAPS * len(named) if texts else _MOST_COLUMNS
    if min(named) < 0 or width > most:
        raise ValueError("the columns have no place")
    whole = all(named.values()) and sorted(named) == [*range(width)]
    places = [*range(len(columns))] if texts else columns
    above = np.zeros(len(columns) if texts else width, np.uint8)
    above[[place for place, f in zip(places, floats, strict=True) if _nan_above(f)]] = 1
    made = categories(data, above) if texts else None
    if made is not None:
        above = np.append(above, np.zeros(len(made.tables.other), np.uint8))
    scale, bias = data.get("scale_and_bias", (1, 0))  # to 0.24 there is none
    loss = str(info["params"]["loss_function"]["type"])
    threshold = float(info.get("binclass_probability_threshold", 0.5))
    return CatboostModel(
        width=width,
        names=[named[column] for column in range(width)] if whole else (),
        numbers=columns,
        categories=[int(each["flat_feature_index"]) for each in texts],
        columns=places,
        above=above,
        made=made,
        data=data,
        scale=float(scale),
        bias=np.array(bias, np.float64).reshape(-1),
        loss=loss,
        classes=_classes(info) if loss in _CLASSES else None,
        limit=math.log(threshold / (1 - threshold)),
    )


#: A table has names for all columns, and few that a model does not know.
_MOST_COLUMNS, _MOST_GAPS = 1 << 24, 64


def _nan_above(feature: Data) -> bool:
    treated = feature["nan_value_treatment"]
    if treated not in ("AsIs", "AsFalse", "AsTrue"):
        raise ValueError(f"NaN is treated {treated!r}")
    return bool(treated == "AsTrue" and feature.get("has_nans", True))


def _classes(info: Data) -> NDArray[Any]:
    """The classes; to 0.23 those of two are 0 and 1, and others are strings even of numbers."""
    known = info.get("class_params")
    if known is not None:
        dtype = {"Integer": np.int64, "Float": np.float64, "Boolean": np.bool_}
        names = known["class_names"] or known["class_to_label"]
        return np.array(names, dtype.get(known["class_label_type"], object))
    known = info.get("multiclass_params", {})
    known = json.loads(known) if isinstance(known, str) else known
    said = info["params"].get("data_processing_options", {}) if "output_options" in info else {}
    names = known.get("class_names") or known.get("class_to_label") or said.get("class_names")
    names = names or [0, 1]
    with suppress(ValueError):
        return np.array(names, object).astype(np.float64)
    return np.array(names, object)


# --- trees ---------------------------------------------------------------------------------------


def raw_values(model: CatboostModel, x: Flow) -> Flow:
    """The sums of all trees, one column for each output."""
    with reading("CatBoost"):
        oblivious, asked = "oblivious_trees" in model.data, Questions(model)
        op = _oblivious(model, asked) if oblivious else _asymmetric(model, asked)
        if len(model.bias) not in (1, op.infer(Vector(len(model.above))).width):
            raise ValueError("every output has a bias")
        sums = op(x)
        sums = sums if model.scale == 1 else sums.multiply([model.scale])
        return sums.add(model.bias) if model.bias.any() else sums


class Questions:
    """The questions of trees as columns and borders."""

    def __init__(self, model: CatboostModel) -> None:
        self._model, features = model, model.data["features_info"]
        self._numbers = len(model.numbers)
        # The questions about statistics have the numbers behind those of all others.
        ahead = [len(each.get("borders") or ()) for each in features.get("float_features") or ()]
        ahead += [
            len(each.get("values") or ()) for each in features.get("categorical_features") or ()
        ]
        many = [len(each["borders"] or ()) for each in features.get("ctrs") or ()]
        self._ends = np.cumsum([sum(ahead), *many])

    def __call__(self, split: Data) -> tuple[int, float]:
        """The column that a node asks about, and its border."""
        kind, made = split["split_type"], self._model.made
        if kind == "FloatFeature":
            number = int(split["float_feature_index"])
            if number < 0:
                raise ValueError("a question about no feature")
            return self._model.columns[number], float(split["border"])
        if kind == "OneHotFeature" and made is not None:
            asked = int(split["cat_feature_index"]), int(split["value"])
            return self._numbers + made.exact[asked], 0.5
        if kind == "OnlineCtr" and made is not None:
            number = int(np.searchsorted(self._ends, int(split["split_index"]), "right")) - 1
            if number < 0:
                raise ValueError("a question about no statistic")
            return self._numbers + made.statistics[number], float(split["border"])
        raise ValueError(f"a question of the kind {kind!r}")


def _oblivious(model: CatboostModel, question: Questions) -> ObliviousTrees:
    trees = model.data["oblivious_trees"]
    asked = [[question(split) for split in tree.get("splits") or ()] for tree in trees]
    shape = (len(trees), max(map(len, asked)))
    if shape[1] > MOST_LEVELS:
        raise ValueError(f"a tree of {shape[1]} levels")
    feature, border = np.zeros(shape, np.int32), np.full(shape, np.inf, np.float32)
    for t, questions in enumerate(asked):
        for k, (column, above) in enumerate(questions):
            feature[t, k], border[t, k] = column, above
    counts = [1 << len(questions) for questions in asked]
    values = [np.array(tree["leaf_values"], np.float64) for tree in trees]
    wide = len(values[0]) // counts[0]
    if wide < 1 or any(len(v) != n * wide for v, n in zip(values, counts, strict=True)):
        raise ValueError("every leaf has a value for each output")
    return ObliviousTrees(
        feature=feature,
        border=border,
        starts=np.cumsum([0, *counts]).astype(np.int32),
        value=np.concatenate(values).reshape(-1, wide),
        above=model.above,
    )


def _asymmetric(model: CatboostModel, question: Questions) -> Trees:
    """Trees whose nodes ask questions of their own, parents ahead of children."""
    table: list[list[Any]] = []
    roots: list[int] = []
    values: list[NDArray[np.float64]] = []
    for tree in model.data["trees"]:
        roots.append(len(table))
        waiting: list[tuple[Data, int, int]] = [(tree, -1, 0)]
        while waiting:
            node, parent, side = waiting.pop()
            if parent >= 0:
                table[parent][side] = len(table)
            if "split" in node:
                column, border = question(node["split"])
                missing = RIGHT if model.above[column] else LEFT
                waiting += [(node["right"], len(table), 3), (node["left"], len(table), 2)]
                table.append([column, np.float32(border), 0, 0, missing])
            else:
                table.append([-1, 0.0, len(values), 0, LEFT])
                values.append(np.atleast_1d(np.array(node["value"], np.float64)))
    feature, threshold, left, right, absent = zip(*table, strict=True)
    value = np.stack(values)
    return Trees(
        feature=np.array(feature, np.int32),
        threshold=np.array(threshold, np.float64),
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        missing=np.array(absent, np.uint8),
        roots=np.array(roots, np.int32),
        value=value,
        target=np.zeros(len(roots), np.int32),
        base=np.zeros(value.shape[1]),
        narrow=True,
    )


# --- answers -------------------------------------------------------------------------------------


#: Losses whose predictions are exponentials.
_EXPONENTIAL = {"Poisson", "Tweedie"}


def answers(model: CatboostModel, x: Flow, to: Importer) -> dict[str, Flow]:
    """The outputs of a model for these columns."""
    if model.made is not None:
        columns = with_categories(x, model.numbers, model.made, to)
    else:
        columns = to.floats(x.to_dense() if to.is_sparse(x) else x)
    raw = raw_values(model, columns)
    width = raw.type.width  # type: ignore[union-attr]  # trees make vectors
    scores = raw.element(0) if width == 1 else raw
    if model.loss == "RMSEWithUncertainty" and width == 2:
        # The second is the logarithm of a deviation; the answer is a variance.
        return {"value": raw.select([0]).concat(raw.multiply([2.0]).exp().select([1]))}
    if model.classes is None:
        return {"value": scores.exp() if model.loss in _EXPONENTIAL else scores}
    if model.loss in _SEVERAL:
        made = {"label": raw.greater([model.limit]).cast("int64"), "probabilities": raw.sigmoid()}
        return {**made, "scores": raw}
    if len(model.classes) != max(width, 2):
        raise DamagedProgram("every class has a score", found=f"{width} scores")
    if width == 1:
        probability = scores.sigmoid()
        made = {
            "label": scores.greater(model.limit).cast("int64").take(model.classes),
            "probabilities": probability.one_minus().concat(probability),
        }
    else:
        every = raw.sigmoid() if model.loss == "MultiClassOneVsAll" else raw.softmax()
        made = {"label": raw.arg_max().take(model.classes), "probabilities": every}
    return {**made, "scores": scores}


@adapts(*(f"catboost.core.CatBoost{kind}" for kind in ("", "Classifier", "Regressor", "Ranker")))
def _estimator(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    made = answers(parse(fit), x, to)
    if type(fit).__name__ == "CatBoost":  # its predict answers raw values
        return {"value": made.get("scores", made.get("value"))}  # type: ignore[dict-item]  # one is
    return {name: flow for name, flow in made.items() if name != "scores"}


@knows_columns("catboost.core")
def _column_types(fit: Fitted) -> list[Type] | None:
    """The types of the columns that an estimator was fitted on, if some are categories."""
    model = parse(fit)
    return None if model.made is None else columns_of(model.width, model.categories)


def original(model: bytes) -> Callable[[Any], dict[str, Any]]:
    """CatBoost's own answers, for verification."""
    import catboost

    loss = parse(model).loss
    kind = catboost.CatBoostClassifier if loss in _CLASSES else catboost.CatBoostRegressor
    form = "cbm" if model.startswith(catboost_binary.MAGIC) else "json"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(model)
        own = kind().load_model(str(path), format=form)

    def answer(rows: object) -> dict[str, Any]:
        if loss not in _CLASSES:
            return {"value": own.predict(rows)}
        made = {"label": np.ravel(own.predict(rows)), "probabilities": own.predict_proba(rows)}
        return {**made, "scores": own.predict(rows, prediction_type="RawFormulaVal")}

    return answer
