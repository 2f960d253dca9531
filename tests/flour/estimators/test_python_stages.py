"""Functions of users' own inside estimators: refused, or Python stages where that is allowed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import flour
import oven
from flour.core.errors import FunctionFailed, PythonRefused, UnsupportedSetting
from oven.explain import explain
from runtime import Runtime
from tests.estimators import library
from tests.house import run_python

DOCUMENTS = ["The Quick  fox", "a café, a fox", "", "one fox two fox", "Δ ΟΔΟΣ x", "the end"]
LABELS = [0, 1, 0, 1, 1, 0]


def words(document: str) -> list[str]:
    """A tokenizer of the user's own."""
    return re.split(r"\s+", document)


def swapped(document: str) -> str:
    """A preprocessor of the user's own."""
    return document.swapcase().replace("fox", "dog")


class Pairs:
    """An analyzer with a state: a generator, with some features that are no strings."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, document: str) -> Iterator[Any]:
        for i in range(min(len(document) - 1, self.most)):
            yield np.str_(document[i : i + 2])
        if document.startswith("unseen"):
            yield 3


FUNCTIONS: dict[str, dict[str, Any]] = {
    "tokenizer": {"tokenizer": words, "token_pattern": None},
    "tokens in pairs": {"tokenizer": str.split, "token_pattern": None, "ngram_range": (1, 2)},
    "tokens without stop words": {"tokenizer": words, "token_pattern": None, "stop_words": ["a"]},
    "preprocessor": {"preprocessor": swapped},
    "preprocessed characters": {"preprocessor": swapped, "analyzer": "char_wb"},
    "both": {"preprocessor": swapped, "tokenizer": words, "token_pattern": None},
    "accents": {"strip_accents": lambda text: text.replace("é", "e")},
}
ANALYZERS: dict[str, Any] = {"analyzer": Pairs(9), "phrases": lambda text: [text, "a b", ""]}


def check(made: Any, X: Any, sample: Any = None) -> oven.Plan:
    """The program answers as the library does, as a whole and row by row."""
    program = flour.from_sklearn(made, sample, allow_python=True)
    plan = oven.bake(program)
    for block in (X, X[:1], X[1:3]):
        want = library(made, block)
        for got in (program.reference(block), plan.run(block)):
            assert set(got) == set(want)
            for name, value in want.items():
                _same(got[name], value)
    assert any(not stage.native for stage in plan.program.stages)
    return plan


def _same(got: Any, want: Any) -> None:
    got, want = (
        each.toarray() if sparse.issparse(each) else np.asarray(each) for each in (got, want)
    )
    assert (got.shape, got.dtype.kind) == (want.shape, want.dtype.kind)
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    else:
        assert (got == want).all()


@pytest.mark.parametrize("kind", [CountVectorizer, TfidfVectorizer, HashingVectorizer])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_vectorisers(kind: Any, name: str) -> None:
    how = {"n_features": 64} if kind is HashingVectorizer else {}
    made = kind(**FUNCTIONS[name], **how).fit(DOCUMENTS)
    check(made, [*DOCUMENTS, "unseen words", b"raw bytes"])


@pytest.mark.parametrize("name", ANALYZERS)
def test_analyzers(name: str) -> None:
    made = TfidfVectorizer(analyzer=ANALYZERS[name]).fit(DOCUMENTS)
    check(made, [*DOCUMENTS, "unseen words"])
    check(HashingVectorizer(analyzer=ANALYZERS[name], n_features=32), DOCUMENTS)


def test_a_string_for_words_is_its_characters() -> None:
    how: Any = {"tokenizer": lambda text: text[:9], "token_pattern": None, "ngram_range": (1, 2)}
    check(CountVectorizer(**how).fit(DOCUMENTS), DOCUMENTS)


def test_what_is_around_a_function_is_native() -> None:
    made = make_pipeline(TfidfVectorizer(tokenizer=words, token_pattern=None), LogisticRegression())
    plan = check(made.fit(DOCUMENTS, LABELS), DOCUMENTS)
    black = [
        item.op.name for stage in plan.program.stages if not stage.native for item in stage.nodes
    ]
    assert black == ["Lower", "PythonWords"], "what a function reads is a str already"
    said = explain(plan)
    assert "python (black)" in said
    assert f"PythonWords ({__name__}:words)" in said


@pytest.mark.parametrize(
    "made",
    [
        CountVectorizer(tokenizer=words, token_pattern=None),
        CountVectorizer(preprocessor=swapped),
        CountVectorizer(analyzer=words),
        CountVectorizer(strip_accents=swapped),
        HashingVectorizer(analyzer=words),
    ],
)
def test_without_permission_the_hint_names_it(made: Any) -> None:
    with pytest.raises(UnsupportedSetting, match=r"allow_python=True"):
        flour.from_sklearn(made.fit(DOCUMENTS))


def test_features_that_are_no_strings() -> None:
    made = CountVectorizer(analyzer=lambda text: [len(text)]).fit(DOCUMENTS)
    with pytest.raises(UnsupportedSetting, match="no strings"):
        flour.from_sklearn(made, allow_python=True)


# --- functions of columns -----------------------------------------------------------------------

NUMBERS = np.random.default_rng(0).normal(size=(9, 3))


def ratios(X: Any) -> Any:
    """A function of a frame or an array."""
    X = np.asarray(X)
    return np.stack([X[:, 0] / X[:, 1], X.sum(axis=1)], axis=1)


@pytest.mark.parametrize(
    "made",
    [
        FunctionTransformer(ratios),
        FunctionTransformer(np.clip, kw_args={"a_min": -0.5, "a_max": [0.5, 0.4, 0.3]}),
        FunctionTransformer(lambda X: X - X.mean(axis=0)),
        FunctionTransformer(lambda X: (X > 0).astype(np.int64)),
    ],
)
def test_functions_of_columns(made: Any) -> None:
    made.fit(NUMBERS)
    plan = check(made, NUMBERS, NUMBERS[:2])
    assert plan.mixes_rows, "nobody knows that it does not"
    with pytest.raises(UnsupportedSetting, match=r"allow_python=True"):
        flour.from_sklearn(made, NUMBERS)
    with pytest.raises(UnsupportedSetting, match="the width of the function's result"):
        flour.from_sklearn(made, allow_python=True)


def test_data_of_other_widths() -> None:
    made = FunctionTransformer(ratios).fit(NUMBERS)
    program = flour.from_sklearn(made, NUMBERS, allow_python=True)
    narrow = NUMBERS.astype(np.float32)
    got = oven.bake(program).run(narrow)["features"]
    np.testing.assert_array_equal(got, made.transform(narrow.astype(np.float64)))
    whole = np.arange(1, 10).reshape(3, 3)
    program = flour.from_sklearn(FunctionTransformer(lambda X: X * 2), whole, allow_python=True)
    assert oven.bake(program).run(whole)["features"].tolist() == (whole * 2).tolist()
    with pytest.raises(FunctionFailed, match="the sample gave int64"):
        oven.bake(program).run(whole + 0.5)


def test_sparse_columns_are_refused() -> None:
    made = FunctionTransformer(lambda X: X * 2).fit(sparse.csr_matrix(NUMBERS))
    with pytest.raises(UnsupportedSetting, match="sparse"):
        flour.from_sklearn(made, sparse.csr_matrix(NUMBERS), allow_python=True)


def test_functions_of_frames() -> None:
    frame = pd.DataFrame(NUMBERS, columns=["a", "b", "c"])
    share = FunctionTransformer(lambda rows: rows[["b"]] / rows[["c"]].to_numpy())
    columns = ColumnTransformer([("f", share, ["c", "b"]), ("s", StandardScaler(), ["a"])])
    model = make_pipeline(columns, LogisticRegression()).fit(frame, np.arange(9) % 2)
    check(model, frame, frame[:3])


# --- what goes wrong ----------------------------------------------------------------------------


def failing(document: str) -> Any:
    """Words of most documents, and trouble of several kinds."""
    answers: dict[str, Any] = {"none": None, "number": ["a", 1]}
    if document == "raise":
        raise KeyError(document)
    return answers.get(document, [document])


@pytest.mark.parametrize(
    ("document", "said"), [("raise", "KeyError"), ("none", "NoneType"), ("number", "int")]
)
def test_a_function_that_fails(document: str, said: str) -> None:
    made = CountVectorizer(tokenizer=failing, token_pattern=None).fit(["fine"])
    plan = oven.bake(flour.from_sklearn(made, allow_python=True))
    if document == "number":
        made = HashingVectorizer(analyzer=failing)
        plan = oven.bake(flour.from_sklearn(made, allow_python=True))
    with Runtime() as runtime:
        runtime.register("m", plan)
        for call in (plan.run, plan.entry(), partial(runtime.predict, "m")):
            with pytest.raises(FunctionFailed, match=said) as caught:
                call(["fine", document])
            assert "failing" in str(caught.value)
        assert runtime.predict("m", "fine")["features"].nnz == 1


def test_a_function_that_answers_other_rows() -> None:
    made = FunctionTransformer(lambda X: X[:3]).fit(NUMBERS)
    plan = oven.bake(flour.from_sklearn(made, NUMBERS[:3], allow_python=True))
    with pytest.raises(FunctionFailed, match=r"\(3, 3\), where the sample gave float64 \(9, 3\)"):
        plan.run(NUMBERS)


# --- as data ------------------------------------------------------------------------------------

MODULE = "def stage_words(text):\n    return text.split({!r})\n"


@pytest.fixture
def module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ModuleType]]:
    """Write and import a module of the user's."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(separator: str) -> ModuleType:
        (tmp_path / "stage_module.py").write_text(MODULE.format(separator))
        sys.modules.pop("stage_module", None)
        made = ModuleType("stage_module")
        sys.modules["stage_module"] = made
        exec(MODULE.format(separator), made.__dict__)  # no stale bytecode in the way
        return made

    yield make
    sys.modules.pop("stage_module", None)


