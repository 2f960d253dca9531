"""scikit-learn itself: the fitted object, unpickled, one of its own for each pipeline."""

from __future__ import annotations

from typing import Any

from bench.contestant import Contestant, Model, framed_block, framed_row
from bench.workload import Pipeline, Saved


class ScikitLearn(Contestant):
    """scikit-learn itself, which trained the pipelines."""

    name = "sklearn"
    title = "scikit-learn"
    packages = ("scikit-learn", "numpy", "scipy", "lightgbm")
    settings = "assume_finite=True (its docs: skips validation); one thread"

    def start(self) -> None:
        """Import the libraries of the pickles."""
        import sklearn

        sklearn.set_config(assume_finite=True)

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Unpickle."""
        return estimator_model(pipeline.estimator())


def estimator_model(estimator: Any) -> Model:
    """The calls of a scikit-learn object."""
    if hasattr(estimator, "predict_proba"):
        call, scores = estimator.predict_proba, _second
    else:
        call, scores = estimator.predict, _same
    return Model(call, call, framed_row, framed_block, scores, lambda raw: scores(raw)[0])


def _second(raw: Any) -> Any:
    return raw[:, 1]


def _same(raw: Any) -> Any:
    return raw


CONTESTANT = ScikitLearn
