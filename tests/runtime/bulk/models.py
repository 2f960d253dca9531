"""Models with rows that have holes, unseen values, and every type of column that may arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
import oven
from flour.core.types import Scalar, Tokens
from oven import Plan

ROWS = 5000
CITIES = ["Oslo", "Rome", "Graz", "a city of a long name", "Łódź"]


class Case(NamedTuple):
    """A plan and rows for it."""

    name: str
    make: Callable[[], tuple[Plan, pa.Table]]


def mixed() -> tuple[Plan, pa.Table]:
    """Return a classifier over numbers with holes, whole numbers, bools and categories."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(40, 9, ROWS)),
            "rooms": rng.integers(1, 6, ROWS),
            "city": rng.choice(CITIES, ROWS).astype(object),
            "new": rng.random(ROWS) < 0.5,
        }
    )
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "rooms", "new"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["city"]),
    )
    labels = np.where(frame["rooms"] > 2, "yes", np.where(frame["new"], "no", "perhaps"))
    trees = HistGradientBoostingClassifier(max_iter=5)
    plan = oven.bake(
        flour.from_sklearn(make_pipeline(columns, trees).fit(frame, labels), sample=frame)
    )
    frame.loc[::11, "city"] = "never seen"
    cities = [None if at % 13 == 0 else city for at, city in enumerate(frame["city"])]
    table = pa.table(
        {
            "age": pa.array(frame["age"], from_pandas=True),
            "rooms": frame["rooms"].to_numpy(),
            "city": pa.array(cities, pa.string()),
            "new": frame["new"].to_numpy(),
        }
    )
    return plan.wait(), table


def numbers() -> tuple[Plan, pa.Table]:
    """Return a regression over numbers side by side."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, 6))
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(x, x[:, 0] - 2 * x[:, 1])
    plan = oven.bake(flour.from_sklearn(model, sample=x))
    return plan.wait(), pa.table({f"c{at}": x[:, at] for at in range(6)})


def texts() -> tuple[Plan, pa.Table]:
    """Return a classifier over one document a row."""
    rng = np.random.default_rng(3)
    words = np.array(["good", "bad", "soup", "awful", "über", "naïve", "", "a-much-longer-word"])
    rows = [" ".join(rng.choice(words, rng.integers(0, 12))) for _ in range(ROWS)]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model.fit(rows, ["good" in row for row in rows])
    plan = oven.bake(flour.from_sklearn(model, sample=rows))
    (name,) = plan.inputs
    return plan.wait(), pa.table({name: pa.array(rows, pa.string())})


def widths() -> tuple[Plan, pa.Table]:
    """Return a regression over numbers of every width, with holes, and strings of two kinds."""
    rng = np.random.default_rng(4)
    whole = {f"int{bits}": rng.integers(-100, 100, ROWS) for bits in (8, 16, 32, 64)}
    whole |= {f"uint{bits}": rng.integers(0, 100, ROWS) for bits in (8, 16, 32)}
    parts = {f"float{bits}": rng.normal(size=ROWS).astype(np.float32) for bits in (32, 64)}
    words = {name: rng.choice(CITIES, ROWS).astype(object) for name in ("string", "large_string")}
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = make_column_transformer(
        (numbers, [*whole, *parts]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), [*words]),
    )
    frame = pd.DataFrame({**whole, **parts, **words}).astype(dict.fromkeys([*whole, *parts], float))
    y = frame["int8"] * frame["float64"]
    model = make_pipeline(columns, HistGradientBoostingRegressor(max_iter=5)).fit(frame, y)
    plan = oven.bake(flour.from_sklearn(model, sample=frame))
    holes = rng.random(ROWS) < 0.1
    arrays = {
        name: pa.array(np.asarray(frame[name], object), getattr(pa, name)(), mask=holes)
        for name in frame.columns
    }
    return plan.wait(), pa.table(arrays)


def lists() -> tuple[Plan, pa.Table]:
    """Return a program over lists of words, and numbers beside them."""
    rng = np.random.default_rng(5)
    fields = flour.record("r", {"words": Tokens(), "n": Scalar("int64")})
    counts = fields["words"].hashing(6).to_dense()
    plan = oven.bake(flour.outputs(counts=counts, number=fields["n"]))
    words = [rng.choice(CITIES, rng.integers(0, 5)).tolist() for _ in range(ROWS)]
    columns = {"words": pa.array(words, pa.list_(pa.string())), "n": rng.integers(0, 9, ROWS)}
    return plan.wait(), pa.table(columns)


MODELS = [
    Case("mixed", mixed),
    Case("widths", widths),
    Case("numbers", numbers),
    Case("texts", texts),
    Case("lists", lists),
]
