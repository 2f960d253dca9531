"""Stand-ins for what pandas 1 to 3 keeps in files: series, frames, and their indexes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ImportRefused
from flour.pickles.standins import Damaged, StandIn


def plain(values: object) -> list[Any]:
    """The values of an index, of an array of numpy or of one of pandas' own kinds."""
    while isinstance(values, IndexStandIn):
        values = values.held()
    if isinstance(values, np.ndarray | range):
        return [*values] if isinstance(values, range) else list(values.tolist())
    own = vars(values) if isinstance(values, StandIn) else {}
    if "_pa_array" in own or isinstance(own.get("_data"), StandIn):
        return _of_arrow(own.get("_pa_array", own.get("_data")))
    parts = own.get("_state", own.get("_arguments", ()))
    for part in (own.get("_ndarray"), *(parts if isinstance(parts, tuple) else ())):
        if isinstance(part, np.ndarray):
            found: list[Any] = part.tolist()
            categories = (
                vars(parts[0]).get("categories") if "Categorical" in str(type(values)) else None
            )
            if categories is None:
                return found
            names = plain(categories)
            return [names[code] if code >= 0 else np.nan for code in found]
    raise Damaged(f"{type(values).__name__} is no array of pandas that is known")


def _of_arrow(held: object) -> list[Any]:
    """Strings in Arrow's memory: a bit for each that is there, where it begins, all characters."""
    name, (first, *_) = type(held).__name__, vars(held)["_arguments"]
    if name == "chunked_array":
        return [value for chunk in first for value in _of_arrow(chunk)]
    kind, size, _, begin, buffers, *_ = first
    wide = {"large_string": np.int64, "string": np.int32}.get(vars(kind)["_arguments"][0])
    if name != "_restore_array" or wide is None:
        raise Damaged("strings of Arrow are of another kind")
    there, places, text = (each and bytes(vars(each)["_arguments"][0]) for each in buffers)
    ends = np.frombuffer(places, wide)[begin : begin + size + 1].tolist()
    bits = np.unpackbits(np.frombuffer(there or b"", np.uint8), bitorder="little")[begin:]
    return [
        (text or b"")[ends[j] : ends[j + 1]].decode() if there is None or bits[j] else np.nan
        for j in range(size)
    ]


#: The makers of an index in pickles, and the classes of indexes, which files of skops name.
_INDEXES = (
    "pandas._new_Index pandas.Index pandas.RangeIndex pandas.Int64Index pandas.Float64Index "
    "pandas.CategoricalIndex"
)


class IndexStandIn(StandIn, names=_INDEXES):
    """The labels of rows or of columns."""

    _arguments: tuple[Any, dict[str, Any]]

    def held(self) -> object:
        """The array of labels, or their range."""
        if "_arguments" not in vars(self):
            return vars(self).get("_data", vars(self).get("_range"))
        about = self._arguments[1]
        if "data" in about:
            return about["data"]
        places = ("start", "stop", "step")
        bounds = [about[name] for name in places if type(about.get(name)) is int]
        if len(bounds) < len(places):
            raise Damaged("an index of pandas is of another kind")
        found = range(*bounds)
        if len(found) > _MOST_ROWS:
            raise Damaged("an index of pandas is too long")
        return found


#: How many rows a table of an estimator may have that only their number is known of.
_MOST_ROWS = 1 << 20


class FrameStandIn(StandIn, names="pandas.DataFrame pandas.Series"):
    """A frame, or a series, which is one of a single column without a name."""

    _mgr: StandIn

    def _parts(self) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """The indexes, and the blocks of values with the numbers of their columns."""
        held = vars(vars(self).get("_mgr", vars(self).get("_data")))
        if "_arguments" in held:
            blocks, axes = held["_arguments"]
            if not all("_arguments" in vars(block) for block in blocks):
                raise ImportRefused(
                    "this file lacks the values of a frame of pandas, which skops leaves out",
                    hint="write the model with joblib or pickle",
                )
            each = [vars(block)["_arguments"] for block in blocks]
            return axes, [(values, place) for values, place, *_ in each]
        *_, last = held["_state"]
        about = last["0.14.1"]
        return about["axes"], [(one["values"], one["mgr_locs"]) for one in about["blocks"]]

    @property
    def index(self) -> list[Any]:
        """The labels of the rows."""
        return plain(self._parts()[0][-1])

    @property
    def columns(self) -> list[Any]:
        """The names of the columns."""
        return plain(self._parts()[0][0])

    def to_numpy(self) -> NDArray[Any]:
        """The values: a vector of a series, a matrix of a frame."""
        axes, blocks = self._parts()
        if len(axes) == 1:
            return np.array(plain(blocks[0][0]), np.float64)
        shape = len(self.index), len(self.columns)
        if shape[0] * shape[1] != sum(np.size(values) for values, _ in blocks):
            raise Damaged("a frame of pandas lacks values")
        found = np.full(shape, np.nan)
        for values, place in blocks:
            where = vars(place)["_arguments"][0] if isinstance(place, StandIn) else place
            found[:, where] = np.asarray(values, np.float64).T
        return found
