"""Sample pipelines, trained, imported, verified, saved, served and asked: the whole way once.

For each pipeline it prints the program's stages, one answer beside scikit-learn's own, what one row
and a block cost on both sides, and at the end what the served plans hold and share.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
import oven
from runtime import Runtime
from runtime.verify import verify

GOOD = ["great", "lovely", "délicieux", "prächtig", "好吃", "tasty"]
BAD = ["awful", "bland", "affreux", "schlecht", "难吃", "burnt"]
PLAIN = ["the", "pizza", "soup", "was", "and", "very", "service", "again"]


class Sample(NamedTuple):
    """A fitted pipeline and rows to ask it about."""

    name: str
    pipeline: Any
    rows: Any


def tumours() -> Sample:
    """Thirty numbers to one of two classes."""
    X, y = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[y]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, names)
    return Sample("tumours: scaler + logistic regression", pipeline, X)


def wines() -> Sample:
    """A projection and a small network, three classes."""
    X, y = load_wine(return_X_y=True)
    network = MLPClassifier((16,), max_iter=2000, random_state=0)
    pipeline = make_pipeline(StandardScaler(), PCA(6), network).fit(X, y)
    return Sample("wines: scaler + PCA + network", pipeline, X)


def progress() -> Sample:
    """A regression."""
    X, y = load_diabetes(return_X_y=True)
    return Sample("diabetes: scaler + ridge", make_pipeline(StandardScaler(), Ridge()).fit(X, y), X)


def orders() -> Sample:
    """Mixed columns of a data frame, with missing values and unknown categories."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(600) < 0.1, np.nan, rng.integers(18, 90, 600)),
            "basket": rng.gamma(2.0, 30.0, 600),
            "city": rng.choice(["Łódź", "Oslo", "Graz", "Cork"], 600),
            "channel": rng.choice(["web", "shop"], 600),
        }
    )
    returned = (frame["basket"] > 60) ^ (frame["city"] == "Oslo")
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = ColumnTransformer(
        [
            ("numbers", numbers, ["age", "basket"]),
            ("names", OneHotEncoder(handle_unknown="ignore"), ["city", "channel"]),
        ]
    )
    pipeline = make_pipeline(columns, LogisticRegression()).fit(frame, returned)
    return Sample("orders: impute, scale, one-hot + logistic regression", pipeline, frame)


def reviews() -> Sample:
    """Words and pairs of words of short texts, in several scripts, weighed and scored."""
    rng = np.random.default_rng(1)
    liked = rng.random(500) < 0.5
    texts = [
        " ".join(rng.choice(PLAIN + (GOOD if good else BAD) * 2, int(rng.integers(4, 40))))
        for good in liked
    ]
    pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
    return Sample(
        "reviews: tf-idf of words + logistic regression", pipeline.fit(texts, liked), texts
    )


def main() -> int:
    """Run every sample; a row that differs from scikit-learn's answer ends the demonstration."""
    with tempfile.TemporaryDirectory() as folder, Runtime() as runtime:
        for make in (tumours, wines, progress, orders, reviews):
            show(make(), Path(folder), runtime)
        say("\n=== what is served, and whose parameters it holds")
        say(runtime.store.report())
    return 0


def show(sample: Sample, folder: Path, runtime: Runtime) -> None:
    """One pipeline, the whole way."""
    name = sample.name.split(":")[0]
    say(f"\n=== {sample.name}")
    started = time.perf_counter()
    plan = oven.bake(flour.from_sklearn(sample.pipeline, sample.rows[:5]))
    say(f"imported and baked in {1e3 * (time.perf_counter() - started):.0f} ms")
    verify(plan, sample.pipeline, sample.rows)
    say(f"verified: all {len(sample.rows)} rows answer as scikit-learn does")
    plan.save(folder / f"{name}.pretzel")
    runtime.register(name, folder / f"{name}.pretzel")
    say(plan.explain())
    compare(sample, lambda rows: runtime.predict(name, rows))


def compare(sample: Sample, ask: Callable[[Any], dict[str, Any]]) -> None:
    """One row and all rows, on both sides."""
    row, rows, original = sample.rows[:1], sample.rows, sample.pipeline
    say(f"scikit-learn  {original.predict(row)[0]!s:>20}   {micro(lambda: original.predict(row))}")
    say(f"pretzel       {first(ask(row))!s:>20}   {micro(lambda: ask(row))}")
    theirs, ours = micro(lambda: original.predict(rows)), micro(lambda: ask(rows))
    say(f"{len(rows)} rows: scikit-learn {theirs.strip()}, pretzel {ours.strip()}")


def first(made: dict[str, Any]) -> object:
    """The answer for the first row."""
    value = (made["label"] if "label" in made else made["value"])[0]
    return value.item() if isinstance(value, np.generic) else value


def micro(call: Callable[[], object]) -> str:
    """The median time of a call, as text."""
    times = []
    for _ in range(200):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return f"{1e6 * float(np.median(times)):8.1f} us"


def say(text: object) -> None:
    """One line of the demonstration."""
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    raise SystemExit(main())
