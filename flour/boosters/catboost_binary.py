"""CatBoost's binary files (.cbm), as what is in its JSON files."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flour.core.errors import UnsupportedSetting

# Tables of FlatBuffers, read by the places of their fields; there is no generated code.
#
# Nothing is trusted: what points out of the buffer is a ValueError, and so is a file whose tables
# point at the same bytes again and again.


#: Tables may share what they point at, though not more often than this on average.
_MOST_SHARED = 64


class FlatBuffer:
    """A buffer, and how many of its bytes may still be read."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self._left = raw, _MOST_SHARED * len(raw)

    def root(self) -> FlatTable:
        """The table that all others are reached from."""
        return FlatTable(self, self.target(0))

    def unpack(self, form: str, at: int) -> Any:
        """The number at a place."""
        self.claim(at, struct.calcsize(form))
        return struct.unpack_from(f"<{form}", self.raw, at)[0]

    def target(self, at: int) -> int:
        """The place that the offset at a place points to."""
        return at + int(self.unpack("I", at))

    def claim(self, at: int, size: int) -> None:
        """Refuse what is not in the buffer, and what has been read too often."""
        self._left -= size
        if at < 0 or at + size > len(self.raw) or self._left < 0:
            raise ValueError(f"{size} bytes at {at} of {len(self.raw)}")


