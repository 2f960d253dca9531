"""What callers put around a row or a document, taken off for calls by the shortest way.

{"X": row}                  the name of the plan's one input
[[text]], array([[text]])   a document as a column of one
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flour.core.types import Record, Text, Type


def unwrapped(inputs: Mapping[str, Type], data: Any) -> Any:
    """The data of a plan's one input without what only wraps it; None where that is no matter.

    That is the input's name, and the array or lists around one document.
    """
    kind = next(iter(inputs.values()))
    if type(data) is dict:
        if len(data) != 1 or inputs.keys() != data.keys() or isinstance(kind, Record):
            return None
        (data,) = data.values()
    return _one_document(data) if isinstance(kind, Text) else data


def _one_document(data: Any) -> Any:
    """A document, or a block of one; None for anything else."""
    if type(data) is str or type(data) is bytes:
        return data
    if isinstance(data, np.ndarray):
        data = [data.item()] if data.size == 1 and 0 < data.ndim < 3 else None
    elif type(data) is list and len(data) == 1 and type(data[0]) is list:
        data = data[0]
    one = type(data) is list and len(data) == 1 and type(data[0]) in (str, bytes)
    return data if one else None
