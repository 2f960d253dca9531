"""Native functions of numbers, columns and strings compute in Python what references say."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flour.core.op import Op
from flour.core.sparse import densify
from flour.core.types import LARGEST
from flour.ops import (
    categorise,
    discretise,
    encode,
    impute_models,
    indexed,
    link,
    require,
    scale,
    spline,
    target,
)
from objectstore import Blob

_RNG = np.random.default_rng(20181009)
ROWS = _RNG.normal(size=(7, 4))
GAPPY = np.where(_RNG.random((7, 4)) < 0.4, np.nan, ROWS)
CODES = _RNG.integers(-1, 3, size=(7, 2))
POWERS = [0.0, 2.0, 0.7, -1.3]
EDGES = np.array([-0.5, 0.1, 0.4, 1.0])
TEXTS = np.array([["a", "日本"], [None, "a"], [np.nan, "x"], ["", "b"]], object)


def arrays(op: Any) -> Any:
    """An operator's fields, its parameters as arrays."""
    fields = op.fields().items()
    return SimpleNamespace(**{k: v.array if isinstance(v, Blob) else v for k, v in fields})


def every(function: Callable[..., Any], x: Any, *values: Any) -> list[Any]:
    """What a function makes of each number of a row and its column."""
    return [function(value, j, *values) for j, value in enumerate(x)]


def one_hot(x: Any, starts: Any) -> Any:
    """The row that a function yields, as a dense one."""
    row = np.zeros(starts[-1])
    for column, value in encode.hot(x, starts, 1.0):
        row[column] = value
    return row


BINS = discretise.Bins(EDGES, [0, 2, 2, 3, 4])
KNOWN = categorise.Categorise([0, 1, 2, 5], [3, 4, 5, 6], [0, 2, 4], [-1, -2], [7, 8])
WORDS = categorise.CategoriseText(
    ["a", "", "日本", "a"], [3, 4, 5, 6], [0, 2, 4], [1, 2], [8, 9], [-1, -2]
)
TABLES = categorise.HashTables._make(
    each.array for each in categorise.hash_tables(WORDS.texts, WORDS.starts)
)
ENTRIES = encode.LookUp(np.arange(5.0), [0, 2, 5], [9.0, -9.0])
TERMS = spline.Products([0, 1, 4], [1, 3, 2], skip=2)
BIASED = spline.Products([0, 1, 4], [1, 3, 2], skip=1, bias=True)
NEAREST = [
    impute_models.ImputeNearest(_RNG.normal(size=(9, 4)), [1.0, 2, 3, 4], 3, closeness)
    for closeness in (False, True)
]
IN_TURN = impute_models.ImputeInTurn(
    [1, 3], _RNG.normal(size=(2, 4)), [0.5, -1], [-2.0] * 4, [2.0] * 4
)
MATRICES = indexed.MatrixProducts(1, 2, 2)

#: An operator, its inputs, and its native function for a row of each.
CASES: list[tuple[Op, tuple[Any, ...], Callable[..., Any]]] = [
    (BINS, (GAPPY,), lambda x: every(discretise.edges_reached, x, EDGES, BINS.starts.array)),
    (
        KNOWN,
        (CODES * 2.5,),
        lambda x: every(categorise.code_of, x, arrays(KNOWN), KNOWN.values.array.astype(float)),
    ),
    (WORDS, (TEXTS,), lambda x: every(categorise.code_of_text, x, arrays(WORDS), TABLES)),
    (ENTRIES, (CODES,), lambda x: every(encode.entry, x, arrays(ENTRIES))),
    (encode.OneHot([0, 2, 5]), (CODES,), lambda x: one_hot(x, [0, 2, 5])),
    (link.Proportions(), (ROWS,), link.shares),
    (link.LogSumExp(), (ROWS,), link.log_sum_exp),
    (TERMS, (ROWS,), lambda x: spline.products(x, arrays(TERMS), 7, 3)),
    (BIASED, (ROWS,), lambda x: spline.products(x, arrays(BIASED), 7, 3)),
    *(
        (op, (GAPPY,), lambda x, op=op: impute_models.filled_by_nearest(x, arrays(op), 9))
        for op in NEAREST
    ),
    (IN_TURN, (GAPPY, ROWS), lambda x, y: impute_models.filled_in_turn(x, y, arrays(IN_TURN), 2)),
    *(
        (
            indexed.PutAt(name),
            (ROWS, CODES, ROWS[:, :2]),
            lambda x, at, new, how=how: indexed.put_at(x, at, new, how, 4),
        )
        for name, how in indexed.REDUCTIONS.items()
    ),
    (
        MATRICES,
        (ROWS, np.hstack([ROWS, ROWS])),
        lambda x, y: indexed.matrix_products(x, y, arrays(MATRICES), 2, 4),
    ),
    (
        scale.YeoJohnson(POWERS),
        (ROWS,),
        lambda x: every(lambda v, j: scale.yeo_johnson(v, np.float64(POWERS[j]), 2.2e-16), x),
    ),
    (
        scale.BoxCox(POWERS),
        (np.abs(ROWS),),
        lambda x: every(lambda v, j: scale.box_cox(v, np.float64(POWERS[j])), x),
    ),
    (
        target.UndoYeoJohnson(POWERS),
        (ROWS / 8,),
        lambda x: every(lambda v, j: target.yeo_johnson_undone(v, np.float64(POWERS[j])), x),
    ),
    (
        target.UndoBoxCox(POWERS),
        (ROWS / 8,),
        lambda x: every(lambda v, j: target.box_cox_undone(v, np.float64(POWERS[j])), x),
    ),
]


@pytest.mark.parametrize(
    ("op", "inputs", "function"),
    CASES,
    ids=[f"{type(case[0]).__name__}{n}" for n, case in enumerate(CASES)],
)
def test_in_python_a_native_function_computes_what_the_reference_says(
    op: Op, inputs: tuple[Any, ...], function: Callable[..., Any]
) -> None:
    with np.errstate(all="ignore"):
        want = densify(op.reference(*inputs))
        for row, given in zip(want, zip(*inputs, strict=True), strict=True):
            np.testing.assert_allclose(np.asarray(function(*given)), row, rtol=1e-12)


@pytest.mark.parametrize("limit", [LARGEST, 9.0])
@pytest.mark.parametrize("refused", [np.nan, np.inf, 1e3])
def test_in_python_a_check_refuses_what_the_operator_refuses(limit: float, refused: float) -> None:
    op = require.RequireFinite([True], [limit])
    nothing = np.float64(0) if limit == LARGEST else np.int64(0)
    limits, nan = np.repeat(limit, 4), np.repeat(True, 4)
    test = require.NumberCheck(8, limits, nan, (True, True), None, False, True, nothing)
    require.check_row(ROWS[0], test)
    row = np.append(ROWS[0, :3], refused)
    if limit == LARGEST and np.isfinite(refused):
        require.check_row(row, test)
        return
    for check in (lambda: require.check_row(row, test), lambda: op.reference(row[None])):
        with np.errstate(all="ignore"), pytest.raises(Exception, match="refuse"):
            check()
