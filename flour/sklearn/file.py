"""Read a fitted estimator from a file: as data, or, where callers trust it, by unpickling it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from flour.core.errors import ImportRefused, OtherVersion, UnknownEstimator
from flour.core.model_formats import refuse_other
from flour.language.adapters import adapter_of
from flour.pickles import read_pickle
from flour.pickles.standins import Global
from flour.sklearn import stand_ins as _stand_ins  # noqa: F401  # it registers them
from flour.sklearn import versions


def read_as_data(data: bytes, where: str | None = None, part: str = "") -> Any:
    """The model in a pickle, a file of joblib or one of skops, read without running anything.

    `part` is the key, or the number, of one in a mapping, list or tuple.
    """
    refuse_other(data, where)

    def met(module: str) -> None:
        if module.partition(".")[0] in _KINDS:
            adapter_of(_KINDS[module.partition(".")[0]])

    return model_of(read_pickle(data, where, met), where, part)


def model_of(found: object, where: str | None, part: str) -> Any:
    """The model among what a file holds; any other object than a collection is one."""
    parts = _parts(found)
    if part and part in parts:
        return model_of(parts[part], where, "")
    if not part and not isinstance(found, _NO_MODELS):
        return found
    raise UnknownEstimator(
        f"this file holds no {part!r}" if part else "this file holds no model itself",
        where=where,
        found=", ".join(f"{name!r}: {_kind(each)}" for name, each in parts.items())[:200]
        or _kind(found),
        hint="name the model in it: 'FILE#KEY', or write it alone: joblib.dump(estimator, path)"
        if parts
        else "write the fitted estimator itself: joblib.dump(estimator, path)",
    )


def _parts(found: object) -> dict[str, Any]:
    """The values in a mapping, list or tuple, by key or number."""
    if isinstance(found, dict):
        return {str(key): value for key, value in found.items()}
    if isinstance(found, list | tuple):
        return {str(number): value for number, value in enumerate(found)}
    return {}


def _kind(value: object) -> str:
    return repr(value) if isinstance(value, Global) else type(value).__name__


_NO_MODELS = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set),
    *(frozenset, slice, range, type, np.generic, np.ndarray, np.ufunc, np.dtype, Global),
)
#: Packages -> a class whose adapter's module knows the stand-ins of the package.
_KINDS = {
    "lightgbm": "lightgbm.sklearn.LGBMRegressor",
    "xgboost": "xgboost.sklearn.XGBRegressor",
    "catboost": "catboost.core.CatBoost",
}


def unpickled(data: bytes, where: str | None = None, part: str = "") -> Any:
    """The model in a pickle of the installed version; this runs the code that the file names."""
    if differs := versions.differs(versions.version_in(data)):
        raise OtherVersion(
            "a model of another version cannot be asked here: it can only be read as data",
            where=where,
            found=differs,
            hint="verify it where the version that trained it is installed",
        )
    import joblib

    try:
        found = joblib.load(io.BytesIO(data))
    except Exception as problem:
        raise ImportRefused(
            "this pickle cannot be unpickled",
            where=where,
            found=f"{type(problem).__name__}: {problem}"[:200],
            hint="unpickle it with the versions that wrote it",
        ) from problem
    return model_of(found, where, part)
