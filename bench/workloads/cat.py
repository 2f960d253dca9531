"""CAT: oblivious trees as CatBoost trains them: 100 trees of depth 6 over 30 columns.

They are trained by CatBoost in its environment, and kept as the content of its file. Not part of a
usual run, as scikit-learn has nothing of the kind; `bench everywhere` asks for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench import environments
from bench.inputs import NUMBERS, Inputs
from bench.machine import ROOT
from bench.workload import CHECKED, Made, Spec
from bench.workloads.ac import numbers

WIDTH, DEPTH, ENVIRONMENT = 30, 6, "catboost"


@dataclass(frozen=True)
class Trained:
    """A model of CatBoost's: the content of its file, and its answers for the first rows."""

    cbm: bytes
    answers: Any

    def predict_proba(self, _: object) -> Any:
        """The library's answers for the first rows."""
        return np.column_stack([1 - self.answers, self.answers])


def make(spec: Spec) -> Made:
    """Binary classifiers, one shape, their own trees."""
    rows = numbers(spec.seed, 1000, WIDTH)
    return Made(Inputs(NUMBERS, rows), _pipelines(spec), {"answers": "probability", "width": WIDTH})


def _pipelines(spec: Spec) -> Iterator[Any]:
    from bench.crew import Absent, environment

    python = environments.python(ENVIRONMENT)
    if python is None:
        raise Absent(environments.reason(ENVIRONMENT))
    trees = max(10, int(100 * spec.scale))
    for number in range(spec.count):
        with TemporaryDirectory(prefix="pretzel-bench-") as folder:
            file = Path(folder, "cbm")
            asked = [str(each) for each in (file, spec.seed, number, trees)]
            done = subprocess.run(
                [str(python), "-m", __name__, *asked],
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
                cwd=ROOT,
                env=environment(1, {}),
            )
            if done.returncode:
                raise Absent(f"CatBoost did not train: {done.stderr.strip()[-200:]}")
            yield Trained(file.read_bytes(), np.array(json.loads(done.stdout)))


def main() -> None:
    """Train one model in this process, write its file, and print its answers."""
    from catboost import CatBoostClassifier

    file, *told = sys.argv[1:]
    first, number, trees = map(int, told)
    seed = first * 10_007 + number
    rows = numbers(seed + 1, 3000, WIDTH)
    one, two, three = np.random.default_rng(seed).permutation(WIDTH)[:3]
    risk = rows[:, one] * rows[:, two] + np.sin(3 * rows[:, three])
    model = CatBoostClassifier(
        iterations=trees,
        depth=DEPTH,
        thread_count=1,
        random_seed=seed,
        verbose=False,
        allow_writing_files=False,
    ).fit(rows, (risk > 0).astype(int))
    model.save_model(file)
    print(json.dumps(model.predict_proba(numbers(first, 1000, WIDTH)[:CHECKED])[:, 1].tolist()))


if __name__ == "__main__":
    main()
