"""Handwritten code: one C function for the LIN workload, called by ctypes.

The floor of what is possible from Python without an entry of one's own: the call itself counts.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import numpy as np

from bench.contestant import Contestant, Model, Unsupported, number_block, number_row
from bench.workload import Pipeline, Saved

SOURCE = """
#include <math.h>
void lin(const double *x, long rows, long width, const double *mean, const double *scale,
         const double *weights, double bias, double *out) {
    for (long row = 0; row < rows; row++) {
        double sum = bias;
        for (long i = 0; i < width; i++)
            sum += (x[row * width + i] - mean[i]) / scale[i] * weights[i];
        out[row] = 1.0 / (1.0 + exp(-sum));
    }
}
"""
# What -ffast-math allows, one by one: linked as a whole it turns off subnormal numbers for the
# thread that loads the code, and for all threads which that starts.
_LAX = ("-fno-math-errno", "-fno-signed-zeros", "-fno-trapping-math", "-fassociative-math")
_FLAGS = ("-O3", "-march=native", *_LAX, "-shared", "-fPIC", "-x", "c", "-", "-lm")


class HandwrittenC(Contestant):
    """gcc at its best, sums re-associated."""

    name = "handwritten_c"
    title = "hand-written C"
    packages = ("numpy",)
    workloads = ("lin",)
    settings = "gcc -O3 -march=native, sums in any order, called by ctypes"

    def versions(self) -> dict[str, str]:
        """The compiler's, where there is one: what is missing is said when it is needed."""
        compiler = {"gcc": _compiler()} if shutil.which("gcc") else {}
        return {**compiler, **super().versions()}

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        """Compile once; write the fitted numbers."""
        if shutil.which("gcc") is None:
            raise Unsupported("there is no gcc")
        library = saved.folder / "lin.so"
        if not library.exists():
            command = ["gcc", "-o", str(library), *_FLAGS]
            subprocess.run(command, input=SOURCE, text=True, check=True, timeout=60)
        scaler, model = (step for _, step in pipeline.estimator().steps)
        numbers = {"mean": scaler.mean_, "scale": scaler.scale_}
        np.savez(pipeline.file("c.npz"), coef=model.coef_[0], bias=model.intercept_, **numbers)

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Open the library and read the numbers."""
        function = ctypes.CDLL(str(saved.folder / "lin.so")).lin
        address, whole = ctypes.c_void_p, ctypes.c_long
        function.argtypes = [address, whole, whole, *[address] * 3, ctypes.c_double, address]
        function.restype = None
        with np.load(pipeline.file("c.npz")) as read:
            fitted = [np.ascontiguousarray(read[name]) for name in ("mean", "scale", "coef")]
            bias = float(read["bias"][0])
        numbers = [each.ctypes.data for each in fitted]

        def call(rows: Any) -> Any:
            out = np.empty(len(rows))
            function(rows.ctypes.data, *rows.shape, *numbers, bias, out.ctypes.data)
            return out

        call.fitted = fitted  # type: ignore[attr-defined]  # they live as long as their addresses
        return Model(call, call, number_row, number_block, _same, lambda raw: float(raw[0]))


def _compiler() -> str:
    command = ["gcc", "-dumpfullversion"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return done.stdout.strip() or "of an unknown version"


def _same(raw: Any) -> Any:
    return raw


CONTESTANT = HandwrittenC
