"""lleaves: LightGBM's trees compiled by LLVM."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.contestant import Contestant, Model
from bench.contestants.lightgbm import booster_model
from bench.workload import Pipeline, Saved


class Lleaves(Contestant):
    """Compiled in advance, loaded from its cache."""

    name = "lleaves"
    title = "lleaves"
    environment = "lleaves"
    packages = ("lleaves", "llvmlite", "numpy")
    workloads = ("gbt",)
    settings = "fblocksize=34 (its default), n_jobs, compiled code from its cache"

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        """Compile."""
        if not pipeline.file("lleaves.o").exists():
            self._compiled(pipeline)

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Load the compiled code."""
        return booster_model(partial(self._compiled(pipeline).predict, n_jobs=self.threads))

    def _compiled(self, pipeline: Pipeline) -> Any:
        import lleaves

        model = lleaves.Model(model_file=str(pipeline.file("lightgbm.txt")))
        model.compile(cache=str(pipeline.file("lleaves.o")))
        return model


CONTESTANT = Lleaves
