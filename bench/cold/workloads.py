"""The models of new users, each in a folder of its own for the contestants."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROWS, WIDTH = 400, 20


class Workload(NamedTuple):
    """A fitted model (an ONNX model as bytes), the rows to answer, and those to import it by."""

    name: str
    model: Any
    rows: Any
    sample: Any = None

    @property
    def is_text(self) -> bool:
        """Whether its rows are documents."""
        return isinstance(self.rows, list)

    @property
    def is_trees(self) -> bool:
        """Whether compilers of trees take it."""
        return type(self.model).__name__ in {"LGBMClassifier", "RandomForestClassifier"}

    def write(self, folder: Path) -> None:
        """Put it into a folder, as contestants read it."""
        content = pickle.dumps((self.model, self.rows, self.sample))
        (folder / "model.pickle").write_bytes(content)
        if hasattr(self.model, "booster_"):  # in words of its own, for who has no LightGBM
            self.model.booster_.save_model(str(folder / "lightgbm.txt"))
            np.save(folder / "rows.npy", self.rows)


def workloads() -> Iterator[Workload]:
    """Fitted models."""
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
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, target)
    yield Workload("scaler + logistic", linear, one)
    yield Workload("LightGBM 100x31", LGBMClassifier(verbose=-1).fit(rows, target), one)
    forest = RandomForestClassifier(100, max_depth=8, random_state=0).fit(rows, target)
    yield Workload("forest 100x8", forest, one)
    frame = _table(rng)
    columns = make_column_transformer(
        (StandardScaler(), ["age", "income"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city", "plan"]),
    )
    table = make_pipeline(columns, LogisticRegression()).fit(frame, target)
    yield Workload("mixed table", table, frame[:1], frame[:50])
    words = [f"word{number}" for number in range(300)]
    documents = [" ".join(rng.choice(words, 12)) for _ in range(ROWS)]
    text = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(documents, target)
    yield Workload("tf-idf + logistic", text, documents[:1])
    several = make_pipeline(TfidfVectorizer(), TruncatedSVD(8), RandomForestClassifier(30))
    yield Workload("text + svd + forest", several.fit(documents, target), documents[:1])
    narrow = rows.astype(np.float32)
    yield Workload("ONNX: scaler + forest", _onnx(narrow, target), narrow[:1])


def _onnx(rows: Any, target: Any) -> bytes:
    """A model as skl2onnx makes it when it is told nothing."""
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), RandomForestClassifier(50, max_depth=8))
    return bytes(to_onnx(model.fit(rows, target), rows[:1]).SerializeToString())


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
