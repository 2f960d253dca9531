"""Read a fitted estimator from a pickle or joblib file: the one place where that is done.

Reading such a file runs whatever code it names. Whoever calls this has been told to trust it.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

from flour.core.errors import ImportRefused


def read_pickle(data: bytes, where: str | None = None) -> Any:
    """The object in a pickle or joblib file, with what went wrong as an error in four parts."""
    import joblib

    try:
        with warnings.catch_warnings():
            # It asks for the library's own version; what cannot be imported is refused later.
            warnings.simplefilter("ignore")
            return joblib.load(io.BytesIO(data))
    except Exception as problem:
        raise ImportRefused(
            "this pickle cannot be read",
            where=where,
            found=f"{type(problem).__name__}: {problem}"[:200],
            hint="read it with the versions of the libraries that wrote it",
        ) from problem
