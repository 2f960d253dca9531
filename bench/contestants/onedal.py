"""oneDAL's model builders: LightGBM's trees in Intel's library (daal4py)."""

from __future__ import annotations

from typing import Any

from bench.contestant import Contestant, Model, number_block, number_row
from bench.workload import Pipeline, Saved


class OneDal(Contestant):
    """Converted when loaded, as the library keeps no file of its own."""

    name = "onedal"
    title = "oneDAL model builder"
    environment = "onedal"
    packages = ("scikit-learn-intelex", "daal", "lightgbm", "numpy")
    workloads = ("gbt",)
    settings = "daal4py.mb.convert_model, predict_proba"

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Read the model's text and convert it."""
        import daal4py
        import lightgbm

        booster = lightgbm.Booster(model_file=str(pipeline.file("lightgbm.txt")))
        call = daal4py.mb.convert_model(booster).predict_proba
        return Model(call, call, number_row, number_block, _second, lambda raw: float(raw[0, 1]))


def _second(raw: Any) -> Any:
    return raw[:, 1]


CONTESTANT = OneDal
