"""The data of a call, classified once: a row or a block, its form, its number of rows.

    input             one row                               a block of rows
    Vector            numpy vector, list of numbers         2-d array, list of lists, frame
    Record            dict of values, list by position,     frame, dict of columns, list of dicts
                      row of a pandas frame
    Text              str (or bytes)                        list of str
    Pairs             dict of values by any names           list of dicts
    Scalar, Category  a number, a str                       1-d array, list
    several inputs    {input: one row of it}                {input: a block of it}

The data of a program's only input may stand under the input's name, and one document in an array of
one or two dimensions: a batch has neither wrapping. Frames are pandas', polars' and Arrow's,
recognised by what they can do (see flour.data.frames); one of plain columns is read as arrays,
which is what its batch has (see flour.data.frame_reader). Columns of names that the program does
not read are ignored. Classifying looks at the types of a row's values and never at those of a
block, so it costs as much for a million rows as for one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from flour.core.types import (
    FLOATS,
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
from flour.data.coerce import is_named
from flour.data.coerce_pairs import is_one_row
from flour.data.frame_reader import FrameReader
from flour.data.frames import object_array
from flour.data.nulls import Known, Nulls, has_nulls

#: The cost of a document however short it is, in characters.
DOCUMENT = 32
#: Values of a row that need no closer look.
_VALUES: frozenset[type] = frozenset(
    {float, int, str, bool, type(None), np.float64, np.float32, np.int64, np.bool_}
)
#: A record among others, in a list of them.
_LISTED: frozenset[type] = frozenset({dict, list, tuple})


class Form(enum.Enum):
    """The form of a batch. A plan's entry reads all but GENERAL as they are."""

    ROW = "a vector, a list of values, or a dict of values by column"
    ARRAYS = "rows in a 2-d array, or in an array for each column"
    ROWS = "rows as dicts or lists of values, or a list for each column"
    DOCUMENT = "one document"
    DOCUMENTS = "a list of documents"
    GENERAL = "what has to be coerced"


class Batch(NamedTuple):
    """The data of one call. `rows` is 0 where only reading all of it would tell."""

    kind: Form
    data: Any
    rows: int
    single: bool
    """True if it is one row, whose answers are values and not arrays."""

    @property
    def block(self) -> Any:
        """The data as a block of rows, which is what plans run on."""
        if self.kind is Form.DOCUMENT:
            return [self.data]
        if self.kind is not Form.ROW:
            return self.data
        if type(self.data) is np.ndarray:
            return self.data[None]
        if type(self.data) is dict:
            return {name: [value] for name, value in self.data.items()}
        return [self.data]

    @property
    def as_block(self) -> Batch:
        """These rows as a block: for callers that want arrays for a single row, too."""
        return Batch(Form.GENERAL, self.block, self.rows, single=False) if self.single else self

    @property
    def is_block(self) -> bool:
        """True if it is a block of rows that entries read as they are."""
        return self.kind in _BLOCKS

    @property
    def has_dtype(self) -> bool:
        """True if it comes in arrays, whose dtypes may need native code of their own."""
        data = self.data
        if type(data) is dict:
            data = next(iter(data.values()), None)
        return isinstance(data, np.ndarray)

    @property
    def characters(self) -> int:
        """The size of documents, with DOCUMENT for each; 0 for anything else."""
        if self.kind is Form.DOCUMENT:
            return DOCUMENT + len(self.data)
        if self.kind is not Form.DOCUMENTS or {*map(type, self.data)} != {str}:
            return 0
        return DOCUMENT * self.rows + sum(map(len, self.data))


_ROW, _new = Form.ROW, tuple.__new__
_BLOCKS = frozenset((Form.ARRAYS, Form.ROWS, Form.DOCUMENTS))


