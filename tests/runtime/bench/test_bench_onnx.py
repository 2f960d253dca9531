"""ONNX models: our sessions and onnxruntime's, one thread each, taking turns in one run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from onnx import ModelProto
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import flour
import runtime
from tests.house import run_python
from tests.onnx_parts import FLOAT, model, node
from tests.runtime.bench.onnx_race import Feed, agree, both, race

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5000, 20)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
WORDS = np.array(["".join(RNG.choice(list("abcdefgh"), 6)) for _ in range(2000)])
TEXTS = np.array([" ".join(RNG.choice(WORDS, 15)) for _ in range(5000)])
TABLE = pd.DataFrame(
    {
        **{f"n{place}": X[:, place] for place in range(6)},
        "city": RNG.choice(["Graz", "Linz", "Rom", "Wien"], 5000),
        "kind": RNG.choice(list("abcdefgh"), 5000),
        "shop": RNG.choice([f"shop {place}" for place in range(40)], 5000),
    }
)
ROOT = Path(__file__).resolve().parents[3]


def converted(estimator: Any, *, zipmap: bool = False) -> bytes:
    """A classifier over the numbers."""
    made = to_onnx(estimator.fit(X, Y), X[:1], options={"zipmap": zipmap})
    return bytes(made.SerializeToString())


def text() -> bytes:
    """tf-idf and a logistic regression."""
    fit = make_pipeline(TfidfVectorizer(lowercase=False), LogisticRegression())
    fit.fit(TEXTS[:1000], Y[:1000])
    options = {id(fit): {"zipmap": False}, TfidfVectorizer: {"tokenexp": "[a-zA-Z0-9_]+"}}
    kinds = [("X", StringTensorType([None, 1]))]
    return bytes(to_onnx(fit, initial_types=kinds, options=options).SerializeToString())


def columns(model: Any, encoder: Any) -> bytes:
    """Scaled numbers and encoded strings, an input for each column."""
    numbers, texts = list(TABLE.columns[:6]), list(TABLE.columns[6:])
    steps = [("n", StandardScaler(), numbers), ("c", encoder, texts)]
    whole = make_pipeline(ColumnTransformer(steps), model).fit(TABLE, Y)
    kinds = [(name, FloatTensorType([None, 1])) for name in numbers]
    kinds += [(name, StringTensorType([None, 1])) for name in texts]
    options = {id(model): {"zipmap": False}}
    return bytes(to_onnx(whole, initial_types=kinds, options=options).SerializeToString())


def one_hot() -> bytes:
    """The usual pipeline over a table."""
    return columns(LogisticRegression(), OneHotEncoder(handle_unknown="ignore"))


def partly() -> bytes:
    """Native, then a part that only onnxruntime has, then native."""
    weights = RNG.normal(size=(20, 20)).astype(np.float32)
    made = model(
        [
            node("MatMul", ["X", "w"], ["a"]),
            node("Tanh", ["a"], ["b"]),
            node("DynamicQuantizeLinear", ["b"], ["q", "scale", "zero"]),
            node("DequantizeLinear", ["q", "scale", "zero"], ["c"]),
            node("Sigmoid", ["c"], ["d"]),
            node("MatMul", ["d", "w"], ["y"]),
        ],
        [("X", FLOAT, ["N", 20])],
        [("y", FLOAT, ["N", 20])],
        {"w": weights},
    )
    return bytes(made.SerializeToString())


def numbers(rows: int) -> Feed:
    """Rows of numbers."""
    return {"X": np.ascontiguousarray(X[:rows])}


def documents(rows: int) -> Feed:
    """Documents."""
    return {"X": TEXTS[:rows, None]}


def table(rows: int) -> Feed:
    """Columns of a frame."""
    return {name: TABLE[name].to_numpy()[:rows].reshape(-1, 1) for name in TABLE}


class Kind(NamedTuple):
    """A model, its rows, and how many times faster one row and 5,000 rows have to be at least."""

    make: Callable[[], bytes]
    feed: Callable[[int], Feed]
    one: float
    many: float


def scaled() -> Any:
    """The classifier over numbers."""
    return make_pipeline(StandardScaler(), LogisticRegression())


KINDS: dict[str, Kind] = {
    "linear": Kind(lambda: converted(scaled()), numbers, 4.0, 1.0),
    "linear, with dicts": Kind(lambda: converted(scaled(), zipmap=True), numbers, 4.0, 1.0),
    "small tree": Kind(lambda: converted(DecisionTreeClassifier(max_depth=6)), numbers, 4.0, 1.0),
    "forest": Kind(lambda: converted(RandomForestClassifier(50, max_depth=8)), numbers, 1.0, 1.0),
    "tf-idf": Kind(text, documents, 20.0, 1.0),
    "columns": Kind(one_hot, table, 4.0, 1.0),
    "columns, trees": Kind(
        lambda: columns(RandomForestClassifier(20, max_depth=6), OrdinalEncoder()), table, 4.0, 1.0
    ),
    # The whole of it is left to onnxruntime: it takes as long, and turns differ by so much.
    "a part": Kind(partly, numbers, 0.9, 0.9),
}


def turns(rows: int) -> tuple[int, int]:
    """How many turns, and how many calls in each."""
    return (40, 100) if rows == 1 else (10, 2)


@pytest.mark.bench
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5000])
def test_a_call(benchmark: Any, kind: str, rows: int) -> None:
    """The goals: never slower, 4 times on one row for linear models and small trees, 20 on text."""
    made = KINDS[kind]
    ours, theirs = both(made.make())
    feed = made.feed(rows)
    agree(ours, theirs, feed, 2e-2 if kind == "a part" else 1e-6)
    ratio = race(
        benchmark, lambda: ours.run(None, feed), lambda: theirs.run(None, feed), *turns(rows)
    )
    assert ratio > (made.one if rows == 1 else made.many)


@pytest.mark.bench
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5000])
def test_a_prediction(benchmark: Any, kind: str, rows: int) -> None:
    """The same models as programs of a runtime, which is handed the same arrays.

    Blocks may go to executors, which a machine that does other things lets wait.
    """
    made = KINDS[kind]
    data = made.make()
    _, theirs = both(data)
    feed = made.feed(rows)
    with runtime.Runtime() as served:
        served.register("model", flour.from_onnx(data))
        call = served.predict
        for _ in range(20):  # until it knows what a call takes
            call("model", feed)
        ratio = race(
            benchmark, lambda: call("model", feed), lambda: theirs.run(None, feed), *turns(rows)
        )
    assert ratio > (made.one / 2 if rows == 1 else made.many / 2)


_RESIDENT = """
import itertools, json, sys, time
from pathlib import Path
def used():
    line = next(l for l in open("/proc/self/smaps_rollup") if l.startswith("Pss:"))
    return int(line.split()[1]) * 1024
