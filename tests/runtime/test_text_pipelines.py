"""Whole text pipelines through runtime.compile: PRETZEL's own and more, in every script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import ComplementNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
from flour import Flow
from pretzel import compile as compile_model
from runtime import Runtime

SCRIPTS = {
    "ASCII": ["The soup was good, the waiter was not.", "bad, BAD and slow; under_score 42"],
    "Korean": ["이 영화는 정말 재미있어요!", "별로예요... 돈이 아까워요 ㅠㅠ"],
    "Amharic": ["ይህ ፊልም በጣም ጥሩ ነው።", "በጣም መጥፎ ምግብ፡ አልወደድኩትም"],
    "emoji": ["🥨🥨 great 👩‍👩‍👧 🥨", "👎🏽👎🏽 no 🇰🇷"],
    "accents": ["Ça, c'était ÉTRANGE: cafe\u0301", "ΟΔΟΣ İstanbul ǅ ß STRASSE"],
    "empty": ["", "   "],
}
DOCUMENTS = [document for pair in SCRIPTS.values() for document in pair]
#: What no pipeline was trained on.
UNSEEN = ["good 영화 🥨 ጥሩ cafe\u0301", "\x00\u3000\ud7ff", "nothing known", "the the The " * 40]
RATINGS = np.linspace(-1, 2, len(DOCUMENTS))
LABELS = np.where(np.arange(len(DOCUMENTS)) % 2 == 0, "good", "bad")
THREE = np.arange(len(DOCUMENTS)) % 3


def pretzel() -> Any:
    """The paper's: characters by three, words and pairs of them, one model."""
    chars = TfidfVectorizer(analyzer="char", ngram_range=(3, 3))
    both = FeatureUnion([("chars", chars), ("words", TfidfVectorizer(ngram_range=(1, 2)))])
    return make_pipeline(both, LogisticRegression())


def weighted() -> Any:
    """Three extractors of unequal weight."""
    parts = [
        ("words", TfidfVectorizer(sublinear_tf=True)),
        ("edges", CountVectorizer(analyzer="char_wb", ngram_range=(2, 4), binary=True)),
        ("hashes", HashingVectorizer(n_features=64, alternate_sign=False)),
    ]
    return make_pipeline(FeatureUnion(parts, transformer_weights={"edges": 0.25}), Ridge())


PIPELINES: dict[str, tuple[Callable[[], Any], Any]] = {
    "pretzel": (pretzel, LABELS),
    "weighted union": (weighted, RATINGS),
    "counts, bayes": (lambda: make_pipeline(CountVectorizer(), MultinomialNB()), LABELS),
    "pairs, complement": (
        lambda: make_pipeline(CountVectorizer(ngram_range=(1, 2), binary=True), ComplementNB()),
        THREE,
    ),
    "characters in words": (
        lambda: make_pipeline(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5)), Ridge()),
        RATINGS,
    ),
    "hashes": (
        lambda: make_pipeline(HashingVectorizer(n_features=256, ngram_range=(1, 2)), Ridge()),
        RATINGS,
    ),
    "counts weighed later": (
        lambda: make_pipeline(
            CountVectorizer(strip_accents="unicode"), TfidfTransformer(norm="l1"), LinearSVC()
        ),
        THREE,
    ),
    "stop words, pattern": (
        lambda: make_pipeline(
            TfidfVectorizer(stop_words="english", token_pattern=r"[^\W\d_]+(?:'\w+)?"), Ridge()
        ),
        RATINGS,
    ),
    "latent": (
        lambda: make_pipeline(TfidfVectorizer(), TruncatedSVD(3, random_state=0), Ridge()),
        RATINGS,
    ),
    "the best words": (
        lambda: make_pipeline(CountVectorizer(), SelectKBest(chi2, k=9), LinearSVC()),
        LABELS,
    ),
    # All neighbours, at distances that are exact: the library leaves open which of equals it takes.
    "neighbours": (
        lambda: make_pipeline(
            CountVectorizer(), KNeighborsClassifier(len(DOCUMENTS), weights="distance")
        ),
        LABELS,
    ),
    "a tree": (
        lambda: make_pipeline(CountVectorizer(), DecisionTreeClassifier(random_state=0)),
        LABELS,
    ),
    "narrow, every character": (
        lambda: make_pipeline(
            TfidfVectorizer(analyzer="char", lowercase=False, dtype=np.float32), Ridge()
        ),
        RATINGS,
    ),
    "features alone": (lambda: make_pipeline(TfidfVectorizer(use_idf=False, norm=None)), None),
}
METHODS = ("predict", "predict_proba", "decision_function", "transform")
OUTPUTS = {
    "predict": ("label", "value"),
    "predict_proba": ("probabilities",),
    "decision_function": ("scores",),
    "transform": ("features",),
}


def plain(found: Any) -> Any:
    return found.toarray() if sparse.issparse(found) else np.asarray(found)


def same(found: Any, want: Any, *, narrow: bool = False) -> None:
    found, want = plain(found), plain(want)
    if want.dtype.kind in "OUSi":
        np.testing.assert_array_equal(found.reshape(want.shape), want)
    else:
        close = 1e-5 if narrow else 1e-11
        np.testing.assert_allclose(found.reshape(want.shape), want, rtol=close, atol=close)


