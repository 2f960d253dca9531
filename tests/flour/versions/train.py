"""Fit the pipelines of `pipelines.txt` with the libraries installed here; keep their own answers.

It runs in environments of old versions (`scripts/old-models`), with Python 3.8 and later:

    python train.py FOLDER [--all]
"""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Iterator, NamedTuple  # noqa: UP035 (Python 3.8)

import numpy as np

TABLE = Path(__file__).with_name("pipelines.txt")
ROWS = 8
METHODS = ("predict", "predict_proba", "decision_function", "transform")
_WORDS = ("red green", "green blue", "blue", "red red blue", "The quick brown fox", "a blue sky")


class Pipeline(NamedTuple):
    """A line of the table, with one of its targets."""

    name: str
    data: str
    target: str
    expression: str
    kept: bool
    """True if its file is in the repository."""


def pipelines() -> Iterator[Pipeline]:
    """The pipelines of the table, once for each of their targets."""
    data, targets, number = "", [""], 0
    for line in TABLE.read_text().splitlines():
        if line.startswith("["):
            data, *targets = line.strip("[]").split()
        elif line.strip() and not line.startswith("#"):
            name, expression = line.split(None, 1)
            number += 1
            for at, target in enumerate(targets):
                tail = "_" + target.lower() if len(targets) > 1 else ""
                kept = at == number % len(targets)
                yield Pipeline(name + tail, data, target, expression, kept)


def tables() -> dict[str, Any]:
    """The data and the targets, by name."""
    random = np.random.RandomState(0)
    x = np.round(random.normal(size=(60, 4)), 2)
    three = np.digitize(x @ [1.0, -1.0, 0.5, 0.2] + random.normal(0, 0.5, 60), [-0.6, 0.6])
    number = np.round(x @ [1.0, 10.0, 0.1, 2.0] + random.normal(size=60), 2)
    missing = x.copy()
    missing[::7, 1] = np.nan
    missing[::5, 2] = np.nan
    codes = np.array([["abcad"[at % 5], "xy"[at % 2]] for at in range(60)], object)
    counts = np.round(np.abs(x) * 3).astype(int)
    return {
        "X": x,
        "FEW": x[:16],
        "MISSING": missing,
        "COUNTS": counts,
        "CODES": codes,
        "MIXED": np.hstack([x.astype(object), codes]),
        "WORDS": list(_WORDS) * 10,
        "-": None,
        "TWO": (three > 0).astype(int),
        "THREE": three,
        "NAMES": np.array(["low", "mid", "high"])[three],
        "NUMBER": number,
        "PAIR": np.c_[number, -number],
        "KIND": [0, 1, 1, 0, 1, 0] * 10,
        "COUNT": counts[:, 0] + 1,
    }


def _named() -> dict[str, Any]:
    """The names in expressions: all of scikit-learn's, and some functions."""
    found: dict[str, Any] = {}
    for experimental in ("hist_gradient_boosting", "iterative_imputer"):
        try:
            import_module("sklearn.experimental.enable_" + experimental)
        except ImportError:
            continue
    modules = (
        *("pipeline", "preprocessing", "compose", "impute", "linear_model", "ensemble", "tree"),
        *("svm", "neighbors", "naive_bayes", "neural_network", "discriminant_analysis"),
        *("decomposition", "cluster", "mixture", "multiclass", "multioutput", "calibration"),
        *("feature_selection", "feature_extraction.text", "gaussian_process", "kernel_ridge"),
        *("model_selection", "cross_decomposition", "covariance", "dummy", "random_projection"),
        "kernel_approximation",
    )
    for name in modules:
        found.update(vars(import_module("sklearn." + name)))
    import sklearn

    version = tuple(map(int, sklearn.__version__.split(".")[:2]))
    found.update(np=np, LOG_LOSS="log" if version < (1, 1) else "log_loss")
    dense = "sparse" if version < (1, 2) else "sparse_output"
    encoder, logistic = found["OneHotEncoder"], found["LogisticRegression"]
    found["dense_one_hot"] = lambda **how: encoder(**{dense: False}, **how)
    found["logistic"] = lambda **how: logistic(max_iter=300, **how)
    for name in ("lightgbm", "xgboost"):
        try:
            module = import_module(name)
        except ImportError:
            continue
        found.update({each: getattr(module, each) for each in module.__all__ if each[0] in "LX"})
        found[name] = {"lightgbm": LightGbm, "xgboost": XGBoost}[name]
    return found


