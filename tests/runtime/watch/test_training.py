"""What is known of a model's training goes with its plan, and watches and `why` read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
import oven
from flour.core.errors import FlourError, InputError, ParameterError
from oven.errors import DamagedPlan
from runtime import Runtime
from runtime.cli import main
from runtime.watch import Reference, training_of

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "age": RNG.normal(40, 9, 2000).round(1),
        "city": RNG.choice(["Graz", "Linz", "Wien"], 2000),
        "name": [f"person {number}" for number in range(2000)],
    }
)


@pytest.fixture(scope="module")
def fitted() -> Any:
    encoded = make_column_transformer(
        (StandardScaler(), ["age"]), (OneHotEncoder(handle_unknown="ignore"), ["city", "name"])
    )
    return make_pipeline(encoded, LogisticRegression()).fit(ROWS, ROWS["age"] > 40)


@pytest.fixture
def saved(fitted: Any, tmp_path: Path) -> Path:
    plan = oven.bake(flour.from_sklearn(fitted))
    path = tmp_path / "m.pretzel"
    plan.save(path, training=training_of(plan, ROWS, libraries={"sklearn": "1.2.3"}))
    return path


def test_what_is_known_goes_with_the_plan(saved: Path, fitted: Any, tmp_path: Path) -> None:
    for _ in range(2):  # the second time from the image of the first
        plan = oven.load(saved)
        known = plan.training()
        assert known["rows"] == 2000
        assert known["libraries"] == {"sklearn": "1.2.3"}
        assert known["columns"]["age"]["least"] == ROWS["age"].min()
        assert known["columns"]["city"] == {"words": 3, "missing": 0.0}
    assert plan.digest == oven.bake(flour.from_sklearn(fitted)).digest
    again = tmp_path / "again.pretzel"
    plan.save(again)
    assert oven.load(again).training() == known
    plan.save(again, training={})
    assert oven.load(again).training() == {}


def test_names_and_private_columns_are_not_kept(saved: Path, fitted: Any) -> None:
    assert b"person 17" not in json.dumps(oven.load(saved).training()).encode()
    found = training_of(oven.bake(flour.from_sklearn(fitted)), ROWS, private=["city"])
    assert set(found["reference"]) == {"age"}
    assert "Graz" not in json.dumps(found)


def test_a_watch_has_its_reference_from_the_file(saved: Path, runtime: Runtime) -> None:
    runtime.register("m", saved)
    today = ROWS.assign(age=ROWS["age"] + 20)
    with runtime.watch("m", drift=True) as seen:
        runtime.predict("m", today, engine="inline")
        seen.fold()
        first, second = seen.drift()
        assert (first.column, second.column) == ("age", "city")
        assert first.psi > 1
        assert second.psi < 0.01
    with runtime.watch("m", drift=False) as seen:
        assert not seen.reference.columns
    plain = flour.record(age=float)
    runtime.register("plain", flour.outputs(score=plain["age"]))
    with pytest.raises(FlourError, match="nothing is known of this model's training"):
        runtime.watch("plain", drift=True)


def test_notes_of_a_registration_may_have_it(fitted: Any, runtime: Runtime) -> None:
    plan = oven.bake(flour.from_sklearn(fitted))
    runtime.register("m", plan, notes={"training": training_of(plan, ROWS)})
    with runtime.watch("m", drift=True) as seen:
        assert set(seen.reference.columns) == {"age", "city"}


def test_why_tells_what_was_assumed(saved: Path, tmp_path: Path) -> None:
    with Runtime() as runtime:
        runtime.register("m", saved, notes={"private": ("city",)})
        with runtime.keep("m", tmp_path / "answers"):
            answer: Any = runtime.predict("m", ROWS[:1])
            why = runtime.why(answer.id)
            assert why.plan_facts["training"]["libraries"] == {"sklearn": "1.2.3"}
            assert f"age: {ROWS['age'].min()} to {ROWS['age'].max()}" in why.lineage()
            assert "city" not in why.plan_facts["training"]["columns"]
            assert "reference" not in why.plan_facts["training"]
    told = b"".join(each.read_bytes() for each in (tmp_path / "answers" / "plans").iterdir())
    assert b'"top"' not in told  # no sketch of it is in the folder of answers


@pytest.mark.parametrize("training", [{"a": float("nan")}, {"a": object()}, {"a": "x" * (5 << 20)}])
def test_what_is_no_data_is_refused(saved: Path, training: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FlourError):
        oven.load(saved).save(tmp_path / "other.pretzel", training=training)


def test_a_damaged_file_is_said_to_be(saved: Path) -> None:
    raw = saved.read_bytes()
    saved.write_bytes(raw.replace(b"1.2.3", b"9.9.9"))
    with pytest.raises(DamagedPlan, match="training is damaged"):
        oven.load(saved).training()


@pytest.mark.parametrize(
    "data",
    [
        {"a": {"edges": [1.0], "counts": [1], "missing": 0}},
        {"a": {"edges": [2.0, 1.0], "counts": [1, 1, 1], "missing": 0}},
        {"a": {"top": ["x"], "known": ["x"], "counts": [1], "missing": 0}},
        {"a": 1},
        [],
    ],
)
def test_sketches_from_anywhere_are_checked(data: Any) -> None:
    with pytest.raises(InputError):
        Reference.from_data(data)


@pytest.mark.parametrize("values", [[], [np.nan], [np.inf, -np.inf, 1.0], [3.0] * 50])
def test_sketches_of_odd_columns_are_the_same_again(values: list[float]) -> None:
    found = Reference.of({"a": np.array(values, float)})
    again = Reference.from_data(json.loads(json.dumps(found.to_data(), allow_nan=False)))
    assert again.to_data() == found.to_data()


def test_an_import_keeps_what_rows_were_like(
    fitted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblib.dump(fitted, tmp_path / "m.joblib")
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    given = ["import", str(tmp_path / "m.joblib"), "--trust-pickle", "--output"]
    target = tmp_path / "m.pretzel"
    given += [str(target), "--training", str(tmp_path / "rows.csv"), "--private", "city", "--json"]
    assert main(given) == 0
    told = json.loads(capsys.readouterr().out)["training"]
    known = oven.load(target).training()
    assert told == {name: each for name, each in known.items() if name != "reference"}
    assert known["rows"] == 2000
    assert set(known["reference"]) == {"age"}
    assert known["data"].startswith("rows.csv: sha256 ")
    assert set(known["libraries"]) == {"sklearn"}


def test_an_import_may_round_what_is_told(
    fitted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblib.dump(fitted, tmp_path / "m.joblib")
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    given = ["import", str(tmp_path / "m.joblib"), "--trust-pickle", "--into", str(tmp_path / "d")]
    assert main([*given, "--verify", str(tmp_path / "rows.csv"), "--decimals", "2"]) == 0
    assert main(["verify", str(tmp_path / "d" / "m")]) == 0  # the rows beside it are rounded, too
    found = oven.load(tmp_path / "d" / "m" / "1" / "m.pretzel").run(ROWS)
    np.testing.assert_array_equal(found["probabilities"], np.round(fitted.predict_proba(ROWS), 2))
    assert set(np.unique(found["label"])) == {False, True}
    capsys.readouterr()


def test_ranges_of_the_training_tell_outliers(fitted: Any, runtime: Runtime) -> None:
    program = flour.from_sklearn(fitted)
    notes = {"training": training_of(oven.bake(program), ROWS)}
    runtime.register("m", program, notes=notes)
    with runtime.watch("m", outliers=("range",)) as seen:
        later = ROWS.head(500).copy()
        later.loc[7, "age"] = 400.0
        runtime.predict("m", later, engine="inline")
        seen.fold()
        (found,) = seen.outliers
        assert (found.rows, found.found) == (500, 1)
        assert found.strangest[0].row["age"] == 400.0
    with pytest.raises(ParameterError, match="rows of the reference"):
        runtime.watch("m", outliers=("range", "pca"))
