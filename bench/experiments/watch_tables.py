"""Does watching find faults in tables of others?

    python -m bench watch-tables FOLDER

Any CSV files of a folder that have a column named in TARGETS. A model is trained on a half of the
rows, and the other half comes in windows, as they are and with faults of one column. Draws
docs/charts/watch-*.svg of what it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.experiments.watch_causes import fault, traced
from bench.goal import Goal
from bench.report.svg import Axis, Series, alone, chart

QUESTION = "watching real tables: faults of one column, traced to it"
CHARTS = Path(__file__).parents[2] / "docs" / "charts"
#: What is predicted, and the column and the fault that charts show.
TARGETS = {
    "income": ("hours_per_week", "units"),
    "Churn": ("MonthlyCharges", "shift"),
    "median_house_value": ("median_income", "scale"),
}
#: Windows of a stream, the one from which the fault is there, and rows drawn for each.
_WINDOWS, _FROM, _ROWS = 20, 10, 1000
#: From here on, PSI is said to tell another population.
_ALARM = 0.25
#: Columns whose words are mostly different names rows and says nothing.
_NAMES = 0.5


class Watched(NamedTuple):
    """A model of a table, with rows that it was trained on and others."""

    name: str
    target: str
    plan: Any
    reference: Any
    later: Any


def measured(folder: Path, charts: Path = CHARTS) -> Iterator[Goal]:
    """Every goal, with what was measured."""
    for name, frame, target in tables(folder):
        watched = _trained(name, frame, target)
        later = _columns(watched.later.head(2 * _ROWS))
        right, tried = traced(watched.plan, _columns(watched.reference), later)
        yield Goal(
            f"{name}: % of {tried} faults of one column traced to it", 100 * right / tried, 90
        )
        found = _drifts(watched, _windows(watched))
        yield Goal(
            f"{name}: % of clean windows where a column has PSI > {_ALARM}",
            100 * sum(max(each.values()) > _ALARM for each in found) / len(found),
            5,
            at_most=True,
        )
        drawn = alone(_stream(watched))
        (charts / f"watch-{name}.svg").write_text(drawn, encoding="utf-8")


def tables(folder: Path) -> Iterator[tuple[str, Any, str]]:
    """The tables of a folder, with what is to be predicted."""
    import pandas as pd

    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path)
        for target in TARGETS.keys() & {*frame.columns}:
            yield path.stem, frame.dropna(subset=[target]), target


def _trained(name: str, frame: Any, target: str) -> Watched:
    """Boosted trees over the columns, of a random half of the rows."""
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    import flour
    import oven

    frame = frame.sample(frac=1.0, random_state=0).reset_index(drop=True)
    answers, rows = frame[target], frame.drop(columns=target)
    is_words = {column: not pd.api.types.is_numeric_dtype(rows[column]) for column in rows}
    names = [n for n in rows if is_words[n] and rows[n].nunique() > _NAMES * len(rows)]
    rows = rows.drop(columns=names)
    words = [column for column in rows if is_words[column]]
    numbers = [column for column in rows if not is_words[column]]
    rows[words] = rows[words].fillna("").astype(object)
    rows[numbers] = rows[numbers].astype(float)
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((SimpleImputer(), numbers), (encode, words))
    is_number = pd.api.types.is_float_dtype(answers)
    trees = HistGradientBoostingRegressor if is_number else HistGradientBoostingClassifier
    half = len(rows) // 2
    model = make_pipeline(columns, trees(max_iter=100)).fit(rows[:half], answers[:half])
    plan = oven.bake(flour.from_sklearn(model, sample=rows[:half])).wait()
    return Watched(name, target, plan, rows[:half], rows[half:])


def _columns(rows: Any) -> dict[str, Any]:
    return {str(name): rows[name].to_numpy() for name in rows}


def _windows(
    watched: Watched, broken: str | None = None, kind: str = ""
) -> Iterator[dict[str, Any]]:
    """Rows drawn from the later ones; from a window on, with a fault in a column."""
    for number in range(_WINDOWS):
        rng = np.random.default_rng(number)
        window = _columns(watched.later.iloc[rng.integers(0, len(watched.later), _ROWS)])
        if broken and number >= _FROM:
            window[broken] = fault(kind, window[broken], rng)
        yield window


def _drifts(watched: Watched, windows: Iterator[dict[str, Any]]) -> list[dict[str, float]]:
    """The PSI of each column in each window, as a watch of an endpoint has it."""
    from runtime import Runtime

    found = []
    with Runtime() as runtime:
        runtime.register(watched.name, watched.plan)
        with runtime.watch(watched.name, reference=watched.reference) as seen:
            for window in windows:
                runtime.predict(watched.name, window, engine="inline")
                seen.fold()
                found.append({each.column: each.psi for each in seen.drift()})
                seen.restart()
    return found


def _stream(watched: Watched) -> str:
    """The columns that drift most, in a stream with a fault in one of them."""
    column, kind = TARGETS[watched.target]
    found = _drifts(watched, _windows(watched, column, kind))
    most = sorted(found[0], key=lambda name: -max(each[name] for each in found))[:4]
    first = [column, *(name for name in most if name != column)][:4]
    lines = [Series(name, [(n, each[name]) for n, each in enumerate(found)]) for name in first]
    title = f"{watched.name}: {kind} of {column} from window {_FROM} on"
    return chart(title, lines, Axis(f"window of {_ROWS:,} rows"), Axis("PSI"))
