"""Estimators in files of skops, which name types but hold no code: MLflow writes them by default.

skops makes objects only of the types that it knows to be harmless, which are those of numpy, scipy
and scikit-learn, and of those that are named here. A file with any other type is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flour.core.errors import ImportRefused
from flour.language.flow import Flow
from flour.sklearn.file import read
from flour.sklearn.importer import from_sklearn
from flour.sklearn.originals import Answers, estimator_answers

#: Types of libraries whose models `from_sklearn` knows; making one reads a model's text or buffer.
#: Of numpy's dtypes, skops reads an empty array that it does not unpickle.
_KNOWN = [
    "collections.OrderedDict",
    "numpy.dtype",
    "lightgbm.basic.Booster",
    *(f"lightgbm.sklearn.LGBM{kind}" for kind in ("Classifier", "Ranker", "Regressor")),
    "xgboost.core.Booster",
    *(f"xgboost.sklearn.XGB{kind}" for kind in ("Classifier", "Ranker", "Regressor")),
]


def from_skops(model: bytes | str | Path, *, covers: bool = False) -> Flow:
    """The program of the estimator in a file of skops, by its path or its bytes."""
    raw = model if isinstance(model, bytes) else Path(model).read_bytes()
    return from_sklearn(read_skops(raw), covers=covers)


def original(raw: bytes) -> Answers:
    """The answers of the estimator in the file."""
    return estimator_answers(read_skops(raw))


def read_skops(raw: bytes) -> Any:
    """The estimator in a file of skops; a failure is an error in four parts."""
    try:
        from skops import io
    except ModuleNotFoundError as problem:
        raise ImportRefused(
            "files of skops are read by skops",
            found=f"no {problem.name}",
            hint="pip install skops, or save the model with serialization_format='cloudpickle'",
        ) from None

    def load() -> Any:
        if strange := sorted(set(io.get_untrusted_types(data=raw)) - set(_KNOWN)):
            raise ImportRefused(
                "this file of skops has types that are not known to be harmless",
                found=", ".join(strange)[:200],
                hint="if you trust its author: skops.io.load(file, trusted=[...]), from_sklearn",
            )
        return io.loads(raw, trusted=_KNOWN)

    return read("file of skops", raw, load)[0]
