"""hessboost, a reader of XGBoost's models in Rust: rows by `predict_row`, blocks by `predict`.

The trees are those that the contestant `xgboost` has: LightGBM's, rewritten.
"""

from __future__ import annotations

from functools import partial

from bench.contestant import Model, float32_block, number_row
from bench.contestants.xgboost import XgBoost
from bench.inputs import Inputs
from bench.workload import Pipeline, Saved


class HessBoost(XgBoost):
    """The file of XGBoost's, read by another library."""

    name = "hessboost"
    title = "hessboost"
    environment = "hessboost"
    packages = ("hessboost", "numpy")
    settings = "XGBoost's file; predict_row, predict of arrays, validate_features=False"

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Read the model."""
        import hessboost

        booster = hessboost.Booster(str(pipeline.file("xgb.json")))
        call = partial(booster.predict, validate_features=False)
        return Model(
            booster.predict_row, call, _row, float32_block, _same, lambda raw: float(raw[0])
        )


def _row(inputs: Inputs, index: int) -> object:
    return number_row(inputs, index)[0].astype("float32")


def _same(raw: object) -> object:
    return raw


CONTESTANT = HessBoost
