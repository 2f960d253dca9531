"""Reconstructed answers: exact where the program says so, marked, never instead of real ones."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler

import flour
import oven
from flour.language.flow import Flow
from runtime.cluster.parity import Coded, Endpoint, Hedged, ParityCode, recoverable, train
from runtime.cluster.parity.code import Rows
from runtime.errors import ClusterError

X, LABELS = load_digits(return_X_y=True)
X = X.astype(np.float64)
EXACT = {
    "scaled": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=60)),
    "ranged": lambda: make_pipeline(MinMaxScaler(), Ridge()),
    "components": lambda: make_pipeline(PCA(8), LogisticRegression(max_iter=60)),
    "polynomial": lambda: make_pipeline(PCA(4), PolynomialFeatures(2), Ridge()),
    "network": lambda: MLPClassifier((8,), max_iter=20, random_state=0),
}


@cache
def _flow(name: str) -> Flow:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return flour.from_sklearn(EXACT[name]().fit(X, LABELS))


def _parts(name: str) -> tuple[Flow, Callable[[Rows], Rows], Rows]:
    flow = _flow(name)
    found = recoverable(flow)
    assert found.verdict == "exact"
    assert found.scores is not None
    features = X if found.front is None else _only(found.front, X)
    scores = found.scores
    return flow, lambda rows: _only(scores, rows), features


def _only(flow: Flow, rows: object) -> Rows:
    (answer,) = flow.reference(rows).values()
    return np.asarray(answer)


@pytest.mark.parametrize("parities", [1, 2])
@pytest.mark.parametrize("group", [2, 3, 4, 8])
@pytest.mark.parametrize("name", EXACT)
def test_lost_scores_are_exact(name: str, group: int, parities: int) -> None:
    _, scores, features = _parts(name)
    queries = features[: group * 20].reshape(group, 20, -1)
    code = ParityCode(group, parities)
    constant = scores(np.zeros((1, queries.shape[2])))[0]
    wanted = [scores(rows) for rows in queries]
    answers = dict(enumerate(scores(rows) for rows in code.encode(queries)))
    lost = list(range(group))[-parities:] if group % 2 else list(range(parities))
    kept = {n: rows for n, rows in enumerate(wanted) if n not in lost}
    found = code.decode(kept, answers, constant)
    assert sorted(found) == lost
    # Intermediate sums are as large as the coded scores: rounding is relative to those.
    scale = max(float(np.abs(each).max()) for each in [*wanted, *answers.values()])
    assert max(float(np.abs(found[n] - wanted[n]).max()) for n in lost) <= 1e-12 * scale


@pytest.mark.parametrize("name", EXACT)
def test_the_parts_make_the_whole(name: str) -> None:
    flow, scores, features = _parts(name)
    link = recoverable(flow).link
    assert link is not None
    whole, parts = flow.reference(X[:50]), link.reference(scores(features[:50]))
    for output, values in whole.items():
        np.testing.assert_allclose(np.asarray(values), np.asarray(parts[output]), rtol=1e-11)


def test_programs_that_are_not_affine_are_not_called_exact() -> None:
    forest = flour.from_sklearn(RandomForestClassifier(3, random_state=0).fit(X, LABELS))
    assert recoverable(forest).verdict == "approximate"
    bayes = flour.from_sklearn(GaussianNB().fit(X, LABELS))
    narrow = flour.vector("x", 2, "float32").linear(np.ones((1, 2), np.float32), [])
    clipped = flour.vector("x", 2).linear(np.ones((1, 2)), []).clip([0.0], [1.0]).named("y")
    broken = flour.vector("x", 2).linear(np.array([[np.inf, 1.0]]), [])
    for flow in (narrow, broken):
        assert recoverable(flow).verdict == "approximate"
    for flow in (bayes, clipped):
        found = recoverable(flow)
        if found.verdict == "exact":
            assert found.scores is not None
            _check_affine(found.scores)


def _check_affine(scores: Flow) -> None:
    (kind,) = scores.inputs().values()
    rows = np.random.default_rng(0).normal(size=(2, getattr(kind, "width", 1)))
    np.testing.assert_allclose(
        _only(scores, rows.sum(axis=0)[None])[0],
        _only(scores, rows).sum(axis=0) - _only(scores, 0 * rows[:1])[0],
        atol=1e-9,
    )


def test_text_is_coded_after_its_features() -> None:
    texts = ["good film", "bad film", "good good plot", "bad plot"]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0])
    flow = flour.from_sklearn(model)
    found = recoverable(flow)
    assert found.verdict == "exact"
    assert "after" in str(found)
    assert found.front is not None
    assert found.scores is not None
    features = _only(found.front, texts)
    _check_affine(found.scores)
    assert features.shape == (4, 4)
    assert recoverable(flour.text("t").named("t")).verdict == "replicate"


# --- front ends ----------------------------------------------------------------------------------


def _double(rows: Rows) -> Rows:
    return np.asarray(rows @ np.array([[2.0], [1.0]]) + 3)


def _replica(seconds: float = 0.0, *, fails: bool = False) -> Endpoint:
    async def answer(rows: Rows) -> Rows:
        await asyncio.sleep(seconds)
        if fails:
            raise ConnectionError("the replica has gone")
        return _double(rows)

    return answer


def _ask(front: Coded | Hedged, count: int) -> list[tuple[Rows, bool]]:
    async def all_of_them() -> list[tuple[Rows, bool]]:
        rows = np.arange(2.0 * count).reshape(count, 1, 2)
        return list(await asyncio.wait_for(asyncio.gather(*(front(each) for each in rows)), 20))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("bad", [_replica(30.0), _replica(fails=True)], ids=["late", "lost"])
def test_what_is_missing_is_reconstructed_and_marked(bad: Endpoint) -> None:
    code = ParityCode(2)
    found = _ask(Coded([_replica(), bad], [[_replica(0.01)]], code, constant=np.array([3.0])), 8)
    wanted = _double(np.arange(16.0).reshape(8, 2))
    np.testing.assert_allclose(np.concatenate([each[0] for each in found]), wanted)
    assert [each[1] for each in found] == [False, True] * 4


def test_real_answers_are_never_replaced() -> None:
    async def parity(rows: Rows) -> Rows:
        return 100 + _double(rows)

    found = _ask(Coded([_replica()], [[parity]], ParityCode(2), constant=np.array([3.0])), 8)
    assert not any(marked for _, marked in found)


def test_two_losses_need_two_parities() -> None:
    replicas = [_replica(), _replica(fails=True), _replica(30.0)]
    pairs = [[_replica(0.01)], [_replica(0.01)]]
    found = _ask(Coded(replicas, pairs, ParityCode(3, 2), constant=np.array([3.0])), 6)
    np.testing.assert_allclose(
        np.concatenate([each[0] for each in found]), _double(np.arange(12.0).reshape(6, 2))
    )
    gone = [_replica(fails=True)]
    front = Coded(gone, [gone], ParityCode(2), constant=np.array([3.0]))
    with pytest.raises(ConnectionError, match="has gone"):
        _ask(front, 2)


def test_a_group_that_does_not_fill_is_filled_with_zeros() -> None:
    front = Coded([_replica(30.0)], [[_replica()]], ParityCode(2), constant=np.array([3.0]))
    ((values, marked),) = _ask(front, 1)
    assert marked
    np.testing.assert_allclose(values, [[4.0]])


def test_a_parity_model_is_asked_for_full_groups_only() -> None:
    async def sums(rows: Rows) -> Rows:
        return _double(rows[:, :2]) + _double(rows[:, 2:])

    code = ParityCode(2, encoder="concatenation")
    found = _ask(Coded([_replica(fails=True), _replica()], [[sums]], code), 2)
    np.testing.assert_allclose(found[0][0], [[4.0]])
    assert [marked for _, marked in found] == [True, False]
    front = Coded([_replica(0.05)], [[sums]], code, patience=0.0)
    assert not _ask(front, 1)[0][1]

    async def unequal() -> list[bool]:
        both = await asyncio.gather(front(np.zeros((1, 2))), front(np.zeros((2, 2))))
        return [each.reconstructed for each in both]

    front = Coded([_replica(0.02)], [[sums]], code)
    assert asyncio.run(unequal()) == [False, False]


@pytest.mark.parametrize("after", [0.0, 0.02])
def test_a_second_replica_answers_for_the_first(after: float) -> None:
    for bad in (_replica(30.0), _replica(fails=True)):
        found = _ask(Hedged([bad, _replica()], after=after), 1)
        np.testing.assert_allclose(found[0][0], [[4.0]])


def test_a_code_needs_parity_answers() -> None:
    with pytest.raises(ClusterError, match="too few parity answers"):
        ParityCode(2).decode({}, {0: np.zeros(1)})


@pytest.mark.parametrize(
    "given",
    [
        {"group": 1},
        {"group": 2.5},
        {"group": None},
        {"group": float("nan")},
        {"group": "2"},
        {"parities": [1]},
        {"encoder": "mean"},
        {"encoder": ["sum"]},
        {"encoder": "concatenation", "parities": 2},
    ],
    ids=str,
)
def test_a_code_that_cannot_be_says_what_was_given(given: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="two queries or more") as refused:
        ParityCode(**{"group": 2, **given})
    ((name, value),) = [*given.items()][:1]
    assert f"{name}={value!r}" in str(refused.value.found)
    assert "Code(2)" in str(refused.value.hint)


#: For what the types do not allow.
CODE: Any = ParityCode
FRONT: Any = Coded
HEDGED: Any = Hedged
RECOVERABLE: Any = recoverable
ONE, PARITY = {1: np.ones((2, 3))}, {0: np.ones((2, 3))}


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: CODE(2).encode(np.zeros((3, 1, 4))), "2 queries"),
        (lambda: CODE(2).encode([[1.0, 2.0], [3.0]]), "2 queries"),
        (lambda: CODE(2).encode(np.array([["a"], ["b"]])), "2 queries"),
        (lambda: CODE(2).encode(5), "2 queries"),
        (lambda: CODE(2, encoder="concatenation").encode(np.zeros((3, 1, 4))), "2 queries"),
        (lambda: CODE(2, encoder="concatenation").encode(5), "2 queries"),
        (lambda: CODE(2).decode(ONE, {0: np.ones((3, 3))}), "a group of 2"),
        (lambda: CODE(2).decode({1: "x"}, {0: "y"}), "a group of 2"),
        (lambda: CODE(2).decode([1, np.ones(1)], PARITY), "a group of 2"),
        (lambda: CODE(2).decode(ONE, PARITY, "x"), "a group of 2"),
        (lambda: CODE(2).decode(ONE, PARITY, np.ones(2)), "a group of 2"),
        (lambda: CODE(2).decode(ONE, {7: np.ones((2, 3))}), "a group of 2"),
        (lambda: Coded([], [[_replica()]], ParityCode(2)), ""),
        (lambda: Coded([_replica()], [[]], ParityCode(2)), ""),
        (lambda: FRONT([_replica()], [_replica()], ParityCode(2)), ""),
        (lambda: Coded([_replica()], [[_replica()]], ParityCode(2, 2)), ""),
        (lambda: Hedged([]), ""),
        (lambda: HEDGED(5), ""),
        (lambda: RECOVERABLE(oven.bake(flour.vector("x", 2).linear([[1.0, 2.0]], [0.0]))), ""),
    ],
)
def test_what_does_not_fit_is_explained(call: Callable[[], object], where: str) -> None:
    with pytest.raises(ClusterError) as refused:
        call()
    assert where in str(refused.value.where)
    assert refused.value.found
    assert refused.value.hint


def test_answers_may_be_lists() -> None:
    assert CODE(2).decode({1: [[1.0, 2.0]]}, {0: [[4, 4]]})[0].tolist() == [[3.0, 2.0]]


def test_a_parity_model_tells_its_accuracy_or_is_refused() -> None:
    forest = RandomForestClassifier(20, random_state=0).fit(X[:1200], LABELS[:1200])
    held = X[1200:], LABELS[1200:]
    trees = ExtraTreesRegressor(25, random_state=0)
    model = train(forest.predict_proba, X[:1200], held, trees, groups=3000)
    assert model.default < 0.2
    assert 0.6 < model.degraded < model.accuracy
    parity = _only(model.flow(), X[:4].reshape(2, -1))
    assert parity.shape == (2, 10)
    noise = np.random.default_rng(0).normal(size=X.shape)
    with pytest.raises(ClusterError, match="worse than the default"):
        train(forest.predict_proba, noise, (noise, 0 * LABELS), trees, groups=200)


def test_what_rounding_has_taken_is_not_reconstructed() -> None:
    code = ParityCode(2)
    answers, parity = {0: np.array([1e17])}, {0: np.array([1e17 + 0.5])}
    assert code.loses(code.decode(answers, parity)[1], answers, parity)
    answers, parity = {0: np.array([3.0])}, {0: np.array([3.5])}
    assert not code.loses(code.decode(answers, parity)[1], answers, parity)
    parity = {0: np.array([np.nan])}
    assert code.loses(code.decode(answers, parity)[1], answers, parity)


def test_an_answer_of_another_shape_is_lost() -> None:
    async def wrong(_rows: Rows) -> Rows:
        return np.zeros((7, 9))

    async def ask() -> None:
        coded = Coded([wrong], [[wrong]], ParityCode(2), constant=0.0)
        await asyncio.gather(coded(np.ones((3, 2))), coded(np.ones((3, 2))))

    with pytest.raises(ClusterError, match="answers each row"):
        asyncio.run(ask())
