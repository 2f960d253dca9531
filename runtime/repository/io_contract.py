"""Contracts of layouts: names, types and meanings of a model's inputs and outputs.

A client that was written for another server uses that server's tensor names. So a model found in
that server's layout gets inputs and outputs with those names, types and meanings:

Plain       outputs as the importer names them: label, probabilities, value, scores, ...
MLServer    `predict`, and `predict_proba` for classifiers; the default is `predict`
Fil         `input__0` to `output__0`, float32, as the configuration's parameters say
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import flour
from flour.core.types import Scalar, Vector
from flour.language.flow import Flow, source
from runtime.repository import formats
from runtime.repository.errors import UnsupportedModel


@dataclass(frozen=True)
class IoContract(ABC):
    """The contract of a layout: makes a model's program; equal contracts have equal reprs."""

    part: str = field(default="", kw_only=True)
    """The key of the model in the mapping that its file holds; empty for the whole file."""

    @property
    def platform(self) -> str:
        """The platform in the model's metadata."""
        return "pretzel"

    @property
    def default_outputs(self) -> tuple[str, ...]:
        """The outputs of a request that names none; empty for all outputs."""
        return ()

    @abstractmethod
    def program(self, form: str, raw: bytes, where: str, *, trust_pickle: bool = False) -> Flow:
        """The program of a model in a file."""


@dataclass(frozen=True)
class Plain(IoContract):
    """The program as its importer makes it."""

    def program(self, form: str, raw: bytes, where: str, *, trust_pickle: bool = False) -> Flow:
        """The program of a model in a file."""
        return formats.program(form, raw, where, trust_pickle=trust_pickle, part=self.part)


# --- MLServer --------------------------------------------------------------------------------


@dataclass(frozen=True)
class MLServer(IoContract):
    """The outputs of MLServer's runtimes, each with a column for every value of a row."""

    @property
    def default_outputs(self) -> tuple[str, ...]:
        """MLServer answers `predict` unless the request names other outputs."""
        return ("predict",)

    def program(self, form: str, raw: bytes, where: str, *, trust_pickle: bool = False) -> Flow:
        """The program of a model in a file."""
        if form == formats.XGBOOST:
            return _xgboost_sklearn(raw)
        imported = formats.program(form, raw, where, trust_pickle=trust_pickle)
        names = {
            "predict": ("label", "value", "features"),
            "predict_proba": ("probabilities",),
            **({"predict": ("value",)} if form == formats.LIGHTGBM else {}),
        }
        renamed = {
            ours: imported[theirs]
            for ours, many in names.items()
            for theirs in many
            if theirs in imported.outputs
        }
        if form == formats.ONNX or "predict" not in renamed:
            return imported
        return flour.outputs(**{name: _column(flow) for name, flow in renamed.items()})


def _column(x: Flow) -> Flow:
    """One value per row as a vector of one column: shape [n, 1] on the wire."""
    return x.as_vector() if isinstance(x.type, Scalar) else x


def _xgboost_sklearn(raw: bytes) -> Flow:
    """The program that answers like XGBoost's scikit-learn interface does for a model file.

    MLServer loads files with it: a model saved by XGBClassifier is a classifier again, any other
    answers as a regressor.
    """
    from flour.boosters import xgboost

    whole = flour.from_xgboost(raw)
    if not _saved_by_classifier(raw):
        return flour.outputs(predict=_column(whole["value"]))
    model, value = xgboost.parse(raw), whole["value"]
    if model.objective.startswith("multi:"):
        scores = whole["scores"]
        label, shares = scores.arg_max().cast("int64"), scores.softmax()
        return flour.outputs(predict=_column(label), predict_proba=shares)
    single = _column(value)
    if single.type.width != 1:  # type: ignore[union-attr]  # several targets, each yes or no
        return flour.outputs(predict=single.greater([0.5]).cast("int64"))
    label = value.greater(0.5).cast("int64")
    return flour.outputs(predict=_column(label), predict_proba=_two(single))


def _two(share: Flow) -> Flow:
    """The shares of both classes from that of the second."""
    return share.one_minus().concat(share)


def _saved_by_classifier(raw: bytes) -> bool:
    """True if XGBClassifier wrote the file."""
    from flour.boosters import ubjson

    try:
        data: Any = json.loads(raw) if raw[1:2] in b'" \t\r\n}' else ubjson.loads(raw)
        attributes = json.loads(data["learner"]["attributes"]["scikit_learn"])
        return bool(attributes["_estimator_type"] == "classifier")
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


# --- Triton's FIL backend --------------------------------------------------------------------

INPUT, OUTPUT = "input__0", "output__0"


@dataclass(frozen=True)
class Fil(IoContract):
    """One float32 tensor in, one out, as in the FIL backend."""

    width: int
    """Columns of the input; -1 for the model's number."""
    columns: int
    """Columns of the output; -1 for the model's number."""
    classifies: bool
    shares: bool
    threshold: float = 0.5

    @property
    def platform(self) -> str:
        """The platform in Triton's metadata."""
        return "fil"

    def program(self, form: str, raw: bytes, where: str, *, trust_pickle: bool = False) -> Flow:
        """The program of a model in a file."""
        scores, value = self._xgboost(raw) if form == formats.XGBOOST else self._lightgbm(raw)
        answer = self._answer(scores, _column(value)).cast("float32")
        width = answer.type.width  # type: ignore[union-attr]  # a vector
        if self.columns not in (-1, width):
            raise UnsupportedModel(
                f"the configuration promises {self.columns} columns of {OUTPUT}",
                where=where,
                found=f"the model has {width}",
                hint="check dims, predict_proba and is_classifier in config.pbtxt",
            )
        # The backend leaves out dimensions of one.
        return flour.outputs(**{OUTPUT: answer.element(0) if width == 1 else answer})

    def _answer(self, scores: Flow, value: Flow) -> Flow:
        several = scores.type.width > 1  # type: ignore[union-attr]  # a vector
        if self.shares:
            return _two(value) if not several and self.columns == 2 else value
        if not self.classifies:
            return value
        return scores.arg_max().as_vector() if several else value.greater([self.threshold])

    def _source(self, width: int) -> Flow:
        if self.width not in (-1, width):
            raise UnsupportedModel(
                f"the configuration promises {self.width} columns of {INPUT}",
                found=f"the model has {width}",
                hint="check dims in config.pbtxt",
            )
        return source(INPUT, Vector(width, "float32"))

    def _xgboost(self, raw: bytes) -> tuple[Flow, Flow]:
        from flour.boosters import xgboost

        model = xgboost.parse(raw)
        scores, _ = xgboost.scores_of(model, self._source(model.width))
        if model.objective == "multi:softmax":  # its value is the class, not the probabilities
            return scores, scores.softmax()
        return scores, xgboost.converted(model, scores)

    def _lightgbm(self, raw: bytes) -> tuple[Flow, Flow]:
        from flour.boosters import lightgbm

        head, trees = lightgbm.parse(lightgbm.text_of(raw))
        x = self._source(lightgbm.width_of(head)).cast("float64")
        scores, _ = lightgbm.scores_of(head, trees, x)
        return scores, lightgbm.answered(head, trees, scores)
