"""Arrow batches as the data that plans run on: columns become arrays, copied where they must be.

What anybody has in Arrow is taken over the C data interface (`__arrow_c_array__`,
`__arrow_c_stream__`), so pyarrow, polars, pandas, DuckDB and others hand in their own objects.

| column | becomes |
|---|---|
| numbers without missing values | an array over Arrow's own memory |
| numbers with missing values, bools, float32 for a program of float64 | a copied array |
| whole numbers beyond 2^53, some of them missing | see `exact_parts` |
| strings of a category | their places in Arrow's own memory (flour.data.arrow_strings) |
| dictionaries | an array of objects, one object for each distinct value |
| documents (string, large_string, string_view) | an array of str |
| lists of fixed size, for a vector | a matrix over Arrow's own memory |

Answers are those for the same columns as a frame. A block whose columns are all dictionaries of few
values is answered once for each combination of values that occurs in it: see `distinct`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import NotDecodable, WidthMismatch, WrongDtype
from flour.core.types import FLOATS, Category, Pairs, Record, Scalar, Tokens, Type, Vector
from flour.data.arrow_strings import LEAST_ROWS, text_cells
from flour.data.coerce import missing_column
from flour.data.frames import as_array, decoded

Arrow = Any
"""An array, batch, table or stream of pyarrow, which has no type information."""


class Combinations(NamedTuple):
    """The distinct rows of a batch, and which of them each row is."""

    batch: Arrow
    places: NDArray[np.int64]


@cache
def library() -> ModuleType:
    """The pyarrow package."""
    return import_module("pyarrow")


def no_rows(schema: Arrow) -> Arrow:
    """A batch without rows."""
    pa = library()
    return pa.record_batch([pa.nulls(0, kind) for kind in schema.types], schema=schema)


class ArrowReader:
    """Reads the batches that come for a program's inputs."""

    __slots__ = ("_inputs", "_kind", "_name")

    def __init__(self, inputs: Mapping[str, Type]) -> None:
        self._inputs = inputs
        only = next(iter(inputs.items())) if len(inputs) == 1 else ("", None)
        self._name: str = only[0]
        self._kind: Type | None = only[1]

    def columns(self, names: list[str], apart: Collection[str] = ()) -> list[str]:
        """The columns that the program reads, in their own order.

        A program without names reads all of them by position; those `apart` may be more.
        """
        found = self._read_of(names, apart)
        if len(set(found)) < len(found):
            twice = next(name for name in found if found.count(name) > 1)
            raise WrongDtype(
                f"several columns have the name {twice!r}",
                where="$",
                found=", ".join(names)[:200],
                hint="rename all but one of them: columns are found by name",
            )
        return found

    def _read_of(self, names: list[str], apart: Collection[str]) -> list[str]:
        kind = self._kind
        if isinstance(kind, Record):
            if kind.positional and not set(kind.names) <= set(names):
                return _by_position(names, apart, len(kind.fields))
            read = set(kind.names) - set(kind.unread)
            return [name for name in names if name in read]
        if kind is None:
            return [name for name in names if name in self._inputs]
        if self._name in names:
            return [self._name]
        return _by_position(names, apart, kind.width) if isinstance(kind, Vector) else names

    def check(self, names: list[str], apart: Collection[str] = ()) -> list[str]:
        """The columns that the program reads; an error if one that it needs is missing.

        `columns` does not look for what is missing, as the rows of a file may be lists.
        """
        found, kind = self.columns(names, apart), self._kind
        if isinstance(kind, Vector) and len(names) > 1 and len(found) < kind.width:
            raise WidthMismatch(
                f"expected {kind.width} columns, got {len(names)}",
                where="$",
                found=", ".join(names)[:200],
                hint="was a column dropped or added after training?",
            )
        if isinstance(kind, Record):
            needed = [name for name in kind.names if name not in kind.unread]
            if kind.positional and len(found) == len(kind.fields):
                return found
        elif kind is None:
            needed = list(self._inputs)
        else:
            if not isinstance(kind, Vector | Pairs) and len(found) > 1:
                raise self._not_one(names)
            return found
        for name in needed:
            if name not in found:
                raise missing_column(name, names, "$")
        return found

    def _not_one(self, names: list[str]) -> WrongDtype:
        return WrongDtype(
            f"the program reads one column, {self._name!r}",
            where="$",
            found=", ".join(names)[:200],
            hint=f"select it, or call it {self._name!r}",
        )

    def categories(self) -> set[str]:
        """The columns of strings that are no documents: they are read by their distinct values."""
        kind = self._kind
        fields = kind.fields if isinstance(kind, Record) else self._inputs.items()
        return {
            name
            for name, sub in fields
            if isinstance(sub, Scalar | Category) and sub.dtype == "string"
        }

    def read(self, batch: Arrow) -> Any:
        """The rows of a batch as `Plan.run` takes them."""
        kind = self._kind
        self.columns(batch.schema.names)  # no name twice
        one = self._name in batch.schema.names
        first = batch.column(self._name if one else 0) if batch.columns else None
        lists = (one or len(batch.columns) == 1) and _is_nested(first)
        if isinstance(kind, Vector) and not lists and (not one or kind.width == 1):
            return _tensor(batch.select([self._name]) if one else batch, kind)
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        if kind is None:
            return {n: _column(c, self._inputs.get(n), f"$.{n}") for n, c in found.items()}
        if isinstance(kind, Record):
            return _record(found, kind, "$")
        if self._name in found or len(found) == 1:
            name = self._name if self._name in found else next(iter(found))
            return _column(found[name], kind, f"$.{name}")
        raise self._not_one(list(found))

    def distinct(self, batch: Arrow) -> Combinations | None:
        """The distinct rows of a batch of dictionaries; None where reading all is as well."""
        names = self.columns(batch.schema.names)
        columns = []
        for name in names:
            columns.append(batch.column(name))
            if not hasattr(columns[-1], "dictionary"):
                return None
        if not columns:
            return None
        sizes = [len(column.dictionary) + 1 for column in columns]
        total = int(np.prod(sizes, dtype=float))
        if 2 * total > batch.num_rows:
            return None
        codes = np.zeros(batch.num_rows, np.int64)
        for column, size in zip(columns, sizes, strict=True):
            codes *= size
            codes += _codes(column, size - 1)
        used = np.flatnonzero(np.bincount(codes, minlength=total))
        places = np.empty(total, np.int64)
        places[used] = np.arange(len(used))
        pa, made, rest = library(), [], used
        for column, size in zip(reversed(columns), reversed(sizes), strict=True):
            rest, code = np.divmod(rest, size)
            indices = pa.array(code, mask=code == size - 1)
            made.append(decoded(pa.DictionaryArray.from_arrays(indices, column.dictionary)))
        return Combinations(pa.record_batch(list(reversed(made)), names=names), places[codes])


