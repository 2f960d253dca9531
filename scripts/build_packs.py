"""Builds the packs of a release: machine code for the models that people have most.

    python scripts/build_packs.py [--levels host|all|NAME,...] [--models N] [--into FOLDER]

Small models of each kind are trained, imported and saved, and `runtime.warming` compiles what they
need. The code of a model depends on its structure, not on its numbers or sizes, so these few stand
for most; any other structure is compiled by the machine that meets it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

import flour
import oven
from oven.compiler import cache, levels, machine, packs
from runtime.warming import warm

ROWS, WIDTH = 400, 12


def main() -> None:
    """Train, import, save, compile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", default="host", help="host, all, or names with commas")
    parser.add_argument("--models", type=int, help="only the first so many, for a trial")
    parser.add_argument("--into", type=Path, default=cache.RELEASED)
    parser.add_argument("--check", action="store_true", help="only say whether they are there")
    options = parser.parse_args()
    names = _names(options.levels)
    if options.check:
        sys.exit(not all(_is_there(options.into, name) for name in names))
    with tempfile.TemporaryDirectory() as folder:
        saved = chain(_saved(Path(folder)), _converted(Path(folder)))
        plans = list(islice(saved, options.models))
        for made in warm(plans, names, options.into):
            size = made.size / 1e6
            print(f"{made.level}: {made.functions} functions of {len(plans)} models, {size:.1f} MB")


def _names(asked: str) -> list[str]:
    if asked == "all":
        return [level.name for level in levels.LEVELS]
    if asked == "host":
        level = levels.best(machine.triple(), machine.features())
        return [] if level is None else [level.name]
    return asked.split(",")


def _is_there(folder: Path, name: str) -> bool:
    try:
        return len(packs.read(folder / f"{name}.pack", name, cache.compilers())) > 0
    except (OSError, packs.Refused):
        return False


def _saved(folder: Path) -> Iterator[Path]:
    for number, (model, sample) in enumerate(_models()):
        flow = flour.from_sklearn(model, sample)
        path = folder / f"{number}.plan"
        oven.bake(flow, background=False).save(path, durable=False)
        yield path


