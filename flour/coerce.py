"""What users hand in, as the columns a program's inputs are typed for; errors say where.

Vector              2-d array, nested lists, frame, scipy sparse matrix
Record              frame (pandas, polars, Arrow), dict of columns, list of dicts, or, where it
                    was fitted on a plain array, a 2-d array by position
Scalar, Category    1-d array or list
Text                list of str
several inputs      {input name: any of these}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.errors import (
    InputError,
    MissingColumn,
    NotNumeric,
    NotRectangular,
    WidthMismatch,
    WrongDtype,
)
from flour.frames import as_column, frame_columns, is_sparse
from flour.op import Columns
from flour.ops.source import row_count
from flour.sparse import Sparse
from flour.types import FLOATS, Category, Record, Scalar, Text, Tokens, Type, Vector

Data = Any


def coerce(inputs: Mapping[str, Type], data: Data) -> tuple[dict[str, Columns], int]:
    """The program's input columns and the number of rows."""
    columns = {name: _column(part, inputs[name], path) for name, path, part in _split(inputs, data)}
    counts = {name: row_count(column) for name, column in columns.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise NotRectangular(
            "the inputs have different numbers of rows", where="$", found=found, hint=_RAGGED
        )
    return columns, next(iter(counts.values()), 0)


def native_types(inputs: Mapping[str, Type], data: Data) -> dict[str, Type]:
    """The inputs' types with the float width and sparsity that this data already has."""
    if not any(isinstance(kind, Vector | Record | Scalar) for kind in inputs.values()):
        return dict(inputs)
    return {
        **inputs,
        **{name: _native(inputs[name], part) for name, _, part in _split(inputs, data)},
    }


def _split(inputs: Mapping[str, Type], data: Data) -> list[tuple[str, str, Data]]:
    """(input name, where it stands in the payload, its data) for every input."""
    if len(inputs) == 1:
        name, kind = next(iter(inputs.items()))
        named = isinstance(data, Mapping) and set(data) == {name} and not isinstance(kind, Record)
        return [(name, f"$.{name}", data[name])] if named else [(name, "$", data)]
    if not isinstance(data, Mapping):
        raise InputError(
            "this program has several inputs",
            where="$",
            found=type(data).__name__,
            hint="pass a dict: {" + ", ".join(f"{name!r}: ..." for name in inputs) + "}",
        )
    for name in inputs:
        if name not in data:
            raise _missing(name, list(map(str, data)), "$")
    return [(name, f"$.{name}", data[name]) for name in inputs]


def _native(kind: Type, data: Data) -> Type:
    match kind:
        case Vector(dtype=dtype) if dtype != "string":
            return kind.having(dtype=_width(dtype, data), sparse=is_sparse(data))
        case Scalar(dtype=dtype):
            return Scalar(_width(dtype, data))
        case Record(fields, positional, unread):
            columns = frame_columns(data)
            if columns is None and hasattr(data, "dtype"):
                columns = dict.fromkeys(kind.names, data)
            if columns is None:
                return kind
            typed = tuple((n, _native(sub, columns.get(n))) for n, sub in fields)
            return Record(typed, positional, unread)
    return kind


def _width(dtype: str, data: Data) -> str:
    """The float width to compute in: the data's own; whole numbers count as float64."""
    if dtype not in FLOATS:
        return dtype
    own = getattr(data, "dtype", None)
    if isinstance(own, np.dtype) and own.kind in "biuf":
        return own.name if own.name in FLOATS else "float64"  # the name has no byte order
    return str(own) if str(own) in FLOATS else dtype


def _column(data: Data, kind: Type, path: str) -> Columns:
    match kind:
        case Vector():
            return _vector(data, kind, path)
        case Record():
            return _record(data, kind, path)
        case Scalar(dtype) | Category(dtype):
            return _values(_flat(data, path), dtype, path)
        case Text():
            return _texts(data, path)
        case Tokens():
            return [_words(words, f"{path}[{i}]") for i, words in enumerate(data)]


# --- vectors ----------------------------------------------------------------------------------


def _vector(data: Data, kind: Vector, path: str) -> Columns:
    if is_sparse(data):
        return _from_sparse(data, kind, path)
    columns = frame_columns(data)
    if columns is not None:
        parts = [_values(values, kind.dtype, f"{path}.{name}") for name, values in columns.items()]
        data = np.stack(parts, axis=1) if parts else np.empty((0, 0))
    matrix = _rectangle(data, path)
    if matrix.ndim == 1:
        raise NotRectangular(
            "a block of rows has two dimensions, got one",
            where=path,
            found=f"{len(matrix)} values",
            hint="one row: x.reshape(1, -1); one column: x.reshape(-1, 1)",
        )
    if matrix.ndim != 2:
        raise NotRectangular(
            f"a block of rows has two dimensions, got {matrix.ndim}",
            where=path,
            found=f"{type(data).__name__} of shape {matrix.shape}",
            hint=_ROWS,
        )
    _check_width(matrix.shape, kind.width, path)
    dense = _as_dtype(matrix, kind.dtype, path)
    return Sparse.of(dense) if kind.sparse else dense


_ROWS = "pass rows of values, as in [[1.0, 2.0], [3.0, 4.0]]"


def _check_width(shape: tuple[int, ...], width: int, path: str, names: str = "") -> None:
    """Every row needs as many values as the program has columns."""
    if shape[1] != width:
        raise WidthMismatch(
            f"expected {width} columns, got {shape[1]}",
            where=path,
            found=f"{shape[0]} rows of {shape[1]}",
            hint=names or "was a column dropped or added after training?",
        )


def _from_sparse(data: Data, kind: Vector, path: str) -> Columns:
    _check_width(data.shape, kind.width, path)
    made = Sparse.from_scipy(data)
    typed = made.with_data(_as_dtype(made.data, kind.dtype, path))
    return typed if kind.sparse else typed.toarray()


def _rectangle(data: Data, path: str) -> NDArray[Any]:
    try:
        return np.asarray(data)
    except ValueError as problem:
        raise NotRectangular(
            "the rows have different lengths", hint=_RAGGED, **_ragged(data, path)
        ) from problem


_RAGGED = "every row needs a value for every column; use None or NaN where one is missing"


def _ragged(data: Sequence[Any], path: str) -> dict[str, str]:
    """Which row is the first whose length differs from row 0, and how long it is."""
    lengths = [len(row) if isinstance(row, Sequence | np.ndarray) else -1 for row in data]
    odd = next((i for i, length in enumerate(lengths) if length != lengths[0]), 0)
    found = f"{lengths[odd]} values, the first row has {lengths[0]}"
    return {"where": f"{path}[{odd}]", "found": found}


def _as_dtype(values: NDArray[Any], dtype: str, path: str) -> NDArray[Any]:
    if dtype == "string":
        return _strings(values, path)
    if values.dtype.kind in "OUS":
        values = _numbers(values, path)
    if values.dtype.kind not in "biuf":
        raise WrongDtype(
            f"expected {dtype}", where=path, found=f"dtype {values.dtype}", hint=_CONVERT
        )
    if np.dtype(dtype).kind in "iub" and values.dtype != dtype:
        _whole(values, dtype, path)
    return values.astype(dtype, copy=False)


def _whole(values: NDArray[Any], dtype: str, path: str) -> None:
    """Other numbers may stand for whole ones where nothing is lost."""
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    bad = ~((np.floor(values) == values) & (values >= low) & (values <= high))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        spot = path + "".join(f"[{i}]" for i in where)
        found = str(values[where])
        raise WrongDtype(f"expected {dtype}", where=spot, found=found, hint=_CONVERT)


_CONVERT = "convert it before predicting, as before training"


def _numbers(values: NDArray[Any], path: str) -> NDArray[Any]:
    """An object array that holds only numbers (None is a missing one) as float64."""
    made = np.empty(values.shape, np.float64)
    for where, value in np.ndenumerate(values):
        if value is None:
            made[where] = np.nan
        elif isinstance(value, int | float | np.number | np.bool_):
            made[where] = float(value)
        elif _is_missing(value):
            made[where] = np.nan
        else:
            spot = path + "".join(f"[{i}]" for i in where)
            raise NotNumeric(
                "expected numbers",
                where=spot,
                found=f"{type(value).__name__} {str(value)[:40]!r}",
                hint="encode strings, or convert the column with astype(float)",
            )
    return made


# --- records and single columns ----------------------------------------------------------------


def _record(data: Data, kind: Record, path: str) -> dict[str, Columns]:
    columns = frame_columns(data)
    if columns is None:
        columns = _by_position(data, kind, path)
    elif kind.positional and not set(kind.names) <= set(columns):
        # Fitted without names: a frame's own names say nothing, its columns are taken in order.
        _check_width((len(next(iter(columns.values()), ())), len(columns)), len(kind.names), path)
        columns = dict(zip(kind.names, columns.values(), strict=True))
    made = {}
    for name, sub in kind.fields:
        if name in kind.unread:
            continue  # nobody reads it, whatever it holds
        if name not in columns:
            raise _missing(name, list(columns), path)
        made[name] = _column(as_column(columns[name]), sub, f"{path}.{name}")
    lengths = {name: len(column) for name, column in made.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {count}" for name, count in lengths.items())
        raise NotRectangular(
            "the columns have different lengths", where=path, found=found, hint=_RAGGED
        )
    return made


def _by_position(data: Data, kind: Record, path: str) -> dict[str, Any]:
    if isinstance(data, Sequence) and data and isinstance(data[0], Mapping):
        return _from_dicts(data, kind, path)
    matrix = np.asarray(data, dtype=object) if isinstance(data, Sequence) else np.asarray(data)
    if matrix.ndim != 2:
        raise NotRectangular(
            "expected named columns or rows of two dimensions",
            where=path,
            found=f"{type(data).__name__} of {matrix.ndim} dimensions",
            hint="pass a frame, a dict of columns or a list of dicts",
        )
    names = "the columns are " + ", ".join(kind.names)
    _check_width(matrix.shape, len(kind.fields), path, names)
    return {name: matrix[:, j] for j, name in enumerate(kind.names)}


def _from_dicts(rows: Sequence[Mapping[str, Any]], kind: Record, path: str) -> dict[str, Any]:
    made: dict[str, list[Any]] = {name: [] for name in kind.names}
    for i, row in enumerate(rows):
        for name, values in made.items():
            if name not in row and name not in kind.unread:
                raise _missing(name, list(row), f"{path}[{i}]")
            values.append(row.get(name))
    return {name: _object_array(values) for name, values in made.items()}


def _missing(name: str, present: list[str], path: str) -> MissingColumn:
    close = get_close_matches(name, present, 1)
    hint = f"did you mean {close[0]!r}?" if close else "columns are found by name, in any order"
    return MissingColumn(
        f"there is no column {name!r}", where=path, found=", ".join(present[:20]), hint=hint
    )


def _flat(data: Data, path: str) -> NDArray[Any]:
    column = as_column(data)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise NotRectangular(
            "expected one value per row",
            where=path,
            found=f"{column.ndim} dimensions",
            hint="a list, or an array of one dimension",
        )
    return column


def _values(column: Data, dtype: str, path: str) -> NDArray[Any]:
    return _as_dtype(as_column(column), dtype, path)


def _texts(data: Data, path: str) -> NDArray[Any]:
    if isinstance(data, str):
        raise WrongDtype(
            "expected a list of documents, got one",
            where=path,
            found=f"str {data[:40]!r}",
            hint="pass [text] for one row",
        )
    column = _flat(data, path)
    for i, value in enumerate(column):
        if not isinstance(value, str):
            raise WrongDtype(
                "expected text",
                where=f"{path}[{i}]",
                found=type(value).__name__,
                hint="an empty document is ''",
            )
    return column.astype(object)


def _words(words: Data, path: str) -> list[str]:
    """One row's words; a document in their place was not cut into words yet."""
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        found = type(words).__name__
        raise WrongDtype("expected a list of words", where=path, found=found, hint=_WORDS)
    return list(words)


_WORDS = "one list of strings per row; for whole documents start from flour.text() and tokenize()"


def _strings(values: NDArray[Any], path: str) -> NDArray[Any]:
    """Strings as an object array of str; None and NaN stay what they are (missing)."""
    if values.dtype.kind == "U" or not values.size:  # an empty list is an array of floats
        return values.astype(object)
    if values.dtype.kind != "O":
        raise WrongDtype(
            "expected strings", where=path, found=f"dtype {values.dtype}", hint=_AS_STRINGS
        )
    made = values.copy()
    for where, value in np.ndenumerate(values):
        if isinstance(value, str) or value is None:
            continue
        if not _is_missing(value):
            spot = path + "".join(f"[{i}]" for i in where)
            found = f"{type(value).__name__} {value!r}"[:60]
            raise WrongDtype("expected a string", where=spot, found=found, hint=_AS_STRINGS)
        made[where] = np.nan
    return made


_AS_STRINGS = "the column held strings when it was fitted; None or NaN where one is missing"


def _is_missing(value: object) -> bool:
    """NaN, pandas.NA and NaT: the values that are not equal to themselves, or say NA."""
    return type(value).__name__ in {"NAType", "NaTType"} or (
        isinstance(value, float) and value != value  # noqa: PLR0124 (the definition of NaN)
    )


def _object_array(values: list[Any]) -> NDArray[Any]:
    made = np.empty(len(values), object)
    made[:] = values
    return made
