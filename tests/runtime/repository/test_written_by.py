"""Which libraries wrote a model's file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pytest
import sklearn
import xgboost
from sklearn.linear_model import LogisticRegression

import flour
from runtime.repository import formats
from runtime.repository.formats import written_by

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)), RNG.integers(0, 2, 60)


@pytest.mark.parametrize("ending", ["json", "ubj"])
def test_xgboost_says_its_version(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{ending}"
    xgboost.XGBClassifier(n_estimators=3).fit(X, Y).save_model(path)
    assert written_by("xgboost", path.read_bytes()) == {"xgboost": xgboost.__version__}


def test_lightgbm_says_the_format_of_its_file() -> None:
    booster = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(X, Y).booster_
    told = written_by("lightgbm", booster.model_to_string().encode())
    assert told == {"lightgbm": "file format v4"}


def test_onnx_says_its_operators() -> None:
    program = flour.vector("x", 3).linear([[1.0, 2.0, 3.0]], [0.5]).named("y")
    told = written_by("onnx", flour.to_onnx(program))
    assert int(told["operators of onnx"]) > 8


@pytest.mark.parametrize("form", ["lightgbm", "xgboost", "sklearn", "other"])
def test_files_that_say_nothing(form: str) -> None:
    assert written_by(form, b"") == {}


def test_a_pickle_says_with_which_version_it_was_trained() -> None:
    def pickled(version: str) -> bytes:
        class Older(LogisticRegression):  # type: ignore[misc,unused-ignore]  # has no types
            def __reduce__(self) -> Any:
                model: Any = super().__reduce__()
                kind, given, *rest = model
                state = {**self.__dict__, "_sklearn_version": version}
                return (kind, (LogisticRegression, *given[1:]), state, *rest[1:])

        fitted: Any = Older()
        buffer = io.BytesIO()
        joblib.dump(fitted.fit(X, Y), buffer)
        return buffer.getvalue()

    for version in ("1.0.2", sklearn.__version__):
        assert formats.written_by(formats.SKLEARN, pickled(version)) == {"sklearn": version}