class LightGbm:
    """A booster of LightGBM, which is kept as its own file."""

    files = ("txt",)

    def __init__(self, objective: str, **how: Any) -> None:
        self.how = {"objective": objective, "num_leaves": 5, "min_data_in_leaf": 5, **how}

    def fit(self, x: Any, y: Any) -> None:
        """Train it."""
        import lightgbm

        data = lightgbm.Dataset(x.astype(float), y)
        self.made = lightgbm.train({"verbose": -1, "seed": 1, **self.how}, data, 4)

    def save(self, path: str) -> None:
        """Write the file."""
        self.made.save_model(path)

    def answers(self, x: Any) -> dict[str, Any]:
        """The booster's own answers."""
        return {"value": self.made.predict(x), "scores": self.made.predict(x, raw_score=True)}


class XGBoost:
    """A booster of XGBoost, which is kept as its own files."""

    files = ("json", "ubj", "model", "deprecated")

    def __init__(self, objective: str, **how: Any) -> None:
        self.how = {"objective": objective, "max_depth": 3, **how}

    def fit(self, x: Any, y: Any) -> None:
        """Train it."""
        import xgboost

        self.made = xgboost.train(self.how, xgboost.DMatrix(x.astype(float), y), 4)

    def save(self, path: str) -> None:
        """Write the file."""
        self.made.save_model(path)

    def answers(self, x: Any) -> dict[str, Any]:
        """The booster's own answers."""
        import xgboost

        data = xgboost.DMatrix(x.astype(float))
        return {
            "value": self.made.predict(data),
            "scores": self.made.predict(data, output_margin=True),
        }


def _answers(fitted: Any, rows: Any) -> dict[str, Any]:
    if hasattr(fitted, "answers"):
        return dict(fitted.answers(rows))
    found = {}
    for method in METHODS:
        if not hasattr(fitted, method):
            continue
        try:
            value = getattr(fitted, method)(rows)
        except (AttributeError, NotImplementedError, ValueError):
            continue
        found[method] = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
    return found


def _files(fitted: Any, name: str, number: int) -> Iterator[tuple[str, bytes]]:
    """The files of a model; estimators turn by turn as people keep them."""
    if hasattr(fitted, "files"):
        for ending in fitted.files:
            path = Path(name + "." + ending)
            try:
                fitted.save(str(path))
                yield path.name, path.read_bytes()
            except Exception:  # noqa: BLE001 (this version has not got the format)
                continue
            finally:
                if path.exists():
                    path.unlink()
    elif number % 3 == 0:
        import joblib

        joblib.dump(fitted, name + ".joblib")
        yield name + ".joblib", Path(name + ".joblib").read_bytes()
        Path(name + ".joblib").unlink()
    else:
        yield name + ".pkl", pickle.dumps(fitted, protocol=2 if number % 3 == 1 else 4)
    if find_spec("skops") and not hasattr(fitted, "files"):
        from skops import io

        try:
            yield name + ".skops", io.dumps(fitted)
        except io.exceptions.UnsupportedTypeException:  # Birch
            return


def main(folder: Path, *, everything: bool) -> None:
    """Write the files, and the answers beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    known, data = _named(), tables()
    told: dict[str, Any] = {"versions": {}, "answers": {}, "missing": {}}
    for name in ("sklearn", "numpy", "lightgbm", "xgboost"):
        told["versions"][name] = getattr(sys.modules.get(name), "__version__", "")
    for number, each in enumerate(pipelines()):
        if not (each.kept or everything):
            continue
        x, y = data[each.data], data[each.target]
        y = y if y is None else y[: len(x)]
        try:
            fitted = eval(each.expression, known)
            fitted.fit(x) if y is None else fitted.fit(x, y)
            answers = _answers(fitted, x[:ROWS])
            files: list[tuple[str, bytes]] = list(_files(fitted, each.name, number))
        except Exception as problem:  # noqa: BLE001 (this version has not got it)
            told["missing"][each.name] = (type(problem).__name__ + ": " + str(problem))[:120]
            continue
        for file, raw in files:
            (folder / file).write_bytes(raw)
            told["answers"][file] = {
                name: [str(value.dtype), value.tolist()] for name, value in answers.items()
            }
    (folder / "answers.json").write_text(json.dumps(told))
    print(  # noqa: T201 (it is a script)
        told["versions"], len(told["answers"]), "files;", len(told["missing"]), "not in it"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]).absolute(), everything="--all" in sys.argv)
