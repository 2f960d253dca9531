"""Estimators in files of skops, which MLflow writes by default: read as data, as pickles are."""

from __future__ import annotations

from pathlib import Path

from flour.core.errors import ImportRefused
from flour.language.flow import Flow
from flour.sklearn.file import read_as_data
from flour.sklearn.importer import UNPICKLE, from_sklearn
from flour.sklearn.originals import Answers, estimator_answers

#: Types, beside those of numpy, scipy and scikit-learn, that skops may make to verify a model.
_KNOWN = [
    "collections.OrderedDict",
    "numpy.dtype",
    "lightgbm.basic.Booster",
    *(f"lightgbm.sklearn.LGBM{kind}" for kind in ("Classifier", "Ranker", "Regressor")),
    "xgboost.core.Booster",
    *(f"xgboost.sklearn.XGB{kind}" for kind in ("Classifier", "Ranker", "Regressor")),
]
_LOAD = "if you trust its author: from_sklearn(skops.io.load(path, trusted=[...]), sample)"


def from_skops(model: bytes | str | Path, sample: object = None, *, covers: bool = False) -> Flow:
    """The program of the estimator in a file of skops, by its path or bytes; see from_sklearn."""
    raw = model if isinstance(model, bytes) else Path(model).read_bytes()
    try:
        return from_sklearn(read_as_data(raw), sample, covers=covers)
    except ImportRefused as problem:  # such a file is never unpickled
        problem.hint = problem.hint and problem.hint.replace(UNPICKLE, _LOAD)
        raise


def original(raw: bytes) -> Answers:
    """The answers of the estimator in the file, which skops makes."""
    try:
        from skops import io
    except ModuleNotFoundError as problem:
        raise ImportRefused(
            "skops, which makes the original that answers are compared with, is not installed",
            found=f"no {problem.name}",
            hint="pip install skops, or import the model without verifying it",
        ) from None
    if strange := sorted(set(io.get_untrusted_types(data=raw)) - set(_KNOWN)):
        raise ImportRefused(
            "this file of skops has types that are not known to be harmless",
            found=", ".join(strange)[:200],
            hint="if you trust its author: skops.io.load(file, trusted=[...]), from_sklearn",
        )
    return estimator_answers(io.loads(raw, trusted=_KNOWN))
