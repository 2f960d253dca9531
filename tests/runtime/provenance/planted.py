"""Values to plant in private columns, in training and in requests, and a search for them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

PRIVATE = ("ssn", "note", "phone", "income", "born", "born_at", "split")
#: By kind, what tells a value: texts, and numbers also as the four digits that pages show.
TRAINED: Mapping[str, tuple[str, ...]] = {
    "category": ("mk7cat",),
    "word": ("mk7word",),
    "mean": ("7654321", "7.654e+06"),
    "bins": ("8675309", "8.675e+06"),
    "date": ("2017-03-19",),
    "fill": ("6263646", "6.264e+06"),
    "threshold": ("5432198", "5.432e+06"),
    "neighbour": ("9182736", "9.183e+06"),
}
ASKED = ("rq9val", "4455667788")
#: A number of requests, as bytes of arrays have it.
NUMBER = 4455667788.5


def frame(rows: int = 12) -> pd.DataFrame:
    """Rows of the training, with planted values in private columns."""
    at = np.arange(rows)
    return pd.DataFrame({
        "ssn": np.where(at % 2, "mk7cat-a", "mk7cat-b"),
        "note": np.where(at % 2, "mk7worda mk7wordb", "mk7wordb"),
        "phone": np.full(rows, 7654321.25),
        "income": np.where(at % 2, 8675309.5, 8675309.25),
        "born": np.where(at % 2, "2017-03-19", "2017-03-19T1"),
        "born_at": np.where(at % 3 == 0, np.nan, 6263646.5),
        "split": np.where(at % 2, 5432198.75, 5432198.25),
        "city": np.where(at % 2, "Oslo", "Rome"),
        "amount": np.where(at % 2, 3.0, 5.0),
    })  # fmt: skip


def pipeline(shift: float = 0.0) -> Any:
    """A linear model whose first steps each have learnt one kind of value."""
    bins = KBinsDiscretizer(2, encode="ordinal", quantile_method="averaged_inverted_cdf")
    steps = [
        ("ssn", OneHotEncoder(), ["ssn"]),
        ("note", CountVectorizer(), "note"),
        ("phone", StandardScaler(), ["phone"]),
        ("income", bins, ["income"]),
        ("born", OrdinalEncoder(), ["born"]),
        ("born_at", SimpleImputer(), ["born_at"]),
        ("split", StandardScaler(), ["split"]),
        ("city", OneHotEncoder(), ["city"]),
        ("amount", StandardScaler(), ["amount"]),
    ]
    rows = frame().assign(born_at=6263646.5 + shift, phone=7654321.25 + shift)
    return make_pipeline(ColumnTransformer(steps), LogisticRegression()).fit(
        rows, np.arange(len(rows)) % 2
    )


def tree() -> Any:
    """A tree that splits a private column."""
    rows = frame()[["split", "amount"]].assign(amount=1.0)
    return DecisionTreeClassifier().fit(rows, np.arange(len(rows)) % 2)


def neighbours() -> Any:
    """A model that holds two rows of the training."""
    rows = pd.DataFrame({"phone": [9182736.5, 9182736.25], "amount": [1.0, 2.0]})
    return KNeighborsClassifier(1).fit(rows, [0, 1])


def asked(number: int) -> dict[str, Any]:
    """A row of a request with planted values, wrong in one of several ways or right."""
    value = f"rq9val-{number}"
    row: dict[str, Any] = frame(1).iloc[0].to_dict()
    row |= {"born_at": None, "phone": NUMBER}
    row["note"] = f"mk7worda {value}"
    changes: list[dict[str, Any]] = [
        {},
        {"phone": value},
        {"ssn": value},  # never seen in training
        {"ssn": [value]},
        {"ssn": {"a": value}},
        {"income": NUMBER, "amount": value},
        {"born": NUMBER},
        {"note": NUMBER},
        {value: 1.0},
        {"city": [value]},
        {"split": float("inf")},
        {"phone": float("nan")},
    ]
    row |= changes[number % len(changes)]
    if number % 13 == 7:
        del row["amount"]
    return row


def found(texts: Iterable[tuple[str, bytes]], wanted: Iterable[str]) -> dict[str, list[str]]:
    """The planted values that stand in these texts, in any spelling, with the places."""
    spelt = {value: spellings(value) for value in wanted}
    told: dict[str, list[str]] = {}
    for where, text in texts:
        for value, forms in spelt.items():
            if any(form in text for form in forms):
                told.setdefault(value, []).append(where)
    return told


def spellings(value: str) -> set[bytes]:
    """A value as texts and files may spell it."""
    plain = value.encode()
    forms = {plain, plain.hex().encode(), value.encode("utf-16-le")}
    if value == "4455667788":
        forms |= {struct.pack("<d", NUMBER), b"4.456e+09", b"4.455667788"}
    for before in range(3):  # base64 depends on where a value begins
        packed = base64.b64encode(bytes(before) + plain).decode()
        inner = packed[(before * 8 + 5) // 6 : (before + len(plain)) * 8 // 6]
        forms |= {inner.encode()} if len(inner) > 6 else set()
    return forms
