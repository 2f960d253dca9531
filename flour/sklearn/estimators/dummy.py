"""Adapters of sklearn.dummy: answers that do not depend on the input."""

from __future__ import annotations

import numpy as np

from flour.core.types import Record
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow


def _any_column(x: Flow) -> Flow:
    """A flow with the rows of the input, of numbers or not."""
    return x.field(x.type.names[0]) if isinstance(x.type, Record) else x


@adapts("sklearn.dummy.DummyRegressor")
def _regressor(fit: Fitted, x: Flow, _: Importer) -> dict[str, Flow]:
    values = np.asarray(fit.constant_).reshape(-1)
    if len(values) != fit.n_outputs_:
        values = np.repeat(values, fit.n_outputs_)
    return {"value": _any_column(x).fill(values, scalar=fit.n_outputs_ == 1)}


@adapts("sklearn.dummy.DummyClassifier")
def _classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    fixed = fit._strategy in ("most_frequent", "prior", "constant")
    to.need(fixed, f"strategy={fit._strategy!r} draws its answers at random")
    to.need(not fit.sparse_output_, "sparse labels are not made here", "fit on a dense target")
    x, several = _any_column(x), fit.n_outputs_ > 1
    classes, priors = (
        (fit.classes_, fit.class_prior_) if several else ([fit.classes_], [fit.class_prior_])
    )
    constants = np.atleast_1d(fit.constant) if fit._strategy == "constant" else None
    answers = [
        classes[k][np.argmax(priors[k])] if constants is None else constants[k]
        for k in range(fit.n_outputs_)
    ]
    places = np.arange(len(answers), dtype=np.int64)  # looked up, as answers may be strings
    outputs = {"label": x.fill(places, scalar=not several).take(np.asarray(answers))}
    for k, answer in enumerate(answers):
        name = f"probabilities_{k}" if several else "probabilities"
        chances = priors[k] if fit._strategy == "prior" else classes[k] == answer
        outputs[name] = x.fill(np.asarray(chances, np.float64))
    return outputs
