"""Clusterers and mixtures answer as the library does."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.cluster import (
    AffinityPropagation,
    Birch,
    BisectingKMeans,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.estimators import check

_rng = np.random.default_rng(11)
CENTRES = _rng.normal(size=(5, 4)) * 4
X = np.concatenate([centre + _rng.normal(size=(25, 4)) for centre in CENTRES])
NEW = _rng.normal(size=(31, 4)) * 4
SPARSE = np.where(np.abs(NEW) < 2, 0.0, NEW)


@pytest.mark.parametrize("kind", [KMeans, MiniBatchKMeans, BisectingKMeans])
def test_k_means(kind: type) -> None:
    # The library itself cannot meet float32 rows with float64 centres.
    check(kind(5, random_state=0).fit(X), NEW, narrow=False)
    check(kind(1, random_state=0).fit(X), NEW, narrow=False)
    check(kind(7, random_state=0).fit(X.astype("f")), NEW.astype("f"))
    sparse = kind(4, random_state=0).fit(csr_matrix(np.where(np.abs(X) < 2, 0.0, X)))
    check(sparse, csr_matrix(SPARSE), sample=csr_matrix(SPARSE), narrow=False)


def test_k_means_in_a_pipeline() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    fit = make_pipeline(StandardScaler(), KMeans(3, random_state=0)).fit(frame)
    check(fit, pd.DataFrame(NEW, columns=list("abcd")))


def test_birch() -> None:
    clusters = 3
    check(Birch(n_clusters=None, threshold=1.5).fit(X), NEW, narrow=False)
    check(Birch(n_clusters=clusters, threshold=1.5).fit(X), NEW)
    check(Birch(n_clusters=clusters, threshold=1.5).fit(X.astype("f")), NEW)
    check(Birch(n_clusters=clusters, threshold=1.5).fit(csr_matrix(X)), csr_matrix(SPARSE))


def test_mean_shift() -> None:
    check(MeanShift(bandwidth=3.0).fit(X), NEW, narrow=False)
    check(MeanShift(bandwidth=3.0, cluster_all=False).fit(X.astype("f")), NEW)


def test_affinity_propagation() -> None:
    check(AffinityPropagation(random_state=0).fit(X), NEW)
    lost = AffinityPropagation(random_state=0).fit(X)
    lost.cluster_centers_ = np.empty((0, 4))  # what it keeps when it does not converge
    with pytest.warns(ConvergenceWarning):
        check(lost, NEW)


@pytest.mark.parametrize("form", ["full", "tied", "diag", "spherical"])
def test_mixtures(form: str) -> None:
    for count, kind in ((1, GaussianMixture), (3, GaussianMixture), (3, BayesianGaussianMixture)):
        how = {"n_components": count, "covariance_type": form, "random_state": 0}
        fit = kind(max_iter=500, **how).fit(X)
        check(fit, NEW, tolerance=1e-11, narrow=form != "spherical")
        # Spherical ones add up squares of float32 data in float32, in an order of their own.
        check(fit, NEW.astype("f"), tolerance=1e-11 if form != "spherical" else 1e-5)
    narrow = GaussianMixture(3, covariance_type=form, random_state=0, tol=0.01).fit(X.astype("f"))
    check(narrow, NEW.astype("f"), tolerance=1e-11)
    if form != "spherical":
        check(narrow, NEW, tolerance=1e-11, narrow=False)  # float64 rows have float64 answers


def test_a_mixture_with_a_distribution_over_its_weights() -> None:
    kind = "dirichlet_distribution"
    fit = BayesianGaussianMixture(
        n_components=3, weight_concentration_prior_type=kind, random_state=0
    )
    check(fit.fit(X), NEW, tolerance=1e-11)
