"""Sessions of ours and of onnxruntime's over the same model, one thread each, taking turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import runtime
from tests.runtime.bench.timing import least

Feed = dict[str, NDArray[Any]]


def both(data: bytes) -> tuple[Any, Any]:
    """Our session and theirs, which has one thread too."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return runtime.InferenceSession(data), theirs


def race(
    benchmark: Any, ours: Callable[[], object], theirs: Callable[[], object], turns: int, calls: int
) -> float:
    """How many times faster ours is in the best of some turns."""
    times = least({"ours": ours, "theirs": theirs}, turns, calls)
    ratio = times["theirs"] / times["ours"]
    benchmark.extra_info.update(
        {"faster": ratio, "ours_us": times["ours"] * 1e6, "theirs_us": times["theirs"] * 1e6}
    )
    benchmark(ours)
    return ratio


def agree(ours: Any, theirs: Any, feed: Feed, atol: float) -> None:
    """Raise unless both answer the same."""
    for got, want in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
        one, other = np.asarray(flat(got)), np.asarray(flat(want))
        if other.dtype.kind in "OUS":
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, atol=atol, rtol=atol)


def flat(value: Any) -> Any:
    """An output as an array; the dicts of a ZipMap as rows, a list of arrays as one."""
    if not isinstance(value, list):
        return value
    return [[*row.values()] if isinstance(row, dict) else row for row in value]
