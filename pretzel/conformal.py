"""Split-conformal answers: an interval, or a set of classes, that holds the truth so often."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from flour.core.errors import ParameterError, TypeMismatch
from flour.language.flow import Flow, outputs
from flour.sklearn.estimators.conformal import conformal_quantile, with_interval, with_set
from oven import Plan
from oven.plans.skeleton import classes


def conformal_flow(plan: Plan, rows: object, truth: ArrayLike, coverage: float) -> Flow:
    """The plan's program with the outputs `lower` and `upper`, or `set`."""
    flow, made = plan.flow, plan.run(rows)
    every = {name: flow[name] for name in flow.outputs}
    true = np.asarray(truth)
    count = len(next(iter(made.values())))
    if true.shape in ((count, 1), (1, count)):
        true = true.reshape(count)
    missing = true.dtype.kind == "f" and not np.isfinite(true).all()
    if true.shape != (count,) or missing:
        raise ParameterError(
            "each row has one truth",
            where="conformal",
            found="NaN or infinity" if missing else f"{true.shape} for {count} rows",
            hint="a number, or a class, for each row",
        )
    known = classes(flow.outputs.get("label"))
    if known is not None and "probabilities" in made:
        places = [list(known).index(label) if label in known else -1 for label in true]
        columns = np.array(places, np.int64)  # also of no rows
        if np.any(columns < 0):
            raise ParameterError(
                "the truth has a class that the model does not know",
                where="conformal",
                found=repr(true[columns < 0][0]),
                hint=f"its classes are {list(known)}"[:200],
            )
        of_truth = np.asarray(made["probabilities"])[np.arange(len(true)), columns]
        return outputs(**with_set(every, conformal_quantile(1 - of_truth, coverage)))
    if "value" not in made or np.ndim(made["value"]) != 1:
        raise TypeMismatch(
            "conformal answers are for classifiers with probabilities, and regressors of one value",
            where="conformal",
            found=f"outputs {', '.join(made)}",
        )
    width = conformal_quantile(np.abs(true - made["value"]), coverage)
    return outputs(**with_interval(every, np.array([width])))
