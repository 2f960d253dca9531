"""Sessions over many ONNX models in one process with an empty cache, ours beside onnxruntime's.

Each session is made while nothing is compiled for the one before. Run as a program, with a folder
of models, it says what each took: [ours, onnxruntime's, processor time of ours] in seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.cold.goals import Line, Told, at_most
from bench.cold.processes import asked, new_user

MODELS, MEDIAN, WORST = 300, 20.0, 200.0


def measured() -> Iterator[Line]:
    """The goals of sessions."""
    from bench.cold.onnx_models import models

    with tempfile.TemporaryDirectory() as place:
        names = []
        for number, (name, data) in enumerate(models(MODELS)):
            names.append(name)
            (Path(place) / f"{number:04}.onnx").write_bytes(data)
        with new_user() as env:
            took = asked(Path(sys.executable), __name__, place, env=env)
    ours, theirs, processor = 1e3 * np.array(took).T
    slowest = ", ".join(f"{names[k]} {ours[k]:.0f} ms" for k in np.argsort(-ours)[:3])
    called = f"{len(names)} ONNX sessions"
    for who, times in (
        ("Pretzel", ours),
        ("Pretzel, processor time", processor),
        ("onnxruntime", theirs),
    ):
        median, late = np.quantile(times, [0.5, 0.9])
        said = f"median {median:.1f} ms, 90th percentile {late:.1f} ms, worst {times.max():.1f} ms"
        yield Told(f"{called}: {who}", said)
    yield Told(f"{called}: the slowest", slowest)
    yield at_most(f"{called}: median, ms", MEDIAN, float(np.median(ours)))
    yield at_most(f"{called}: worst, ms", WORST, float(ours.max()))


def _main(folder: Path) -> None:
    import onnxruntime

    from runtime import InferenceSession

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    took = []
    for path in sorted(folder.glob("*.onnx")):
        data = path.read_bytes()
        start, cpu = time.perf_counter(), time.thread_time()
        session = InferenceSession(data)
        middle, cpu = time.perf_counter(), time.thread_time() - cpu
        onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
        took.append([middle - start, time.perf_counter() - middle, cpu])
        session.plan.wait()
    print(json.dumps(took))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
