"""Data frames and sparse matrices, recognised by their attributes, without an import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import WrongDtype
from flour.data.arrow_strings import CELLS, as_texts, text_cells

Column = Any  # of Arrow or polars


def is_sparse(data: object) -> bool:
    """True if it is a scipy.sparse matrix or array."""
    return hasattr(data, "tocsr") and hasattr(data, "nnz")


def frame_columns(data: Any) -> dict[str, Any] | None:
    """The named columns of a frame, dict or structured array; None for anything else."""
    if isinstance(data, Mapping):
        return {str(name): column for name, column in data.items()}
    if isinstance(data, np.ndarray):
        return {n: data[n] for n in data.dtype.names} if data.dtype.names else None
    if type(data).__name__ == "LazyFrame":
        raise WrongDtype(
            "the rows of a lazy frame are not computed yet",
            where="$",
            found="LazyFrame",
            hint="call its collect() first",
        )
    names = getattr(data, "column_names", None)  # pyarrow
    if names is None and hasattr(data, "columns") and hasattr(data, "__getitem__"):
        names = list(data.columns)  # pandas, polars
    return None if names is None else {str(name): data[name] for name in names}


def as_column(values: Any, path: str = "$") -> NDArray[Any]:
    """One column as an array; nullable and categorical columns become plain values."""
    if isinstance(values, np.ndarray):
        return as_texts(values, path) if values.dtype is CELLS else values
    if getattr(values, "num_columns", 0) == 1:  # a table of Arrow's
        values = values.column(0)
    values = decoded(values)  # missing values of dictionaries are lost on the way to numpy
    dtype = str(getattr(values, "dtype", ""))
    if dtype[:3] in ("Int", "UIn", "Flo", "boo") and hasattr(values, "isna"):
        if values.isna().any():
            return np.asarray(values.to_numpy(dtype="float64", na_value=np.nan))
        kind = values.dtype
        return np.asarray(values.to_numpy(dtype=getattr(kind, "numpy_dtype", kind)))
    if hasattr(values, "to_numpy"):
        return as_array(values, path)
    cells = values if isinstance(values, list | tuple) else ()
    # numpy turns numbers among strings into strings, and cuts bytes short.
    if any(cell is None or isinstance(cell, str | bytes) for cell in cells):
        return object_array(values)
    return np.asarray(values)


def as_array(column: Column, path: str = "$") -> NDArray[Any]:
    """A column of Arrow or polars as an array, copied where that is needed."""
    try:
        return np.asarray(column.to_numpy())
    except Exception:
        with suppress(Exception):  # an array of Arrow's is copied only where that is asked for
            return np.asarray(column.to_numpy(zero_copy_only=False))
        if (cells := text_cells(column)) is not None:
            as_texts(cells, path)  # tells which string is no UTF-8; pyarrow only that one is not
        raise


def decoded(column: Column) -> Any:
    """A column without a dictionary; one of views has strings, as pyarrow cannot take views."""
    if type(column).__module__[:7] != "pyarrow" or not hasattr(column.type, "index_type"):
        return column
    kind = column.type
    to = "large_string" if str(kind.value_type) == "string_view" else kind.value_type
    return column.cast(import_module("pyarrow").dictionary(kind.index_type, to)).cast(to)


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """One object for each value, also of values that are sequences themselves."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def frame(values: NDArray[Any] | Sequence[NDArray[Any]], names: Sequence[str]) -> Any:
    """A pandas frame of a matrix, or of columns, for code that was fitted on one."""
    from pandas import DataFrame

    if isinstance(values, np.ndarray):
        return DataFrame(values, columns=list(names))
    return DataFrame(dict(zip(names, values, strict=True)))


def has_integers(column: Sequence[Any]) -> bool:
    """True if the first value of a column that is not missing is an integer."""
    for at in range(min(len(column), 1000)):
        value = as_column(column[at : at + 1])
        if value.dtype.kind != "f" or value[0] == value[0]:
            return value.dtype.kind in "iu"
    return False
