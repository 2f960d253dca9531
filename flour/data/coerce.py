"""Callers' data converted to the columns that a program's inputs are typed for; errors say where.

Vector              2-d array, nested lists, frame, scipy sparse matrix
Record              frame (pandas, polars, Arrow), dict of columns, list of dicts, or, where it
                    was fitted on a plain array, a 2-d array by position
Scalar, Category    1-d array or list
Text                list of str, or of bytes where the input has an encoding
Pairs               a dict, list of dicts or of lists of (name, number)
several inputs      {input name: any of these}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import (
    InputError,
    MissingColumn,
    NotRectangular,
    WidthMismatch,
    WrongDtype,
    nearest,
)
from flour.core.op import Columns
from flour.core.reference import row_count
from flour.core.sparse import Sparse
from flour.core.types import (
    FLOATS,
    INTS,
    Category,
    Pairs,
    Record,
    Scalar,
    Text,
    Tokens,
    Type,
    Vector,
    Whole,
)
from flour.data.coerce_pairs import is_block, pair_rows
from flour.data.coerce_values import as_dtype, documents, in_digits, is_missing
from flour.data.frames import as_column, frame_columns, is_sparse, object_array

Data = Any


def coerce(inputs: Mapping[str, Type], data: Data) -> tuple[dict[str, Columns], int]:
    """The program's input columns and the number of rows."""
    columns = {name: _column(part, inputs[name], path) for name, path, part in _split(inputs, data)}
    counts = {name: row_count(column) for name, column in columns.items()}
    _same_length(counts, "the inputs have different numbers of rows", "$")
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
        named = is_named(name, kind, data)
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
            raise missing_column(name, list(map(str, data)), "$")
    return [(name, f"$.{name}", data[name]) for name in inputs]


def is_named(name: str, kind: Type, data: Data) -> bool:
    """True if the data of a program's only input stands under the input's name."""
    if isinstance(kind, Record) or not isinstance(data, Mapping) or set(data) != {name}:
        return False
    return not isinstance(kind, Pairs) or is_block(data[name])


def _native(kind: Type, data: Data) -> Type:
    match kind:
        case Vector(dtype=dtype) if dtype != "string":
            own = (kind.given and _own_dtype(data)) or _width(dtype, data)
            return kind.having(dtype=own, sparse=is_sparse(data))
        case Scalar(dtype, given):
            return Scalar((given and _own_dtype(data)) or _width(dtype, data, _is_held), given)
        case Record(fields, positional, unread):
            columns = _own_columns(kind, data)
            if columns is None:
                return kind
            typed = tuple((n, _native(sub, columns.get(n))) for n, sub in fields)
            groups: dict[int, set[str]] = {}
            for _, sub in typed:
                if isinstance(sub, Scalar) and sub.given:
                    groups.setdefault(sub.given, set()).add(sub.dtype)
            for dtypes in groups.values():
                _check_mixed(dtypes)
            return Record(typed, positional, unread)
    return kind


def _own_columns(kind: Record, data: Data) -> Mapping[str, Data] | None:
    """The columns whose dtypes are those of the data; None where the data has no dtypes."""
    columns = frame_columns(data)
    if columns is not None:
        return columns
    if getattr(data, "dtype", None) not in (None, object):
        return dict.fromkeys(kind.names, data)
    if not any(isinstance(sub, Scalar) and sub.dtype in _WHOLE for _, sub in kind.fields):
        return None
    try:
        columns = _by_position(data, kind, "$")
    except InputError:
        return None  # data that is no rectangle is refused when it is read
    return columns if hasattr(data, "dtype") else {n: list(c) for n, c in columns.items()}


def _holds_numbers(own: np.dtype[Any], _: str) -> bool:
    """Of arrays as vectors, the dtype is what was meant: what it cannot hold is refused."""
    return own.kind != "O"


def _own_dtype(data: Data) -> str:
    """The dtype of an array, a column or a frame, where numpy computes in it as in no float64."""
    if isinstance(data, list | tuple):
        return ""
    columns = (frame_columns(data) or {"": data}).values()
    names = {str(as_column(column).dtype) for column in columns}
    _check_mixed(names)
    return min(names) if len(names) == 1 and names <= {*_WHOLE, "float16"} else ""


def _check_mixed(dtypes: set[str]) -> None:
    """Refuse columns of one function of numpy's that it computes in several dtypes."""
    if len(dtypes) > 1 and dtypes & _NARROWER:
        raise WrongDtype(
            "numpy's function would compute each of its columns in a dtype of its own",
            where="$",
            found=", ".join(sorted(dtypes)),
            hint="make them floats first: frame.astype(float)",
        )


