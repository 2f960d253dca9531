"""`pretzel parity`: which models have parity models, and what a trained one is worth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import flour
import oven
from runtime.cluster.parity import ParityCode
from runtime.cluster.parity.training import encoded
from tests.runtime.cli.conftest import Pretzel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("parity")
    rows, labels = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[labels]
    texts = ["a cat", "the dog", "a dog", "the cat"] * 10
    models = {
        "forest": RandomForestClassifier(20, random_state=0).fit(rows, names),
        "linear": LogisticRegression(max_iter=500).fit(rows, names),
        "text": make_pipeline(TfidfVectorizer(), RandomForestClassifier(3)).fit(texts, texts),
    }
    for name, model in models.items():
        oven.bake(flour.from_sklearn(model)).save(place / f"{name}.pretzel")
    frame = pd.DataFrame(rows, columns=["a", "b", "c", "d"]).assign(species=names)
    frame.to_csv(place / "rows.csv", index=False)
    frame[["a", "b", "c", "d"]].to_csv(place / "bare.csv", index=False)
    return place


@pytest.mark.parametrize(
    ("name", "verdict"), [("forest", "approximate"), ("linear", "exact"), ("text", "replicate")]
)
def test_a_model_is_checked(pretzel: Pretzel, folder: Path, name: str, verdict: str) -> None:
    ran = pretzel("parity", "check", str(folder / f"{name}.pretzel"), "--json")
    assert ran.code == 0
    assert ran.data["verdict"] == verdict


@pytest.mark.parametrize("encoder", ["concatenation", "sum"])
def test_what_is_trained_reconstructs(
    pretzel: Pretzel, folder: Path, tmp_path: Path, encoder: str
) -> None:
    into = tmp_path / "parity.pretzel"
    given = ("--labels", "species", "--encoder", encoder, "--into", str(into), "--json")
    model, rows = str(folder / "forest.pretzel"), str(folder / "rows.csv")
    ran = pretzel("parity", "train", model, rows, *given)
    assert ran.code == 0, ran.err
    told = ran.data
    assert told["accuracy"] > 0.9
    assert told["accuracy"] >= told["degraded"] > told["default"] > 0.2
    deployed, parity = oven.load(model), oven.load(into)
    assert parity.training() == {"parity_of": deployed.digest}
    queries = load_iris().data[[3, 77]]
    answers = np.asarray(deployed.run(queries)["probabilities"])
    code = ParityCode(2, encoder=encoder)  # type: ignore[arg-type] # one of two
    asked = code.encode(queries[:, None])[0]
    assert np.array_equal(asked, encoded(queries[None], encoder))  # type: ignore[arg-type] # as above
    told_together = np.asarray(next(iter(parity.run(asked).values())))
    assert (told_together - answers[1]).argmax() == answers[0].argmax()


def test_without_labels_its_own_answers_are_right(
    pretzel: Pretzel, folder: Path, tmp_path: Path
) -> None:
    model, rows = str(folder / "forest.pretzel"), str(folder / "bare.csv")
    ran = pretzel("parity", "train", model, rows, "--into", str(tmp_path / "p.pretzel"), "--json")
    assert ran.code == 0, ran.err
    assert ran.data["accuracy"] == 1.0


def test_what_cannot_be_trained_is_told(pretzel: Pretzel, folder: Path, tmp_path: Path) -> None:
    rows, into = str(folder / "rows.csv"), str(tmp_path / "p.pretzel")
    for name, more, said in (
        ("linear", ("--into", into), "exact"),
        ("text", ("--into", into), "replicate"),
        ("forest", (), "--into FILE"),
        ("forest", ("--into", into, "-k", "1"), "two at least"),
        ("forest", ("--into", into, "-k", "900", "--labels", "species"), "too few rows"),
        ("forest", ("--into", str(tmp_path / "no" / "p.pretzel")), "in no directory"),
        ("forest", ("--into", into, "--labels", "nothing"), "nothing"),
    ):
        ran = pretzel("parity", "train", str(folder / f"{name}.pretzel"), rows, *more)
        assert ran.code != 0
        assert said in ran.err
    bare = str(folder / "bare.csv")
    assert (
        "labels are setosa"
        in pretzel(
            *(
                "parity",
                "train",
                str(folder / "forest.pretzel"),
                bare,
                "--into",
                into,
                "--labels",
                "a",
            )
        ).err
    )
    assert not Path(into).exists()
