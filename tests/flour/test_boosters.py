"""LightGBM and XGBoost models, from files and live, against their own libraries."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression

import flour
import oven
import pretzel
from flour.boosters import lightgbm, xgboost
from flour.boosters.lightgbm import text_of
from flour.boosters.xgboost import parse, scores_of
from flour.core.errors import DamagedProgram, FlourError
from flour.sklearn.file import read_as_data
from tests.estimators import check

from_lightgbm = partial(lightgbm.from_lightgbm, leaves=True)
from_xgboost = partial(xgboost.from_xgboost, leaves=True)
rng = np.random.default_rng(3)
X = rng.normal(size=(240, 6))
X[:, 5] = rng.integers(0, 9, 240)
HOLES = np.where(rng.random(X.shape) < 0.15, np.nan, np.where(rng.random(X.shape) < 0.1, 0.0, X))
Y = X[:, :5] @ rng.normal(size=5) + np.sin(X[:, 5])
THREE = np.digitize(Y, [-1.0, 1.0])
# Far from training data: whole and broken categories, unknown and negative ones, infinities.
TINY = float(np.float32(1e-35))
STRANGE = [
    -1.5,
    -0.5,
    0.0,
    -0.0,
    3.7,
    40.0,
    1e9,
    -np.inf,
    TINY,
    -TINY,
    1e-36,
    -1e-36,
    2e-35,
    -2e-35,
]
ODD = np.concatenate([HOLES, rng.choice(STRANGE, (120, 6))])


def light(extra: dict[str, Any], label: Any, rounds: int = 8) -> Any:
    """A small LightGBM model."""
    how = {"verbose": -1, "min_data_in_leaf": 3, "num_threads": 1, **extra}
    data = lgb.Dataset(HOLES, label, categorical_feature=[5], free_raw_data=False)
    return lgb.train(how, data, rounds)


def same_light(booster: Any, program: flour.Flow) -> None:
    """The program answers as the booster does, by definition and natively, to the last bit."""
    for made in (program.reference(ODD), oven.bake(program, exact=True).run(ODD)):
        np.testing.assert_allclose(made["value"], booster.predict(ODD), rtol=1e-14)
        np.testing.assert_array_equal(made["scores"], booster.predict(ODD, raw_score=True))
        leaves = booster.predict(ODD, pred_leaf=True).reshape(made["leaves"].shape)
        np.testing.assert_array_equal(made["leaves"], leaves)


OBJECTIVES = {
    "regression": Y,
    "regression_l1": Y,
    "huber": Y,
    "quantile": Y,
    "mape": Y,
    "poisson": np.abs(Y),
    "gamma": np.abs(Y) + 0.1,
    "tweedie": np.abs(Y),
    "binary": Y > 0,
    "cross_entropy": 1 / (1 + np.exp(-Y)),
    "cross_entropy_lambda": 1 / (1 + np.exp(-Y)),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_lightgbm_objectives(objective: str) -> None:
    booster = light({"objective": objective}, OBJECTIVES[objective])
    same_light(booster, from_lightgbm(booster))


@pytest.mark.parametrize(
    "extra",
    [
        {"objective": "multiclass", "num_class": 3},
        {"objective": "multiclassova", "num_class": 3, "sigmoid": 2.0},
        {"objective": "binary", "sigmoid": 0.5},
        {"objective": "regression", "reg_sqrt": True},
        {"objective": "regression", "boosting": "dart", "drop_rate": 0.5},
        {"objective": "regression", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
        {"objective": "regression", "zero_as_missing": True},
        {"objective": "regression", "use_missing": False},
        {"objective": "regression", "max_cat_to_onehot": 1, "min_data_per_group": 2},
        {"objective": "regression", "num_leaves": 200, "min_data_in_leaf": 1},
        {"objective": "regression", "min_data_in_leaf": 10_000},
    ],
    ids=str,
)
def test_lightgbm_settings(extra: dict[str, Any]) -> None:
    label = THREE if "num_class" in extra else (Y > 0 if extra["objective"] == "binary" else Y)
    booster = light(extra, label)
    same_light(booster, from_lightgbm(booster))


def test_lightgbm_models_come_as_files_and_text(tmp_path: Path) -> None:
    booster = light({"objective": "binary"}, Y > 0)
    booster.save_model(tmp_path / "model.txt")
    text = (tmp_path / "model.txt").read_text()
    programs = [
        from_lightgbm(tmp_path / "model.txt"),
        from_lightgbm(str(tmp_path / "model.txt")),
        from_lightgbm(text),
        from_lightgbm(text.encode()),
        from_lightgbm(booster),
    ]
    assert len({program.digest for program in programs}) == 1
    same_light(booster, programs[0])


def test_lightgbm_text_cut_or_changed_is_an_error_or_a_model() -> None:
    changed_text(text_of(light({"objective": "regression"}, Y, 2)))


def test_lightgbm_text_that_ends_early_is_an_error() -> None:
    """Whole trees that are gone leave a text LightGBM itself reads on from: its header tells."""
    text = text_of(light({"objective": "regression"}, Y, 4))
    from_lightgbm(text)  # whole, it is one
    for tree in range(4):
        with pytest.raises(DamagedProgram, match=r"cut short|not a LightGBM model"):
            from_lightgbm(text[: text.index(f"Tree={tree}\n")])
        with pytest.raises(DamagedProgram):
            from_lightgbm(text[: text.index(f"Tree={tree}\n") + 100])


def test_lightgbm_counts_nobody_can_read_are_an_error() -> None:
    text = text_of(light({"objective": "regression"}, Y, 2))
    for said in ("9" * 5000, "99999999999", "-1", "\u00b2"):
        with pytest.raises(DamagedProgram, match="num_cat"):
            from_lightgbm(text.replace("num_cat=0", f"num_cat={said}"))


def changed_text(text: str) -> None:
    """Whatever is changed in a model's text, it is refused or read: nothing else happens."""
    lines = text.splitlines()
    random = np.random.default_rng(0)
    for _ in range(400):
        changed = list(lines)
        at = int(random.integers(len(changed)))
        words = changed[at].split(" ")
        place = int(random.integers(len(words)))
        words[place] = str(random.choice(["", "-1", "99999", "nan", "x", "1e400", "0"]))
        changed[at : at + 1] = random.choice([0, 1]) * [" ".join(words)]
        try:
            program = from_lightgbm("\n".join(changed))
        except (DamagedProgram, FlourError):
            continue
        assert np.isfinite(program.reference(X)["leaves"]).all()


