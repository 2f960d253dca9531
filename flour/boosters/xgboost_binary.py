"""XGBoost's old binary format, as the dict its JSON would be.

The format is the C structs of the library one after the other, little-endian: the learner's
parameters (136 bytes), two strings, then the booster. Every count is checked against the rest of
the file before memory is allocated for it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEARNER, _LINEAR, _FOREST, _TREE = 136, 136, 160, 148
_NODE = np.dtype(
    [("parent", "<i4"), ("left", "<i4"), ("right", "<i4"), ("split", "<u4"), ("value", "<f4")]
)
_STATISTICS = 16  # bytes of a node's statistics, of no use here
_DEFAULT_LEFT = np.uint32(1 << 31)


def loads(raw: bytes) -> dict[str, Any]:
    """The model in these bytes; ValueError where they are no model."""
    reader = _StructReader(raw)
    if raw[:4] == b"binf":
        reader.take(4)
    try:
        learner = _learner(reader)
        return {"learner": learner, "version": learner.pop("version")}
    except (struct.error, UnicodeDecodeError) as problem:
        raise ValueError(f"damaged at byte {reader.at}: {problem}") from None


class _StructReader:
    """Reads structs one after the other."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if not 0 <= count <= len(self.raw) - self.at:
            raise ValueError(f"{count} bytes wanted at byte {self.at} of {len(self.raw)}")
        self.at += count
        return self.raw[self.at - count : self.at]

    def numbers(self, layout: str, size: int) -> tuple[Any, ...]:
        """The fields a struct of `size` bytes starts with."""
        return struct.unpack_from(layout, self.take(size))

    def text(self) -> str:
        """A string behind its length."""
        return self.take(self.numbers("<Q", 8)[0]).decode("utf-8")

    def array(self, count: int, dtype: np.dtype[Any] | str) -> NDArray[Any]:
        """`count` items of one kind."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(count * kind.itemsize), kind)

    def floats(self) -> NDArray[Any]:
        """Floats behind their count."""
        return self.array(self.numbers("<Q", 8)[0], "<f4")


def _learner(reader: _StructReader) -> dict[str, Any]:
    fields = reader.numbers("<fIiiiIII", _LEARNER)
    base, features, classes, attributes, _, version, minor, targets = fields
    objective, name = reader.text(), reader.text()
    if not objective.isprintable() or name not in ("gbtree", "dart", "gblinear"):
        raise ValueError(f"a booster named {name[:40]!r}")
    booster = _linear(reader) if name == "gblinear" else _trees(reader, dart=name == "dart")
    return {
        "version": [version, minor],
        "learner_model_param": {
            # Before version 1 the file has the margin, for objectives of one column.
            ("base_score" if version or objective.startswith("multi:") else "base_margin"): base,
            "num_feature": features,
            "num_class": classes,
            "num_target": max(targets, 1),
        },
        "objective": {"name": objective},
        "attributes": _attributes(reader) if attributes else {},
        "gradient_booster": {"name": name, **booster},
    }


def _attributes(reader: _StructReader) -> dict[str, str]:
    (count,) = reader.numbers("<Q", 8)
    if count > len(reader.raw):
        raise ValueError(f"{count} attributes")
    return {reader.text(): reader.text() for _ in range(count)}


def _linear(reader: _StructReader) -> dict[str, Any]:
    reader.take(_LINEAR)
    return {"model": {"weights": reader.floats()}}


def _trees(reader: _StructReader, *, dart: bool) -> dict[str, Any]:
    count, parallel = reader.numbers("<ii", _FOREST)
    if not 0 <= count <= len(reader.raw) // _TREE:
        raise ValueError(f"{count} trees")
    trees = [_tree(reader) for _ in range(count)]
    model = {
        "trees": trees,
        "tree_info": reader.array(count, "<i4"),
        # This used to be the number of roots, which was always one.
        "gbtree_model_param": {"num_parallel_tree": max(parallel, 1)},
    }
    if not dart:
        return {"model": model}
    return {"gbtree": {"model": model}, "weight_drop": reader.floats()}


def _tree(reader: _StructReader) -> dict[str, Any]:
    _, count, _, _, _, vector = reader.numbers("<iiiiII", _TREE)
    if vector > 1:
        raise ValueError("leaves that hold a vector")
    nodes = reader.array(max(count, -1), _NODE)
    reader.take(count * _STATISTICS)
    return {
        "tree_param": {"size_leaf_vector": 1},
        "left_children": nodes["left"],
        "right_children": nodes["right"],
        "split_indices": nodes["split"] & ~_DEFAULT_LEFT,
        "default_left": nodes["split"] >= _DEFAULT_LEFT,
        "split_conditions": nodes["value"],
    }
