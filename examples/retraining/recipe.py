"""Labelled rows of a table: two candidates, and their mean where that is better."""

from pathlib import Path

import pandas as pd

from pretzel.training import candidate, gate, step


@step
def rows(data: Path = Path("labelled.csv"), held_out: float = 0.25) -> dict[str, object]:
    table = pd.read_csv(data).sample(frac=1.0, random_state=0)
    answers, table = table["answer"].to_numpy(object), table.drop(columns="answer")
    cut = int(len(table) * held_out)
    return {
        "test": table[:cut],
        "truth": answers[:cut],
        "table": table[cut:],
        "answers": answers[cut:],
    }


@step
def sample(rows):
    return rows["table"]


def fitted(rows, model):
    """The pipeline over numbers and words, fitted."""
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = rows["table"]
    numbers = [*table.select_dtypes("number")]
    words = [name for name in table if name not in numbers]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((StandardScaler(), numbers), (encoder, words))
    return make_pipeline(columns, model).fit(table, rows["answers"])


@candidate(sample="sample")
def linear(rows, C: float = 1.0):
    from sklearn.linear_model import LogisticRegression

    return fitted(rows, LogisticRegression(C=C, max_iter=500))


@candidate(sample="sample")
def trees(rows, number: int = 60):
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=number, max_leaf_nodes=8, random_state=0)
    return fitted(rows, model)


@gate(at_least=0.7)
def accuracy(model, rows) -> float:
    return model.score(rows["test"], rows["truth"])
