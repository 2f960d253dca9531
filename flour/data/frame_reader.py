"""Frames as the arrays that native code takes, read without a Series for each column.

Frames are pandas', polars' and Arrow's. One is read here if its columns have the types that the
program computes in (see native_types in flour.data.coerce), as those have that a pipeline was
trained with. Any other is left to flour.data.coerce, which gives the same answers and says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.types import FLOATS, Category, Record, Scalar, Text, Type, Vector
from flour.data import pandas_blocks
from flour.data.arrow_strings import CELLS, LEAST_ROWS, text_cells
from flour.data.frames import as_array, decoded

Frame = Any
Arrays = NDArray[Any] | dict[str, NDArray[Any]]
_NUMBERS = frozenset(
    ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), *FLOATS)
)
_WHOLE = frozenset(map(np.dtype, sorted(_NUMBERS - {*FLOATS})))


class Library(NamedTuple):
    """A reader of one library's frames."""

    #: A key that frames of the same columns share; None for a frame that is not read here.
    key: Callable[[Frame], Any]
    #: The names and dtypes of the columns, and where each is in what `arrays` reads.
    columns: Callable[[Frame], tuple[list[Any], list[Any], Sequence[int]]]
    #: The name that numpy has for a dtype; "string"; something else for all others.
    dtype: Callable[[Frame], str]
    #: A frame of numbers as one array, and the columns of a layout.
    block: Callable[[Frame], NDArray[Any]]
    arrays: Callable[[Frame, FrameLayout], list[NDArray[Any]]]
    #: True if training libraries widen its float32 (see _width in flour.data.coerce).
    widens: bool


class FrameLayout(NamedTuple):
    """The columns of a frame that are read, with their types."""

    places: list[int]
    dtypes: list[str]
    names: list[str]
    wanted: list[str]
    #: True if all columns of the frame are numbers of one dtype.
    uniform: bool


