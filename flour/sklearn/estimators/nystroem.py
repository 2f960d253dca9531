"""Nystroem: kernels with some of the training rows, made orthogonal."""

from __future__ import annotations

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.kernel import pairwise_kernel
from flour.ops.linear import plain

#: The parameters in `kernel_params` that each kernel takes; others are dropped, as in the library.
TAKES = {
    "chi2": ("gamma",),
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "poly": ("gamma", "degree", "coef0"),
    "polynomial": ("gamma", "degree", "coef0"),
}


@adapts("sklearn.kernel_approximation.Nystroem")
def _nystroem(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(isinstance(fit.kernel, str), "a kernel that is a Python function stays Python")
    takes = TAKES.get(fit.kernel, ())
    available = {**(fit.kernel_params or {})}
    available |= {name: getattr(fit, name) for name in takes if getattr(fit, name) is not None}
    settings = {name: value for name, value in available.items() if name in takes}
    if fit.kernel == "chi2":
        settings.setdefault("gamma", 1.0)
    points = np.asarray(plain(fit.components_))
    return pairwise_kernel(x, points, fit.kernel, to, **settings).linear(fit.normalization_, [])