class BatchReader:
    """Classifies the data of calls to one program."""

    __slots__ = (
        *("_frames", "_inputs", "_name", "_only", "by_column", "columns", "dtype", "nulls", "text"),
        "vector",
    )

    def __init__(
        self, inputs: Mapping[str, Type], known_missing: Callable[[], Known] | None = None
    ) -> None:
        """Read the types of the program's inputs; `known_missing`: see flour.data.nulls."""
        #: The meaning of nulls among words for the program.
        self.nulls = Nulls(inputs, known_missing)
        kinds = list(inputs.values())
        only = kinds[0] if len(kinds) == 1 else None
        self._inputs, self._only = inputs, only
        self._frames = FrameReader(only) if isinstance(only, Vector | Record) else None
        #: Facts of the only input: it is a vector or a record; it is a document.
        self.vector, self.text = isinstance(only, Vector | Record), isinstance(only, Text)
        #: The dtype of the arrays that the program's own code takes, if it reads one vector.
        self.dtype: np.dtype[Any] | None = None
        match only:
            case Vector(dtype=dtype, sparse=False) if dtype in FLOATS:
                self.dtype = np.dtype(dtype)
        #: The name of the only input, where its data may stand under it.
        self._name = next(iter(inputs)) if isinstance(only, Vector | Text) else None
        #: The values of a row by name, of records and of several inputs of one value each.
        self.columns = frozenset[str]()
        if isinstance(only, Record):
            self.columns = frozenset(only.names)
        elif len(kinds) > 1 and all(isinstance(kind, Scalar | Category | Text) for kind in kinds):
            self.columns = frozenset(inputs)
        self.by_column = bool(self.columns)

    def read(self, data: object) -> Batch:
        """The data of a call as a batch."""
        if not self.nulls.idle:
            data = self.nulls.of_rows(data)
        if type(data) is np.ndarray and self.vector:
            if data.ndim == 1 and data.dtype.names is None:
                return _new(Batch, (_ROW, data, 1, True))
            if data.ndim == 2:
                return Batch(Form.ARRAYS, data, len(data), single=False)
            return self._general(data)
        if type(data) is dict:
            return self._by_name(data)
        found = self._values(data) if self.vector else self._document(data)
        return found or self._general(self.nulls.of_frame(data) if has_nulls(data) else data)

    def _by_name(self, data: dict[str, Any]) -> Batch:
        if isinstance(self._only, Record) and self._only.unread:
            data = _row_of(self._only, data)
        if self.by_column and len(data) > len(self.columns):
            data = _without_others(data, self.columns)
        first: Any = next(iter(data.values()), None)
        rank = first.ndim if type(first) is np.ndarray and not self.text else 0
        if rank == 2 or (rank == 1 and self.by_column):
            return Batch(Form.ARRAYS, data, len(first), single=False)
        if self.by_column and (type(first) is list or type(first) is tuple):
            return Batch(Form.ROWS, data, len(first), single=False)
        if self._name is not None and len(data) == 1 and self._name in data:
            return self._general(first) if type(first) is dict else self.read(first)
        if self.by_column and data.keys() == self.columns and are_values(data.values()):
            return row_batch(data)
        return self._general(data)

    def widened(self, data: Any) -> Any:
        """Arrays by name, with floats for whole numbers where the program computes in floats."""
        return self._frames.widened(data) if self._frames and isinstance(data, dict) else data

    def _rows(self, data: Any) -> Batch | None:
        """A list of rows. Those of a vector become an array, as they would in coercion."""
        if self.by_column:
            return Batch(Form.ROWS, data, len(data), single=False)
        try:
            found = np.asarray(data)
        except ValueError:
            return None  # it is no rectangle
        fits = found.ndim == 2 and found.dtype.kind in "biuf" and self.dtype is not None
        if not fits or found.shape[1] != self._only.width:  # type: ignore[union-attr]  # a vector
            return None
        return Batch(Form.ARRAYS, found.astype(self.dtype, copy=False), len(data), single=False)

    def _values(self, data: object) -> Batch | None:
        """A vector or a record without names."""
        if type(data) is list or type(data) is tuple:
            if data and type(data[0]) in _LISTED:
                return self._rows(data)
            return row_batch(data) if data and are_values(data) else None
        found = None if self._frames is None else self._frames.read(data)
        if found is None:
            return self._labelled(data)
        if has_nulls(data):
            found = self.nulls.settled(found)
        rows = len(found) if isinstance(found, np.ndarray) else row_count(found)
        return Batch(Form.ARRAYS, found, rows, single=False)

    def _labelled(self, data: Any) -> Batch | None:
        """A row of a frame of pandas', which is a Series: its values by name, or in order."""
        if getattr(data, "ndim", 0) != 1 or not (hasattr(data, "index") and hasattr(data, "items")):
            return None
        kind = self._only
        if isinstance(kind, Vector):
            return row_batch(data.tolist()) if len(data) == kind.width else None
        assert isinstance(kind, Record), "nothing else has values in a row"
        if not kind.positional or self.columns & {*data.index}:
            row = data.to_dict()
        elif len(data) == len(kind.names):
            row = dict(zip(kind.names, data.tolist(), strict=True))
        else:
            return None
        if self.nulls.idle or all(value is not None for value in row.values()):
            return self._by_name(row)
        block = {name: object_array([value]) for name, value in row.items()}
        return Batch(Form.GENERAL, block, 1, single=True)  # as in its frame, None is None

    def _document(self, data: object) -> Batch | None:
        """One document, or several in a list, or one with arrays around it."""
        if not self.text:
            return None
        if type(data) is str or type(data) is bytes:
            return Batch(Form.DOCUMENT, data, 1, single=True)
        if isinstance(data, np.ndarray):
            if data.dtype == object and data.ndim == 1 and len(data) > 1:
                known = type(data[0]) is str
                return Batch(Form.DOCUMENTS, data, len(data), single=False) if known else None
            data = [data.item()] if data.size == 1 and 0 < data.ndim < 3 else None
        if type(data) is not list or not data:
            return None
        if type(data[0]) is str or (len(data) == 1 and type(data[0]) is bytes):
            return Batch(Form.DOCUMENTS, data, len(data), single=False)
        return None

    def _general(self, data: object) -> Batch:
        """Data that has to be coerced, as a block."""
        block, single = self._block(data)
        return Batch(Form.GENERAL, block, 1 if single else row_count(block), single)

    def _block(self, data: object) -> tuple[object, bool]:
        """The data as a block of rows, and whether it was one row."""
        inputs = self._inputs
        if self._only is not None:
            (name,) = inputs
            if isinstance(data, Mapping) and is_named(name, self._only, data):
                data = data[name]
            return _part(self._only, data)
        if not isinstance(data, Mapping) or not inputs.keys() <= data.keys():
            return data, False  # coerce raises the error
        parts = {name: _part(kind, data[name]) for name, kind in inputs.items()}
        if all(single for _, single in parts.values()):
            return {name: block for name, (block, _) in parts.items()}, True
        return data, False