def _width(
    dtype: str, data: Data, is_held: Callable[[np.dtype[Any], str], bool] = _holds_numbers
) -> str:
    """The float width to compute in: the data's own; other dtypes count as float64.

    Data that does not say (lists) is read in the width the program was written for, and so is
    float32 of other kinds than numpy's own, which training libraries widen.
    """
    if dtype not in FLOATS:  # a sample of whole numbers does not forbid fractions
        own = getattr(data, "dtype", None)
        if dtype in _WHOLE and not (isinstance(own, np.dtype) and is_held(own, dtype)):
            return dtype if _all_whole(data, dtype) else "float64"  # as a frame's column would be
        name = str(own.name) if isinstance(own, np.dtype) else ""
        return name if name in FLOATS and dtype != "string" else dtype
    kinds = _kinds(data)
    if all(str(kind) in _NARROW for kind in kinds):
        return dtype
    numbers = all(isinstance(k, np.dtype) and k.kind in "biuf" and k.isnative for k in kinds)
    common = np.result_type(*kinds).name if numbers else ""
    return common if common in FLOATS else "float64"


def _is_held(own: np.dtype[Any], dtype: str) -> bool:
    """True if it is known by the column's own dtype: of floats, or of no others than these."""
    return own.kind == "f" or (own.kind in "biu" and np.can_cast(own, dtype))


def _all_whole(data: Data, dtype: str) -> bool:
    """True if a column has neither missing values nor numbers that this dtype cannot hold."""
    try:
        column = as_column(data)
    except ValueError:
        return True  # ragged data is refused elsewhere
    if column.dtype.kind not in "fiuO" or not column.size:
        return True
    info = None if dtype == "bool" else np.iinfo(dtype)
    low, beyond = (0, 2) if info is None else (int(info.min), int(info.max) + 1)
    if column.dtype.kind in "iu":
        return low <= int(column.min()) and int(column.max()) < beyond
    return not any(_makes_floats(value, low, beyond) for value in column.flat)


def _makes_floats(value: object, low: int, beyond: int) -> bool:
    """True if an estimator would read a frame's column with this value as floats."""
    if isinstance(value, int | np.integer | Fraction):
        return not (value.denominator == 1 and low <= value < beyond)
    if isinstance(value, float | np.floating | Decimal):
        # numpy before 2 cannot compare a longdouble with 2**63.
        exact = float(value) if isinstance(value, np.floating) else value
        return not (float(value).is_integer() and low <= exact < beyond)
    return value is None or is_missing(value)


#: Dtypes that do not hold every number: a fraction, a missing or a larger one makes floats of it.
_WHOLE = (*INTS, "bool")
#: Dtypes for which numpy's functions compute otherwise than beside floats.
_NARROWER = frozenset(_WHOLE) - {"int64"}
#: Of pandas and polars, of Arrow, of the other byte order.
_NARROW = ("Float32", "float", ">f4", "<f4")


def _kinds(data: Data) -> list[Any]:
    """The dtypes that an array, a column or a frame (pandas, polars, Arrow) has."""
    many = getattr(data, "dtypes", None)
    if many is not None and hasattr(many, "__iter__"):
        return list(many)
    schema = getattr(data, "schema", None)
    if schema is not None and hasattr(schema, "types"):
        return list(schema.types)
    own = getattr(data, "dtype", getattr(data, "type", None))
    return [] if own is None else [own]


def _column(data: Data, kind: Type, path: str) -> Columns:  # noqa: PLR0911 (one for each kind)
    match kind:
        case Vector():
            return _vector(data, kind, path)
        case Record():
            return _record(data, kind, path)
        case Category("string", digits=True):
            return as_dtype(in_digits(_flat(data, path)), "string", path)
        case Scalar(dtype) | Category(dtype):
            return as_dtype(_flat(data, path), dtype, path)
        case Text():
            return _texts(data, kind, path)
        case Tokens():
            if isinstance(data, str | bytes) or not isinstance(data, Iterable) or is_sparse(data):
                found = type(data).__name__
                raise WrongDtype("expected rows of words", where=path, found=found, hint=_WORDS)
            # Arrow's lists are no strings.
            rows = data.to_pylist() if hasattr(data, "to_pylist") else data
            return [_words(words, f"{path}[{i}]") for i, words in enumerate(rows)]
        case Pairs():
            return pair_rows(data, kind, path)
        case Whole(name):
            whole = WHOLE_DTYPES.get(name)
            return [data if whole is None else as_dtype(_rectangle(data, path, whole), whole, path)]


WHOLE_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(string)": "string",
    **{f"tensor({name})": name for name in (*INTS, "bool")},
}
"""Tensors whose elements columns can have, too."""


