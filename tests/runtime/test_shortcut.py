"""A cheap part of a model answers where it is sure, and the whole model everywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline, make_union

import flour
import pretzel
from flour.core.errors import ParameterError
from runtime import Runtime, shortcut
from runtime.shortcut import Shortcut

LOSS = 0.01


@pytest.fixture(autouse=True)
def fast_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every cascade be worth it: times are not what these tests are about."""
    monkeypatch.setattr(shortcut, "_speedup", lambda *_: 2.0)
    monkeypatch.setattr(shortcut._Judge, "_seconds", lambda _, plan: float(len(plan.flow.nodes())))


def numbers(count: int, classes: int = 2, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 6))
    score = 2 * x[:, 0] + x[:, 1] * x[:, 2]
    return x, np.digitize(score, [0.0] if classes == 2 else [-1.0, 1.0])


def answers(found: Shortcut, rows: Any) -> Any:
    with Runtime() as runtime:
        runtime.register("cascade", found.graph, background=False)
        return runtime.predict("cascade", rows)


@pytest.mark.parametrize("classes", [2, 3])
def test_first_trees_answer_where_they_are_sure(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = numbers(9000, classes)
    fitted = GradientBoostingClassifier(n_estimators=32, max_depth=4).fit(x[:2000], y[:2000])
    model = pretzel.compile(fitted).wait()
    monkeypatch.setattr(shortcut, "_TREES", (1 / 4,))
    monkeypatch.setattr(shortcut._CheapModel, "speedup", property(lambda each: 1.0 + each.share))
    found = model.shortcut(x[2000:6000], loss=LOSS)
    assert found.part == f"the first {8 * (classes if classes > 2 else 1)} of " + (
        "96 trees" if classes > 2 else "32 trees"
    )
    made = answers(found, x[6000:])
    first = np.array(list(fitted.staged_predict_proba(x[6000:])))
    cheap = made["exit"] == 1
    assert abs(cheap.mean() - found.share) < 0.05
    assert 0.3 < found.share < 1
    assert np.allclose(made["probabilities"][cheap], first[7][cheap], rtol=1e-12)
    every = model.predict_proba(x[6000:])
    assert np.array_equal(made["probabilities"][~cheap], every[~cheap])
    assert (made["label"] != model.predict(x[6000:])).mean() <= found.loss <= LOSS
    one = answers(found, x[6000])
    assert one["label"] == made["label"][0]
    assert np.array_equal(one["probabilities"], made["probabilities"][0])


def test_a_forest_of_some_trees_is_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = numbers(9000)
    fitted = RandomForestClassifier(24, min_samples_leaf=3, random_state=0).fit(x[:2000], y[:2000])
    monkeypatch.setattr(shortcut, "_TREES", (1 / 4,))
    monkeypatch.setattr(shortcut._CheapModel, "speedup", property(lambda each: 1.0 + each.share))
    found = pretzel.compile(fitted).wait().shortcut(x[2000:6000], loss=0.02)
    made = answers(found, x[6000:])
    few = np.mean([tree.predict_proba(x[6000:]) for tree in fitted.estimators_[:6]], axis=0)
    cheap = made["exit"] == 1
    assert 0 < cheap.mean() < 1
    assert np.allclose(made["probabilities"][cheap], few[cheap], rtol=1e-12)
    assert "the first 6 of 24 trees" in str(found)


def test_some_branches_learn_the_scores_of_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}" for a in "bdfglm" for b in ("ad", "em", "ir", "on", "ut")])
    tone = rng.normal(size=len(words))
    drawn = rng.integers(0, len(words), (6000, 12))
    notes = [" ".join(each) for each in words[drawn]]
    y = np.where(tone[drawn].sum(axis=1) > 0, "yes", "no")
    both = make_union(TfidfVectorizer(), CountVectorizer(analyzer="char", ngram_range=(2, 3)))
    fitted = make_pipeline(both, LogisticRegression(max_iter=500)).fit(notes[:1500], y[:1500])
    model = pretzel.compile(fitted).wait()
    found = model.shortcut(notes[1500:4500], loss=LOSS)
    assert [line[:13] for line in found.tried] == ["branch 1 of 2", "branch 2 of 2"]
    flour.save_graph(found.graph, tmp_path / "notes.graph")
    with Runtime() as runtime:
        runtime.register("again", flour.load_graph(tmp_path / "notes.graph"), background=False)
        made = runtime.predict("again", notes[4500:])
    cheap = made["exit"] == 1
    assert cheap.mean() > 0.2
    assert (made["label"] != model.predict(notes[4500:])).mean() <= LOSS
    every = model.predict_proba(notes[4500:])
    assert np.array_equal(made["probabilities"][~cheap], every[~cheap])


def test_models_without_a_shortcut_are_refused_with_what_was_tried() -> None:
    x, y = numbers(3000)
    trees = pretzel.compile(GradientBoostingClassifier(n_estimators=20).fit(x, y))
    with pytest.raises(ParameterError, match=r"too few rows[\s\S]*\d+ rows, or a larger loss"):
        trees.shortcut(x, loss=1e-4)
    with pytest.raises(ParameterError, match="shares between 0 and 1"):
        trees.shortcut(x, loss=1.0)
    with pytest.raises(ParameterError, match="is for classifiers with probabilities"):
        pretzel.compile(LinearRegression().fit(x, y)).shortcut(x)
    with pytest.raises(ParameterError, match=r"no part of this model[\s\S]*ends in .*Concat"):
        pretzel.compile(LogisticRegression().fit(x, y)).shortcut(x)


def test_a_cascade_that_is_not_faster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "_speedup", lambda *_: 1.1)
    monkeypatch.setattr(shortcut._CheapModel, "speedup", property(lambda _: 2.0))
    x, y = numbers(6000)
    model = pretzel.compile(GradientBoostingClassifier(n_estimators=32).fit(x, y))
    with pytest.raises(ParameterError, match=r"measured: 1.10 times as fast"):
        model.shortcut(x, loss=LOSS)


def test_the_bound_is_clopper_and_pearsons() -> None:
    from scipy.stats import beta

    for wrong, count, doubt in ((0, 3000, 0.05), (3, 5000, 0.01), (40, 900, 0.1), (5, 5, 0.05)):
        expected = beta.ppf(1 - doubt, wrong + 1, count - wrong) if wrong < count else 1.0
        assert shortcut.upper_bound(wrong, count, doubt) == pytest.approx(expected, rel=1e-9)


def test_rows_of_one_probability_exit_together() -> None:
    likely = np.array([0.9, 0.9, 0.8, 0.8, 0.8, 0.7])
    probabilities = np.stack([1 - likely, likely], axis=1)
    differs = np.array([False, False, False, False, True, False])
    bounds = shortcut._thresholds(probabilities, differs, 0.0, 1.0)
    assert bounds.tolist() == [2.0, 0.9]
    assert shortcut._thresholds(probabilities, differs, 0.2, 1.0).tolist() == [2.0, 0.7]
