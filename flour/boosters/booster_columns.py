"""Columns of a data frame as the numbers a booster was trained on, and damaged models' errors.

A booster that was trained on a frame was trained on category numbers. The model keeps the list of
categories; a missing value is NaN, and so is an unknown category (unless that is an error, as it is
for XGBoost).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np

from flour.core.errors import DamagedProgram
from flour.core.types import Record, Scalar, Type, Vector
from flour.language.adapters import Fitted, Importer
from flour.language.flow import Flow
from flour.ops.categories import Coding, codes_of, pick

Categories = Mapping[int, Sequence[Any]]


@contextmanager
def reading(library: str) -> Iterator[None]:
    """Turn any exception that a damaged model causes into an error about the model."""
    try:
        # A number that is too large for its dtype is infinity, as in the libraries.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
    except RecursionError:
        raise DamagedProgram(f"this is not a {library} model", found="nested too deeply") from None
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, ValueError) as problem:
        kind = "it has no" if isinstance(problem, KeyError) else f"{type(problem).__name__}:"
        found = f"{kind} {problem}"[:120]
        raise DamagedProgram(f"this is not a whole {library} model", found=found) from None


def kinds(width: int, categories: Categories) -> list[Type]:
    """The type of each column."""
    return [
        Scalar("string" if any(isinstance(v, str) for v in categories.get(j, ())) else "float64")
        for j in range(width)
    ]


def input_type(
    names: Sequence[str], width: int, categories: Categories, dtype: str, *, strict: bool = False
) -> Type:
    """A vector where every column is a number, else a record of the columns by name.

    A `strict` library checks the names of numbers, too; without them there is a vector.
    """
    positional = len(set(names)) != width
    if not categories:
        if not strict or positional:
            return Vector(width, dtype)
        return Record(tuple((str(name), Scalar("float64")) for name in names))
    labels = [f"x{j}" for j in range(width)] if positional else [str(name) for name in names]
    return Record(tuple(zip(labels, kinds(width, categories), strict=True)), positional)


def coded(x: Flow, categories: Categories, to: Importer, *, strict: bool) -> Flow:
    """The columns of x in order, categories as their numbers."""
    if not categories:
        return to.matrix(x)
    width = len(x.type.fields) if isinstance(x.type, Record) else to.matrix(x).type.width  # type: ignore[union-attr]  # a vector
    if max(categories) >= width:
        raise DamagedProgram("a column with categories is not there", found=str(max(categories)))
    parts = []
    for inside, group in groupby(range(width), lambda j: j in categories):
        run = list(group)
        if inside:
            parts += [_numbered(pick(x, [j]), categories[j], to, strict=strict) for j in run]
        else:
            parts.append(to.matrix(pick(x, run)).cast("float64"))
    return parts[0].concat(*parts[1:])


def _numbered(x: Flow, values: Sequence[Any], to: Importer, *, strict: bool) -> Flow:
    """One column's values as the numbers of their categories."""
    count = len(values)
    # A missing value has the number after the last, which is not in the table.
    coding = Coding(np.array([*range(count), count, count]), None if strict else -1)
    codes = codes_of(x, [[*values, None, np.nan]], [coding], to, strict=strict)
    starts = np.array([0, count], np.int64)
    return codes.look_up(np.arange(count, dtype=np.float64), starts, np.array([np.nan]))


def classified(fit: Fitted, value: Flow, to: Importer) -> dict[str, Flow]:
    """Labels from what the booster answers: a probability, or one for each class."""
    many = isinstance(value.type, Vector)
    to.need(not many or fit.n_classes_ > 2, "a classifier whose booster has several targets")
    if many:
        return {"label": value.arg_max().take(fit.classes_), "probabilities": value}
    index = value.greater([0.5]).cast("int64")
    both = value.one_minus().concat(value)
    return {"label": index.take(fit.classes_), "probabilities": both}


def flat(x: Flow) -> Flow:
    """One column as one number per row."""
    kind = x.type
    return x.element(0) if isinstance(kind, Vector) and kind.width == 1 else x
