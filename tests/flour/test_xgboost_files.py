"""XGBoost's other files and boosters: old binary, vector leaves, linear, categories, sparse."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy import sparse

import flour
import oven
from flour.boosters import xgboost
from flour.boosters.xgboost import parse, scores_of
from flour.core.errors import (
    BoosterWarning,
    DamagedProgram,
    FlourError,
    InputError,
    UnsupportedSetting,
)
from tests.legacy import binary

from_xgboost = partial(xgboost.from_xgboost, leaves=True)
rng = np.random.default_rng(5)
X = rng.normal(size=(200, 5))
X[rng.random(X.shape) < 0.1] = np.nan
SEEN = np.nan_to_num(X)
Y = SEEN[:, 0] - 2 * SEEN[:, 1] + SEEN[:, 2] * SEEN[:, 3]
SEVERAL = np.stack([Y, SEEN[:, 1], Y > 0], axis=1)
THREE = np.digitize(Y, [-1.0, 1.0])


def grown(how: dict[str, Any], label: Any, data: Any = X, rounds: int = 4, **more: Any) -> Any:
    """A small booster."""
    depth = {} if how.get("booster") == "gblinear" else {"max_depth": 3}
    with xgb.config_context(verbosity=0):  # the linear booster is on its way out, it says
        return xgb.train({"nthread": 1, **depth, **how}, xgb.DMatrix(data, label, **more), rounds)


def described(booster: Any) -> Any:
    """The model as the dict its JSON is."""
    return json.loads(booster.save_raw("json"))


def same(
    booster: Any, program: flour.Flow, given: Any = X, data: Any = None, ulps: int = 2
) -> None:
    """Margins within so many units in the last place of the largest, leaves equal."""
    matrix = xgb.DMatrix(given) if data is None else data
    rows = given.astype(np.float32) if isinstance(given, np.ndarray) else given
    margin = booster.predict(matrix, output_margin=True)
    ulp = np.finfo(np.float32).eps * np.abs(margin).max()
    for made in (program.reference(rows), oven.bake(program, exact=True).run(rows)):
        assert made["scores"].dtype == np.float32
        np.testing.assert_allclose(made["scores"], margin, rtol=0, atol=ulps * ulp)
        np.testing.assert_allclose(made["value"], booster.predict(matrix), rtol=3e-6, atol=3e-7)
        if "leaves" in made:
            leaves = booster.predict(matrix, pred_leaf=True).reshape(made["leaves"].shape)
            np.testing.assert_array_equal(made["leaves"], leaves)


VECTORS: list[tuple[dict[str, Any], Any]] = [
    ({}, SEVERAL),
    ({"num_parallel_tree": 3, "subsample": 0.5}, SEVERAL),
    ({"objective": "binary:logistic"}, SEVERAL > 0),
    ({"objective": "multi:softprob", "num_class": 3}, THREE),
    ({"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.7]}, Y),
]


@pytest.mark.parametrize(("how", "label"), VECTORS, ids=[str(how) for how, _ in VECTORS])
def test_leaves_that_hold_a_vector(how: dict[str, Any], label: Any) -> None:
    booster = grown({"multi_strategy": "multi_output_tree", **how}, label)
    program = from_xgboost(booster)
    same(booster, program)
    trees = len(described(booster)["learner"]["gradient_booster"]["model"]["trees"])
    assert program.reference(SEEN)["leaves"].shape[1] == trees


def test_vector_leaves_as_version_2_wrote_them() -> None:
    booster = grown({"multi_strategy": "multi_output_tree"}, SEVERAL)
    data = described(booster)
    for tree in data["learner"]["gradient_booster"]["model"]["trees"]:
        weights = np.zeros((len(tree["left_children"]), 3))
        leaves = np.array(tree["left_children"]) < 0
        order = np.array(tree["right_children"])[leaves]
        weights[leaves] = np.array(tree.pop("leaf_weights")).reshape(-1, 3)[order]
        tree["base_weights"] = weights.ravel().tolist()
    program = from_xgboost(json.dumps(data))
    assert program.digest == from_xgboost(booster).digest
    tree["tree_param"]["size_leaf_vector"] = "2"
    with pytest.raises(DamagedProgram, match="not a whole XGBoost model"):
        from_xgboost(json.dumps(data))


def test_rounds_of_vector_leaves_and_of_classes() -> None:
    vector = grown({"multi_strategy": "multi_output_tree", "num_parallel_tree": 2}, SEVERAL)
    many = grown({"objective": "multi:softprob", "num_class": 3}, THREE)
    for booster in (vector, many):
        want = booster.predict(xgb.DMatrix(X), iteration_range=(0, 2), output_margin=True)
        got = from_xgboost(booster, rounds=2).reference(X.astype(np.float32))["scores"]
        np.testing.assert_allclose(got, want, rtol=1e-6)


LINEAR: list[tuple[dict[str, Any], Any]] = [
    ({}, Y),
    ({"objective": "binary:logistic"}, Y > 0),
    ({"objective": "multi:softprob", "num_class": 3}, THREE),
    ({"objective": "count:poisson"}, np.abs(Y)),
]


@pytest.mark.parametrize(("how", "label"), LINEAR, ids=[str(how) for how, _ in LINEAR])
def test_linear_boosters(how: dict[str, Any], label: Any) -> None:
    booster = grown({"booster": "gblinear", **how}, label)
    program = from_xgboost(booster)
    assert set(program.outputs) == {"value", "scores"}
    same(booster, program, ulps=4)
    assert from_xgboost(binary(described(booster))).outputs.keys() == program.outputs.keys()


def test_a_linear_booster_short_of_weights() -> None:
    data = described(grown({"booster": "gblinear"}, Y))
    data["learner"]["gradient_booster"]["model"]["weights"].pop()
    with pytest.raises(DamagedProgram, match="not a whole XGBoost model"):
        from_xgboost(json.dumps(data))


def test_leaf_widths_of_versions_before_2_are_zero() -> None:
    booster = grown({}, Y)
    data = described(booster)
    for tree in data["learner"]["gradient_booster"]["model"]["trees"]:
        tree["tree_param"]["size_leaf_vector"] = "0"
    assert from_xgboost(json.dumps(data)).digest == from_xgboost(booster).digest


# --- the old binary format -----------------------------------------------------------------------


BINARY: list[tuple[dict[str, Any], Any]] = [
    ({"base_score": 0.25}, Y),
    ({"objective": "binary:logistic", "base_score": 0.3}, Y > 0),
    ({"objective": "multi:softprob", "num_class": 3, "base_score": 0.5}, THREE),
    ({"booster": "dart", "rate_drop": 0.5, "base_score": 0.5}, Y),
    ({"num_parallel_tree": 3, "subsample": 0.5, "base_score": 0.5}, Y),
    ({"booster": "gblinear", "base_score": 0.5}, Y),
]


@pytest.mark.parametrize(("how", "label"), BINARY, ids=[str(how) for how, _ in BINARY])
def test_the_old_binary_format(how: dict[str, Any], label: Any) -> None:
    booster = grown(how, label)
    raw = binary(described(booster))
    assert from_xgboost(raw).digest == from_xgboost(booster).digest
    assert from_xgboost(b"binf" + raw).digest == from_xgboost(booster).digest


def test_what_a_booster_does_otherwise_than_its_wrapper_is_told() -> None:
    model = xgb.XGBRegressor(n_estimators=60, early_stopping_rounds=2, n_jobs=1)
    model.fit(SEEN[:99], Y[:99], eval_set=[(SEEN[99:], Y[99:])], verbose=False)
    best = model.best_iteration + 1
    raw = bytes(model.get_booster().save_raw("json"))
    with pytest.warns(BoosterWarning, match=f"all {best + 2} rounds.*only {best}:"):
        from_xgboost(raw)
    wanted = model.predict(SEEN)
    for program in (from_xgboost(raw, rounds=best), flour.from_sklearn(model)):
        np.testing.assert_allclose(oven.bake(program).run(SEEN)["value"], wanted, rtol=1e-5)


def test_codes_of_categories_before_3_1() -> None:
    data = described(grown({"max_cat_to_onehot": 9}, Y, frame(), enable_categorical=True))
    data["learner"]["gradient_booster"]["model"].pop("cats")
    data["version"] = [2, 1, 0]
    with pytest.warns(BoosterWarning, match="before 3.1 keeps no categories"):
        assert oven.bake(from_xgboost(json.dumps(data))).run([[0.1, 2.0, 0.0, 1.0]])["value"]


def test_expectiles_are_margins_and_what_is_unknown_is_told_what_is_known() -> None:
    for targets, wanted in (
        ("1", ""),
        ("2", "several expectiles"),
        ("1", "reg:squarederror.*rank"),
    ):
        data = described(grown({}, SEVERAL[:, : int(targets)]))
        name = "reg:strange" if "rank" in wanted else "reg:expectileerror"
        data["learner"]["objective"]["name"] = name
        if wanted:
            with pytest.raises(UnsupportedSetting, match=wanted):
                from_xgboost(json.dumps(data))
        else:
            made = oven.bake(from_xgboost(json.dumps(data))).run(X.astype(np.float32))
            np.testing.assert_array_equal(made["value"], made["scores"])


def test_weights_of_dropped_trees_since_3_3() -> None:
    booster = grown({"booster": "dart", "rate_drop": 0.5}, Y)
    data = described(booster)
    dart = data["learner"]["gradient_booster"]
    model = dart["gbtree"]["model"] | {"weight_drop": dart["weight_drop"]}
    assert min(dart["weight_drop"]) < 1
    data["learner"]["gradient_booster"] = {"name": "gbtree", "model": model}
    assert from_xgboost(json.dumps(data)).digest == from_xgboost(booster).digest
    # Since then the wrapper answers as the booster does.
    program, x = parse(json.dumps(data)), flour.vector("X", X.shape[1], "float32")
    both = [scores_of(program, x, in_place=in_place)[0].digest for in_place in (False, True)]
    assert both[0] == both[1]


def test_before_version_1_the_base_is_a_margin() -> None:
    booster = grown({"objective": "binary:logistic", "base_score": 0.3}, Y > 0)
    new, old = (from_xgboost(binary(described(booster), version=v)) for v in (1, 0))
    moved = 0.3 - np.log(0.3 / 0.7)
    rows = X.astype(np.float32)
    difference = old.reference(rows)["scores"] - new.reference(rows)["scores"]
    np.testing.assert_allclose(difference, moved, rtol=1e-5)


def test_old_binary_files_cut_or_changed_are_an_error_or_a_model() -> None:
    random = np.random.default_rng(0)
    raws = [
        binary(described(grown({"booster": name}, Y, rounds=2))) for name in ("dart", "gblinear")
    ]
    for _ in range(600):
        raw = raws[int(random.integers(2))]
        changed = bytearray(raw)
        at = int(random.integers(300 if random.random() < 0.5 else len(raw))) % len(raw)
        changed[at] = int(random.integers(256))
        cut = int(random.integers(len(raw))) if random.random() < 0.2 else len(raw)
        try:
            program = from_xgboost(bytes(changed[:cut]))
        except FlourError:
            continue
        width = program.inputs()["X"].width  # type: ignore[union-attr]  # a vector
        if width < 1000:
            program.reference(np.zeros((2, width), np.float32))


def test_bytes_that_are_no_model() -> None:
    for raw in (b"", b"binf", b"\0" * 500, b"bs64" + b"A" * 400, b"\xff" * 1000):
        with pytest.raises(DamagedProgram):
            from_xgboost(raw)


# --- categories of frames ------------------------------------------------------------------------


def frame() -> pd.DataFrame:
    """Numbers, strings and whole numbers as categories, with holes."""
    made = pd.DataFrame(
        {
            "size": X[:, 0],
            "city": pd.Categorical(rng.choice(["Oslo", "Graz", "Cork", "Bern"], len(X))),
            "kind": pd.Categorical(rng.choice([10, 20, -3], len(X))),
            "age": X[:, 1],
        }
    )
    made.loc[3:9, "city"] = None
    made.loc[12:15, "kind"] = None
    return made


def test_categories_of_a_frame() -> None:
    data = frame()
    booster = grown(
        {}, Y + 3 * (data["city"] == "Oslo") + (data["kind"] == 20), data, enable_categorical=True
    )
    program = from_xgboost(booster)
    matrix = xgb.DMatrix(data, enable_categorical=True)
    same(booster, program, data, matrix)
    assert from_xgboost(bytes(booster.save_raw("json"))).digest == program.digest
    shuffled = data[["age", "kind", "city", "size"]]
    got = program.reference(shuffled)["scores"]
    np.testing.assert_array_equal(got, booster.predict(matrix, output_margin=True))


def test_a_category_xgboost_does_not_know_is_an_error_here_too() -> None:
    data = frame()
    booster = grown({}, Y + (data["city"] == "Oslo"), data, enable_categorical=True)
    program = from_xgboost(booster)
    row = {"size": [0.5], "city": ["Atlantis"], "kind": [10.0], "age": [1.0]}
    for run in (program.reference, oven.bake(program).run):
        with pytest.raises(InputError):
            run(row)
    strange = pd.DataFrame(row).astype({"city": "category", "kind": "category"})
    with pytest.raises(xgb.core.XGBoostError):
        booster.predict(xgb.DMatrix(strange, enable_categorical=True))


def test_categories_xgboost_cannot_write_down_are_refused() -> None:
    data = pd.DataFrame({"city": pd.Categorical(rng.choice(["Łódź", "Oslo"], len(X)))})
    booster = grown({}, Y, data, enable_categorical=True)
    with pytest.raises(UnsupportedSetting, match="ASCII"):
        from_xgboost(booster)


# --- sparse --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"booster": "gblinear"}], ids=str)
def test_what_a_sparse_matrix_does_not_store_is_missing(how: dict[str, Any]) -> None:
    dense = np.where(rng.random(X.shape) < 0.5, SEEN, 0.0)
    stored = sparse.csr_matrix(dense)
    booster = grown(how, Y, stored)
    program = from_xgboost(booster)
    same(booster, program, stored, xgb.DMatrix(stored), ulps=4)
    same(booster, program, dense, ulps=4)


@pytest.mark.parametrize(
    "objective", ["binary:logitraw", "binary:hinge", "reg:absoluteerror", "survival:cox"]
)
@pytest.mark.parametrize("base", [0.3, 2.0])
def test_base_scores_of_objectives_without_a_link(objective: str, base: float) -> None:
    label = np.abs(Y) + 0.1 if objective.startswith("survival") else (Y > 0).astype(float)
    booster = grown({"objective": objective, "base_score": base}, label, rounds=2)
    same(booster, from_xgboost(booster))


@pytest.mark.parametrize("objective", ["binary:logistic", "count:poisson"])
def test_base_scores_at_the_ends(objective: str) -> None:
    """Labels of one class alone leave a base score of 0 or 1 behind, which is no infinity."""
    model = described(grown({"objective": objective, "base_score": 0.5}, Y > 0, rounds=2))
    for said in ("[1E0]", "[0E0]", "[1E-7]", "[9.999995E-1]", "[2E-6]", "[5.152838E-1]"):
        if objective == "count:poisson" and said == "[0E0]":
            continue  # every margin would be minus infinity
        model["learner"]["learner_model_param"]["base_score"] = said
        raw = json.dumps(model).encode()
        booster = xgb.Booster()
        booster.load_model(bytearray(raw))
        same(booster, from_xgboost(raw), ulps=1)


def test_a_class_nobody_has() -> None:
    for label in (np.zeros(len(Y)), np.ones(len(Y))):
        booster = grown({"objective": "binary:logistic"}, label)
        program = from_xgboost(booster)
        assert np.all(np.isfinite(program.reference(X.astype(np.float32))["scores"]))
        same(booster, program)


#: What no file should hold, and some do.
ABSURD: list[Any] = [
    *(1e308, -1e39, float("inf"), float("nan"), -1, 2**31, 2**63, 10**40, 1.5, None, True),
    *("x", "1e400", "9" * 5000, [], {}, [None], [1e300]),
]


def test_absurd_numbers_are_an_error_or_a_model() -> None:
    """Each value of a file in turn becomes something absurd: no warning, nothing but an error."""
    random = np.random.default_rng(0)
    sorts = [
        ({}, SEVERAL[:, 0]),
        *VECTORS[:2],
        ({"booster": "dart"}, Y),
        ({"booster": "gblinear"}, Y),
    ]
    texts = [json.dumps(described(grown(how, label, rounds=1))) for how, label in sorts]
    for _ in range(400):
        model = json.loads(texts[int(random.integers(len(texts)))])
        holder: Any = model
        key: Any = "learner"
        while isinstance(holder[key], dict | list) and holder[key] and random.random() < 0.95:
            holder = holder[key]
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            key = keys[int(random.integers(len(keys)))]
        holder[key] = ABSURD[int(random.integers(len(ABSURD)))]
        try:
            program = from_xgboost(json.dumps(model).encode())
        except FlourError:
            continue
        width = program.inputs()["X"].width  # type: ignore[union-attr]  # a vector
        if width < 1000:
            with np.errstate(all="ignore"):
                program.reference(np.zeros((2, width), np.float32))


def test_ranking() -> None:
    groups = np.repeat([0, 1], 100)
    booster = grown({"objective": "rank:ndcg"}, THREE, qid=groups)
    same(booster, from_xgboost(booster))
