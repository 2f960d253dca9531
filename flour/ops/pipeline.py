"""Pipelines and columns: estimators that only say what runs on what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flour import provenance
from flour.adapters import adapts

if TYPE_CHECKING:
    from flour.flow import Flow
    from flour.sklearn import Importer


@adapts("sklearn.pipeline.Pipeline")
def _pipeline(fit: Any, x: Flow, to: Importer) -> Flow | dict[str, Flow]:
    for name, step in fit.steps[:-1]:
        if step is not None and step != "passthrough":
            x = to.transform(step, x, name)
    name, last = fit.steps[-1]
    if last is None or isinstance(last, str):
        return to.matrix(x)
    with provenance.step(name):
        return to.adapt(last, x)
