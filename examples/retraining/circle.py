"""Detect, retrain, compare, roll out: an endpoint that is kept fresh under traffic.

    python examples/retraining/circle.py adult|telco [FOLDER]

Rows of a table are asked for all the time. After a while some columns come in another unit. The
watch sees it, the recipe beside this file is trained with the last labelled rows, and the new
version gets the requests step by step. The table is the folder's adult.csv or telco_churn.csv, or
else one of these columns that is made up.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import pretzel
from pretzel.training import Publisher, Recipe, Retraining, TrainingCache, train

RECIPE = Path(__file__).with_name("recipe.py")
SECONDS = 300.0


class Table(NamedTuple):
    """A file and its target, the greatest number or the words of columns, and other units."""

    file: str
    target: str
    columns: Mapping[str, float | tuple[str, ...]]
    units: Mapping[str, float]

    def read(self, folder: Path | None) -> pd.DataFrame:
        """The rows, of which the target is called answer."""
        numbers = {name: float for name, most in self.columns.items() if isinstance(most, float)}
        if folder is not None and (folder / self.file).is_file():
            known = pd.read_csv(folder / self.file)[[*self.columns, self.target]].dropna()
            known = known.rename(columns={self.target: "answer"}).astype(numbers)
            return known.sample(frac=1.0, random_state=0)
        rng, made = np.random.default_rng(0), dict[str, Any]()
        for name, most in self.columns.items():
            made[name] = most * rng.random(6000) if name in numbers else rng.choice(most, 6000)
        score = sum(made[name] / self.columns[name] for name in numbers)
        return pd.DataFrame({**made, "answer": np.where(score > len(numbers) / 2, "yes", "no")})


_ROLES = ("Husband", "Not-in-family", "Own-child", "Unmarried", "Wife")
_TERMS = ("Month-to-month", "One year", "Two year")
TABLES = {
    "adult": Table(
        *("adult.csv", "income"),
        {"age": 90.0, "education_num": 16.0, "hours_per_week": 99.0, "relationship": _ROLES},
        {"age": 12.0, "hours_per_week": 60.0},  # months, and minutes
    ),
    "telco": Table(
        *("telco_churn.csv", "Churn"),
        {"tenure": 72.0, "MonthlyCharges": 119.0, "TotalCharges": 8700.0, "Contract": _TERMS},
        {"tenure": 1 / 12, "TotalCharges": 1e-3},  # years, and thousands
    ),
}


class Traffic:
    """Requests for rows, with their labels as they become known."""

    def __init__(self, runtime: pretzel.Runtime, table: Table, folder: Path | None) -> None:
        frame, self.runtime, self.ended = table.read(folder), runtime, threading.Event()
        self.is_other, self.asked, self.failed = False, 0, 0
        other = frame.assign(**{name: frame[name] * by for name, by in table.units.items()})
        self.rows = [each.to_dict("records") for each in (frame, other)]
        self.labelled: deque[dict[str, Any]] = deque(self.rows[0][:2000], maxlen=2000)
        self.right: deque[bool] = deque(maxlen=1000)

    def ask(self) -> None:
        rng = np.random.default_rng(0)
        while not self.ended.wait(0.0005):
            row = self.rows[self.is_other][rng.integers(len(self.rows[0]))]
            asked = {name: value for name, value in row.items() if name != "answer"}
            try:
                headers = {"x-user": str(rng.integers(10_000))}
                answer: Any = self.runtime.predict("m", asked, headers=headers)
                self.right.append(answer["label"] == row["answer"])
            except Exception:  # noqa: BLE001 (this is what is counted)
                self.failed += 1
            self.labelled.append(row)
            self.asked += 1

    def accuracy(self, least: int = 1000) -> float:
        """The accuracy of the next requests."""
        self.right.clear()
        wait_for(lambda: len(self.right) >= least)
        return float(np.mean([*self.right]))


def wait_for(true: Any) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the circle takes too long")
        time.sleep(0.01)


def run(folder: Path, name: str, tables: Path | None = None, tell: Any = print) -> Any:
    """Figures of one round, with files in a folder."""
    terms = {"steps": (20, 50, 100), "dwell": 0.5, "header": "x-user", "least": 50}
    terms["require"] = ("errors < 1 %",)
    with pretzel.Runtime() as runtime:
        traffic, publisher = Traffic(runtime, TABLES[name], tables), Publisher("m", runtime, terms)

        def retrain(why: str) -> Any:
            tell(why)
            since = traffic.asked
            wait_for(lambda: not since or traffic.asked >= since + 1500)  # labels of what is new
            data = folder / "labelled.csv"
            pd.DataFrame([*traffic.labelled]).to_csv(data, index=False)
            with TrainingCache(folder / "cache") as cache:
                recipe = Recipe.read(RECIPE, {"data": str(data)})
                return train(recipe, cache, publisher, on_progress=tell)

        retrain("the first training")
        asking = threading.Thread(target=traffic.ask, daemon=True)
        asking.start()
        watch = lambda: runtime.watch("m", drift=True, window=1000)  # noqa: E731
        with Retraining(retrain, publisher, watch=watch) as retraining:
            before = traffic.accuracy()
            traffic.is_other = True
            during = traffic.accuracy(200)
            wait_for(lambda: retraining.outcomes)
            wait_for(lambda: runtime.rollout("m").state in {"done", "aborted"})
            after = traffic.accuracy()
            reason = retraining.outcomes[0][0]
        traffic.ended.set()
        asking.join(SECONDS)
        rollout, asked, failed = runtime.rollout("m").state, traffic.asked, traffic.failed
    found = {"rollout": rollout, "reason": reason, "asked": asked, "failed": failed}
    return SimpleNamespace(before=before, during=during, after=after, **found)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        ended = run(Path(place), sys.argv[1], *map(Path, sys.argv[2:]))
    print(f"accuracy before {ended.before:.3f}, during {ended.during:.3f}, after {ended.after:.3f}")
    print(f"rollout {ended.rollout}; {ended.failed} of {ended.asked} requests failed")
    sys.exit(ended.failed > 0 or ended.rollout != "done")
