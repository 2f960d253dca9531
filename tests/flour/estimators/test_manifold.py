"""Manifold learners place new rows where the library does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.manifold import TSNE, Isomap, LocallyLinearEmbedding

import flour
from flour.core.errors import FlourError
from tests.estimators import check

_rng = np.random.default_rng(17)
X = _rng.normal(size=(60, 4))
NEW = _rng.normal(size=(19, 4))


def test_isomap() -> None:
    for how in ({}, {"metric": "manhattan"}, {"neighbors_algorithm": "brute"}):
        check(Isomap(n_neighbors=8, n_components=2, **how).fit(X), NEW, tolerance=1e-10)
    # Float32 rows: ways are rounded to float32 before they are squared.
    check(Isomap(n_neighbors=8).fit(X.astype("f")), NEW.astype("f"), tolerance=1e-5)


@pytest.mark.parametrize("neighbours", [3, 7])
def test_locally_linear(neighbours: int) -> None:
    # Weights come from equations that are nearly singular where neighbours outnumber columns.
    for method in ("standard", "ltsa"):
        fit = LocallyLinearEmbedding(n_neighbors=neighbours, method=method, random_state=0)
        check(fit.fit(X), NEW, tolerance=1e-9, narrow=False)
    # The weights of float32 rows are rounded to float32.
    check(fit.fit(X.astype("f")), NEW.astype("f"), tolerance=1e-5)


def test_what_has_no_exact_translation_is_refused() -> None:
    refused = [
        Isomap(n_neighbors=None, radius=3.0).fit(X),
        TSNE(perplexity=5, random_state=0).fit(X),
    ]
    for fit in refused:
        with pytest.raises(FlourError):
            flour.from_sklearn(fit)
    with pytest.raises(FlourError):
        flour.from_sklearn(Isomap(n_neighbors=8).fit(csr_matrix(X)), csr_matrix(X))