class FlatTable:
    """A table: its fields are numbered as its schema names them."""

    def __init__(self, buffer: FlatBuffer, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._fields = at - int(buffer.unpack("i", at))
        self._count = (int(buffer.unpack("H", self._fields)) - 4) // 2

    def _place(self, field: int) -> int | None:
        """Where a field stands; None for its default."""
        if field >= self._count:
            return None
        ahead = int(self._buffer.unpack("H", self._fields + 4 + 2 * field))
        return self._at + ahead if ahead else None

    def number(self, field: int, form: str, default: float) -> Any:
        """A number, in a form of the module struct."""
        at = self._place(field)
        return default if at is None else self._buffer.unpack(form, at)

    def array(self, field: int, dtype: DTypeLike) -> NDArray[Any]:
        """A run of numbers or of structs."""
        at, kind = self._place(field), np.dtype(dtype)
        if at is None:
            return np.empty(0, kind)
        at = self._buffer.target(at)
        count = int(self._buffer.unpack("I", at))
        self._buffer.claim(at + 4, count * kind.itemsize)
        return np.frombuffer(self._buffer.raw, kind, count, at + 4)

    def text(self, field: int) -> str:
        """A string."""
        return self.array(field, np.uint8).tobytes().decode()

    def table(self, field: int) -> FlatTable:
        """A table of its own."""
        at = self._place(field)
        if at is None:
            raise ValueError(f"field {field} of a table is missing")
        return FlatTable(self._buffer, self._buffer.target(at))

    def tables(self, field: int) -> list[FlatTable]:
        """A run of tables."""
        return [FlatTable(self._buffer, at) for at in self._targets(field)]

    def texts(self, field: int) -> list[str]:
        """A run of strings."""
        sizes = [(at + 4, int(self._buffer.unpack("I", at))) for at in self._targets(field)]
        for each in sizes:
            self._buffer.claim(*each)
        return [self._buffer.raw[at : at + size].decode() for at, size in sizes]

    def _targets(self, field: int) -> list[int]:
        offsets = self.array(field, "<u4")
        at = self._place(field)
        first = 0 if at is None else self._buffer.target(at) + 4
        return [first + 4 * i + int(offset) for i, offset in enumerate(offsets)]


MAGIC = b"CBM1"
_LAYOUT = "FlabuffersModel_v1"  # as CatBoost spells it
_TREATMENTS = ("AsIs", "AsFalse", "AsTrue")
_STATISTICS = (
    *("Borders", "Buckets", "BinarizedTargetMeanValue", "FloatTargetMeanValue"),
    *("Counter", "FeatureFreq"),
)
#: Fields that are counted together, in the order of a combination.
_ELEMENTS = (
    ("cat_feature_value", [("cat_feature_index", "<i4")]),
    ("float_feature", [("float_feature_index", "<i4"), ("border", "<f4")]),
    ("cat_feature_exact_value", [("cat_feature_index", "<i4"), ("value", "<i4")]),
)
_BUCKET = np.dtype([("hash", "<u8"), ("index", "<u4")])
_STEP = np.dtype([("left", "<u2"), ("right", "<u2")])
_MEAN = np.dtype([("sum", "<f4"), ("count", "<i4")])
#: The hash of a bucket that holds nothing.
EMPTY = (1 << 64) - 1
Data = Mapping[str, Any]


def loads(raw: bytes) -> Data:
    """The content of a file."""
    (core,), rest = _pieces(raw[len(MAGIC) :], 1)
    root = FlatBuffer(core).root()
    if root.text(0) != _LAYOUT:
        raise UnsupportedSetting(
            "this layout of CatBoost's files is not known here",
            found=repr(root.text(0))[:60],
            hint="save it again with a CatBoost since 0.10",
        )
    parts = root.texts(3)
    if parts not in ([], ["static_provider_v1"]):
        raise UnsupportedSetting(
            "a CatBoost model with more than trees and statistics of categories is not imported",
            found=", ".join(parts)[:200],
        )
    trees = root.table(1)
    features = _features(trees)
    found: dict[str, Any] = {pair.text(0): pair.text(1) for pair in root.tables(2)}
    for key in found.keys() & {"params", "class_params"}:
        found[key] = json.loads(found[key])
    data = {
        "model_info": found,
        "features_info": features,
        "scale_and_bias": [
            trees.number(14, "d", 1.0),
            trees.array(16, "<f8").tolist() or [trees.number(15, "d", 0.0)],
        ],
        "ctr_data": dict(_statistics(rest)) if parts else {},
    }
    questions = [{**each, "split_index": n} for n, each in enumerate(_questions(features))]
    symmetric = not len(trees.array(10, "<u4"))
    made = _oblivious if symmetric else _asymmetric
    return {**data, "oblivious_trees" if symmetric else "trees": list(made(trees, questions))}


def columns(data: Data) -> dict[int, str]:
    """The columns that features of numbers and of categories are in, with their names or ""."""
    features = data["features_info"]
    listed = (features.get(f"{kind}_features") or () for kind in ("float", "categorical"))
    return {
        int(each["flat_feature_index"]): str(each.get("feature_id", ""))
        for some in listed
        for each in some
    }


def _pieces(raw: bytes, count: int) -> tuple[list[bytes], bytes]:
    """This many pieces, each behind its size, and the rest behind them."""
    found, at = [], 0
    for _ in range(count):
        size, start = int.from_bytes(raw[at : at + 4], "little"), at + 4
        at = start + size
        if at > len(raw):
            raise ValueError(f"{size} bytes are expected, {len(raw) - start} are there")
        found.append(raw[start:at])
    return found, raw[at:]


# --- features ------------------------------------------------------------------------------------


def _features(trees: FlatTable) -> Data:
    hot = {int(each.number(0, "i", -1)): each.array(1, "<i4").tolist() for each in trees.tables(6)}
    placed = (_placed(each, 0) for each in trees.tables(4))
    categories = [{**each, "values": hot.get(each["feature_index"], [])} for each in placed]
    return {
        "float_features": [_float_feature(each) for each in trees.tables(5)],
        "categorical_features": categories,
        "one_hot": hot,
        "ctrs": [_ctr(each) for each in trees.tables(7)],
        "text_features": trees.tables(12),
        "embedding_features": trees.tables(18),
    }


def _placed(feature: FlatTable, first: int) -> Data:
    return {
        "feature_index": feature.number(first, "i", -1),
        "flat_feature_index": feature.number(first + 1, "i", -1),
        "feature_id": feature.text(first + 2 if first == 0 else first + 3),
    }


def _float_feature(feature: FlatTable) -> Data:
    return {
        **_placed(feature, 1),
        "has_nans": bool(feature.number(0, "b", 0)),
        "borders": feature.array(3, "<f4").tolist(),
        "nan_value_treatment": _TREATMENTS[feature.number(5, "B", 0)],
    }


def _ctr(feature: FlatTable) -> Data:
    made = feature.table(0)
    return {
        **_base(made.table(0)),
        "target_border_idx": made.number(1, "i", 0),
        "prior_numerator": made.number(2, "f", 0.0),
        "prior_denomerator": made.number(3, "f", 1.0),
        "shift": made.number(4, "f", 0.0),
        "scale": made.number(5, "f", 1.0),
        "borders": feature.array(1, "<f4").tolist(),
    }


def _base(base: FlatTable) -> Data:
    """The kind of statistics, the values that are counted together, and the name of both.

    The classifier, by its number, says which targets were counted, and by which borders.
    """
    combination = base.table(0)
    elements = [
        {"combination_element": kind, **dict(zip((name for name, _ in fields), row, strict=True))}
        for number, (kind, fields) in enumerate(_ELEMENTS)
        for row in combination.array(number, fields).tolist()
    ]
    kind, classifier = _STATISTICS[base.number(1, "B", 0)], base.number(2, "i", 0)
    name = json.dumps([kind, classifier, elements])
    return {"ctr_type": kind, "elements": elements, "identifier": name}


def _questions(features: Data) -> Iterator[Data]:
    """All questions that trees may ask, in the order in which they are numbered."""
    for feature in features["float_features"]:
        for border in feature["borders"]:
            yield {
                "split_type": "FloatFeature",
                "float_feature_index": feature["feature_index"],
                "border": border,
            }
    for index, values in features["one_hot"].items():
        for value in values:
            yield {"split_type": "OneHotFeature", "cat_feature_index": index, "value": value}
    for ctr in features["ctrs"]:
        for border in ctr["borders"]:
            yield {"split_type": "OnlineCtr", "border": border}


def _statistics(rest: bytes) -> Iterator[tuple[str, Data]]:
    """The tables of statistics by name, as runs of a hash and its numbers."""
    pieces, _ = _pieces(rest[4:], int.from_bytes(rest[:4], "little"))
    for piece in pieces:
        table = FlatBuffer(piece).root()
        base = _base(table.table(0))
        kind = base["ctr_type"]
        buckets = table.array(1, np.uint8).view(_BUCKET)
        buckets = buckets[buckets["hash"] != EMPTY]
        counts = table.array(2, np.uint8)
        if kind.endswith("MeanValue"):
            means = counts.view(_MEAN)
            rows: Any = np.c_[means["sum"].astype(np.float64), means["count"]]
        else:
            wide = 1 if kind in ("Counter", "FeatureFreq") else table.number(4, "i", 0)
            rows = counts.view("<i4").reshape(-1, max(wide, 1))
        if len(buckets) > len(rows):
            raise ValueError(f"{len(buckets)} hashes for {len(rows)} rows of statistics")
        yield (
            base["identifier"],
            {
                "hashes": buckets["hash"],
                "counts": rows[buckets["index"]],
                "counter_denominator": table.number(3, "i", 0),
            },
        )


# --- trees ---------------------------------------------------------------------------------------


def _runs(trees: FlatTable) -> Iterator[tuple[int, int]]:
    """The first node or level of each tree in the table of all, and their number."""
    start = 0
    for size in trees.array(2, "<i4").tolist():
        if size < 0:
            raise ValueError("a tree has no negative size")
        yield start, size
        start += size


def _oblivious(trees: FlatTable, questions: Sequence[Data]) -> Iterator[Data]:
    splits, values = trees.array(1, "<i4").tolist(), trees.array(8, "<f8")
    wide, at = trees.number(0, "i", 1), 0
    for start, size in _runs(trees):
        count = wide << min(size, 64)
        asked = [questions[number] for number in splits[start : start + size]]
        yield {"splits": asked, "leaf_values": values[at : at + count]}
        at += count


def _asymmetric(trees: FlatTable, questions: Sequence[Data]) -> Iterator[Data]:
    """Trees of nodes; one that is not left to a side is the leaf of that side."""
    splits, values = trees.array(1, "<i4").tolist(), trees.array(8, "<f8")
    steps = trees.array(10, _STEP).tolist()
    leaves, wide = trees.array(11, "<u4").tolist(), trees.number(0, "i", 1)
    for start, size in _runs(trees):
        run = range(start, start + size)
        nodes: list[dict[str, Any]] = [{} for _ in steps[start : start + size]]
        children = [n + ahead for n, each in enumerate(nodes) for ahead in steps[run[n]] if ahead]
        if len({*children}) < len(children):
            raise ValueError("a node has two parents")
        for n, node in enumerate(nodes):
            at = leaves[run[n]]
            leaf = {"value": values[at : at + wide]}
            if not any(steps[run[n]]):
                node.update(leaf)
                continue
            left, right = (nodes[n + ahead] if ahead else leaf for ahead in steps[run[n]])
            node.update(split=questions[splits[run[n]]], left=left, right=right)
        yield nodes[0]
