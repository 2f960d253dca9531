"""One contestant of the races over trees, in a process and an environment of its own.

Talks JSON lines: it is told on standard input what to load and how many turns to take, and answers
on standard output with what it measured, in nanoseconds. It must run on older Pythons and import
nothing of ours (but for our own contestant), so that a contestant can have the versions it needs.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Predict = Callable[[Any], Any]
#: Contestants take turns of about this many nanoseconds.
MOMENT = 100_000_000


class Refused(Exception):
    """This contestant cannot take part with this model."""


def pretzel(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """Ours."""
    sys.path.insert(0, model["root"])
    import flour
    import oven
    from flour.language.flow import outputs

    kind = model["kind"]
    if kind == "forest":
        import joblib

        flow = outputs(scores=flour.from_sklearn(joblib.load(model["path"]))["probabilities"])
    else:
        made = {"lightgbm": flour.from_lightgbm, "xgboost": flour.from_xgboost}[kind]
        flow = outputs(scores=made(model["path"])["scores"])
    plan = oven.bake(flow)

    def run(rows: Any) -> Any:
        return plan.run(rows)["scores"]

    return run, run


def lightgbm(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """The library itself; single rows by its C interface for those."""
    import lightgbm as lgb
    import numpy as np

    need(model, "lightgbm")
    booster = lgb.Booster(model_file=model["path"])
    basic: Any = lgb.basic
    library, fast = basic._LIB, ctypes.c_void_p()
    library.LGBM_BoosterPredictForMatSingleRowFastInit(
        booster._handle, 1, 0, -1, 1, booster.num_feature(), b"num_threads=1", ctypes.byref(fast)
    )
    answer, count = np.zeros(1), ctypes.c_int64()
    into = answer.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    function = library.LGBM_BoosterPredictForMatSingleRowFast

    def one(row: Any) -> Any:
        function(fast, ctypes.c_void_p(row.ctypes.data), ctypes.byref(count), into)
        return answer

    return lambda rows: booster.predict(rows, raw_score=True, num_threads=1), one


def xgboost(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """The library itself, in place."""
    import xgboost as xgb

    need(model, "xgboost")
    booster = xgb.Booster({"nthread": 1}, model_file=model["path"])

    def run(rows: Any) -> Any:
        return booster.inplace_predict(rows, predict_type="margin")

    return run, run


def sklearn(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """The library itself."""
    import joblib

    need(model, "forest")
    forest = joblib.load(model["path"])
    return forest.predict_proba, forest.predict_proba


def onnxruntime(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """By the usual converters, on one thread."""
    import numpy as np
    import onnxruntime as ort

    convert: Any = importlib.import_module("onnxmltools")
    types: Any = importlib.import_module("onnxmltools.convert.common.data_types")
    columns = [("x", types.FloatTensorType([None, model["columns"]]))]
    if model["kind"] == "lightgbm":
        import lightgbm as lgb

        booster = lgb.Booster(model_file=model["path"])
        how = {"initial_types": columns, "target_opset": 15}
        made = convert.convert_lightgbm(booster, zipmap=False, **how)
    elif model["kind"] == "xgboost":
        import xgboost as xgb

        made = convert.convert_xgboost(xgb.Booster(model_file=model["path"]), initial_types=columns)
    else:
        import joblib
        from skl2onnx import to_onnx

        sample = np.zeros((1, model["columns"]), np.float32)
        made = to_onnx(joblib.load(model["path"]), sample, options={"zipmap": False})
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    name, output = session.get_inputs()[0].name, session.get_outputs()[-1].name

    def run(rows: Any) -> Any:
        return session.run([output], {name: rows.astype(np.float32)})[0]

    if model["kind"] != "forest" and len(session.get_outputs()) > 1:
        run.scores = margins  # type: ignore[attr-defined]  # not all answer with scores
    return run, run


def treelite_model(model: dict[str, Any]) -> Any:
    """What treelite makes of a model."""
    library: Any = importlib.import_module("treelite")
    if model["kind"] == "lightgbm":
        return library.frontend.load_lightgbm_model(model["path"])
    if model["kind"] == "xgboost":
        return library.frontend.load_xgboost_model(model["path"])
    import joblib

    return library.sklearn.import_model(joblib.load(model["path"]))


def treelite(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """Its general tree interpreter."""
    import numpy as np

    library: Any = importlib.import_module("treelite")
    made = treelite_model(model)

    def run(rows: Any) -> Any:
        margin = model["kind"] != "forest"
        found = library.gtil.predict(made, rows, nthread=1, pred_margin=margin)
        return np.asarray(found)[:, 0]

    return run, run


def tl2cgen(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """C made from the trees, compiled once and kept."""
    library: Any = importlib.import_module("tl2cgen")
    if model["nodes"] > 70_000:
        raise Refused(f"C of {model['nodes']:,} nodes takes gcc many minutes")
    place = Path(model["build"]) / "tl2cgen.so"
    if not place.exists():
        library.export_lib(
            treelite_model(model),
            toolchain="gcc",
            libpath=str(place),
            params={"parallel_comp": 16},
            nthread=2,
        )
    predictor = library.Predictor(str(place), nthread=1)

    def run(rows: Any) -> Any:
        return predictor.predict(library.DMatrix(rows), pred_margin=True).reshape(len(rows), -1)

    return run, run


def lleaves(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """Compiled by LLVM once and kept."""
    compiler: Any = importlib.import_module("lleaves")
    need(model, "lightgbm")
    made = compiler.Model(model_file=model["path"])
    made.compile(cache=str(Path(model["build"]) / "lleaves.o"), raw_score=True)

    def run(rows: Any) -> Any:
        return made.predict(rows, n_jobs=1)

    return run, run


def onedal(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """Model builders of scikit-learn-intelex."""
    library: Any = importlib.import_module("daal4py")
    if model["kind"] == "forest":
        raise Refused("its model builders read boosters only")
    if model["kind"] == "lightgbm":
        import lightgbm as lgb

        booster: Any = lgb.Booster(model_file=model["path"])
    else:
        import xgboost as xgb

        booster = xgb.Booster(model_file=model["path"])
    library.daalinit(1)
    made = library.mb.convert_model(booster)

    if not hasattr(made, "predict_proba"):
        return made.predict, made.predict

    def run(rows: Any) -> Any:
        return made.predict_proba(rows)

    run.scores = margins  # type: ignore[attr-defined]  # not all answer with scores
    return run, run


def handwritten(model: dict[str, Any]) -> tuple[Predict, Predict]:
    """What a careful programmer would write in C."""
    import numpy as np

    source, place = Path(model["source"]), Path(model["build"]) / "trees.so"
    if model["sets"]:
        raise Refused("it knows no categories")
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(place)], check=True)
    function = ctypes.CDLL(str(place)).score
    function.restype = None
    tables = dict(np.load(model["tables"]))
    keys = ("nodes", "roots", "value")
    addresses = [ctypes.c_void_p(tables[key].ctypes.data) for key in keys]
    trees, columns = ctypes.c_int64(len(tables["roots"])), ctypes.c_int64(model["columns"])

    def run(rows: Any) -> Any:
        wide = np.ascontiguousarray(rows, np.float64)
        made = np.empty(len(rows))
        where = (ctypes.c_void_p(part.ctypes.data) for part in (wide, made))
        function(ctypes.c_int64(len(rows)), columns, *where, trees, *addresses)
        return made

    run.tables = tables  # type: ignore[attr-defined]  # they live as long as the function
    return run, run


def margins(probabilities: Any) -> Any:
    """The scores behind the probabilities of two classes."""
    import numpy as np

    return np.log(probabilities[:, 1] / probabilities[:, 0])


def need(model: dict[str, Any], kind: str) -> None:
    """Refuse models of another kind."""
    if model["kind"] != kind:
        raise Refused(f"it reads models of {kind} only")


def measured(run: Predict, items: list[Any], turns: int) -> list[int]:
    """Nanoseconds of each turn, of as many as fit into a moment."""
    taken: list[int] = []
    for turn in range(turns):
        if sum(taken) > MOMENT:
            break
        item = items[turn % len(items)]
        start = time.perf_counter_ns()
        run(item)
        taken.append(time.perf_counter_ns() - start)
    return taken


def load(model: dict[str, Any]) -> tuple[Predict, Predict, Any, dict[str, Any]]:
    """The contestant with its model, and what there is to say about that."""
    import numpy as np

    rows = np.load(model["rows"])
    start = time.perf_counter()
    many, one = globals()[model["contestant"]](model)
    one(rows[:1].copy())
    seconds = time.perf_counter() - start
    answers = many(rows)
    np.save(model["answers"], getattr(many, "scores", lambda found: found)(answers))
    library = {"pretzel": "numpy", "handwritten": "", "onedal": "daal4py", "sklearn": "sklearn"}
    module = library.get(model["contestant"], model["contestant"])
    version = getattr(importlib.import_module(module), "__version__", "") if module else ""
    return many, one, rows, {"seconds": seconds, "version": version}


def main() -> None:
    """Answer until standard input ends."""
    many: Predict
    one: Predict
    rows: Any
    singles: list[Any] = []
    talk = sys.stdout
    sys.stdout = sys.stderr  # libraries print
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["do"] == "load":
                many, one, rows, answer = load(asked["model"])
                singles = [rows[i : i + 1].copy() for i in range(300)]
                gc.disable()
            elif asked["do"] == "block":
                answer = {"ns": measured(many, [rows], asked["turns"])}
            else:
                answer = {"ns": measured(one, singles, asked["turns"])}
        except Refused as reason:
            answer = {"absent": str(reason)}
        except Exception as problem:  # noqa: BLE001 (whatever a contestant dies of is its reason)
            answer = {"absent": f"{type(problem).__name__}: {str(problem)[:200]}"}
        print(json.dumps(answer), file=talk, flush=True)


if __name__ == "__main__":
    main()
