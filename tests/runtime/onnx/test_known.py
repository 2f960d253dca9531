"""Models of a structure that is known: the same plans as if each were the first of its kind."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto, helper

from flour.onnx import import_model, parts, wire
from flour.onnx.parts import StoredModel
from flour.onnx.reading import Raw
from flour.onnx.registry import onnx_op
from oven.plans import template_lookup
from oven.run.native_run import NativeRun
from oven.run.run_signature import TableLayout
from runtime.onnx.session import InferenceSession
from tests.onnx_parts import FLOAT, STRING, model, node

ML = "ai.onnx.ml"
RNG = np.random.default_rng(7)
ROWS = RNG.normal(size=(40, 3)).astype(np.float32)
WORDS = ["a", "bb", "cc", "dd", "e"]
TEXTS = np.array([[" ".join(RNG.choice(WORDS, 6))] for _ in range(20)], object)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Whether a model comes out of a template must not depend on what earlier runs left on disk.
    monkeypatch.setattr("runtime.onnx.session_image.SessionImage.of", lambda *_: None)
    with template_lookup.no_templates():
        yield


def numbers(*parts: Any) -> Any:
    """Weights as a list of floats."""
    return np.concatenate([np.asarray(part, np.float32).reshape(-1) for part in parts]).tolist()


def scaled(offset: Any, scale: Any, weights: Any, bias: Any, **how: Any) -> bytes:
    """A scaler and a classifier of two or more classes."""
    count = len(bias)
    labels = how.get("labels", list(range(count)))
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints"
    made = model(
        [
            node("Scaler", ["x"], ["s"], "scaler", domain=ML, offset=offset, scale=scale),
            node(
                "LinearClassifier",
                ["s"],
                ["label", "p"],
                "linear",
                domain=ML,
                coefficients=numbers(weights),
                intercepts=numbers(bias),
                post_transform=how.get("link", "SOFTMAX"),
                **{kind: labels},
            ),
        ],
        [("x", FLOAT, ["N", 3])],
        [("label", STRING if kind.endswith("strings") else 7, ["N"]), ("p", FLOAT, ["N", count])],
    )
    made.graph.name = how.get("name", "graph")
    return bytes(made.SerializeToString())


def layers(first: Any, second: Any, bias: Any) -> bytes:
    """Two matrix products with constants of the graph."""
    made = model(
        [
            node("MatMul", ["x", "first"], ["a"]),
            node("Add", ["a", "bias"], ["b"]),
            node("Relu", ["b"], ["c"]),
            node("MatMul", ["c", "second"], ["y"]),
        ],
        [("x", FLOAT, ["N", 3])],
        [("y", FLOAT, ["N", 2])],
        {
            "first": np.asarray(first, np.float32).reshape(3, 3),
            "second": np.asarray(second, np.float32).reshape(3, 2),
            "bias": np.asarray(bias, np.float32).reshape(3),
        },
    )
    return bytes(made.SerializeToString())


def text(idf: Any, weights: Any, bias: Any, words: Sequence[str] = WORDS) -> bytes:
    """Words, counted and weighed, their rows of length one, and a classifier."""
    size = len(words)
    made = model(
        [
            node(
                "Tokenizer",
                ["x"],
                ["words"],
                domain="com.microsoft",
                mark=0,
                mincharnum=1,
                pad_value="#",
                tokenexp="[a-z]+",
            ),
            node("Flatten", ["words"], ["flat"]),
            node(
                "TfIdfVectorizer",
                ["flat"],
                ["counts"],
                mode="TFIDF",
                min_gram_length=1,
                max_gram_length=1,
                max_skip_count=0,
                ngram_counts=[0],
                ngram_indexes=list(range(size)),
                pool_strings=list(words),
                weights=numbers(idf),
            ),
            node("Normalizer", ["counts"], ["unit"], domain=ML, norm="L2"),
            node(
                "LinearClassifier",
                ["unit"],
                ["label", "p"],
                domain=ML,
                coefficients=numbers(weights),
                intercepts=numbers(bias),
                classlabels_ints=[0, 1],
                post_transform="LOGISTIC",
            ),
        ],
        [("x", STRING, ["N", 1])],
        [("label", 7, ["N"]), ("p", FLOAT, ["N", 2])],
    )
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return bytes(made.SerializeToString())


def known(data: bytes) -> bool:
    """Whether a session of this model comes out of a template."""
    return isinstance(InferenceSession(data)._program, StoredModel)


def afresh(data: bytes) -> InferenceSession:
    """A session as if the model were the first of its kind."""
    with template_lookup.no_templates():
        made = InferenceSession(data)
    assert not isinstance(made._program, StoredModel)
    return made


def assert_the_same(data: bytes, rows: NDArray[Any]) -> bool:
    """A session that may come out of a template is the one made afresh; whether it did."""
    got, want = InferenceSession(data), afresh(data)
    for one, other in zip(got.run(None, {"x": rows}), want.run(None, {"x": rows}), strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist() if one.dtype == object else True
        assert one.tobytes() == other.tobytes() if one.dtype != object else True
    if not isinstance(got._program, StoredModel):
        return False
    assert got.plan.stage_kinds == want.plan.stage_kinds
    _assert_equal_tables(got, want)
    for stage in ("logical", "optimised", "stages"):
        assert _explained(got, stage) == _explained(want, stage)
    assert got.plan.digest == want.plan.digest
    assert (got.get_inputs(), got.get_outputs()) == (want.get_inputs(), want.get_outputs())
    assert got.get_modelmeta() == want.get_modelmeta()
    return True


def _explained(session: InferenceSession, stage: str) -> str:
    """Without the lines of ours at which it was imported."""
    lines = session.plan.explain(stage).splitlines()
    places = re.compile(r" at .*|\S+\.py:\d+.*")
    return "\n".join(places.sub("", line).rstrip() for line in lines)


def _assert_equal_tables(got: InferenceSession, want: InferenceSession) -> None:
    """What the native code is led to is the same, byte by byte."""
    (run,) = got.plan.steps
    assert isinstance(run, NativeRun)
    plan = want.plan
    draft = TableLayout(plan.stages, tuple(plan.optimised.outputs.values())).draft()
    assert len(draft.words) == len(run._table)
    led = {place for place, _ in draft.parameters} | {place for place, *_ in draft.codes}
    for place, word in enumerate(draft.words):
        if place not in led and place not in draft.inner:
            assert run._table[place] == word
    for place, blob in draft.parameters:
        there = ctypes.string_at(int(run._table[place]), blob.nbytes)
        assert there == blob.array.tobytes()


PLAIN: tuple[Any, ...] = ([0.5, -1, 2], [0.5, 3, 1.5], RNG.normal(size=(3, 3)), [0.1, 0.2, -0.3])


def test_the_third_model_of_a_structure_is_known() -> None:
    assert not known(scaled(*PLAIN))
    assert not known(scaled(*PLAIN))  # it leaves a template
    data = scaled([0.4, -1.1, 2], [0.5, 2.9, 1.5], RNG.normal(size=(3, 3)), [0.1, 0.3, -0.3])
    assert assert_the_same(data, ROWS)


#: What rules, readers and the code's writers ask of numbers: an answer of its own for each.
ASKED: dict[str, tuple[Any, ...]] = {
    "a scale that does nothing": ([0.5, -1, 2], [1, 1, 1], *PLAIN[2:]),
    "an offset that does nothing": ([0, 0, 0], *PLAIN[1:]),
    "an offset of minus zero": ([-0.0, -0.0, -0.0], *PLAIN[1:]),
    "neither does": ([0, 0, 0], [1, 1, 1], *PLAIN[2:]),
    "a scale of zero": (PLAIN[0], [0, 1, 2], *PLAIN[2:]),
    "an infinite scale": (PLAIN[0], [np.inf, 1, 2], *PLAIN[2:]),
    "a scale that is no number": (PLAIN[0], [np.nan, 1, 2], *PLAIN[2:]),
    "offsets that would cost digits": ([1e6, 1e6, -1e6], *PLAIN[1:]),
    "offset and scale are equal": ([0.5, 3, 1.5], [0.5, 3, 1.5], *PLAIN[2:]),
    "a column without weight": (*PLAIN[:2], PLAIN[2] * [0, 1, 1], PLAIN[3]),
    "columns without weight": (*PLAIN[:2], PLAIN[2] * [0, 0, 1], PLAIN[3]),
    "no weight at all": (*PLAIN[:2], PLAIN[2] * 0, PLAIN[3]),
    "weights that are no numbers": (*PLAIN[:2], PLAIN[2] * [np.nan, 1, 1], PLAIN[3]),
    "infinite weights": (*PLAIN[:2], PLAIN[2] * [np.inf, 1, 1], PLAIN[3]),
    "a bias of zero": (*PLAIN[:3], [0, 0, 0]),
    "weights next to nothing": (*PLAIN[:2], PLAIN[2] * 1e-38, PLAIN[3]),
    "huge weights": (*PLAIN[:2], PLAIN[2] * 1e30, PLAIN[3]),
}


@pytest.mark.parametrize(
    "first", ["plain", "neither does", "a column without weight", "columns without weight"]
)
def test_what_is_asked_of_numbers_is_asked_of_every_model(first: str) -> None:
    """A template of one model, and all others after it: none is taken for what it is not."""
    data = scaled(*PLAIN) if first == "plain" else scaled(*ASKED[first])
    InferenceSession(data)
    InferenceSession(data)
    assert_the_same(data, ROWS)
    again = [assert_the_same(scaled(*values), ROWS) for values in ASKED.values()]
    assert not all(again), "they are not one program"


VALUES = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 0.5, 3.25, -2.0, 1e-30, 1e30, float("nan"), float("inf"), 1e5]
)


def lists(size: int) -> st.SearchStrategy[list[float]]:
    """Weights, among them all that is odd."""
    plain = st.floats(-3, 3, width=32).filter(lambda value: abs(value) > 0.01)
    return st.lists(plain, min_size=size, max_size=size) | st.lists(
        VALUES, min_size=size, max_size=size
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(lists(3), lists(3), lists(6), lists(2)), min_size=4, max_size=6))
def test_any_classifiers(models: list[tuple[Any, ...]]) -> None:
    for values in models:
        assert_the_same(scaled(*values), ROWS[:5])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(lists(9), lists(6), lists(3)), min_size=4, max_size=6))
def test_any_layers(models: list[tuple[Any, ...]]) -> None:
    for values in models:
        assert_the_same(layers(*values), ROWS[:5])


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(lists(5), lists(10), lists(2)), min_size=4, max_size=5))
def test_any_texts(models: list[tuple[Any, ...]]) -> None:
    for values in models:
        assert_the_same(text(*values), TEXTS)


TEXT: tuple[Any, ...] = ([1, 1.5, 2, 1.25, 3], RNG.normal(size=(2, 5)), [0.1, -0.1])


#: As many words as there were, others or in another order, longer and shorter.
OTHER_WORDS: dict[str, Sequence[str]] = {
    "in another order": WORDS[::-1],
    "of other lengths": ["a", "e", "ccccccccccccc", "bb", "d" * 40],
    "not of ASCII": ["ä", "bb", "€uro", "dd", "𝄞"],
    "an empty one": ["", "bb", "cc", "dd", "e"],
    "the same again": WORDS,
}


@pytest.mark.parametrize("words", OTHER_WORDS.values(), ids=OTHER_WORDS)
def test_texts_are_known_by_how_many_words_they_have(words: Sequence[str]) -> None:
    for _ in range(2):
        InferenceSession(text(*TEXT))
    for _ in range(2):
        values = ([2, 1, 3, 1.5, 1], RNG.normal(size=(2, 5)), [0.3, -0.1])
        assert assert_the_same(text(*values, words), TEXTS)


#: Words that have to be looked at.
ODD_WORDS: dict[str, Sequence[str]] = {
    "what texts are filled up with": ["#", "bb", "cc", "dd", "e"],
    "one longer than a byte says": ["a", "b" * 200, "cc", "dd", "e"],
    "one more": [*WORDS, "f"],
}


@pytest.mark.parametrize("words", ODD_WORDS.values(), ids=ODD_WORDS)
def test_words_that_make_it_another_program(words: Sequence[str]) -> None:
    for _ in range(2):
        InferenceSession(text(*TEXT))
    size = len(words)
    values = RNG.uniform(1, 2, size), RNG.normal(size=(2, size)), [0.3, -0.1]
    assert not assert_the_same(text(*values, words), TEXTS)


def test_a_word_that_is_there_twice_is_refused_however_many_are_known() -> None:
    for _ in range(3):
        InferenceSession(text(*TEXT))
    idf, weights, bias = TEXT
    twice = text(idf, weights, bias, ["a", "bb", "cc", "bb", "e"])
    said = []
    for make in (InferenceSession, afresh):
        with pytest.raises(Exception) as problem:
            make(twice).run(None, {"x": TEXTS})
        said.append((problem.type, str(problem.value)))
    assert said[0] == said[1]


ANY_WORD = st.text(st.sampled_from("abcde# ä€"), max_size=12)
FIVE = st.lists(ANY_WORD, min_size=5, max_size=5, unique=True)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(lists(5), lists(10), lists(2), FIVE), min_size=4, max_size=5))
def test_any_words(models: list[tuple[Any, ...]]) -> None:
    for values in models:
        assert_the_same(text(*values), TEXTS)


def test_bytes_that_are_no_texts_are_as_they_are_afresh() -> None:
    """Letters that are no UTF-8, and words cut otherwise in as many bytes."""
    idf, weights, bias = TEXT
    data = text(idf, weights, bias, ["a", "bb", "cccc", "dd", "e"])
    for _ in range(3):
        InferenceSession(data)
    place = data.index(b"J\x04cccc")
    for changed in (b"J\x04c\xffcc", b"J\x00J\x02cc", b"J\x04c\xed\xa0\x80", b"J\x03cccJ"):
        bad = data[:place] + changed + data[place + 6 :]
        answers = []
        for make in (InferenceSession, afresh):
            try:
                answers.append(str(make(bad).run(None, {"x": TEXTS})))
            except Exception as problem:  # noqa: BLE001 (whatever it is, both have to have it)
                answers.append(f"{type(problem).__name__} {problem}")
        assert answers[0] == answers[1], changed


def test_many_things_that_are_no_weights_are_structure() -> None:
    for _ in range(2):
        InferenceSession(scaled(*PLAIN))
    for how in (
        {"labels": [0, 1, 3]},
        {"labels": ["a", "b", "c"]},
        {"link": "NONE"},
        {"link": "LOGISTIC"},
    ):
        assert not known(scaled(*PLAIN, **how)), how


def test_names_of_graphs_are_none() -> None:
    for name in ("one", "two"):
        InferenceSession(scaled(*PLAIN, name=name))
    session = InferenceSession(scaled(*PLAIN, name="six"))
    assert isinstance(session._program, StoredModel)
    assert session.get_modelmeta().graph_name == "six"
    assert not known(scaled(*PLAIN, name="of another length"))  # everything lies elsewhere


def test_a_template_is_of_one_way_of_importing() -> None:
    for _ in range(2):
        InferenceSession(scaled(*PLAIN), native_only=True)
    assert isinstance(InferenceSession(scaled(*PLAIN), native_only=True)._program, StoredModel)
    assert not known(scaled(*PLAIN))


def test_another_adapter_is_another_program() -> None:
    for _ in range(2):
        InferenceSession(scaled(*PLAIN))
    onnx_op("Nobody", domain="test.known")(lambda call: call[0])
    assert not known(scaled(*PLAIN))


@pytest.mark.parametrize("name", ["PRETZEL_WITHOUT"])
def test_rules_that_are_left_out_are_asked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for _ in range(2):
        InferenceSession(scaled(*PLAIN))
    monkeypatch.setenv(name, "affine_into_linear")
    session = InferenceSession(scaled(*PLAIN))
    assert "Subtract" in session.plan.explain("optimised")


def test_trees_are_never_taken_for_known() -> None:
    def tree(limit: float) -> bytes:
        made = model(
            [
                node(
                    "TreeEnsembleRegressor",
                    ["x"],
                    ["y"],
                    domain=ML,
                    nodes_treeids=[0, 0, 0],
                    nodes_nodeids=[0, 1, 2],
                    nodes_featureids=[0, 0, 0],
                    nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
                    nodes_values=[limit, 0.0, 0.0],
                    nodes_truenodeids=[1, 0, 0],
                    nodes_falsenodeids=[2, 0, 0],
                    nodes_missing_value_tracks_true=[0, 0, 0],
                    target_treeids=[0, 0],
                    target_nodeids=[1, 2],
                    target_ids=[0, 0],
                    target_weights=[1.0, 2.0],
                    n_targets=1,
                )
            ],
            [("x", FLOAT, ["N", 3])],
            [("y", FLOAT, ["N", 1])],
        )
        return bytes(made.SerializeToString())

    for limit in (0.1, 0.2, 0.3):
        assert not assert_the_same(tree(limit), ROWS)


def test_a_session_goes_on_after_its_model(tmp_path: Any) -> None:
    """The program is made of bytes of its own, not of a file that has gone."""
    for _ in range(2):
        InferenceSession(scaled(*PLAIN))
    path = tmp_path / "model.onnx"
    path.write_bytes(scaled(*PLAIN))
    session = InferenceSession(str(path))
    path.unlink()
    assert isinstance(session._program, StoredModel)
    assert "Linear" in session.plan.explain("optimised")
    float64 = session.plan.run(ROWS.astype(np.float64))  # a plan of its own, made of the program
    np.testing.assert_allclose(float64["p"], session.run(["p"], {"x": ROWS})[0], atol=1e-6)


def test_errors_are_the_same() -> None:
    for _ in range(2):
        InferenceSession(scaled(*PLAIN))
    got, want = InferenceSession(scaled(*PLAIN)), afresh(scaled(*PLAIN))
    wrong: list[Callable[[InferenceSession], object]] = [
        lambda session: session.run(None, {"x": ROWS[:, :2]}),
        lambda session: session.run(None, {"x": ROWS.astype(np.float64)}),
        lambda session: session.run(["q"], {"x": ROWS}),
        lambda session: session.run(None, {}),
    ]
    for call in wrong:
        with pytest.raises(Exception) as theirs:
            call(want)
        with pytest.raises(type(theirs.value)) as ours:
            call(got)
        assert str(ours.value) == str(theirs.value)
    empty = [session.run(None, {"x": ROWS[:0]})[1].shape for session in (got, want)]
    assert empty == [(0, 3), (0, 3)]


def test_damaged_models_are_damaged_however_many_are_known() -> None:
    data = scaled(*PLAIN)
    for _ in range(2):
        InferenceSession(data)
    for place in range(0, len(data), 7):
        bad = data[:place] + bytes([data[place] ^ 0x15]) + data[place + 1 :]
        results = []
        for make in (InferenceSession, afresh):
            try:
                results.append(str(make(bad).run(None, {"x": ROWS[:3]})))
            except Exception as problem:  # noqa: BLE001 (whatever it is, both have to have it)
                results.append(type(problem).__name__)
        assert results[0] == results[1], place


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_lookup._families, "most", 3)
    monkeypatch.setattr(parts, "MOST_STRUCTURES", 3)
    monkeypatch.setattr(parts, "MOST_LAYOUT_BYTES", 2000)
    monkeypatch.setattr(parts, "layouts", parts.Layouts())

    def looked_up(data: bytes) -> object:
        taken = parts.take_apart(Raw(data, None), (False, None, "session"), import_model)
        return template_lookup.look_up(taken)

    for last in range(3, 18):
        data = scaled(*PLAIN, labels=[0, 1, 10**last])
        assert looked_up(data) is not None
        assert len(template_lookup._families) <= 3
        assert len(parts.layouts.once) <= 3
        assert not any(layout.fits(data) for layout in layouts()), "nothing is kept of the first"
        assert looked_up(data) is not None
        assert any(layout.fits(data) for layout in layouts())
    assert sum(layout.held for layout in layouts()) == parts.layouts.held <= 2000


def layouts() -> list[wire.ModelLayout]:
    """Those that are kept."""
    return [layout for each in parts.layouts.by_size.values() for layout in each]


def test_what_cannot_take_formulas_is_imported_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(*_: object) -> object:
        raise AssertionError("an array was expected")

    monkeypatch.setattr(template_lookup, "optimise", wrong)
    for _ in range(5):
        assert not known(scaled(*PLAIN))
    (family,) = template_lookup._families.values()
    assert family.failures == template_lookup.MOST_FAILURES, "it is given up"


@pytest.mark.parametrize("kind", ["raw", "listed"])
def test_constants_however_they_are_written(kind: str) -> None:
    """Numbers of a constant one by one, or as bytes."""
    made = ModelProto.FromString(layers(RNG.normal(size=9), RNG.normal(size=6), [1, 2, 3]))
    if kind == "listed":
        for tensor in made.graph.initializer:
            tensor.float_data.extend(np.frombuffer(tensor.raw_data, np.float32).tolist())
            tensor.ClearField("raw_data")
    data = made.SerializeToString()
    for _ in range(2):
        InferenceSession(data)
    assert assert_the_same(data, ROWS)
