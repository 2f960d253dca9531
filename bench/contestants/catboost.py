"""CatBoost's own evaluator, for its own models: a pool made before, one thread, as is fastest."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.contestant import Contestant, Model, float32_block, float32_row
from bench.inputs import Inputs
from bench.workload import Pipeline, Saved


class CatBoost(Contestant):
    """The model file, read by the library that trained it."""

    name = "catboost"
    title = "CatBoost"
    environment = "catboost"
    packages = ("catboost", "numpy")
    workloads = ("cat",)
    settings = "predict of a Pool that was made before, thread_count"

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        """Write the model's file."""
        pipeline.file("cbm").write_bytes(pipeline.estimator().cbm)

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Read the model's file."""
        import catboost

        model = catboost.CatBoostClassifier().load_model(str(pipeline.file("cbm")))
        call = partial(
            model.predict, prediction_type="Probability", thread_count=self.threads, verbose=False
        )
        return Model(call, call, _row, _block, _second, lambda raw: float(raw[0, 1]))


def _row(inputs: Inputs, index: int) -> Any:
    import catboost

    return catboost.Pool(float32_row(inputs, index))


def _block(inputs: Inputs, start: int, stop: int) -> Any:
    import catboost

    return catboost.Pool(float32_block(inputs, start, stop))


def _second(raw: Any) -> Any:
    return raw[:, 1]


CONTESTANT = CatBoost
