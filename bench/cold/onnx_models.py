"""ONNX models as skl2onnx makes them: of every estimator that it knows, with each of its options.

Estimators are fitted to two classes, three classes, classes with names, and numbers. What
cannot be fitted, converted or loaded by onnxruntime is left out.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

ROWS, WIDTH = 80, 6
#: Smaller than estimators make themselves, as most models are converted to measure loading.
_SMALL = {"n_estimators": 10, "max_iter": 60, "random_state": 0, "n_components": 2}
_OPSET = 17


def models(count: int) -> Iterator[tuple[str, bytes]]:
    """So many models by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from islice(_models(), count)


def _models() -> Iterator[tuple[str, bytes]]:
    rng = np.random.default_rng(0)
    rows = np.abs(rng.normal(size=(ROWS, WIDTH))).astype(np.float32)
    two = (rows[:, 0] > rows[:, 1]).astype(np.int64)
    three = np.arange(ROWS) % 3
    targets = {"two": two, "three": three, "names": np.array(["a", "b", "c"])[three]}
    targets["numbers"] = rows[:, 0] * 2 + rows[:, 1]
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from sklearn.utils import all_estimators

    for kind in [kind for _, kind in all_estimators() if kind in sklearn_operator_name_map]:
        for called, target in targets.items():
            fitted = _fitted(kind, rows, target)
            if fitted is None or (
                called != "two" and not bool(fitted.__sklearn_tags__().target_tags.required)
            ):
                continue
            for options in _options(kind):
                made = _converted(fitted, rows, options)
                if made is not None:
                    yield f"{kind.__name__}, {called}, {options}", made


def _fitted(kind: Any, rows: Any, target: Any) -> Any:
    """The estimator, fitted; None if it does not take these."""
    taken = inspect.signature(kind).parameters
    try:
        made = kind(**{name: value for name, value in _SMALL.items() if name in taken})
        if made.__sklearn_tags__().estimator_type == "regressor" and target.dtype.kind != "f":
            return None
        return made.fit(rows, target)
    except (ValueError, TypeError, AttributeError):
        return None


def _options(kind: type) -> Iterator[Mapping[str, Any]]:
    """No options, and each value of each option that the converter has."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import get_converter

    yield {}
    allowed = get_converter(sklearn_operator_name_map[kind]).get_allowed_options() or {}
    for name, values in allowed.items():
        for value in values or ():
            yield {name: value}


def _converted(fitted: Any, rows: Any, options: Mapping[str, Any]) -> bytes | None:
    """The model; None if skl2onnx cannot make it, or onnxruntime cannot load it."""
    import onnxruntime
    from skl2onnx import to_onnx

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    given = {id(fitted): dict(options)} if options else None
    try:
        proto = to_onnx(fitted, rows[:1], options=given, target_opset=_OPSET)
        made = bytes(proto.SerializeToString())
        onnxruntime.InferenceSession(made, settings)
    except Exception:  # noqa: BLE001 (converters raise what they like; the model is left out)
        return None
    return made