def answers(model: Any, documents: Any) -> dict[str, Any]:
    """What the library says, by method."""
    return {name: getattr(model, name)(documents) for name in METHODS if hasattr(model, name)}


def served_alike(plan: oven.Plan, want: dict[str, Any], documents: Any, **how: bool) -> None:
    """A runtime answers a block and each of its rows as these methods do."""
    with Runtime(executors=1) as served:
        served.register("texts", plan)
        block = served.predict("texts", documents)
        rows = [served.predict("texts", document) for document in documents]
    for method, values in want.items():
        name = next(name for name in OUTPUTS[method] if name in plan.flow.outputs)
        same(block[name], values, **how)
        for row, value in zip(rows, plain(values), strict=True):
            same(plain(row[name]), value, **how)


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_of_scikit_learn(name: str, tmp_path: Path) -> None:
    """Compiled, saved and loaded, as a block and row by row."""
    make, target = PIPELINES[name]
    model, documents = make().fit(DOCUMENTS, target), [*DOCUMENTS, *UNSEEN]
    narrow = name.startswith("narrow")
    compiled, want = compile_model(model), answers(model, documents)
    assert all(
        stage.native for stage in compiled.plan.program.stages if stage.nodes[0].op.reads_characters
    )
    for method, values in want.items():
        same(getattr(compiled, method)(documents), values, narrow=narrow)
    compiled.plan.save(tmp_path / "plan.pretzel")
    served_alike(oven.load(tmp_path / "plan.pretzel"), want, documents, narrow=narrow)


def test_two_columns_of_texts_and_one_of_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"title": DOCUMENTS, "body": DOCUMENTS[::-1], "stars": np.arange(len(DOCUMENTS)) / 2}
    )
    parts = [
        ("title", TfidfVectorizer(), "title"),
        ("body", CountVectorizer(analyzer="char", ngram_range=(1, 2)), "body"),
        ("stars", StandardScaler(), ["stars"]),
    ]
    model = make_pipeline(ColumnTransformer(parts), Ridge()).fit(frame, RATINGS)
    compiled, want = compile_model(model, sample=frame), model.predict(frame)
    same(compiled.predict(frame), want)
    compiled.plan.save(tmp_path / "plan.pretzel")
    with Runtime(executors=1) as served:
        served.register("texts", oven.load(tmp_path / "plan.pretzel"))
        same(served.predict("texts", frame)["value"], want)
        for place, row in enumerate(frame.to_dict("records")):
            same(served.predict("texts", row)["value"], want[place])


# --- the same programs, written by hand -----------------------------------------------------------


def words(vectorizer: Any) -> list[str]:
    return [str(word) for word in vectorizer.get_feature_names_out()]


def unit(counts: Flow, idf: Any) -> Flow:
    """tf-idf of length one."""
    found = counts * idf
    length = found.square().sum().sqrt().one_if_tiny(0)
    made: Flow = found.over(length)
    return made


def pretzel_by_hand(model: Any) -> Flow:
    (_, chars), (_, both) = model[0].transformer_list
    text = flour.text("X").lower()
    left = unit(text.char_ngrams(words(chars), 3, 3), chars.idf_)
    right = unit(text.tokenize().word_ngrams(words(both), 1, 2), both.idf_)
    head = model[-1]
    classes = head.classes_.tolist()
    return left.concat(right).logistic_classifier(head.coef_, head.intercept_, classes=classes)


def edges_by_hand(model: Any) -> Flow:
    found = model[0]
    low, high = found.ngram_range
    text = flour.text("X").lower()
    counts = text.char_ngrams(words(found), low, high, within_words=True)
    return unit(counts, found.idf_).linear_regressor(model[-1].coef_, model[-1].intercept_)


def pattern_by_hand(model: Any) -> Flow:
    found = model[0]
    dropped = sorted(found.get_stop_words())
    tokens = flour.text("X").lower().tokenize(found.token_pattern).drop_words(dropped)
    counts = tokens.word_ngrams(words(found))
    return unit(counts, found.idf_).linear_regressor(model[-1].coef_, model[-1].intercept_)


def features_by_hand(model: Any) -> Flow:
    counts = flour.text("X").lower().tokenize().word_ngrams(words(model[0]))
    return counts.named("features")


def hashes_by_hand(model: Any) -> Flow:
    tokens = flour.text("X").lower().tokenize().phrases(1, 2)
    found = unit(tokens.hashing(model[0].n_features), 1.0)
    return found.linear_regressor(model[-1].coef_, model[-1].intercept_)


BY_HAND: dict[str, Callable[[Any], Flow]] = {
    "pretzel": pretzel_by_hand,
    "characters in words": edges_by_hand,
    "stop words, pattern": pattern_by_hand,
    "features alone": features_by_hand,
    "hashes": hashes_by_hand,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_pipelines_written_by_hand(name: str, tmp_path: Path) -> None:
    """The same numbers in a program of flour's own words."""
    make, target = PIPELINES[name]
    model, documents = make().fit(DOCUMENTS, target), [*DOCUMENTS, *UNSEEN]
    compiled, want = compile_model(BY_HAND[name](model)), answers(model, documents)
    for method, values in want.items():
        same(getattr(compiled, method)(documents), values)
    compiled.plan.save(tmp_path / "plan.pretzel")
    served_alike(oven.load(tmp_path / "plan.pretzel"), want, documents)
