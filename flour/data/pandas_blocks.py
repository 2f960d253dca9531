"""The columns of a pandas frame as the arrays that hold them, without a Series for each.

A frame keeps its columns in blocks: those of one dtype as rows of one array, each of strings in an
array of its own. pandas has no public way to them, and the public ones take several times as long
for a frame of one row. So blocks are read as pandas 2 and 3 keep them, after a trial on a frame
whose columns are known. Where the trial fails, flour.data.coerce reads frames in the public ways.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.data.arrow_strings import text_cells

#: Fewer rows of strings are read as objects in less time, one for strings that are equal.
LEAST_ROWS = 1024

Frame = Any
Block = Any
Index = Any
Key = tuple[list[str], list[tuple[Any, Any]]]


def key(frame: Frame) -> Key | None:
    """A key that is equal for frames of the same columns; None where blocks cannot be read."""
    manager = frame._mgr  # noqa: SLF001 (see above)
    if manager.__class__ is not _manager(frame.__class__):
        return None
    return _labels(frame.columns), [_content(block) for block in manager.blocks]


def _content(block: Block) -> tuple[Any, Any]:
    """The values of a block, and which columns of the frame they are.

    A dtype stands by its name: numpy says that its dtype of objects equals any class.
    """
    values, at = block.values, block.mgr_locs.indexer
    kind = values.dtype.str if type(values) is np.ndarray else type(values)
    if hasattr(values, "categories"):  # of one class, whatever they are
        kind = kind, type(values.categories.dtype)
    elif hasattr(values, "_mask"):
        kind = kind, values.dtype.numpy_dtype.str
    elif hasattr(values.dtype, "pyarrow_dtype"):
        kind = kind, values.dtype.pyarrow_dtype
    return kind, at if type(at) is slice else at.tolist()


def columns(frame: Frame) -> tuple[list[Any], list[Any], list[int]]:
    """The names of the columns, their dtypes, and where each is in `arrays`."""
    held = [place for block in frame._mgr.blocks for place in block.mgr_locs.as_array.tolist()]  # noqa: SLF001 (see above)
    return frame.columns.tolist(), frame.dtypes.tolist(), np.argsort(held).tolist()


def arrays(frame: Frame) -> list[Any]:
    """All columns, block after block, each an array of numpy's or of pandas' own."""
    made: list[Any] = []
    for block in frame._mgr.blocks:  # noqa: SLF001 (see above)
        values = block.values
        if type(values) is np.ndarray:
            made.extend(values)
        else:
            made.append(values)
    return made


def dtype_name(dtype: object) -> str:
    """The name that numpy has for a dtype; "string", or "" for what is neither that nor numpy's.

    Categories of strings are strings, and so may those of objects be. Nullable numbers, and
    those of Arrow, are numbers.
    """
    held = getattr(dtype, "categories", None)
    if held is not None:
        return "string" if dtype_name(held.dtype) == "string" else ""
    if isinstance(dtype, np.dtype):
        return "string" if dtype.kind == "O" else dtype.name if dtype.isnative else ""
    if type(dtype).__name__ in _NULLABLE:
        return str(dtype.numpy_dtype.name)  # type: ignore[attr-defined]  # those have one
    if type(dtype).__name__ == "ArrowDtype":
        return _OF_ARROW.get(str(dtype.pyarrow_dtype), "")  # type: ignore[attr-defined]  # as above
    return "string" if type(dtype).__name__ == "StringDtype" else ""


def as_array(values: Any) -> NDArray[Any]:
    """One of `arrays` as numpy's."""
    if type(values) is np.ndarray:
        return values
    if hasattr(values, "categories"):
        known = _category_texts(values.categories)
        codes: NDArray[Any] = values.codes
        return codes if known is None else known.take(codes, mode="wrap")
    if hasattr(values, "_mask"):
        if not values._mask.any():  # noqa: SLF001 (see above)
            return np.asarray(values._data)  # noqa: SLF001 (see above)
        return np.asarray(values.to_numpy("float64", na_value=np.nan))
    if getattr(values.dtype, "storage", "pyarrow") == "pyarrow":
        held = values.__arrow_array__()
        if not held.null_count:  # there are several kinds of missing values, which pandas tells
            cells = text_cells(held) if len(held) >= LEAST_ROWS else None
            return np.asarray(held.to_numpy()) if cells is None else cells
    return np.asarray(values.to_numpy())


#: Nullable types whose columns are read as if they were numpy's, as flour.data.coerce reads them.
_OF_ARROW = {"int64": "int64", "int32": "int32", "double": "float64", "bool": "bool"}
_OF_ARROW |= {"string": "string", "large_string": "string"}
_NULLABLE = {"Int64Dtype", "Int32Dtype", "Float64Dtype", "BooleanDtype"}

#: Categories that were seen, with their texts: frames of one origin share them.
_categories: dict[int, tuple[Index, NDArray[Any] | None]] = {}
_MOST_CATEGORIES = 64


def _category_texts(index: Index) -> NDArray[Any] | None:
    """The categories, and last what stands for a missing one; None if they are not all strings."""
    known = _categories.get(id(index))
    if known is not None and known[0] is index:
        return known[1]
    texts = index.tolist()
    made = None
    if all(isinstance(text, str) for text in texts):
        made = np.array([*texts, np.nan], object)
    if len(_categories) >= _MOST_CATEGORIES:
        _categories.clear()
    _categories[id(index)] = index, made
    return made


#: The last index that was seen, and its labels: reading them takes longer than the columns.
_last_index: tuple[Any, list[str]] = (None, [])


def _labels(index: Index) -> list[str]:
    """The labels as they are written: 1 and True are equal, their names are not."""
    global _last_index  # noqa: PLW0603 (a cache of one, the last)
    known, labels = _last_index
    if index is known or index.is_(known):
        return labels
    # Indexes of strings have a dtype of their own in pandas 3, and are the slowest to read.
    if known is None or isinstance(index.dtype, np.dtype) or not index.equals(known):
        labels = [*map(str, index.tolist())]
    _last_index = index, labels
    return labels


@cache
def _manager(kind: type[Frame]) -> Any:
    """The class that holds the blocks of such frames, if what is read from them is right."""
    want: dict[str, list[Any]] = {"a": [0.5, 1.5], "n": [1, 2], "b": [2.5, 3.5], "s": ["x", "y"]}
    try:
        frame = kind(want)
        made, names, places = arrays(frame), *columns(frame)[::2]
        got = {name: as_array(made[at]).tolist() for name, at in zip(names, places, strict=True)}
        known = [_content(block) for block in frame._mgr.blocks]  # noqa: SLF001 (see above)
    except (AttributeError, TypeError, ValueError, IndexError):
        return None
    return type(frame._mgr) if got == want and known else None  # noqa: SLF001 (see above)
