"""What must hold for every operator, by its definition alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from flour.core.node import Node, node
from flour.core.op import from_data, to_data
from flour.core.reference import apply_op
from flour.core.source import Source
from flour.core.sparse import Sparse
from flour.core.types import Category, Record, Scalar, Type, Vector
from tests.cases import CASES, Case
from tests.columns import assert_close, draw


def made(case: Case) -> Node:
    """The operator over input nodes."""
    return node(case.op, [node(Source(f"x{i}", kind), []) for i, kind in enumerate(case.inputs)])


def columns(case: Case, rows: int, *, odd: bool, seed: int = 0) -> list[object]:
    """Input columns for the case."""
    rng = np.random.default_rng(seed)
    if case.draw is not None:
        return [case.draw(rng, kind, rows) for kind in case.inputs]
    return [draw(rng, kind, rows, odd=odd) for kind in case.inputs]


def assert_type(value: object, kind: Type, rows: int) -> None:
    """The column is what its type says."""
    if isinstance(kind, Vector) and kind.sparse:
        assert isinstance(value, Sparse)
        assert value.shape == (rows, kind.width)
        assert value.dtype == kind.dtype
    elif isinstance(kind, Vector | Scalar | Category):
        assert isinstance(value, np.ndarray)
        assert value.shape == ((rows, kind.width) if isinstance(kind, Vector) else (rows,))
        assert value.dtype == (object if kind.dtype == "string" else kind.dtype)
    elif isinstance(kind, Record):
        assert isinstance(value, dict)
        assert tuple(value) == kind.names
        for name, column in value.items():
            assert_type(column, kind[name], rows)
    else:
        assert len(value) == rows  # type: ignore[arg-type]  # texts, tokens and records are sized


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_answers_have_the_inferred_type_row_by_row_and_operators_survive_being_data(
    case: Case,
) -> None:
    found = {item.digest: item for item in case.op.parameters()}
    assert from_data(to_data(case.op), found.__getitem__) == case.op
    item = made(case)
    if isinstance(item.op, Source):
        return
    for rows, odd in itertools.product((0, 1, 17), {False, case.odd}):
        with np.errstate(all="ignore"):
            value = apply_op(item, columns(case, rows, odd=odd))
        assert_type(value, item.type, rows)
    given = columns(case, 9, odd=False)
    with np.errstate(all="ignore"):
        whole = apply_op(item, given)
        some = apply_op(item, [rows_of(column, 2, 5) for column in given])
    assert_close(some, rows_of(whole, 2, 5), max(case.tolerance, 1e-13), case.name)


def rows_of(column: Any, start: int, stop: int) -> Any:
    """A run of rows of a column of any kind."""
    if isinstance(column, dict):
        return {name: rows_of(part, start, stop) for name, part in column.items()}
    if isinstance(column, Sparse):
        return Sparse.of(column.toarray()[start:stop])
    return column[start:stop]
