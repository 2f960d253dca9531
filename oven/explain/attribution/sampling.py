"""Sampled attribution, for programs that have no exact form: Shapley values by permutations.

Columns of a background row are replaced one after the other, in a random order, by those of the row
that is explained; what each replacement changes is the column's share. Every second order is the
one before it backwards, which makes errors smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError
from flour.core.rows import stacked, take_rows
from flour.core.sparse import densify
from flour.core.types import Record, Vector, width_of
from flour.data.coerce import coerce
from oven.explain.attribution.explainer import COMPARED, SCORE, Explainer
from oven.plans.attribution import Attribution

#: Rows that are scored at once.
MOST_ROWS = 1 << 16


def sampled(explainer: Explainer, rows: object, background: object, samples: int) -> Attribution:
    """The share of each raw column, with its standard error; the parts sum to the score."""
    if samples < 2 or samples % 2:
        raise ParameterError("samples are taken in pairs", found=str(samples), hint="samples=64")
    block = explainer.block(rows)
    own, count = coerce(explainer.inputs, block)
    theirs, others = coerce(explainer.inputs, explainer.block(background))
    if not others:
        raise ParameterError("the background has no rows", where="background", hint=COMPARED)
    draw = np.random.default_rng(0)
    columns = len(explainer.terms.columns)
    orders = np.array([draw.permutation(columns) for _ in range(samples // 2)])
    orders = np.stack([orders, orders[:, ::-1]], axis=1).reshape(samples, columns)
    chosen = np.resize(draw.permutation(others), samples)
    joined = {name: stacked([densify(theirs[name]), densify(own[name])]) for name in own}
    steps = np.empty((count, samples, columns + 1, explainer.scores))
    for i in range(count):
        steps[i] = _scored(explainer, joined, others, orders, chosen, i)
    changes = np.diff(steps, axis=2)
    shares = np.empty((count, samples, columns, explainer.scores))
    for sample, order in enumerate(orders):
        shares[:, sample, order] = changes[:, sample]
    # A pair of opposite orders is one draw.
    pairs = shares.reshape(count, samples // 2, 2, *shares.shape[2:]).mean(axis=2)
    errors = pairs.std(axis=1, ddof=1) / np.sqrt(samples // 2) if samples > 2 else None
    compared = densify(explainer.plan.run_columns(theirs, others)[SCORE])
    drawn = np.asarray(compared, np.float64).reshape(others, -1)[chosen]
    base, left = drawn.mean(axis=0), max(0.0, 1 - samples / others)  # of rows that were not drawn
    base_error = drawn.std(axis=0, ddof=1) * np.sqrt(left / samples)
    values = shares.mean(axis=1)
    errors = np.full_like(values, np.nan) if errors is None else errors
    score = steps[:, 0, -1]
    return explainer.made(block, values, base, score, errors=errors, base_error=base_error)


def _scored(
    explainer: Explainer,
    joined: dict[str, Any],
    others: int,
    orders: NDArray[np.int64],
    chosen: NDArray[np.int64],
    row: int,
) -> NDArray[np.float64]:
    """The scores of a row on its way from each background row: sample, replaced columns, score."""
    samples, columns = orders.shape
    place = np.argsort(orders, axis=1)
    replaced = place[:, None, :] < np.arange(columns + 1)[None, :, None]
    source = np.where(replaced, others + row, chosen[:, None, None]).reshape(-1, columns)
    made = []
    for start in range(0, len(source), MOST_ROWS):
        part = source[start : start + MOST_ROWS]
        answered = explainer.plan.run_columns(_mixed(explainer, joined, part), len(part))[SCORE]
        made.append(np.asarray(densify(answered), np.float64).reshape(len(part), -1))
    return np.concatenate(made).reshape(samples, columns + 1, -1)


def _mixed(
    explainer: Explainer, joined: dict[str, Any], source: NDArray[np.int64]
) -> dict[str, Any]:
    """Columns whose values come from the rows of these numbers, column by column."""
    made: dict[str, Any] = {}
    at = 0
    for name, kind in explainer.inputs.items():
        held = joined[name]
        if isinstance(kind, Record):
            made[name] = {
                label: take_rows(held[label], source[:, at + j])
                for j, label in enumerate(kind.names)
                if label in held
            }
        elif isinstance(kind, Vector):
            made[name] = held[source[:, at : at + kind.width], np.arange(kind.width)]
        else:
            made[name] = take_rows(held, source[:, at])
        at += width_of(kind)
    return made