def exact_parts(batch: Arrow) -> list[NDArray[np.int64]]:
    """The numbers of the rows that have to be read apart, so that no whole number is rounded.

    Whole numbers of which some are missing are read as float64, as those of a frame are, and the
    program computes in float64 then: numbers beyond 2^53 would be rounded because another row has
    none. So rows in which such a column has a value go without those in which it has none. Where
    no number is that large, there are no parts.
    """
    whole = [column for column in batch.columns if library().types.is_integer(_values(column).type)]
    holes = [column.is_null() for column in whole if column.null_count]
    if not holes or not any(map(_is_wide, whole)):
        return []
    bits = np.stack([each.to_numpy(zero_copy_only=False) for each in holes], axis=1)
    patterns, which = np.unique(bits, axis=0, return_inverse=True)
    return [np.flatnonzero(which.reshape(-1) == part) for part in range(len(patterns))]


def _values(column: Arrow) -> Arrow:
    return getattr(column, "dictionary", column)


def _is_wide(column: Arrow) -> bool:
    """True if float64 does not hold some of the whole numbers of a column."""
    values = _values(column)
    if str(values.type) not in {"int64", "uint64"}:
        return False
    ends = import_module("pyarrow.compute").min_max(values).as_py().values()
    return any(abs(end) > _EXACT for end in ends if end is not None)


#: float64 has every whole number up to here.
_EXACT = 1 << 53


def _by_position(names: list[str], apart: Collection[str], width: int) -> list[str]:
    """All columns, or else all but those apart; an error if the program reads fewer."""
    found = names if len(names) <= width else [name for name in names if name not in apart]
    if len(found) > width:
        raise WidthMismatch(
            f"expected {width} columns, got {len(found)}",
            where="$",
            found=", ".join(found)[:200],
            hint="the model was trained without names, and reads columns by position: select those "
            "that it was trained on",
        )
    return found


def _codes(column: Arrow, missing: int) -> NDArray[Any]:
    """The position of each value in the dictionary; `missing` for absent ones."""
    indices = column.indices
    if indices.null_count:
        indices = indices.cast("int64").fill_null(missing)
    return np.asarray(indices.to_numpy(zero_copy_only=False))