@pytest.mark.parametrize("classes", [1, 3])
def test_lightgbm_linear_trees(classes: int) -> None:
    objective = {"objective": "multiclass", "num_class": 3} if classes > 1 else {}
    label = THREE if classes > 1 else Y
    booster = light({**objective, "linear_tree": True, "max_leaves": 7}, label)
    terms = [line for line in text_of(booster).splitlines() if line.startswith("num_features")]
    assert any(set(line.split("=")[1].split()) - {"0"} for line in terms)
    same_light(booster, from_lightgbm(booster))


def test_lightgbm_linear_trees_cut_or_changed() -> None:
    booster = light({"linear_tree": True}, Y, 3)
    changed_text(text_of(booster))


def grown(extra: dict[str, Any], label: Any, rounds: int = 8, kinds: Any = None) -> Any:
    """A small XGBoost model."""
    how = {"nthread": 1, "max_depth": 4, **extra}
    data = xgb.DMatrix(HOLES, label, feature_types=kinds, enable_categorical=kinds is not None)
    return xgb.train(how, data, rounds)


def same_boosted(booster: Any, program: flour.Flow, rows: Any = HOLES, kinds: Any = None) -> None:
    """Margins within 2 units in the last place of the largest, leaves equal."""
    data = xgb.DMatrix(rows, feature_types=kinds, enable_categorical=kinds is not None)
    narrow = rows.astype(np.float32)
    for made in (program.reference(narrow), oven.bake(program, exact=True).run(narrow)):
        margin = booster.predict(data, output_margin=True)
        assert made["scores"].dtype == margin.dtype == np.float32
        ulp = np.finfo(np.float32).eps * np.abs(margin).max()
        np.testing.assert_allclose(made["scores"], margin, rtol=0, atol=2 * ulp)
        np.testing.assert_allclose(made["value"], booster.predict(data), rtol=2e-6, atol=1e-7)
        if "leaves" in made:
            leaves = booster.predict(data, pred_leaf=True).reshape(made["leaves"].shape)
            np.testing.assert_array_equal(made["leaves"], leaves)