# --- vectors ----------------------------------------------------------------------------------


def _vector(data: Data, kind: Vector, path: str) -> Columns:
    if is_sparse(data):
        if len(data.shape) != 2:
            found = f"a sparse array of shape {data.shape}"
            raise NotRectangular(_TWO, where=path, found=found, hint=_ROWS)
        _check_width(data.shape, kind.width, path)
        stored = Sparse.from_scipy(data)
        typed = stored.with_data(as_dtype(stored.data, kind.dtype, path))
        return typed if kind.sparse else typed.toarray()
    columns = frame_columns(data)
    if columns is not None:
        try:
            parts = {
                name: as_dtype(_flat(values, f"{path}.{name}"), kind.dtype, f"{path}.{name}")
                for name, values in columns.items()
            }
        except InputError as problem:
            if columns and all(isinstance(each, _SINGLE) for each in columns.values()):
                raise NotRectangular(
                    "this model has no names for its columns, so that a row has none either",
                    where=path,
                    found=", ".join(map(str, columns))[:200],
                    hint=f"pass a row as a list of {kind.width} values, or {_SAMPLE}",
                ) from None
            _check_form(columns, path)
            if isinstance(problem, WrongDtype):
                problem.hint = "; or ".join(filter(None, (problem.hint, _SAMPLE)))
            raise
        _same_length({name: len(part) for name, part in parts.items()}, _LENGTHS, path)
        data = np.stack(list(parts.values()), axis=1) if parts else np.empty((0, 0))
    matrix = _rectangle(data, path, kind.dtype)
    if matrix.ndim == 1:
        raise NotRectangular(
            f"{_TWO}, got one",
            where=path,
            found=f"{len(matrix)} values",
            hint="one row: x.reshape(1, -1); one column: x.reshape(-1, 1)",
        )
    if matrix.ndim != 2:
        raise NotRectangular(
            f"{_TWO}, got {matrix.ndim}",
            where=path,
            found=f"{type(data).__name__} of shape {matrix.shape}",
            hint=_ROWS,
        )
    _check_width(matrix.shape, kind.width, path)
    dense = as_dtype(matrix, kind.dtype, path)
    return Sparse.of(dense) if kind.sparse else dense


_SAMPLE = "import the model with sample=, a few rows of the frame that it was trained on"
_TWO = "a block of rows has two dimensions"
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


def _rectangle(data: Data, path: str, dtype: str) -> NDArray[Any]:
    try:
        matrix = np.asarray(data)
    except ValueError as problem:
        raise NotRectangular(
            "the rows have different lengths", hint=_RAGGED, **_ragged(data, path)
        ) from problem
    if matrix.dtype.kind in "US" and dtype != "string" and isinstance(data, list | tuple):
        return np.array(data, object)  # numpy turned the numbers beside a string into strings
    return matrix


_RAGGED = "every row needs a value for every column; use None or NaN where one is missing"


def _ragged(data: Sequence[Any], path: str) -> dict[str, str]:
    """The first row whose length differs from that of row 0, and its length."""
    lengths = [_row_length(row) for row in data]
    first = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
    if first is not None:
        found = f"{lengths[first]}, the first row has {lengths[0].removesuffix(' values')}"
        return {"where": f"{path}[{first}]", "found": found}
    row = next(i for i, row in enumerate(data) if any(map(_is_row, row)))
    column = next(j for j, value in enumerate(data[row]) if _is_row(value))
    found = f"a {type(data[row][column]).__name__} in the place of a value"
    return {"where": f"{path}[{row}][{column}]", "found": found}


