"""m2cgen: trees as branches in C, compiled with gcc."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np

from bench.contestant import Contestant, Model, number_block, number_row
from bench.workload import Pipeline, Saved

#: m2cgen scores a row; blocks are scored in a loop beside it.
_BLOCK = """
void block(double *x, long rows, long width, double *made) {
    for (long k = 0; k < rows; k++) score(x + k * width, made + 2 * k);
}
"""


class M2cgen(Contestant):
    """One library for each model."""

    name = "m2cgen"
    title = "m2cgen (gcc)"
    environment = "m2cgen"
    packages = ("m2cgen", "numpy")
    workloads = ("gbt",)
    settings = "gcc -O2, called by ctypes"

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        """Write C and compile it."""
        import m2cgen

        library = pipeline.file("m2cgen.so")
        if not library.exists():
            sys.setrecursionlimit(100_000)
            source = m2cgen.export_to_c(pipeline.estimator()) + _BLOCK
            command = ["gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-lm", "-o", str(library)]
            subprocess.run(command, input=source, text=True, check=True, timeout=600)

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Open it."""
        block = ctypes.CDLL(str(pipeline.file("m2cgen.so"))).block
        block.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]

        def call(rows: Any) -> Any:
            made = np.empty((len(rows), 2))
            block(rows.ctypes.data, *rows.shape, made.ctypes.data)
            return made[:, 1]

        return Model(call, call, number_row, number_block, np.asarray, lambda raw: float(raw[0]))


CONTESTANT = M2cgen
