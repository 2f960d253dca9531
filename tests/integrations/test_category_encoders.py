"""category_encoders' encoders as tables, compared with the library itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import flour
import oven
from flour.core.errors import UnsupportedSetting

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),  # the library's own: pandas has deprecated what it calls
]
_rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "c": _rng.choice(["u", "v", "w"], 60),
        "n": _rng.choice([1.0, 2.0, 3.0], 60),
        "z": _rng.normal(size=60),
    }
)
FRAME.loc[3, "c"] = None
TARGET = _rng.integers(0, 2, 60)
NEW = FRAME.head(20).astype({"c": object})
NEW.loc[[0, 1, 2], "c"] = pd.Series(["new", None, np.nan], dtype=object)
NEW.loc[[4, 5], "n"] = [np.nan, 9.0]
#: Every encoder but HashingEncoder.
ENCODERS = [
    *("BackwardDifference", "BaseN", "Binary", "CatBoost", "Count", "GLMM", "Gray", "Helmert"),
    *("JamesStein", "LeaveOneOut", "MEstimate", "OneHot", "Ordinal", "Polynomial", "Quantile"),
    *("RankHot", "Sum", "Target", "WOE"),
]
MISSING = {"handle_unknown": "return_nan", "handle_missing": "return_nan"}


def fitted(name: str, frame: Any = FRAME, **how: Any) -> Any:
    library = pytest.importorskip("category_encoders")
    kind = getattr(library, f"{name}Encoder")
    return kind(cols=["c", "n"], **how).fit(frame, TARGET[frame.index])


@pytest.mark.parametrize("how", [{}, MISSING], ids=["by value", "by NaN"])
@pytest.mark.parametrize("name", ENCODERS)
def test_known_unknown_and_missing_values(name: str, how: dict[str, str]) -> None:
    if name in ("CatBoost", "LeaveOneOut") and not how:
        with pytest.raises(UnsupportedSetting, match="depend on the other rows"):
            flour.from_sklearn(fitted(name))
        return
    encoder = fitted(name, **how)
    want = encoder.transform(NEW.copy()).to_numpy(float)
    program = flour.from_sklearn(encoder)
    np.testing.assert_array_equal(program.reference(NEW)["features"], want)
    np.testing.assert_array_equal(oven.bake(program).run(NEW)["features"], want)


def test_in_a_pipeline() -> None:
    model = make_pipeline(fitted("Target"), LogisticRegression()).fit(FRAME, TARGET)
    rows = NEW.fillna({"n": 1.0})
    got = flour.from_sklearn(model, FRAME).reference(rows)["probabilities"]
    np.testing.assert_allclose(got, model.predict_proba(rows), rtol=1e-12)
