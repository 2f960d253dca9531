"""Read a fitted estimator from a pickle or joblib file: the one place where that is done.

Reading a file of the installed version of scikit-learn runs the code it names: callers must only
pass files that they trust.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

from flour.core.errors import ImportRefused
from flour.language.adapters import adapter_of
from flour.pickles import read_pickle
from flour.sklearn import stand_ins as _stand_ins  # noqa: F401  # it registers them
from flour.sklearn import versions


def read_with_version(data: bytes, where: str | None = None) -> tuple[Any, str]:
    """The object in a pickle or joblib file, and the version of scikit-learn that wrote it.

    A file of another version than the installed one is read as data: nothing of it is run.
    """
    written = versions.version_in(data)
    if written and written != versions.installed():
        return read_as_data(data, where), written
    import joblib

    return read("pickle", data, lambda: joblib.load(io.BytesIO(data)), where)


def read(
    kind: str, data: bytes, load: Callable[[], Any], where: str | None = None
) -> tuple[Any, str]:
    """The estimator that `load` makes of a file, and the version of scikit-learn that wrote it.

    The estimator keeps another version than the installed one, for `flour.sklearn.versions`, and
    that of XGBoost, whose pickles name it.
    """
    try:
        with warnings.catch_warnings(record=True) as said:
            # scikit-learn's warning of another version is given again, by the import.
            warnings.simplefilter("always")
            found = load()
    except ImportRefused:
        raise
    except Exception as problem:
        version = versions.version_in(data)
        differs = versions.differs(version)
        raise ImportRefused(
            f"this {kind} cannot be read" + (f": {differs}" if differs else ""),
            where=where,
            found=f"{type(problem).__name__}: {problem}"[:200],
            hint=versions.HINT if differs else "read it with the versions that wrote it",
        ) from problem
    told = (getattr(each.message, "original_sklearn_version", None) for each in said)
    version = next(filter(None, told), versions.installed())
    booster = versions.differs(versions.xgboost_in(data), "xgboost")
    if hasattr(found, "__dict__"):
        vars(found).update({versions.KEY: version} if versions.differs(version) else {})
        vars(found).update({versions.BOOSTER: booster} if booster else {})
    return found, version


def read_as_data(data: bytes, where: str | None = None) -> Any:
    """The object in a pickle or a file of joblib, read without running anything."""

    def met(module: str) -> None:
        if module.partition(".")[0] in _KINDS:
            adapter_of(_KINDS[module.partition(".")[0]])

    return read_pickle(data, where, met)


#: Packages -> a class whose adapter's module knows the stand-ins of the package.
_KINDS = {
    "lightgbm": "lightgbm.sklearn.LGBMRegressor",
    "xgboost": "xgboost.sklearn.XGBRegressor",
}