def test_saved_by_place_and_loaded_with_permission(module: Any, tmp_path: Path) -> None:
    made = CountVectorizer(tokenizer=module(" ").stage_words, token_pattern=None).fit(DOCUMENTS)
    plan = oven.bake(flour.from_sklearn(made, allow_python=True))
    plan.save(tmp_path / "plan")
    again = oven.load(tmp_path / "plan")
    assert again.digest == plan.digest, "what was granted here needs no second permission"
    load = (
        "import sys, oven; sys.path.insert(0, sys.argv[1]); sys.path.insert(0, sys.argv[3])\n"
        "from flour.core.errors import PythonRefused\n"
        "try:\n"
        "    oven.load(sys.argv[2])\n"
        "except PythonRefused as problem:\n"
        "    assert 'stage_module' not in sys.modules, 'nothing was imported'\n"
        "    assert 'allow_python=True' in str(problem)\n"
        "    plan = oven.load(sys.argv[2], allow_python=True)\n"
        "    print(plan.run(['one fox'])['features'].sum())\n"
    )
    here = str(Path(flour.__file__).parents[1])
    said = run_python(load, str(tmp_path), str(tmp_path / "plan"), here)
    assert float(said) == 2.0
    missing = load.replace("sys.path.insert(0, sys.argv[1]); ", "")
    with pytest.raises(AssertionError, match="is not here"):
        run_python(missing, str(tmp_path), str(tmp_path / "plan"), here)


