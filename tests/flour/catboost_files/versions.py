"""Train models with the CatBoost that is there, of any version: for Python 3.6 and later.

    for each version, with a Python of its time:
    python -m venv V; V/bin/pip install catboost==VERSION; V/bin/python versions.py FOLDER
    and then, with any Python: python versions.py versions.tar.xz FOLDER FOLDER ...

Each folder has models in every format that the version writes, and answers.json.
"""

import json
import pickle
import sys
import tarfile
from pathlib import Path
from typing import Any, Dict, List, Tuple  # noqa: UP035 (Python 3.6)

SETTINGS = {
    "iterations": 5,
    "depth": 3,
    "verbose": 0,
    "allow_writing_files": False,
    "random_seed": 1,
}


def train(folder: Path) -> None:
    """Train the models, and write them with their answers."""
    import catboost
    import numpy as np
    import pandas as pd

    rng = np.random.RandomState(0)

    def table(count: int, words: List[str]) -> Any:  # noqa: UP006 (Python 3.6)
        made = pd.DataFrame(
            {
                "size": rng.normal(size=count).astype(np.float32),
                "word": rng.choice(words, count),
                "place": rng.randint(-3, 9 + len(words), count),
                "gaps": rng.normal(size=count).astype(np.float32),
                "letter": rng.choice(list("pqr"), count),
            }
        )
        return made.assign(gaps=made["gaps"].where(rng.rand(count) > 0.1))

    words = ["", "a", "n\xe9", "more than sixteen bytes"]
    trained, rows = table(300, words), table(40, [*words, "new"])
    numbers = ["size", "gaps"]
    height = (trained["size"] + trained["word"].str.len() % 3 + trained["place"] % 3).values
    three = np.digitize(height, [1, 2])
    deep = {"iterations": 12, "depth": 5, "max_ctr_complexity": 3}
    several = {"loss_function": "MultiClass"}
    models: Dict[str, Tuple[str, Dict[str, Any], Any, bool]] = {  # noqa: UP006 (Python 3.6)
        "numbers": ("Regressor", {"nan_mode": "Max"}, height, False),
        "poisson": ("Regressor", {"loss_function": "Poisson"}, abs(height), False),
        "two": ("Classifier", {}, (three > 0).astype(int), False),
        "words": ("Classifier", {}, np.array(["no", "yes"])[(three > 0).astype(int)], False),
        "three": ("Classifier", several, three + 3, False),
        "names": ("Classifier", several, np.array(["a", "b", "c"])[three], True),
        "one_vs_all": ("Classifier", {"loss_function": "MultiClassOneVsAll"}, three, False),
        "counted": ("Regressor", {}, height, True),
        "combined": ("Classifier", deep, (three > 0).astype(int), True),
        "exact": ("Regressor", {"one_hot_max_size": 50}, height, True),
        "grown": ("Regressor", {"grow_policy": "Lossguide"}, height, True),
    }
    folder.mkdir()
    kept: Dict[str, Any] = {"rows": rows.to_dict("list"), "answers": {}}  # noqa: UP006 (Python 3.6)
    for name, (kind, settings, target, categories) in sorted(models.items()):
        model = getattr(catboost, "CatBoost" + kind)(**dict(SETTINGS, **settings))
        columns = list(trained) if categories else numbers
        try:
            model.fit(trained[columns], target, cat_features=[1, 2, 4] if categories else None)
        except catboost.CatboostError as problem:  # this version does not have it
            sys.stderr.write(f"{catboost.__version__} {name}: {problem}\n")
            continue
        given = rows[columns]
        answers = {"value": model.predict(given)}
        if kind == "Classifier":
            answers = {
                "label": np.ravel(model.predict(given)),
                "probabilities": model.predict_proba(given),
            }
        kept["answers"][name] = {key: value.tolist() for key, value in answers.items()}
        model.save_model(str(folder / (name + ".cbm")))
        model.save_model(str(folder / (name + ".json")), format="json")
        (folder / (name + ".pkl")).write_bytes(pickle.dumps(model, 2))
    (folder / "answers.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        train(Path(sys.argv[1]))
    else:
        with tarfile.open(sys.argv[1], "w:xz", preset=9) as archive:
            for folder in sys.argv[2:]:
                archive.add(folder, Path(folder).name)