def test_names_that_lightgbm_has_renamed() -> None:
    frame = pd.DataFrame(X, columns=[f"a b{j}" for j in range(6)])
    light = lgb.LGBMClassifier(n_estimators=2, verbose=-1)
    row = dict(zip(frame, X[3].tolist(), strict=True))
    for each in (light, VotingClassifier([("l", LogisticRegression()), ("b", light)])):
        fitted = each.fit(frame, Y > 0)
        wanted = fitted.predict(frame)
        for sample in (None, frame[:5]):
            model = pretzel.compile(fitted, sample, verify=frame)
            np.testing.assert_array_equal(model.predict(frame), wanted)
            assert model.run(row)["label"] == wanted[3]
            with pytest.raises(FlourError):
                model.predict(frame.iloc[:, 1:])


def log_loss(label: Any, score: Any) -> Any:
    chance = 1 / (1 + np.exp(-score))
    return chance - label, chance * (1 - chance)


@pytest.mark.filterwarnings("ignore:Cannot compute class probabilities")
def test_with_an_objective_of_ones_own_a_classifier_answers_raw_scores() -> None:
    fitted = lgb.LGBMClassifier(objective=log_loss, n_estimators=3, verbose=-1).fit(X, Y > 0)
    wanted = fitted.predict(X)
    for model in (fitted, read_as_data(pickle.dumps(fitted))):
        made = oven.bake(flour.from_sklearn(model)).run(X)
        assert set(made) == {"value", "scores"}
        np.testing.assert_allclose(made["value"], wanted, rtol=1e-12)


BOOSTED: list[tuple[dict[str, Any], Any]] = [
    ({}, Y),
    ({"objective": "reg:absoluteerror"}, Y),
    ({"objective": "reg:pseudohubererror"}, Y),
    ({"objective": "binary:logistic"}, Y > 0),
    ({"objective": "reg:logistic", "base_score": 0.3}, Y > 0),
    ({"objective": "binary:logitraw"}, Y > 0),
    ({"objective": "binary:hinge"}, Y > 0),
    ({"objective": "count:poisson"}, np.abs(Y)),
    ({"objective": "reg:gamma"}, np.abs(Y) + 0.1),
    ({"objective": "reg:tweedie", "base_score": 2.0}, np.abs(Y)),
    ({"objective": "multi:softprob", "num_class": 3}, THREE),
    ({"objective": "multi:softmax", "num_class": 3}, THREE),
    ({"booster": "dart", "rate_drop": 0.5}, Y),
    ({"num_parallel_tree": 3, "subsample": 0.5}, Y),
]


@pytest.mark.parametrize(("extra", "label"), BOOSTED, ids=[str(extra) for extra, _ in BOOSTED])
def test_xgboost_objectives(extra: dict[str, Any], label: Any) -> None:
    booster = grown(extra, label)
    same_boosted(booster, from_xgboost(booster))


@pytest.mark.parametrize("target", ["number", "two classes", "three classes"])
def test_dart_has_an_answer_of_its_own_in_place(target: str) -> None:
    """The booster's and the wrapper's margins differ by rounding; each is met to the last bit."""
    label = {"number": 30 * Y, "two classes": Y > 0, "three classes": THREE}[target]
    kind = xgb.XGBRegressor if target == "number" else xgb.XGBClassifier
    how = {"booster": "dart", "rate_drop": 0.4, "max_depth": 4, "n_jobs": 1}
    model = kind(n_estimators=30, random_state=0, **how).fit(HOLES, label)
    rows, booster = HOLES.astype(np.float32), model.get_booster()
    plain = oven.bake(from_xgboost(booster), exact=True).run(rows)["scores"]
    margin = booster.predict(xgb.DMatrix(rows), output_margin=True)
    np.testing.assert_array_equal(plain.reshape(margin.shape), margin)
    in_place, _ = scores_of(parse(model), flour.vector("X", 6, "float32"), in_place=True)
    made = oven.bake(flour.outputs(scores=in_place), exact=True).run(rows)["scores"]
    wanted = booster.inplace_predict(rows, predict_type="margin")
    np.testing.assert_array_equal(made.reshape(wanted.shape), wanted)
    assert np.any(wanted != margin)
    if target == "number":
        said = oven.bake(flour.from_sklearn(model, HOLES), exact=True).run(HOLES)["value"]
        np.testing.assert_array_equal(said, model.predict(HOLES))


@pytest.mark.parametrize("limit", [1, 100], ids=["one-hot", "partition"])
def test_xgboost_categories(limit: int) -> None:
    kinds = ["q"] * 5 + ["c"]
    booster = grown({"max_cat_to_onehot": 101 - limit}, Y, kinds=kinds)
    assert "categories" in str(booster.save_raw("json"))
    same_boosted(booster, from_xgboost(booster), kinds=kinds)


