"""Small pipelines on samples that come with scikit-learn, or that are made up here."""

from __future__ import annotations

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

GOOD = ["great", "lovely", "délicieux", "prächtig", "好吃", "tasty"]
BAD = ["awful", "bland", "affreux", "schlecht", "难吃", "burnt"]
PLAIN = ["the", "pizza", "soup", "was", "and", "very", "service", "again"]


class Sample(NamedTuple):
    """A fitted pipeline and rows to ask it about."""

    name: str
    about: str
    pipeline: Any
    rows: Any


def tumours() -> Sample:
    """Thirty numbers to one of two classes."""
    X, y = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[y]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, names)
    return Sample("tumours", "scaler + logistic regression", pipeline, X)


def wines() -> Sample:
    """A projection and a small network, three classes."""
    X, y = load_wine(return_X_y=True)
    network = MLPClassifier((16,), max_iter=2000, random_state=0)
    pipeline = make_pipeline(StandardScaler(), PCA(6), network).fit(X, y)
    return Sample("wines", "scaler + PCA + network", pipeline, X)


def progress() -> Sample:
    """A regression."""
    X, y = load_diabetes(return_X_y=True)
    return Sample(
        "diabetes", "scaler + ridge", make_pipeline(StandardScaler(), Ridge()).fit(X, y), X
    )


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
    return Sample("orders", "impute, scale, one-hot + logistic regression", pipeline, frame)


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
        "reviews", "tf-idf of words + logistic regression", pipeline.fit(texts, liked), texts
    )


ALL = (tumours, wines, progress, orders, reviews)
