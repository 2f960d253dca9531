"""A parity model: trained to answer an encoded group with the sum of the group's answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flour.language.flow import Flow
from runtime.cluster.parity.code import Encoder, Rows
from runtime.errors import ClusterError


class Learner(Protocol):
    """A regressor with scikit-learn's methods."""

    def fit(self, X: Rows, y: Rows) -> object:
        """Learn from rows."""

    def predict(self, X: Rows) -> Rows:
        """Answer rows."""


@dataclass(frozen=True)
class ParityModel:
    """A trained parity model, and how often what it reconstructs has the right label."""

    estimator: Learner
    encoder: Encoder
    group: int
    accuracy: float
    """Share of right labels of the deployed model, on the rows that were held back."""
    degraded: float
    """Share of right labels of reconstructed answers, on these rows."""
    default: float
    """Share of right labels of always answering the most frequent one."""

    def flow(self) -> Flow:
        """The parity model as a program, to be baked and served like any other."""
        import flour

        program: Flow = flour.from_sklearn(self.estimator)
        return program


def encoded(queries: Rows, encoder: Encoder) -> Rows:
    """Groups (groups, k, width) as parity queries (groups, columns)."""
    if encoder == "sum":
        total: Rows = queries.sum(axis=1)
        return total
    return queries.reshape(len(queries), -1)


def train(
    answers: Callable[[Rows], Rows],
    rows: Rows,
    held: tuple[Rows, Rows],
    estimator: Learner,
    *,
    group: int = 2,
    encoder: Encoder = "concatenation",
    groups: int = 12_000,
) -> ParityModel:
    """Train a parity model for a deployed one, whose `answers` are one column for each label.

    `estimator` is an unfitted regressor of several outputs, a network or trees of scikit-learn.
    `held` are rows that neither model has learnt from, and their labels as numbers of columns. A
    model whose reconstructed answers are worse than the default answer is refused.
    """
    generator = np.random.default_rng(0)
    every = answers(rows)
    members = generator.integers(0, len(rows), (groups, group))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit that could go on: its accuracy is measured
        estimator.fit(encoded(rows[members], encoder), every[members].sum(axis=1))
    tested, labels = held
    given = answers(tested)
    members = generator.integers(0, len(tested), (4_000, group))
    parity = estimator.predict(encoded(tested[members], encoder))
    lost = parity - given[members[:, 1:]].sum(axis=1)
    found = ParityModel(
        estimator,
        encoder,
        group,
        accuracy=float(np.mean(given.argmax(axis=1) == labels)),
        degraded=float(np.mean(lost.argmax(axis=1) == labels[members[:, 0]])),
        default=float(np.bincount(labels).max() / len(labels)),
    )
    if found.degraded <= found.default:
        raise ClusterError(
            "the parity model is worse than the default answer",
            where=f"{encoder} of {group}, {type(estimator).__name__}",
            found=f"accuracy {found.degraded:.3f}, of the most frequent label {found.default:.3f}",
            hint="a smaller group, the other encoder, or replicas instead",
        )
    return found
