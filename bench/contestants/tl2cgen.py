"""TL2cgen: LightGBM's trees as C code, compiled with gcc."""

from __future__ import annotations

from typing import Any

from bench.contestant import Contestant, Model, number_block, number_row
from bench.workload import Pipeline, Saved


class Tl2cgen(Contestant):
    """One shared library for each model."""

    name = "tl2cgen"
    title = "TL2cgen (gcc)"
    environment = "treelite"
    packages = ("tl2cgen", "treelite", "numpy")
    workloads = ("gbt",)
    settings = "gcc, parallel_comp=4, nthread"

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        """Generate C and compile it."""
        import tl2cgen
        import treelite

        path = pipeline.file("tl2cgen.so")
        if not path.exists():
            model = treelite.frontend.load_lightgbm_model(str(pipeline.file("lightgbm.txt")))
            parameters = {"parallel_comp": 4}
            tl2cgen.export_lib(
                model, toolchain="gcc", libpath=str(path), params=parameters, verbose=False
            )

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Open the library."""
        import tl2cgen

        predictor = tl2cgen.Predictor(str(pipeline.file("tl2cgen.so")), nthread=self.threads)

        def call(rows: Any) -> Any:
            return predictor.predict(tl2cgen.DMatrix(rows)).reshape(-1)

        return Model(call, call, number_row, number_block, _same, lambda raw: float(raw[0]))


def _same(raw: Any) -> Any:
    return raw


CONTESTANT = Tl2cgen