import numpy as np
folder, who = sys.argv[1:]
with np.load(Path(folder) / "feed.npz", allow_pickle=False) as file:
    feed = {name: file[name].astype(object) if file[name].dtype.kind == "U" else file[name]
            for name in file.files}
models = [path.read_bytes() for path in sorted(Path(folder).glob("*.onnx"))]
if who == "sessions":
    import runtime
    make = runtime.InferenceSession
    call = lambda session: session.run(None, feed)
elif who == "registered":
    import flour, runtime
    served, numbers = runtime.Runtime(), itertools.count()
    def make(data):
        name = f"model-{next(numbers)}"
        served.register(name, flour.from_onnx(data))
        return name
    call = lambda name: served.predict(name, feed)
else:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    def make(data):
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    call = lambda session: session.run(None, feed)
call(make(models[0]))
before, start = used(), time.process_time()
made = [make(data) for data in models]
seconds = time.process_time() - start
for each in made:
    call(each)
print(json.dumps({"bytes": used() - before, "seconds": seconds}))
"""


def variants(data: bytes, folder: Path, count: int) -> None:
    """The same model with other coefficients, as for another customer."""
    made = ModelProto.FromString(data)
    (classifier,) = [item for item in made.graph.node if item.op_type == "LinearClassifier"]
    (weights,) = [item for item in classifier.attribute if item.name == "coefficients"]
    size = len(weights.floats)
    for number in range(count):
        del weights.floats[:]
        weights.floats.extend(np.random.default_rng(number).normal(size=size).tolist())
        (folder / f"{number:03}.onnx").write_bytes(made.SerializeToString())


def forests(folder: Path, count: int) -> None:
    """Forests of customers of their own: no two of one shape."""
    fit = RandomForestClassifier(10, max_depth=6, n_jobs=1)
    for number in range(count):
        rows = np.random.default_rng(number).integers(0, len(X), 300)
        made = to_onnx(fit.fit(X[rows], Y[rows]), X[:1], options={"zipmap": False})
        (folder / f"{number:03}.onnx").write_bytes(made.SerializeToString())


def resident(folder: Path, who: str) -> dict[str, float]:
    """Memory and time for all models of a folder, in a process of its own."""
    said = run_python(_RESIDENT, str(folder), who, environment={"PYTHONPATH": str(ROOT)})
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


class Resident(NamedTuple):
    """Models of a kind, how many, and what ours may take as a share of onnxruntime's."""

    make: Callable[[Path, int], None]
    feed: Callable[[int], Feed]
    many: int
    memory: float
    seconds: float


#: Where a structure is known nothing is imported but the second model. Forests all are.
RESIDENT = {
    "numbers": Resident(lambda f, n: variants(KINDS["linear"].make(), f, n), numbers, 500, 0.25, 3),
    "text": Resident(lambda f, n: variants(text(), f, n), documents, 500, 0.2, 1.5),
    "table": Resident(lambda f, n: variants(one_hot(), f, n), table, 500, 0.25, 3),
    "forests": Resident(forests, numbers, 50, 0.75, 40),
}


@pytest.mark.bench
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory is read there")
@pytest.mark.parametrize("who", ["sessions", "registered"])
@pytest.mark.parametrize("kind", RESIDENT)
def test_many_models_resident(benchmark: Any, tmp_path: Path, kind: str, who: str) -> None:
    """Many models with weights of their own: what they take, how long they load."""
    made = RESIDENT[kind]
    made.make(tmp_path, made.many)
    feed = made.feed(1)
    plain: Any = {k: v.astype(str) if v.dtype == object else v for k, v in feed.items()}
    np.savez(tmp_path / "feed.npz", **plain)
    ours, theirs = (resident(tmp_path, each) for each in (who, "theirs"))
    benchmark.extra_info.update(
        {
            "ours_MB": ours["bytes"] / 2**20,
            "theirs_MB": theirs["bytes"] / 2**20,
            "ours_s": ours["seconds"],
            "theirs_s": theirs["seconds"],
        }
    )
    benchmark(lambda: None)
    assert ours["bytes"] < made.memory * theirs["bytes"]
    assert ours["seconds"] < made.seconds * theirs["seconds"]
