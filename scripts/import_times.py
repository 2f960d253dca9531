"""The time that `from_sklearn` takes here and at another commit, side by side.

    python scripts/import_times.py COMMIT [ROUNDS]

The commit is checked out to .cache/import-times. Processes of both take turns; the least processor
time of each counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".cache" / "import-times"
CODE = """
import json, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from xgboost import XGBClassifier
import flour

X = np.random.default_rng(0).normal(size=(400, 12))
y, texts = (X[:, 0] > 0).astype(int), [" ".join(map("{:.2f}".format, row)) for row in X]
models = {
    "scaler, logistic": (make_pipeline(StandardScaler(), LogisticRegression()), X),
    "polynomial": (make_pipeline(PolynomialFeatures(), StandardScaler(), LogisticRegression()), X),
    "words": (make_pipeline(TfidfVectorizer(), LogisticRegression()), texts),
    "forest of 200": (RandomForestClassifier(200), X),
    "histograms": (HistGradientBoostingClassifier(), X),
    "XGBoost": (XGBClassifier(n_estimators=100, n_jobs=1), X),
}
best = {}
for name, (model, rows) in models.items():
    flour.from_sklearn(model.fit(rows, y))
    best[name] = 1e9
    for _ in range(60):
        begin = time.process_time()
        flour.from_sklearn(model)
        best[name] = min(best[name], time.process_time() - begin)
print(json.dumps(best))
"""


def measured(place: Path) -> dict[str, float]:
    """The seconds of each model, by the code in a checkout."""
    own = {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(
        command, cwd=place, env={**os.environ, **own}, capture_output=True, check=True, timeout=600
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the least of both, and their ratio."""
    commit, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    if not PLACE.exists():
        subprocess.run(
            ["git", "worktree", "add", "--detach", str(PLACE), commit], cwd=ROOT, check=True
        )
    both = [(measured(PLACE), measured(ROOT)) for _ in range(rounds)]
    for name in both[0][0]:
        then, now = (min(pair[side][name] for pair in both) * 1e3 for side in (0, 1))
        print(f"{name:20} {then:8.3f} ms  {now:8.3f} ms  x {now / then:.2f}")


if __name__ == "__main__":
    main()
