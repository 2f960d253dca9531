"""Models for graphs, as they come from scikit-learn, and rows for them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
from flour import Flow

CITIES = ["Oslo", "Rome", "Graz", "Bern"]
WORDS = [f"word{n:02d}" for n in range(60)]


@cache
def people(count: int = 200, seed: int = 0) -> pd.DataFrame:
    """Rows of numbers, some of them missing, cities and notes."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 12, count),
            "income": rng.lognormal(3, 1, count),
            "city": rng.choice(CITIES, count),
            "note": [" ".join(rng.choice(WORDS, 8)) for _ in range(count)],
        }
    )
    frame.loc[rng.random(count) < 0.1, "age"] = np.nan
    return frame


def labels(count: int, seed: int, classes: int = 2) -> Any:
    """Labels with some meaning."""
    frame, rng = people(count), np.random.default_rng(seed)
    score = frame["income"].rank().to_numpy() / count + rng.normal(0, 0.2, count)
    return np.array(["no", "yes", "maybe"])[np.clip((score * classes).astype(int), 0, classes - 1)]


@cache
def table_model(seed: int = 0, *, trees: bool = False) -> Flow:
    """Imputer, scaler and one-hot encoder, and a linear model or trees."""
    frame = people()[["age", "income", "city"]]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
        (OneHotEncoder(), ["city"]),
    )
    last = (
        GradientBoostingClassifier(n_estimators=12, random_state=seed)
        if trees
        else LogisticRegression(C=1.0 + seed)
    )
    fitted = make_pipeline(columns, last).fit(frame, labels(len(frame), seed))
    return flour.from_sklearn(fitted, sample=frame)


@cache
def text_model(seed: int = 0, without: int = 0) -> Flow:
    """Texts to tf-idf, of one vocabulary if all have the same words, and a linear model."""
    notes = people()["note"]
    texts = TfidfVectorizer(vocabulary=WORDS[without:]).fit(notes)
    fitted = LogisticRegression(C=1.0 + seed).fit(texts.transform(notes), labels(200, seed))
    return flour.from_sklearn(make_pipeline(texts, fitted), sample=notes)


@cache
def forest(seed: int = 0, classes: int = 2) -> Flow:
    """A forest over two columns."""
    rows = people()[["income"]].to_numpy()
    model = RandomForestClassifier(n_estimators=8, max_depth=4, random_state=seed)
    return flour.from_sklearn(model.fit(np.hstack([rows, rows**2]), labels(200, seed, classes)))


def row() -> Flow:
    """The input of graphs over `people`."""
    return flour.record(age=float, income=float, city=str, note=flour.text)


def columns(frame: pd.DataFrame) -> dict[str, Any]:
    """The same rows as columns by name."""
    return {name: frame[name].to_numpy() for name in frame}