def _is_row(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _row_length(row: Any) -> str:
    if _is_row(row):
        return f"{len(row)} values"
    return "named values" if isinstance(row, Mapping) else f"one {type(row).__name__}"


# --- records and single columns ----------------------------------------------------------------


def _is_named(row: object, kind: Record) -> bool:
    """True for a named tuple with the columns of a record, such as a row of `itertuples`."""
    return isinstance(row, tuple) and set(kind.names) <= {*getattr(row, "_fields", ())}


def _record(data: Data, kind: Record, path: str) -> dict[str, Columns]:
    if isinstance(data, list | tuple) and data and _is_named(data[0], kind):
        data = [row._asdict() if _is_named(row, kind) else row for row in data]
    columns = frame_columns(data)
    if columns is None:
        columns = _by_position(data, kind, path)
    elif kind.positional and not set(kind.names) <= set(columns):
        # Fitted without names: a frame's columns are taken in order, whatever their names.
        _check_width((len(next(iter(columns.values()), ())), len(columns)), len(kind.names), path)
        columns = dict(zip(kind.names, columns.values(), strict=True))
    result = {}
    for name, sub in kind.fields:
        if name in kind.unread:
            continue  # the program does not read it
        if name not in columns:
            raise missing_column(name, list(columns), path)
        try:
            result[name] = _column(columns[name], sub, f"{path}.{name}")
        except InputError:
            plain = [n for n, sub in kind.fields if isinstance(sub, Scalar | Category | Text)]
            _check_form({n: columns[n] for n in plain if n in columns}, path)
            raise
    _same_length({name: len(column) for name, column in result.items()}, _LENGTHS, path)
    return result


def _check_form(columns: Mapping[str, Any], path: str) -> None:
    """Raise where some columns have single values and others lists: for the fewer of them."""
    lists = [n for n, each in columns.items() if isinstance(each, list | tuple | np.ndarray)]
    alone = [n for n, each in columns.items() if each is None or isinstance(each, _SINGLE)]
    if lists and alone:
        odd, found = lists, "a list among single values"
        if len(alone) < len(lists):
            odd, found = alone, "a single value among lists"
        what = "a row has one value in each column, and columns have a list each"
        raise NotRectangular(what, where=f"{path}.{odd[0]}", found=found)


_SINGLE = (str, bytes, int, float, np.generic)


def _same_length(lengths: Mapping[str, int], what: str, path: str) -> None:
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {count}" for name, count in lengths.items())
        raise NotRectangular(what, where=path, found=found, hint=_RAGGED)


_LENGTHS = "the columns have different lengths"


def _by_position(data: Data, kind: Record, path: str) -> dict[str, Any]:
    if isinstance(data, Sequence) and data and isinstance(data[0], Mapping):
        lists: dict[str, list[Any]] = {name: [] for name in kind.names}
        for i, row in enumerate(data):
            if not isinstance(row, Mapping):
                raise NotRectangular(
                    "the first row has named values, this one has none",
                    where=f"{path}[{i}]",
                    found=type(row).__name__,
                    hint="pass every row as a dict",
                )
            for name, values in lists.items():
                if name not in row and name not in kind.unread:
                    raise missing_column(name, list(map(str, row)), f"{path}[{i}]")
                values.append(row.get(name))
        return {name: object_array(values) for name, values in lists.items()}
    listed = isinstance(data, Sequence) and any(isinstance(row, list | tuple) for row in data)
    if listed and len(set(map(_row_length, data))) > 1:
        place = _ragged(data, path)
        raise NotRectangular("the rows have different lengths", hint=_RAGGED, **place)
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


def missing_column(name: str, present: list[str], path: str) -> MissingColumn:
    """The error that there is no column of this name among those that are."""
    hint = nearest(name, present) or "columns are found by name, in any order"
    return MissingColumn(
        f"there is no column {name!r}",
        where=path,
        found=", ".join(present[:20]) or "no columns",
        hint=hint,
    )


def _flat(data: Data, path: str) -> NDArray[Any]:
    try:
        column = as_column(data, path)
    except InputError:
        raise
    except ValueError as problem:
        raise _not_flat(path, "rows of different lengths") from problem
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise _not_flat(path, f"{column.ndim} dimensions")
    return column


def _not_flat(path: str, found: str) -> NotRectangular:
    hint = "a list, or an array of one dimension"
    return NotRectangular("expected one value per row", where=path, found=found, hint=hint)


def _texts(data: Data, kind: Text, path: str) -> NDArray[Any]:
    if isinstance(data, str | bytes):
        raise WrongDtype(
            "expected a list of documents, got one",
            where=path,
            found=f"{type(data).__name__} {data[:40]!r}",
            hint="pass [text] for one row",
        )
    if isinstance(data, Sequence) and any(isinstance(each, list | tuple) for each in data):
        place = next(i for i, each in enumerate(data) if isinstance(each, list | tuple))
        found = f"a {type(data[place]).__name__} {str(data[place])[:40]}"
        raise WrongDtype("expected text", where=f"{path}[{place}]", found=found, hint=_ONE_TEXT)
    return documents(_flat(data, path), kind, path)


_ONE_TEXT = "pass documents one by one: ['a', 'b'] for two, without brackets of their own"


def _words(words: Data, path: str) -> list[str]:
    """One row's words; a document, not yet cut into words, is refused."""
    rows = isinstance(words, Iterable) and not isinstance(words, str)
    if not rows or not all(isinstance(word, str) for word in words):
        found = type(words).__name__
        raise WrongDtype("expected a list of words", where=path, found=found, hint=_WORDS)
    return list(words)


_WORDS = "one list of strings per row; for whole documents start from flour.text() and tokenize()"
