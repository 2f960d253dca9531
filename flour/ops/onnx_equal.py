"""Strings compared with strings, both of the data."""

from __future__ import annotations

import numpy as np

from flour.core.emission import Emitter
from flour.core.op import Columns
from flour.ops.pairwise import Pairwise


class SameText(Pairwise):
    """True if two strings are equal, character by character; False where one is missing."""

    method = ""
    takes = ("string",)
    result = "bool"
    commutative = True

    def reference(self, x: Columns, y: Columns) -> Columns:
        pairs = np.broadcast_arrays(
            *(side if side.ndim == 2 or x.ndim == y.ndim else side[:, None] for side in (x, y))
        )
        both = zip(*(side.reshape(-1).tolist() for side in pairs), strict=True)
        equal = [isinstance(left, str) and left == right for left, right in both]
        return np.array(equal, bool).reshape(pairs[0].shape)

    def element(self, e: Emitter, x: str, y: str, dtype: str) -> str:
        (here, size), (there, other) = (
            [e.let(f"ld_int64({cell}, {half})", "int64").expr for half in (0, 1)] for cell in (x, y)
        )
        return f"({size} >= 0 and {size} == {other} and text_same({here}, {there}, {size}))"