def test_xgboost_models_come_as_files_and_bytes(tmp_path: Path) -> None:
    booster = grown({"objective": "binary:logistic"}, Y > 0)
    programs = [from_xgboost(booster)]
    for kind in ("json", "ubj"):
        booster.save_model(tmp_path / f"model.{kind}")
        programs.append(from_xgboost(tmp_path / f"model.{kind}"))
        programs.append(from_xgboost(bytes(booster.save_raw(kind))))
    assert len({program.digest for program in programs}) == 1


def test_xgboost_bytes_cut_or_changed_are_an_error_or_a_model() -> None:
    random = np.random.default_rng(0)
    booster = grown({}, Y, 2)
    for kind in ("json", "ubj"):
        raw = bytes(booster.save_raw(kind))
        for _ in range(300):
            changed = bytearray(raw)
            at = int(random.integers(len(changed)))
            changed[at] = int(random.integers(256))
            cut = int(random.integers(len(raw))) if random.random() < 0.2 else len(raw)
            try:
                program = from_xgboost(bytes(changed[:cut]))
            except FlourError:
                continue
            width = max(program.inputs()["X"].width, 1)  # type: ignore[union-attr]  # a vector
            if width < 1000:
                program.reference(np.zeros((2, width), np.float32))


def test_wrappers_inside_pipelines() -> None:
    names = np.array(["low", "mid", "top"])[THREE]
    quiet: Any = {"n_estimators": 5, "n_jobs": 1}
    check(lgb.LGBMClassifier(verbose=-1, **quiet).fit(X, names), X)
    check(lgb.LGBMClassifier(verbose=-1, **quiet).fit(X, names == "low"), X)
    check(lgb.LGBMRegressor(verbose=-1, **quiet).fit(X, Y), X)
    check(xgb.XGBClassifier(**quiet).fit(X, THREE), X, tolerance=1e-9)
    check(xgb.XGBClassifier(**quiet).fit(X, THREE == 1), X, tolerance=1e-9)
    check(xgb.XGBRegressor(**quiet).fit(X, Y), X, tolerance=1e-9)


def test_columns_of_frames_are_those_that_the_library_takes() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "ü"])
    frame.iloc[5, 1] = np.nan
    target, other = 3 * frame["a"] - frame["ü"], frame[["ü", "b", "a"]]
    booster = xgb.train({"max_depth": 3}, xgb.DMatrix(frame, target), 5)
    plan, wanted = oven.bake(from_xgboost(booster)), booster.predict(xgb.DMatrix(frame))
    with pytest.raises(ValueError, match="feature_names mismatch"):
        booster.predict(xgb.DMatrix(other))
    columns = {name: frame[name].to_numpy() for name in frame}
    forms = [frame, other, frame.to_numpy(), frame.to_dict("records"), columns]
    forms += [frame.astype("float32"), frame.assign(more="x")]
    for form in forms:
        np.testing.assert_array_equal(plan.run(form)["value"], wanted)
    with pytest.raises(FlourError, match="b"):
        plan.run(frame[["a", "ü"]])
    byplace = lgb.train({"verbose": -1}, lgb.Dataset(frame, target), 5)
    plan = oven.bake(from_lightgbm(byplace))
    for form in (frame, other, frame.to_numpy()):
        np.testing.assert_allclose(plan.run(form)["value"], byplace.predict(form), rtol=1e-12)


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("library", ["LightGBM", "XGBoost"])
def test_imported_as_they_are_they_have_an_entry_of_machine_code(
    library: str, classes: int
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = rng.integers(0, classes, 200) if classes else X[:, 0]
    if library == "LightGBM":
        kind = lgb.LGBMClassifier if classes else lgb.LGBMRegressor
        plan = oven.bake(from_lightgbm(kind(n_estimators=3, verbose=-1).fit(X, y))).wait()
    else:
        made = xgb.XGBClassifier if classes else xgb.XGBRegressor
        plan = oven.bake(from_xgboost(made(n_estimators=3).fit(X, y))).wait()
    assert len(plan.outputs) == 3
    call = plan.entry()
    assert type(call).__name__ == "builtin_function_or_method"
    block = X[:20].astype(np.float64 if library == "LightGBM" else np.float32)
    for mine, theirs in zip(call(block), plan.run(block).values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in zip(call(block[3]), plan.run(block[3:4]).values(), strict=True):
        np.testing.assert_array_equal(mine, theirs[0])
