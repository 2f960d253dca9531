"""treelite's general tree inference (GTIL), reading LightGBM's model file."""

from __future__ import annotations

from functools import partial

from bench.contestant import Contestant, Model
from bench.contestants.lightgbm import booster_model
from bench.workload import Pipeline, Saved


class Treelite(Contestant):
    """An interpreter for trees."""

    name = "treelite"
    title = "treelite GTIL"
    environment = "treelite"
    packages = ("treelite", "numpy")
    workloads = ("gbt",)
    settings = "nthread"

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Read the model's text."""
        import treelite

        model = treelite.frontend.load_lightgbm_model(str(pipeline.file("lightgbm.txt")))
        return booster_model(partial(treelite.gtil.predict, model, nthread=self.threads))


CONTESTANT = Treelite
