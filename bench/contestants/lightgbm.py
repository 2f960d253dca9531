"""LightGBM's own booster: prediction without checks, on one thread, as its docs advise for rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.contestant import Contestant, Model, number_block, number_row
from bench.workload import Pipeline, Saved


class LightGbm(Contestant):
    """The model file, read by the library that trained it."""

    name = "lightgbm"
    title = "LightGBM"
    packages = ("lightgbm", "numpy")
    workloads = ("gbt",)
    settings = "Booster.predict, num_threads, validate_features=False"

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Read the model's text."""
        import lightgbm

        booster = lightgbm.Booster(model_file=str(pipeline.file("lightgbm.txt")))
        return booster_model(
            partial(booster.predict, num_threads=self.threads, validate_features=False)
        )


def booster_model(call: Any) -> Model:
    """A model whose answers are the probabilities."""
    return Model(call, call, number_row, number_block, _flat, lambda raw: float(_flat(raw)[0]))


def _flat(raw: Any) -> Any:
    return raw.reshape(-1)


CONTESTANT = LightGbm
