"""Classes of users' own that say what they compute, by `__pretzel__`."""

from __future__ import annotations

import io
import sys
from types import ModuleType
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import flour
import oven
from flour.core.errors import UnknownEstimator, UnsupportedSetting
from flour.sklearn.file import unpickled
from oven.explain import explain

FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [2.0, 1.0, 5.0, 3.0]})
LABELS = ["no", "yes", "no", "yes"]


class Ratio(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    def fit(self, X: Any, y: Any = None) -> Ratio:
        self.scale_ = float(X["b"].max())
        return self

    def transform(self, X: Any) -> Any:
        return (X["a"] / self.scale_ / X["b"]).to_numpy()[:, None]

    def __pretzel__(self, flow: Any) -> Any:
        return flow.columns(["a"]).divide([self.scale_]) / flow.columns(["b"])


class Above(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """A predictor of no library's kind: it has no fit."""

    limit = 2.5

    def __pretzel__(self, flow: Any) -> Any:
        return {"label": flow.element(0).greater(self.limit)}


class Broken(Ratio):
    how = "raises"

    def __pretzel__(self, flow: Any) -> Any:
        match self.how:
            case "raises":
                return flow.no_such_method()
            case "strange":
                return flour.vector("Z", 2)
        return 3


def test_a_step_of_ones_own_is_native_and_equal() -> None:
    fitted = make_pipeline(Ratio(), LogisticRegression()).fit(FRAME, LABELS)
    plan = oven.bake(flour.from_sklearn(fitted, FRAME))
    want = fitted.predict_proba(FRAME)
    np.testing.assert_allclose(plan.run(FRAME)["probabilities"], want, rtol=1e-12)
    assert "0 of them black" in explain(plan)


def test_a_predictor_names_its_outputs() -> None:
    program = flour.from_sklearn(Above(), np.ones((2, 2)))
    assert program.reference(np.array([[3.0, 0.0], [2.0, 9.0]]))["label"].tolist() == [True, False]


def test_a_pickle_whose_class_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_of_tests")
    kind = type("Ratio", (Ratio,), {"__module__": "shop_of_tests"})
    module.Ratio = kind  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "shop_of_tests", module)
    fitted = make_pipeline(kind(), LogisticRegression()).fit(FRAME, LABELS)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    found = unpickled(file.getvalue())
    answers = flour.from_sklearn(found, FRAME).reference(FRAME)
    np.testing.assert_allclose(answers["probabilities"], fitted.predict_proba(FRAME), rtol=1e-12)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", r"Broken.__pretzel__ failed"),
        ("number", r"answered with int"),
        ("strange", r"inputs of its own: \['Z'\]"),
    ],
)
def test_what_is_no_program_is_refused(how: str, said: str) -> None:
    broken = Broken().fit(FRAME)
    broken.how = how
    with pytest.raises(UnsupportedSetting, match=said) as problem:
        flour.from_sklearn(broken, FRAME)
    assert "Broken" in str(problem.value.where)


def test_an_unknown_step_over_strings_is_not_blamed_on_the_rows() -> None:
    class Unknown(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
        def fit(self, X: Any, y: Any = None) -> Unknown:
            self.n_ = 1
            return self

        def transform(self, X: Any) -> Any:
            return X[["a"]].to_numpy()

    frame = FRAME.assign(c=list("uvuv"))
    fitted = make_pipeline(Unknown(), LogisticRegression()).fit(frame, LABELS)
    with pytest.raises(UnknownEstimator, match="allow_python=True") as problem:
        flour.from_sklearn(fitted, frame)
    assert "share a vector" not in str(problem.value)
    assert "step 'unknown'" in str(problem.value)
