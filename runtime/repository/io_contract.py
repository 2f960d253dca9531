"""What a layout promises about a model's inputs and outputs, beyond what is in its file.

A client that was written for another server asks for the tensors that server names. So a model
found in that server's layout gets inputs and outputs of those names, types and meanings:

Plain       outputs as the importer names them: label, probabilities, value, scores, ...
MLServer    `predict`, and `predict_proba` for classifiers; who does not say gets `predict`
Fil         `input__0` to `output__0`, float32, as the configuration's parameters say
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import flour
from flour.boosters import lightgbm, ubjson, xgboost
from flour.core.types import Scalar, Vector
from flour.language.flow import Flow, source
from runtime.repository import formats
from runtime.repository.errors import UnsupportedModel


@dataclass(frozen=True)
class IoContract(ABC):
    """Makes the program of a model as a layout promises it; equal promises have equal reprs."""

    @property
    def platform(self) -> str:
        """What metadata calls this kind of model."""
        return "pretzel"

    @property
    def default_outputs(self) -> tuple[str, ...]:
        """What is answered to those who do not say; empty for everything."""
        return ()

    @abstractmethod
    def program(self, form: str, raw: bytes, where: str) -> Flow:
        """The program of a model in a file."""


@dataclass(frozen=True)
class Plain(IoContract):
    """The program as its importer makes it."""

    def program(self, form: str, raw: bytes, where: str) -> Flow:
        """The program of a model in a file."""
        return formats.program(form, raw, where)


# --- MLServer --------------------------------------------------------------------------------


@dataclass(frozen=True)
class MLServer(IoContract):
    """The outputs of MLServer's runtimes, each with a column for every value of a row."""

    @property
    def default_outputs(self) -> tuple[str, ...]:
        """MLServer answers `predict` unless it is asked for something else."""
        return ("predict",)

    def program(self, form: str, raw: bytes, where: str) -> Flow:
        """The program of a model in a file."""
        if form == formats.XGBOOST:
            return _xgboost_sklearn(raw)
        made = formats.program(form, raw, where)
        names = {
            "predict": ("label", "value", "features"),
            "predict_proba": ("probabilities",),
            **({"predict": ("value",)} if form == formats.LIGHTGBM else {}),
        }
        found = {
            ours: made[theirs] for ours, many in names.items() for theirs in many if theirs in made
        }
        if form == formats.ONNX or "predict" not in found:
            return made
        return flour.outputs(**{name: _column(flow) for name, flow in found.items()})


def _column(x: Flow) -> Flow:
    """One value per row as a vector of one column: shape [n, 1] on the wire."""
    return x.as_vector() if isinstance(x.type, Scalar) else x


def _xgboost_sklearn(raw: bytes) -> Flow:
    """What the library's scikit-learn interface answers for a model file.

    MLServer loads files with it: a model saved by XGBClassifier is a classifier again, any other
    answers as a regressor.
    """
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
    """Whether the file says that XGBClassifier wrote it."""
    try:
        data: Any = json.loads(raw) if raw[1:2] in b'" \t\r\n}' else ubjson.loads(raw)
        told = json.loads(data["learner"]["attributes"]["scikit_learn"])
        return bool(told["_estimator_type"] == "classifier")
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


# --- Triton's FIL backend --------------------------------------------------------------------

INPUT, OUTPUT = "input__0", "output__0"


@dataclass(frozen=True)
class Fil(IoContract):
    """One float32 tensor in, one out, as the FIL backend has them."""

    width: int
    """Columns of the input; -1 for as many as the model has."""
    columns: int
    """Columns of the output; -1 for as many as there are."""
    classifies: bool
    shares: bool
    threshold: float = 0.5

    @property
    def platform(self) -> str:
        """As Triton's metadata says it."""
        return "fil"

    def program(self, form: str, raw: bytes, where: str) -> Flow:
        """The program of a model in a file."""
        scores, value = self._xgboost(raw) if form == formats.XGBOOST else self._lightgbm(raw)
        answer = self._answer(scores, _column(value)).cast("float32")
        made = answer.type.width  # type: ignore[union-attr]  # a vector
        if self.columns not in (-1, made):
            raise UnsupportedModel(
                f"the configuration promises {self.columns} columns of {OUTPUT}",
                where=where,
                found=f"the model has {made}",
                hint="check dims, predict_proba and is_classifier in config.pbtxt",
            )
        # The backend leaves out dimensions of one.
        return flour.outputs(**{OUTPUT: answer.element(0) if made == 1 else answer})

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
        model = xgboost.parse(raw)
        scores, _ = xgboost.scores_of(model, self._source(model.width))
        if model.objective == "multi:softmax":  # its value is the class, not the shares
            return scores, scores.softmax()
        return scores, xgboost.converted(model, scores)

    def _lightgbm(self, raw: bytes) -> tuple[Flow, Flow]:
        head, trees = lightgbm.parse(lightgbm.text_of(raw))
        x = self._source(lightgbm.width_of(head)).cast("float64")
        scores, _ = lightgbm.scores_of(head, trees, x)
        return scores, lightgbm.answered(head, trees, scores)