def _record(found: Mapping[str, Arrow], kind: Record, path: str) -> dict[str, Any]:
    """Columns by name. One that is not there is told by flour.data.coerce."""
    if kind.positional and not set(kind.names) <= set(found):
        if len(found) == len(kind.fields):
            found = dict(zip(kind.names, found.values(), strict=True))
        return {n: _column(c, dict(kind.fields).get(n), f"{path}.{n}") for n, c in found.items()}
    read = {name: sub for name, sub in kind.fields if name not in kind.unread}
    if not read.keys() <= found.keys():
        return {name: _array(column) for name, column in found.items() if not _is_nested(column)}
    return {name: _column(found[name], sub, f"{path}.{name}") for name, sub in read.items()}


def _column(column: Arrow, kind: Type | None, path: str) -> Any:
    """One column as the data of an input or field."""
    if hasattr(column, "storage"):
        column = column.storage
    if hasattr(column, "dictionary") and len(column.dictionary) > len(column):
        column = decoded(column)  # most of its values are not in these rows
    match kind:
        case Vector(width):
            return _rows(column, width)
        case Tokens() | Pairs():
            return column.to_pylist()
        case Record() if hasattr(column, "flatten") and "struct" in str(column.type)[:6]:
            parts = zip(column.type, column.flatten(), strict=True)
            return _record({field.name: part for field, part in parts}, kind, path)
    if _is_nested(column):
        raise WrongDtype(
            "expected one value per row",
            where=path,
            found=str(column.type)[:80],
            hint="unnest the column first; a vector takes lists, words are lists of strings",
        )
    texts = isinstance(kind, Scalar | Category) and kind.dtype == "string"
    texts = texts and str(column.type) in {"string", "large_string", "string_view"}
    cells = text_cells(column) if texts and len(column) >= LEAST_ROWS else None
    if cells is not None:
        return cells
    array = _array(column, path)
    if array.dtype == np.float32 and isinstance(kind, Scalar) and kind.dtype in FLOATS:
        return array.astype(kind.dtype, copy=False)
    return array


def _tensor(batch: Arrow, kind: Vector) -> Any:
    """A batch as a matrix, which pyarrow makes itself where all columns are floats of one width."""
    pa = library()
    types = set(batch.schema.types)
    if not batch.num_rows or types not in ({pa.float64()}, {pa.float32()}):
        return _matrix(dict(zip(batch.schema.names, batch.columns, strict=True)), kind)
    made = np.asarray(batch.to_tensor(null_to_nan=True))
    if made.itemsize == 8:  # what is wide stays so
        return made
    return made.astype(kind.dtype if kind.dtype in FLOATS else np.float64, copy=False)


def _matrix(found: Mapping[str, Arrow], kind: Vector) -> Any:
    """Columns side by side, in the width that flour.data.coerce would compute in."""
    arrays = {name: _column(column, Scalar(), f"$.{name}") for name, column in found.items()}
    if kind.dtype == "string" or any(array.dtype.kind not in "biuf" for array in arrays.values()):
        return arrays
    narrow = all(str(column.type) == "float" for column in found.values())
    rows = len(next(iter(arrays.values()), ()))
    whole = kind.given and all(array.dtype.kind in "biu" for array in arrays.values())
    if kind.dtype in FLOATS and not whole:
        dtype = kind.dtype if narrow else "float64"
    else:  # whole numbers stay so: float64 would round those beyond 2^53
        dtype = np.result_type(*arrays.values()).name if arrays else "float64"
    made = np.empty((rows, len(arrays)), dtype)
    for place, array in enumerate(arrays.values()):
        made[:, place] = array
    return made


def _rows(column: Arrow, width: int) -> Any:
    """Lists as the rows of a matrix; ragged ones are told by flour.data.coerce."""
    fixed = getattr(column.type, "list_size", None)
    if fixed is None and hasattr(column, "value_lengths"):
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        fixed = width if np.all(lengths == width) else None
    if fixed is None or column.null_count:
        return column.to_pylist()
    return _array(column.flatten()).reshape(len(column), fixed)


def _array(column: Arrow, path: str = "$") -> NDArray[Any]:
    """A column as an array; missing values are NaN among numbers, None elsewhere."""
    if not hasattr(column, "dictionary"):
        return as_array(column, path)
    try:
        values = as_array(column.dictionary)
    except NotDecodable:
        return as_array(decoded(column), path)  # by its row
    if column.null_count:
        none = [None] if values.dtype.kind not in "iuf" else [np.nan]
        values = np.concatenate([values, np.array(none)])
    return values.take(_codes(column, len(values) - 1))


def _is_nested(column: Arrow) -> bool:
    return column.type.num_fields > 0 and not hasattr(column, "dictionary")
