"""Benchmarks side by side: our plan, hand-written C and onnxruntime, in turn, in one run.

On a shared machine the same code takes twice as long a minute later. So contestants take turns,
each turn is short, and only ratios are looked at: of the fastest turns for blocks, of percentiles
for single rows.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

#: A function and what it is called with, turn after turn.
Contestant = tuple[Callable[[Any], object], Sequence[Any]]
BLOCK = 4096
FLAGS = ["-O3", "-march=native", "-shared", "-fPIC"]


class Times(NamedTuple):
    """Nanoseconds a turn."""

    least: float
    median: float
    p99: float


def race(contestants: Mapping[str, Contestant], turns: int, burst: int = 1) -> dict[str, Times]:
    """The times of contestants that take turns, of `burst` calls each, until all had so many calls.

    With one call a turn, each meets the caches as another contestant left them. In a burst, caches
    hold what a contestant's own calls leave there, as in a server of one model.
    """
    taken: dict[str, list[int]] = {name: [] for name in contestants}
    warm = turns // 10
    for first in range(0, turns + warm, burst):
        for name, (run, items) in contestants.items():
            for turn in range(first, first + burst):
                item = items[turn % len(items)]
                start = time.perf_counter_ns()
                run(item)
                took = time.perf_counter_ns() - start
                if turn >= warm:
                    taken[name].append(took)
    return {name: _times(np.array(values)) for name, values in taken.items()}


def _times(values: NDArray[np.int64]) -> Times:
    """Percentiles of ten stretches, the median of the ten: one hiccup is not a percentile."""
    stretches = np.array_split(values, 10)
    median, p99 = (np.median([np.percentile(part, q) for part in stretches]) for q in (50, 99))
    return Times(float(values.min()), float(median), float(p99))


@cache
def kernels() -> ctypes.CDLL:
    """The hand-written C, compiled for this machine; the test is skipped where that cannot be."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc to compile the hand-written kernels with")
    made = Path(mkdtemp(prefix="kernels-")) / "kernels.so"
    source = Path(__file__).with_name("kernels.c")
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(made), "-lm"], check=True)
    return ctypes.CDLL(str(made))


def argument(value: Any) -> Any:
    """A C argument: arrays by address, whole numbers as int64, others as double."""
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_double(value)


def c_kernel(name: str, *values: Any) -> Callable[[Any], object]:
    """A call of a C kernel over its own arguments, made ready once."""
    function = getattr(kernels(), name)
    function.restype = None
    ready = [argument(value) for value in values]

    def run(_: object) -> object:
        return function(*ready), values  # the arrays live as long as the call

    return run


class Session:
    """A model as skl2onnx and onnxruntime run it, on one thread, in float32."""

    def __init__(self, model: Any, sample: NDArray[np.float64]) -> None:
        import onnxruntime
        from skl2onnx import to_onnx

        options = {"zipmap": False} if hasattr(model, "predict_proba") else None
        program = to_onnx(model, sample[:1].astype(np.float32), options=options)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            program.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name

    def run(self, block: NDArray[np.float32]) -> Any:
        """Every output for a block."""
        return self._session.run(None, {self._input: block})


class Verdict(NamedTuple):
    """What a workload showed, as ratios to ours (above one: ours is faster)."""

    c_by_ours: float
    onnx_by_ours: float
    row_p50: float
    row_p99: float

    def show(self, benchmark: Any) -> None:
        """Attach the ratios to the figures of pytest-benchmark."""
        benchmark.extra_info |= {name: round(value, 2) for name, value in self._asdict().items()}


def contest(
    call: Callable[[Any], object], c: Callable[[Any], object], model: Any, block: NDArray[Any]
) -> Verdict:
    """Race a plan's entry with C over a block, with onnxruntime over the block and single rows."""
    session, narrow = Session(model, block), block.astype(np.float32)
    many = race({"ours": (call, [block]), "c": (c, [None]), "onnx": (session.run, [narrow])}, 80)
    rows = [row.copy() for row in block[:256]]
    blocks = [narrow[place : place + 1].copy() for place in range(256)]
    alone = race({"ours": (call, rows), "onnx": (session.run, blocks)}, 5000)
    return Verdict(
        many["c"].least / many["ours"].least,
        many["onnx"].least / many["ours"].least,
        alone["onnx"].median / alone["ours"].median,
        alone["onnx"].p99 / alone["ours"].p99,
    )