def row_batch(data: object) -> Batch:
    """The batch of a row that an entry reads as it is, for callers that know it to be one."""
    return _new(Batch, (_ROW, data, 1, True))


def is_value(value: object) -> bool:
    """True if this is one value and not a column of them: a Decimal, pandas.NA, np.array(1.0)."""
    if value is None or isinstance(value, str | bytes | bool | int | float | np.generic):
        return True
    if isinstance(value, np.ndarray) and not value.ndim:
        return True
    return not any(hasattr(value, name) for name in ("__len__", "__iter__", "__array__"))


def are_values(row: Iterable[object]) -> bool:
    """True if all of these are single values."""
    return _VALUES.issuperset(map(type, row)) or all(map(is_value, row))


def is_by_columns(data: object) -> TypeGuard[NDArray[Any]]:
    """True if it is an array of rows of numbers that do not lie one behind another."""
    return (
        type(data) is np.ndarray
        and data.ndim == 2
        and data.dtype.kind in "biuf"
        and min(data.shape) > 1
        and data.strides[1] != data.itemsize
    )


def array_dtype(data: object) -> str | None:
    """The dtype and layout of an array's numbers; None for data that has to be looked at."""
    return data.dtype.str if type(data) is np.ndarray and data.dtype.kind in "biuf" else None


def row_count(data: object) -> int:
    """About how many rows a block has, at no cost; 0 where it cannot be told."""
    if isinstance(data, Mapping):
        data = next(iter(data.values()), None)
    shape = getattr(data, "shape", None)
    if shape:
        return int(shape[0])
    return len(data) if isinstance(data, Sequence) else int(getattr(data, "num_rows", 0))


def _row_of(kind: Record, data: dict[str, Any]) -> dict[str, Any]:
    """A row without its unread columns if these hold more than a value; else the data as it is."""
    if are_values(data.values()):
        return data
    read = {name: data[name] for name in kind.names if name in data and name not in kind.unread}
    return read if read and are_values(read.values()) else data


def _without_others(data: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The columns of these names, in their order in the data; all that there are if one is missing.

    Without names that fit, data goes by position, or is refused for the names that it has.
    """
    if not all(name in data for name in names):
        return dict(data)
    return {name: value for name, value in data.items() if name in names}


def _part(kind: Type, data: object) -> tuple[object, bool]:
    """The data of one input as a block of rows, and whether it was one row."""
    if isinstance(kind, Record) and isinstance(data, Mapping):
        data = _row_of(kind, _without_others(data, kind.names))
        single = bool(data) and are_values(data.values())
        return ({name: [value] for name, value in data.items()}, True) if single else (data, False)
    if isinstance(data, np.ndarray) and isinstance(kind, Vector | Record):
        single = data.ndim == 1 and not data.dtype.names
        return (data[None], True) if single else (data, False)
    return ([data], True) if _IS_ROW[type(kind)](data) else (data, False)


def _is_list_of_values(data: object) -> bool:
    return isinstance(data, list | tuple) and bool(data) and are_values(data)


def _is_list_of_words(data: object) -> bool:
    return (
        isinstance(data, list | tuple)
        and bool(data)
        and all(isinstance(word, str) for word in data)
    )


#: Tells one row from several, by the type of the input: data that is neither array nor dict.
_IS_ROW: Mapping[type, Callable[[object], bool]] = {
    **dict.fromkeys((Vector, Record), _is_list_of_values),
    **dict.fromkeys((Text, Scalar, Category), is_value),
    Whole: lambda _: False,
    Pairs: is_one_row,
    Tokens: _is_list_of_words,
}
