"""Models as their own libraries answer them: the other side of a verification.

Only an import uses this: it replays rows on the original before a plan may replace it. The
libraries are imported when their models are first called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flour.core.errors import UnsupportedSetting
from flour.core.model_formats import FORMATS, importing
from flour.language.adapters import Fitted, public_name
from flour.sklearn.importer import BOOSTERS, refuse_stand_in

#: The method of an estimator behind each output.
_METHODS = {
    "label": "predict",
    "value": "predict",
    "probabilities": "predict_proba",
    "log_probabilities": "predict_log_proba",
    "scores": "decision_function",
    "features": "transform",
    "distances": "transform",
}

Answers = Callable[[Any], dict[str, Any]]


def original(form: str, model: object) -> Answers:
    """A function from rows to the own library's answers: the outputs that can be compared, by name.

    `model` is a fitted estimator for "sklearn", the bytes of the file for the others.
    """
    if form not in FORMATS:
        raise UnsupportedSetting(f"there is no original of a model of the format {form!r}")
    own: Callable[[Any], Answers] = _OWN.get(form) or importing(form).original
    return own(model)


def as_frame(data: Any) -> Any:
    """A dict of columns, or a list of dicts, as a frame; anything else as it is."""
    rows = isinstance(data, list) and bool(data) and isinstance(data[0], Mapping)
    if not isinstance(data, Mapping) and not rows:
        return data
    import pandas as pd

    return pd.DataFrame(data if rows else dict(data))


def estimator_answers(model: Fitted) -> Answers:
    """The answers of a fitted estimator, or of a booster without a wrapper."""
    refuse_stand_in(model)
    if form := BOOSTERS.get(public_name(type(model))):
        return _OWN[form](raw_booster(model))
    named = hasattr(model, "feature_names_in_")

    def answer(rows: object) -> dict[str, Any]:
        frame = as_frame(rows)
        if isinstance(rows, Mapping) and not named:  # it was fitted on a plain array
            frame = frame.to_numpy()
        outputs: dict[str, Any] = {}
        with np.errstate(divide="ignore"):  # the logarithm of a probability of zero
            for output, method in _METHODS.items():
                if hasattr(model, method):
                    outputs[output] = getattr(model, method)(frame)
        return outputs

    return answer


def raw_booster(model: Fitted) -> bytes:
    """A booster as its library writes it to a file."""
    lightgbm = hasattr(model, "model_to_string")
    return model.model_to_string().encode() if lightgbm else bytes(model.save_raw("ubj"))


def lightgbm_answers(raw: bytes) -> Answers:
    """LightGBM's answers for a model in this text."""
    import lightgbm

    booster = lightgbm.Booster(model_str=raw.decode("utf-8", "replace"))

    def answer(rows: object) -> dict[str, Any]:
        frame = as_frame(rows)
        return {
            "value": np.asarray(booster.predict(frame)),
            "scores": np.asarray(booster.predict(frame, raw_score=True)),
        }

    return answer


def xgboost_answers(raw: bytes) -> Answers:
    """XGBoost's answers for the model in this file."""
    import xgboost

    booster = xgboost.Booster(model_file=bytearray(raw))
    # The library wants names where the model has some; the comparison goes by position.
    names = booster.feature_names

    def answer(rows: object) -> dict[str, Any]:
        frame = as_frame(rows)
        table = np.asarray(frame, np.float32) if isinstance(frame, np.ndarray) else frame
        data = xgboost.DMatrix(table, feature_names=names, enable_categorical=True)
        return {
            "value": booster.predict(data, strict_shape=False),
            "scores": booster.predict(data, output_margin=True),
        }

    return answer


def onnx_answers(raw: bytes) -> Answers:
    """onnxruntime's answers; maps from labels become rows, in the order of the labels."""
    import onnx
    import onnxruntime

    labels = {
        node.output[0]: [*each.ints, *(text.decode() for text in each.strings)]
        for node in onnx.load_from_string(raw).graph.node
        if node.op_type == "ZipMap"
        for each in node.attribute
    }
    session = onnxruntime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    outputs = [each.name for each in session.get_outputs()]

    def answer(rows: Any) -> dict[str, Any]:
        if len(inputs) == 1 and not isinstance(rows, Mapping):
            rows = {inputs[0].name: rows}
        feeds = {each.name: _as_declared(rows[each.name], each.type) for each in inputs}
        results = session.run(outputs, feeds)
        made = dict(zip(outputs, results, strict=True))
        for name in labels.keys() & made.keys():
            made[name] = np.array([[row[label] for label in labels[name]] for row in made[name]])
        return {name: value for name, value in made.items() if isinstance(value, np.ndarray)}

    return answer


_ONNX_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


def _as_declared(values: object, kind: str) -> Any:
    """A column as the tensor of rows that the model declares."""
    column: Any = np.asarray(values, _ONNX_TYPES.get(kind, np.object_))
    return column[:, None] if column.ndim == 1 else column


#: The answers of the libraries, by the format of their models; other formats bring their own.
_OWN: dict[str, Callable[[Any], Answers]] = {
    "lightgbm": lightgbm_answers,
    "onnx": onnx_answers,
    "sklearn": estimator_answers,
    "xgboost": xgboost_answers,
}
