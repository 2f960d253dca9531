"""Read a fitted estimator from a pickle or joblib file: the one place where that is done.

Reading such a file runs the code it names: callers must only pass files that they trust.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

from flour.core.errors import ImportRefused


def read_with_version(data: bytes, where: str | None = None) -> tuple[Any, str]:
    """The object in a pickle or joblib file, and the version of scikit-learn that wrote it."""
    import joblib
    import sklearn

    try:
        with warnings.catch_warnings(record=True) as said:
            # scikit-learn warns of another version; an estimator that cannot be imported is refused
            # later.
            warnings.simplefilter("always")
            found = joblib.load(io.BytesIO(data))
        told = (getattr(each.message, "original_sklearn_version", None) for each in said)
        return found, next(filter(None, told), str(sklearn.__version__))
    except Exception as problem:
        raise ImportRefused(
            "this pickle cannot be read",
            where=where,
            found=f"{type(problem).__name__}: {problem}"[:200],
            hint="read it with the versions of the libraries that wrote it",
        ) from problem
