"""Longer values of the table of operators."""

from __future__ import annotations

from functools import reduce as folded

import numpy as np

from flour.ops import combinations
from tests.case import narrow

# Two tables: of column 0, two numbers a key; and of column 1 with three answers about column 2.
ZERO = np.zeros(3, np.uint64)
COMBINATIONS = combinations.CombinationTables(
    elements=[[0.0, 0, 0], [1, 0, 0], [2, 1, 1.5], [2, 2, 0.5], [0, 3, 2]],
    element_starts=[0, 1, 5],
    keys=np.concatenate(
        [
            combinations.combination(ZERO, np.array([0, -1, 3])),
            *(
                folded(combinations.combination, np.array([[1], [above], [above], [two]]), ZERO[:1])
                for above in (0, 1)
                for two in (0, 1)
            ),
        ]
    ).view(np.int64),
    key_starts=[0, 3, 7],
    widths=[2, 1],
    values=narrow(*range(10)),
    other=narrow(-1, -2, -3),
)
