"""The classification parameter: the k largest elements of each row, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.http.codec.tensors import objects
from runtime.http.wire.problems import HttpError


def top_classes(
    array: NDArray[Any], many: int, labels: Sequence[object] | None
) -> NDArray[np.object_]:
    """Each row's largest elements as "value:index", with ":label" if labels are known."""
    if array.dtype == object or array.ndim not in {1, 2}:
        raise HttpError("classification is for outputs of numbers", where="$.outputs")
    rows = array if array.ndim == 2 else array[:, None]
    many = min(many, rows.shape[1])
    names = labels if labels is not None and len(labels) == rows.shape[1] else None
    order = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :many]
    texts = [
        _text(row[index], index, names)
        for row, indices in zip(rows, order, strict=True)
        for index in indices.tolist()
    ]
    return objects(texts, order.shape)


def _text(value: Any, index: int, names: Sequence[object] | None) -> str:
    text = f"{value.item():f}:{index}"
    return text if names is None else f"{text}:{names[index]}"
