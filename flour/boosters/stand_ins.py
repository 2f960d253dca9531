"""Stand-ins for the boosters and wrappers of LightGBM, XGBoost and CatBoost in pickles."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import numpy as np

from flour.boosters import catboost_binary, ubjson, xgboost_binary
from flour.boosters.booster_columns import reading
from flour.core.errors import DamagedProgram
from flour.pickles.standins import StandIn
from flour.sklearn.stand_ins import Estimator

_HEAD = b"CONFIG-offset:"


class LightGbmBooster(StandIn, names="lightgbm.Booster"):
    """A booster of LightGBM, by the text of its trees."""

    def model_to_string(self) -> str:
        """The text, up to the best round if training stopped early."""
        own = vars(self)
        text, best = str(own.get("_handle", own.get("handle"))), int(own.get("best_iteration") or 0)
        head, *trees = re.split(r"(?m)^(?=Tree=|end of trees)", text)
        found = re.search(r"(?m)^num_tree_per_iteration=(\d+)", head)
        count = best * int(found[1]) if found else 0
        if not 0 < count < len(trees) - 1:
            return text
        sizes = re.search(r"(?m)^tree_sizes=(.*)", head)
        if sizes:
            kept = " ".join(sizes[1].split()[:count])
            head = head[: sizes.start(1)] + kept + head[sizes.end(1) :]
        return "".join([head, *trees[:count], trees[-1]])

    @property
    def pandas_categorical(self) -> Any:
        """The categories of the frame that the model was trained on."""
        return vars(self).get("pandas_categorical")


class LightGbm(Estimator, packages="lightgbm"):
    """A wrapper of LightGBM, whose fitted attributes are private ones."""

    _NAMES: ClassVar = {"booster_": "_Booster", "classes_": "_classes", "n_classes_": "_n_classes"}

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        if name in self._NAMES and self._NAMES[name] in own:
            return own[self._NAMES[name]]
        if name == "feature_names_in_" and own.get("_fitted_with_feature_names"):
            names = re.search(r"(?m)^feature_names=(.*)", own["_Booster"].model_to_string())
            return np.array(names[1].split(" ") if names else [], object)
        if name == "n_features_in_" and own.get("_n_features_in", own.get("_n_features")):
            return own.get("_n_features_in", own.get("_n_features"))
        if name == "feature_importances_" and own.get("importance_type") == "split":
            # How many splits of a model's trees are on each column and gain anything.
            text = own["_Booster"].model_to_string()
            last = re.search(r"(?m)^max_feature_idx=(\d+)", text)
            each = re.findall(r"(?m)^split_feature=(.*)\nsplit_gain=(.*)", text)
            columns = " ".join(columns for columns, _ in each).split()
            gains = " ".join(gains for _, gains in each).split()
            used = [int(j) for j, gain in zip(columns, gains, strict=True) if float(gain) > 0]
            return np.bincount(np.array(used, np.int64), minlength=int(last[1]) + 1 if last else 0)
        return super().__getattr__(name)


class XGBoostBooster(StandIn, names="xgboost.Booster"):
    """A booster of XGBoost, by the bytes of its state."""

    def build(self, state: object) -> None:
        """Keep the model without what it was trained with."""
        super().build(state)
        raw = vars(self).pop("handle", b"")
        vars(self)["model"] = _model(raw.encode("latin-1") if isinstance(raw, str) else bytes(raw))

    model: Any

    def attr(self, name: str) -> Any:
        """A note of the training, such as the best round."""
        return vars(self)["model"]["learner"].get("attributes", {}).get(name)

    @property
    def feature_types(self) -> Any:
        """The kinds of the columns."""
        return vars(self)["model"]["learner"].get("feature_types") or None


class XGBoost(Estimator, packages="xgboost"):
    """A wrapper of XGBoost."""

    def get_booster(self) -> Any:
        """The booster."""
        return vars(self)["_Booster"]

    def __getattr__(self, name: str) -> Any:
        booster = vars(self).get("_Booster")
        if name == "n_features_in_" and booster is not None:
            return int(booster.model["learner"]["learner_model_param"]["num_feature"])
        if name == "feature_names_in_" and booster is not None:
            names = booster.model["learner"].get("feature_names")
            if names:
                return np.array(names, object)
        if name == "classes_" and "n_classes_" in vars(self):
            return np.arange(vars(self)["n_classes_"])
        return super().__getattr__(name)


class CatBoost(Estimator, packages="catboost"):
    """A model of CatBoost, by the bytes of its file."""

    def build(self, state: object) -> None:
        """Keep the model, read."""
        super().build(state)
        raw = vars(self).pop("__model", None)
        if isinstance(raw, bytes):
            with reading("CatBoost"):
                vars(self)["model"] = catboost_binary.loads(raw)

    model: Any

    def __sklearn_is_fitted__(self) -> bool:
        return "model" in vars(self)

    def __getattr__(self, name: str) -> Any:
        if name in ("n_features_in_", "feature_names_in_") and "model" in vars(self):
            with reading("CatBoost"):
                names = catboost_binary.columns(self.model)
            if name == "n_features_in_":
                return max(names) + 1
            if all(names.values()):
                return np.array([names[column] for column in sorted(names)], object)
        return super().__getattr__(name)


def _model(raw: bytes) -> Any:
    """The model in the bytes that a pickle keeps: with its settings, or as in a file."""
    if raw.startswith(_HEAD):
        start = len(_HEAD) + 8
        size = int.from_bytes(raw[len(_HEAD) : start], "little")
        return xgboost_binary.loads(raw[start : start + size])
    if raw[:1] != b"{":
        return xgboost_binary.loads(raw.removeprefix(b"binf"))
    try:
        found = json.loads(raw) if raw[1:2] in b'" \t\r\n}' else ubjson.loads(raw)
    except (RecursionError, ValueError) as problem:
        raise DamagedProgram("this is not an XGBoost model", found=str(problem)[:120]) from None
    return found.get("Model", found)
