"""How long does a new user wait: an empty code cache, a new process?

    python -m bench cold [--no-pack]

A table by itself, without a report. Each contestant is given a fitted model in a process that has
imported its libraries, and is timed to its first answer. Ours has an empty code cache, and the
release's packs of machine code; with `--no-pack` not those either, as for a model of a structure
that they have not got. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.machine import ROOT

QUESTION = "Milliseconds to the first answer of a new process with an empty cache"
ROWS, WIDTH = 400, 20
FIRST, SECONDS, TEXT_SECONDS, NARROW = 50.0, 1.0, 3.0, 1.0
#: Of several processes the fastest counts: waiting for a turn of the processor is not their cost.
TRIES = 3

_OURS = """
import json, pickle, sys, time
import numpy as np
import flour, oven, runtime
from oven.compiler import cache
if sys.argv[2] == "no pack":
    from pathlib import Path
    cache.RELEASED = Path("/nonexistent")
model, rows, sample = pickle.load(open(sys.argv[1], "rb"))
start, cpu = time.perf_counter(), time.process_time()
plan = oven.bake(flour.from_sklearn(model, sample))
plan.run(rows)
first = time.perf_counter() - start
served = runtime.Runtime()
served.register("model", plan)
served.predict("model", rows)
predicted = time.perf_counter() - start
plan.wait()
served.predict("model", rows)
full = time.process_time() - cpu
narrow = None
if isinstance(rows, np.ndarray):
    start = time.perf_counter()
    plan.run(rows.astype(np.float32))
    narrow = time.perf_counter() - start
print(json.dumps([first, predicted, full, narrow, cache.counters.compiled]))
"""
_ONNXRUNTIME = """
import json, pickle, sys, time
import numpy as np
import onnxruntime, skl2onnx
model, rows, sample = pickle.load(open(sys.argv[1], "rb"))
start, cpu = time.perf_counter(), time.process_time()
kind = skl2onnx.common.data_types
if isinstance(rows, np.ndarray):
    inputs, feeds = [("X", kind.DoubleTensorType([None, rows.shape[1]]))], {"X": rows}
elif isinstance(rows, list):
    inputs = [("X", kind.StringTensorType([None, 1]))]
    feeds = {"X": np.array(rows, object)[:, None]}
else:
    types = {"O": kind.StringTensorType, "i": kind.Int64TensorType, "f": kind.DoubleTensorType}
    inputs, feeds = [], {}
    for name in rows.columns:
        column = rows[name].to_numpy()
        column = column.astype(object) if column.dtype.kind not in "if" else column
        inputs.append((name, types[column.dtype.kind]([None, 1])))
        feeds[name] = column[:, None]
proto = skl2onnx.convert_sklearn(model, initial_types=inputs, options={"zipmap": False})
session = onnxruntime.InferenceSession(proto.SerializeToString())
session.run(None, feeds)
print(json.dumps([time.perf_counter() - start, time.process_time() - cpu]))
"""
_ORIGINAL = """
import json, pickle, sys, time
model, rows, sample = pickle.load(open(sys.argv[1], "rb"))
start = time.perf_counter()
model.predict(rows)
print(json.dumps([time.perf_counter() - start]))
"""


class Goal(NamedTuple):
    """One line of the table."""

    name: str
    most: float
    measured: float

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.measured <= self.most

    def __str__(self) -> str:
        verdict = "met" if self.met else "MISSED"
        return f"{self.name:58} at most {self.most:7.1f}  measured {self.measured:7.1f}  {verdict}"


def main(*, packs: bool = True) -> int:
    """Measure everything and print the goals; 1 where one was missed."""
    goals = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model, rows, sample in models():
            path = Path(folder) / "model.pickle"
            path.write_bytes(pickle.dumps((model, rows, sample)))
            for goal in _goals(name, path, packs=packs, text=isinstance(rows, list)):
                print(goal, flush=True)
                goals.append(goal)
    missed = sum(not goal.met for goal in goals)
    print(f"{len(goals)} goals, {missed} missed")
    return 1 if missed else 0


def _goals(name: str, path: Path, *, packs: bool, text: bool) -> Iterator[Goal]:
    ours = _best(_OURS, path, "" if packs else "no pack")
    first, predicted, full, narrow, compiled = ours
    print(f"{name}: first predict {1e3 * predicted:.0f} ms, {compiled:.0f} functions compiled")
    print(f"{name}: the original's first answer {1e3 * _best(_ORIGINAL, path)[0]:.1f} ms")
    yield Goal(f"{name}: first answer, ms", FIRST, 1e3 * first)
    theirs = _best(_ONNXRUNTIME, path)
    if theirs:
        yield Goal(f"{name}: first answer, of onnxruntime's", 1.0, first / theirs[0])
    yield Goal(f"{name}: full speed, CPU s", TEXT_SECONDS if text else SECONDS, full)
    if narrow is not None:
        yield Goal(f"{name}: first float32 request, ms", NARROW, 1e3 * narrow)


def _best(code: str, path: Path, option: str = "") -> list[float]:
    """What the fastest of several processes says; nothing if it cannot do this model."""
    runs = [_run(code, path, option) for _ in range(TRIES)]
    return min(runs) if all(runs) else []


def _run(code: str, path: Path, option: str) -> list[float]:
    with tempfile.TemporaryDirectory() as empty:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "PRETZEL_CACHE": empty}
        # Byte code is written when a package is installed.
        variables |= {"PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}
        variables["PYTHONPYCACHEPREFIX"] = str(ROOT / ".cache" / "pycache")
        command = [sys.executable, "-W", "ignore", "-c", code, str(path), option]
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, check=False, cwd=empty
        )
    made: list[float] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []
    return made


def models() -> Iterator[tuple[str, Any, Any, Any]]:
    """Fitted models by name, with the rows to answer and those to import by."""
    from lightgbm import LGBMClassifier
    from sklearn.compose import make_column_transformer
    from sklearn.decomposition import TruncatedSVD
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, WIDTH))
    target = (rows[:, 0] > 0).astype(int)
    one = rows[:1]
    linear = make_pipeline(StandardScaler(), LogisticRegression())
    yield "scaler + logistic", linear.fit(rows, target), one, None
    yield "LightGBM 100x31", LGBMClassifier(verbose=-1).fit(rows, target), one, None
    forest = RandomForestClassifier(100, max_depth=8, random_state=0)
    yield "forest 100x8", forest.fit(rows, target), one, None
    frame = _table(rng)
    columns = make_column_transformer(
        (StandardScaler(), ["age", "income"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city", "plan"]),
    )
    table = make_pipeline(columns, LogisticRegression()).fit(frame, target)
    yield "mixed table", table, frame[:1], frame[:50]
    words = [f"word{number}" for number in range(300)]
    documents = [" ".join(rng.choice(words, 12)) for _ in range(ROWS)]
    text = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(documents, target)
    yield "tf-idf + logistic", text, documents[:1], None
    several = make_pipeline(TfidfVectorizer(), TruncatedSVD(8), RandomForestClassifier(30))
    yield "text + svd + forest", several.fit(documents, target), documents[:1], None


def _table(rng: np.random.Generator) -> Any:
    import pandas as pd

    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, ROWS),
            "income": rng.normal(5e4, 1e4, ROWS),
            "city": rng.choice(["Bern", "Rome", "Oslo"], ROWS),
            "plan": rng.choice(["free", "paid"], ROWS),
        }
    )