def test_a_function_that_was_defined_anew_is_another(module: Any, tmp_path: Path) -> None:
    def counting() -> Any:
        return CountVectorizer(tokenizer=tokenizer, token_pattern=None, vocabulary=["a,b", "a b"])

    programs = []
    for separator in (" ", ","):
        tokenizer = module(separator).stage_words
        programs.append(flour.from_sklearn(counting().fit(["a"]), allow_python=True))
    counts = [
        program.reference(["a,b", "a b"])["features"].toarray().tolist() for program in programs
    ]
    assert counts == [[[1, 0], [0, 0]], [[0, 0], [0, 1]]]
    with pytest.raises(PythonRefused):
        oven.bake(programs[0]).save(tmp_path / "old")


def test_a_function_of_nowhere_cannot_be_saved(tmp_path: Path) -> None:
    made = CountVectorizer(tokenizer=lambda text: text.split(), token_pattern=None).fit(DOCUMENTS)
    plan = oven.bake(flour.from_sklearn(made, allow_python=True))
    with pytest.raises(PythonRefused, match="lambda"):
        plan.save(tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


def test_plans_with_functions_stay_within_a_budget(tmp_path: Path) -> None:
    """One that cannot be written to a file stays in memory, and answers on."""
    plans = []
    for size in (3, 4):
        made = CountVectorizer(analyzer=Pairs(size)).fit(DOCUMENTS)
        plans.append((made, oven.bake(flour.from_sklearn(made, allow_python=True))))
    with Runtime(memory_budget=1, spill=tmp_path) as runtime:
        for place, (_, plan) in enumerate(plans):
            runtime.register(f"m{place}", plan)
        for place, (made, _) in enumerate(plans):
            got = runtime.predict(f"m{place}", DOCUMENTS)["features"]
            assert (got != made.transform(DOCUMENTS)).nnz == 0
