"""Pipelines, column transformers and selectors: estimators that only connect others, or columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flour.core import provenance
from flour.core.check import holds_text
from flour.core.types import Record, Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.structure import Bundle, Narrow


def passes_through(step: Any) -> bool:
    """True if a step leaves its input unchanged."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return True
    if hasattr(step, "fit_resample"):  # samplers choose rows while a pipeline is trained
        return True
    return type(step).__name__ == "FunctionTransformer" and step.func is None


@adapts(
    "sklearn.pipeline.Pipeline",
    "imblearn.pipeline.Pipeline",
    "feature_engine.pipeline.pipeline.Pipeline",
)
def _pipeline(fit: Fitted, x: Flow, to: Importer) -> Flow | dict[str, Flow]:
    for name, step in fit.steps[:-1]:
        if not passes_through(step):
            x = to.transform(step, x, name)
    name, last = fit.steps[-1]
    if passes_through(last):
        return x if isinstance(x.type, Record) and mixed(x) else to.matrix(x)
    with provenance.step(name):
        return to.adapt(last, x)


@adapts("sklearn.pipeline.FeatureUnion")
def _feature_union(fit: Fitted, x: Flow, to: Importer) -> Flow:
    weights = fit.transformer_weights or {}
    parts = [
        _weighted(_child(child, x, to, name), weights.get(name), to)
        for name, child in fit.transformer_list
        if not (isinstance(child, str) and child == "drop")
    ]
    to.need(parts, "a FeatureUnion that drops everything has no features")
    return beside(parts, x, to)


@adapts("sklearn.compose.ColumnTransformer")
def _column_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    weights = fit.transformer_weights or {}
    parts = []
    for name, child, columns in fit.transformers_:
        picked = [int(j) for j in fit._transformer_to_input_indices[name]]
        if (isinstance(child, str) and child == "drop") or not picked:
            continue
        part = _column(x, picked[0]) if np.isscalar(columns) else columns_of(x, picked)
        parts.append(_weighted(_child(child, part, to, name), weights.get(name), to))
    joined = beside(parts, x, to)
    if not isinstance(joined.type, Vector) or joined.type.dtype == "string":
        return joined
    return joined.to_sparse() if getattr(fit, "sparse_output_", False) else joined.to_dense()


def _child(child: Fitted, x: Flow, to: Importer, name: str) -> Flow:
    """A transformer's features of its columns; a passthrough keeps columns of mixed types."""
    return x if passes_through(child) else to.transform(child, x, name)


def _weighted(x: Flow, weight: float | None, to: Importer) -> Flow:
    """The features times a weight; those of a frame in the width of each column."""
    if weight is None:
        return x
    kinds = {str(kind) for _, kind in x.type.fields} if isinstance(x.type, Record) else set()
    if isinstance(x.type, Record) and len(kinds) > 1:
        columns = [x.field(name) for name in x.type.names]
        return beside([_weighted(to.matrix(each), weight, to) for each in columns], x, to)
    return to.matrix(x).as_float().multiply([weight])


def _column(x: Flow, number: int) -> Flow:
    """One column as one value per row, as text vectorisers take it."""
    if isinstance(x.type, Record):
        return x.field(x.type.names[number])
    return x.element(number) if isinstance(x.type, Vector) else x


def columns_of(x: Flow, numbers: Sequence[int]) -> Flow:
    """Columns by number, as a vector of a vector, as a record of a record."""
    if isinstance(x.type, Record):
        labels = tuple(x.type.names[j] for j in numbers)
        return x if labels == x.type.names else Narrow(labels)(x)
    whole = isinstance(x.type, Vector) and list(numbers) == list(range(x.type.width))
    return x if whole else x.select(list(numbers))


def mixed(x: Flow) -> bool:
    """True if a record has strings and numbers, which cannot share a vector."""
    assert isinstance(x.type, Record)
    return len({holds_text(kind) for _, kind in x.type.fields}) > 1


def beside(parts: Sequence[Flow], x: Flow, to: Importer) -> Flow:
    """The parts side by side: a vector, or a record where strings stand beside numbers."""
    pieces: list[Flow] = []
    for part in parts:
        if isinstance(part.type, Record) and mixed(part):
            pieces += [part.field(name) for name in part.type.names]
        else:
            pieces.append(to.matrix(part))
    if not pieces:
        return x.fill(np.empty(0))
    strings = [holds_text(piece.type) for piece in pieces]
    if any(strings) and not all(strings):
        width = sum(p.type.width if isinstance(p.type, Vector) else 1 for p in pieces)
        return Bundle(tuple(f"x{j}" for j in range(width)))(*pieces)
    return pieces[0] if len(pieces) == 1 else pieces[0].concat(*pieces[1:])


adapts("sklearn.frozen.FrozenEstimator")(lambda fit, x, to: to.adapt(fit.estimator, x))


@adapts(
    "sklearn.feature_selection.GenericUnivariateSelect",
    "sklearn.feature_selection.SelectFdr",
    "sklearn.feature_selection.SelectFpr",
    "sklearn.feature_selection.SelectFromModel",
    "sklearn.feature_selection.SelectFwe",
    "sklearn.feature_selection.SelectKBest",
    "sklearn.feature_selection.SelectPercentile",
    "sklearn.feature_selection.SequentialFeatureSelector",
    "sklearn.feature_selection.VarianceThreshold",
)
def _selector(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return kept(fit, x, to)


@adapts("sklearn.feature_selection.RFE", "sklearn.feature_selection.RFECV")
def _elimination(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    features = kept(fit, x, to)
    outputs = to.predict(fit.estimator_, features, "estimator_")
    return {**{k: v for k, v in outputs.items() if k != "distances"}, "features": features}


def kept(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The columns a selector keeps, in their own dtype."""
    support, x = np.asarray(fit.get_support()), to.matrix(x)
    selected = x if support.all() else x.select(np.flatnonzero(support))
    # Without any column the library returns an empty array, for sparse data too.
    return selected if support.any() else selected.to_dense()