class FrameReader:
    """Reads the frames that come for one input, a vector or a record."""

    __slots__ = ("_kind", "_known", "_wanted")

    def __init__(self, kind: Vector | Record) -> None:
        self._kind = kind
        fields = kind.fields if isinstance(kind, Record) else (("", kind),)
        self._wanted = {name: _wanted(sub) for name, sub in fields}
        #: The library and the columns of the last frame, and how they are read.
        self._known: tuple[Library | None, object, FrameLayout | None] = (None, None, None)

    def read(self, frame: Frame) -> Arrays | None:
        """A block of rows, or columns by name; None for what flour.data.coerce has to read."""
        kind = type(frame)
        # A subclass is not looked up: it may read otherwise.
        library = _LIBRARIES.get((kind.__module__.partition(".")[0], kind.__name__))
        if library is None:
            return None
        key, (other, known, layout) = library.key(frame), self._known
        if library is not other or key != known:
            layout = None if key is None else self._layout(library, *library.columns(frame))
            self._known = library, key, layout
        if layout is None:
            return None
        if isinstance(self._kind, Record):
            found, arrays = {}, library.arrays(frame, layout)
            for name, array, own, to in zip(
                layout.names, arrays, layout.dtypes, layout.wanted, strict=True
            ):
                if array.dtype is not CELLS and array.dtype != _DTYPES[own]:
                    return None  # whole numbers, or bools, of which some are missing
                found[name] = array if own == to else array.astype(to)
            return found
        block = library.block(frame)
        known = block.dtype.name in _NUMBERS
        dtype = block.dtype if layout is _WIDER else self._kind.dtype
        return np.ascontiguousarray(block, dtype) if known else None

    def widened(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Columns of whole numbers as the floats that the program computes in."""
        fields = self._kind.fields if isinstance(self._kind, Record) else ()
        whole = {
            name: columns[name].astype(np.float64)
            for name, kind in fields
            if isinstance(kind, Scalar) and kind.dtype == "float64" and not kind.given
            if type(columns.get(name)) is np.ndarray and columns[name].dtype in _WHOLE
        }
        return {**columns, **whole} if whole else columns

    def _layout(
        self, library: Library, labels: list[Any], types: list[Any], held: Sequence[int]
    ) -> FrameLayout | None:
        names, own = [str(label) for label in labels], [library.dtype(each) for each in types]
        if len(set(names)) < len(names):
            return None
        wanted, widens = self._wanted, library.widens
        if isinstance(self._kind, Vector):
            numbers = frozenset(FLOATS) if self._kind.given else _NUMBERS
            fits = len(names) == self._kind.width and numbers.issuperset(own)
            if fits and wanted[""] == "float32" and {*own} == {"float64"}:
                return _WIDER
            return _NOTHING if fits and _accepts(wanted[""], own, widens=widens) else None
        places = _places(self._kind, names)
        read_as, found = [], dict[str, int]()
        for name, place in (places or {}).items():
            given = getattr(self._kind[name], "given", 0) and own[place] not in FLOATS
            if not given and _accepts(wanted[name], [own[place]], widens=widens):
                read_as.append(wanted[name])
            elif isinstance(types[place], np.dtype) and {own[place], wanted[name]} <= _NUMBERS:
                read_as.append(own[place])  # the plan for these types takes it, as an array
            elif name in self._kind.unread:
                continue
            else:
                return None
            found[name] = place
        if not found:
            return None
        return FrameLayout(
            [held[place] for place in found.values()],
            [own[place] for place in found.values()],
            [*found],
            read_as,
            uniform=len(set(own)) == 1 and own[0] in _NUMBERS,
        )


#: That of a vector, whose columns are read all at once.
_NOTHING = FrameLayout([], [], [], [], uniform=True)
#: That of a vector of float32, of which a frame of float64 stays what it is, as an array does.
_WIDER = FrameLayout([], [], [], [], uniform=True)


#: So few rows are copied in less time than an array for each column takes.
_FEW = 64
_DTYPES = {**{name: np.dtype(name) for name in _NUMBERS}, "string": np.dtype(object)}


def _wanted(kind: Type) -> str:
    """The dtype in which the program reads the columns; "" where it is not read here."""
    match kind:
        case Vector(dtype=dtype, sparse=False) if dtype in FLOATS:
            return dtype
        case Scalar(dtype) | Category(dtype):
            return dtype
        case Text():
            return "string"
    return ""


def _accepts(wanted: str, dtypes: list[str], *, widens: bool) -> bool:
    """True if columns of these dtypes are computed in this one, and lose nothing."""
    if wanted not in FLOATS or not _NUMBERS.issuperset(dtypes):
        return wanted != "" and set(dtypes) == {wanted}
    if widens:
        return wanted == "float64" or set(dtypes) == {"float32"}
    common = np.result_type(*dtypes).name
    return (common if common in FLOATS else "float64") == wanted


def _places(kind: Record, names: list[str]) -> dict[str, int] | None:
    """The position of each field in the frame; None if one that is read is absent.

    Those that are not read are for who looks at rows: watches, segments, subjects.
    """
    by_name = {name: place for place, name in enumerate(names)}
    fitted = kind.names
    if kind.positional and not by_name.keys() >= set(fitted):
        if len(names) != len(fitted):
            return None
        by_name = {name: place for place, name in enumerate(fitted)}
    read = [name for name in fitted if name not in kind.unread]
    if not by_name.keys() >= set(read):
        return None
    return {name: by_name[name] for name in fitted if name in by_name}


# --- the libraries --------------------------------------------------------------------------------


def _pandas_arrays(frame: Frame, layout: FrameLayout) -> list[NDArray[Any]]:
    held = pandas_blocks.arrays(frame)
    return [pandas_blocks.as_array(held[place]) for place in layout.places]


_polars_key, _arrow_key = attrgetter("columns", "dtypes"), attrgetter("schema")


def _polars_columns(frame: Frame) -> tuple[list[Any], list[Any], Sequence[int]]:
    return frame.columns, frame.dtypes, range(frame.width)


def _polars_arrays(frame: Frame, layout: FrameLayout) -> list[NDArray[Any]]:
    if layout.uniform and len(frame) < _FEW:
        block = frame.to_numpy()
        return [block[:, place] for place in layout.places]
    return _foreign_arrays(frame.get_columns(), layout)


def _foreign(column: Any, dtype: str, path: str) -> NDArray[Any]:
    """A column of polars or Arrow as an array; that of many strings as CELLS."""
    column = decoded(column)
    texts = dtype == "string" and len(column) >= LEAST_ROWS
    cells = text_cells(column) if texts else None
    return as_array(column, path) if cells is None else cells


def _foreign_arrays(columns: Sequence[Any], layout: FrameLayout) -> list[NDArray[Any]]:
    some = zip(layout.names, layout.places, layout.dtypes, strict=True)
    return [_foreign(columns[place], dtype, f"$.{name}") for name, place, dtype in some]


def _arrow_columns(frame: Frame) -> tuple[list[Any], list[Any], Sequence[int]]:
    schema = frame.schema
    return schema.names, schema.types, range(frame.num_columns)


def _arrow_arrays(frame: Frame, layout: FrameLayout) -> list[NDArray[Any]]:
    return _foreign_arrays(frame.columns, layout)


def _arrow_block(frame: Frame) -> NDArray[Any]:
    columns = [column.to_numpy() for column in frame.columns]
    dtypes = {column.dtype for column in columns}
    made = np.empty((len(frame), len(columns)), np.result_type(*dtypes))
    for place, column in enumerate(columns):
        made[:, place] = column
    return made


def _foreign_dtype(dtype: object) -> str:
    """The name of a dtype of polars or Arrow."""
    name = str(dtype).lower()
    if name.startswith(_OF_STRINGS):
        return "string"
    name = _FOREIGN.get(name, name)
    return name if name in _DTYPES else ""


#: How the names of types whose values are strings begin: of polars, and of Arrow.
_OF_STRINGS = ("categorical", "enum(", *(f"dictionary<values={k}string" for k in ("", "large_")))
_FOREIGN = {"boolean": "bool", "double": "float64", "float": "float32"}
_FOREIGN |= dict.fromkeys(("large_string", "string_view"), "string")


def _to_numpy(frame: Frame) -> NDArray[Any]:
    return np.asarray(frame.to_numpy())


_LIBRARIES = {
    ("pandas", "DataFrame"): Library(
        *(pandas_blocks.key, pandas_blocks.columns, pandas_blocks.dtype_name),
        *(_to_numpy, _pandas_arrays),
        widens=False,
    ),
    ("polars", "DataFrame"): Library(
        *(_polars_key, _polars_columns, _foreign_dtype, _to_numpy, _polars_arrays), widens=True
    ),
    ("pyarrow", "Table"): Library(
        *(_arrow_key, _arrow_columns, _foreign_dtype, _arrow_block, _arrow_arrays), widens=True
    ),
}