def _converted(folder: Path) -> Iterator[Path]:
    """Plans of models as skl2onnx makes them, which sessions have."""
    from skl2onnx import to_onnx
    from sklearn.pipeline import Pipeline

    from runtime.onnx.session import InferenceSession

    np.random.seed(1)  # noqa: NPY002 (as below)
    rows, two, three = _numbers()
    rows = rows.astype(np.float32)
    fitted = [(model, two) for model in _classifiers()] + [
        (model, three) for model in _classifiers()
    ]
    fitted += [(model, rows[:, 0] * 2 + rows[:, 1]) for model in _regressors()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as below
        for number, (model, target) in enumerate(fitted):
            model.fit(rows, target)
            last = model[-1] if isinstance(model, Pipeline) else model
            with_zipmap = hasattr(last, "predict_proba")
            for options in (None, {id(last): {"zipmap": False}}) if with_zipmap else (None,):
                path = folder / f"{number}-{options is None}.plan"
                with suppress(NameError, ValueError):  # skl2onnx cannot convert all
                    proto = to_onnx(model, rows[:1], options=options)
                    InferenceSession(proto).plan.wait().save(path, durable=False)
                    yield path


def _numbers() -> tuple[Any, Any, Any]:
    """Rows of numbers, and for each of them one of two classes, and one of three."""
    rows = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
    return rows, (rows[:, 0] + rows[:, 1] > 0).astype(int), np.digitize(rows[:, 0], [-0.5, 0.5])


def _models() -> Iterator[tuple[Any, Any]]:
    """Fitted models, each with rows to import it by, if it needs them."""
    np.random.seed(0)  # noqa: NPY002 (estimators draw from it: a release has the same bytes twice)
    rng = np.random.default_rng(1)
    rows, two, three = _numbers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows, few steps: the numbers do not matter
        for target in (two, three):
            for model in _classifiers():
                yield model.fit(rows, target), None
        for model in _regressors():
            yield model.fit(rows, rows[:, 0] * 2 + rows[:, 1]), None
        yield from _boosters(rows, two, three)
        yield from _ensembles(rng)
        yield from _tables(rng)
        yield from _texts(rng)


def _classifiers() -> Iterator[Any]:
    from sklearn import ensemble, linear_model, naive_bayes, neural_network, svm
    from sklearn.decomposition import PCA
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    yield linear_model.LogisticRegression()
    for scaler in (StandardScaler(), MinMaxScaler()):
        yield make_pipeline(scaler, linear_model.LogisticRegression())
    yield make_pipeline(SimpleImputer(), StandardScaler(), linear_model.LogisticRegression())
    yield make_pipeline(StandardScaler(), PCA(4), linear_model.LogisticRegression())
    yield make_pipeline(StandardScaler(), svm.LinearSVC())
    yield make_pipeline(StandardScaler(), svm.SVC(probability=True))
    yield make_pipeline(StandardScaler(), neural_network.MLPClassifier((16,), max_iter=5))
    yield linear_model.SGDClassifier()
    yield naive_bayes.GaussianNB()
    yield DecisionTreeClassifier(max_depth=6)
    for trees, depth in ((10, 4), (100, 8), (100, None)):
        yield ensemble.RandomForestClassifier(trees, max_depth=depth)
    yield make_pipeline(StandardScaler(), ensemble.RandomForestClassifier(50, max_depth=8))
    yield ensemble.ExtraTreesClassifier(30)
    yield ensemble.GradientBoostingClassifier(n_estimators=100)
    yield ensemble.HistGradientBoostingClassifier(max_iter=100)


def _regressors() -> Iterator[Any]:
    from sklearn import ensemble, linear_model
    from sklearn.cluster import KMeans
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeRegressor

    yield linear_model.LinearRegression()
    for model in (linear_model.Ridge(), linear_model.Lasso(0.01)):
        yield make_pipeline(StandardScaler(), model)
    yield DecisionTreeRegressor(max_depth=6)
    for trees, depth in ((10, 4), (100, 8), (100, None)):
        yield ensemble.RandomForestRegressor(trees, max_depth=depth)
    yield ensemble.GradientBoostingRegressor(n_estimators=100)
    yield ensemble.HistGradientBoostingRegressor(max_iter=100)
    yield KMeans(5, n_init=1)


def _boosters(rows: Any, two: Any, three: Any) -> Iterator[tuple[Any, None]]:
    from lightgbm import LGBMClassifier, LGBMRegressor
    from xgboost import XGBClassifier, XGBRegressor

    for trees, leaves in ((20, 7), (100, 31), (500, 63)):
        yield LGBMClassifier(n_estimators=trees, num_leaves=leaves, verbose=-1).fit(rows, two), None
        yield LGBMRegressor(n_estimators=trees, num_leaves=leaves, verbose=-1).fit(rows, two), None
        yield XGBClassifier(n_estimators=trees, max_depth=leaves // 10 + 2).fit(rows, two), None
        yield XGBRegressor(n_estimators=trees, max_depth=leaves // 10 + 2).fit(rows, two), None
    yield LGBMClassifier(n_estimators=30, verbose=-1).fit(rows, three), None
    yield XGBClassifier(n_estimators=30).fit(rows, three), None


def _ensembles(rng: np.random.Generator) -> Iterator[tuple[Any, None]]:
    """Trees of other shapes: their code depends on columns, thresholds, leaves and classes."""
    for count, width in ((300, 4), (ROWS, 20), (3000, 12), (3000, 60)):
        rows = rng.normal(size=(count, width))
        seen = rows[:, 0] + rows[:, 1] * rows[:, 2] + rng.normal(size=count) * 0.3
        for target in (seen > 0, np.digitize(seen, [-0.5, 0.5])):
            for model in _trees_of_classes():
                yield model.fit(rows, target.astype(int)), None
        for model in _trees_of_numbers():
            yield model.fit(rows, seen), None


def _trees_of_classes() -> Iterator[Any]:
    from lightgbm import LGBMClassifier
    from sklearn import ensemble, tree
    from xgboost import XGBClassifier

    for trees, leaves in ((20, 7), (100, 31)):
        yield LGBMClassifier(n_estimators=trees, num_leaves=leaves, verbose=-1)
    for depth in (4, 6, 8):
        yield XGBClassifier(n_estimators=100, max_depth=depth)
    for trees, deepest in ((10, 4), (50, 8), (100, 8), (30, None)):
        yield ensemble.RandomForestClassifier(trees, max_depth=deepest)
    yield tree.DecisionTreeClassifier()
    yield ensemble.GradientBoostingClassifier(max_features="sqrt")
    yield ensemble.AdaBoostClassifier(n_estimators=10)


def _trees_of_numbers() -> Iterator[Any]:
    from sklearn import ensemble

    for trees, deepest in ((30, None), (50, 8), (100, 8)):
        yield ensemble.RandomForestRegressor(trees, max_depth=deepest, max_features="sqrt")
    yield ensemble.IsolationForest()


def _tables(rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, ROWS),
            "income": rng.normal(5e4, 1e4, ROWS),
            "score": rng.normal(size=ROWS),
            "city": rng.choice(["Bern", "Rome", "Oslo"], ROWS),
            "plan": rng.choice(["free", "paid"], ROWS),
        }
    )
    target = (frame["income"] > 5e4).astype(int)
    numbers, words = ["age", "income", "score"], ["city", "plan"]
    for final in (LogisticRegression(max_iter=200), RandomForestClassifier(30, max_depth=8)):
        for prepared in (
            StandardScaler(),
            make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
        ):
            columns = make_column_transformer(
                (prepared, numbers), (OneHotEncoder(handle_unknown="ignore"), words)
            )
            yield make_pipeline(columns, final).fit(frame, target), frame.head(50)


def _texts(rng: np.random.Generator) -> Iterator[tuple[Any, None]]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    words = [f"word{number}" for number in range(200)]
    documents = [" ".join(rng.choice(words, 8)) for _ in range(ROWS)]
    target = rng.integers(0, 2, ROWS)
    for vectoriser in (
        TfidfVectorizer(),
        TfidfVectorizer(ngram_range=(1, 2)),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)),
        CountVectorizer(),
        HashingVectorizer(n_features=1 << 12),
    ):
        for final in (LogisticRegression(), LinearSVC()):
            yield make_pipeline(vectoriser, final).fit(documents, target), None
    yield make_pipeline(CountVectorizer(), MultinomialNB()).fit(documents, target), None
    for final in (LogisticRegression(), RandomForestClassifier(30)):
        reduced = make_pipeline(TfidfVectorizer(), TruncatedSVD(8), final)
        yield reduced.fit(documents, target), None


if __name__ == "__main__":
    main()
