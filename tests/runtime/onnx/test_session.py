"""Sessions: the same calls, answers and errors as onnxruntime's."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading
import weakref
from collections import UserDict
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto
from onnxruntime.capi import onnxruntime_pybind11_state as their
from skl2onnx import to_onnx
from skl2onnx.common.data_types import StringTensorType
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, MinMaxScaler, Normalizer, StandardScaler

import runtime
from flour.core.errors import FlourError
from oven.entry.columns_entry import COLUMN
from oven.explain import explain
from oven.plans import background
from runtime.onnx import errors
from runtime.onnx.native_session_run import open_gate
from runtime.onnx.session import InferenceSession
from tests.onnx_parts import FLOAT, STRING, black_in_the_middle, model, node

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 4)).astype(np.float32)


def classifier(labels: Any, *, zipmap: bool) -> bytes:
    """A scaled logistic regression, as skl2onnx writes it."""
    y = np.asarray(labels)[np.argmax(X[:, : len(labels)], axis=1)]
    fit = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    data: bytes = to_onnx(fit, X[:1], options={"zipmap": zipmap}).SerializeToString()
    return data


def both(data: bytes) -> tuple[InferenceSession, Any]:
    """Our session and theirs."""
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return InferenceSession(data, providers=["CPUExecutionProvider"]), theirs


@pytest.mark.parametrize("labels", [[0, 1], [3, 5, 9], ["a", "b", "c"]], ids=str)
@pytest.mark.parametrize("zipmap", [True, False])
def test_a_classifier_answers_the_same(labels: list[Any], *, zipmap: bool) -> None:
    ours, theirs = both(classifier(labels, zipmap=zipmap))
    for rows in (X, X[:1], X[::3], np.asfortranarray(X)):
        got, want = ours.run(None, {"X": rows}), theirs.run(None, {"X": rows})
        assert got[0].dtype == want[0].dtype
        np.testing.assert_array_equal(got[0], want[0])
        if zipmap:
            assert [list(row) for row in got[1]] == [list(row) for row in want[1]]
            assert {type(v) for row in got[1] for v in row.values()} == {float}
            got[1], want[1] = ([list(row.values()) for row in side] for side in (got[1], want[1]))
        np.testing.assert_allclose(got[1], want[1], rtol=0, atol=1e-6)


def test_it_says_the_same_of_itself() -> None:
    ours, theirs = both(classifier([0, 1, 2], zipmap=True))
    for mine, yours in (
        (ours.get_inputs(), theirs.get_inputs()),
        (ours.get_outputs(), theirs.get_outputs()),
    ):
        assert [tuple(item) for item in mine] == [(v.name, v.type, v.shape) for v in yours]
    assert ours.get_providers() == ["CPUExecutionProvider"]
    meta, theirs_meta = ours.get_modelmeta(), theirs.get_modelmeta()
    for fact in ("producer_name", "graph_name", "version", "custom_metadata_map"):
        assert getattr(meta, fact) == getattr(theirs_meta, fact)


def test_outputs_are_picked_by_name_in_any_order() -> None:
    ours, theirs = both(classifier([0, 1], zipmap=False))
    for names in (["probabilities"], ["probabilities", "label"], ["label"], []):
        got, want = ours.run(names, {"X": X}), theirs.run(names, {"X": X})
        assert [np.shape(item) for item in got] == [np.shape(item) for item in want]


BAD: dict[str, dict[str, Any]] = {
    "another dtype": {"X": X.astype(np.float64)},
    "one dimension": {"X": X[0]},
    "another width": {"X": X[:, :3]},
    "another name": {"Z": X},
    "nothing": {},
    "more than it has": {"X": X, "Y": X},
    "strings": {"X": np.array([["a"] * 4])},
    "no array": {"X": object()},
}


@pytest.mark.parametrize("feed", BAD.values(), ids=BAD.keys())
def test_bad_feeds_are_invalid_arguments_in_both(feed: dict[str, Any]) -> None:
    ours, theirs = both(classifier([0, 1], zipmap=False))
    with pytest.raises((their.InvalidArgument, ValueError, RuntimeError, TypeError)):
        theirs.run(None, feed)
    with pytest.raises(errors.InvalidArgument) as caught:
        ours.run(None, feed)
    assert isinstance(caught.value, their.InvalidArgument)
    assert isinstance(caught.value, ValueError | FlourError)
    assert caught.value.where


def test_an_unknown_output_is_an_invalid_argument() -> None:
    ours, theirs = both(classifier([0, 1], zipmap=False))
    for session in (ours, theirs):
        with pytest.raises(their.InvalidArgument):
            session.run(["nope"], {"X": X})


def test_lists_become_arrays() -> None:
    ours, theirs = both(classifier([0, 1], zipmap=False))
    rows = X[:2].tolist()
    for got, want in zip(ours.run(None, {"X": rows}), theirs.run(None, {"X": rows}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("nowhere.onnx", "NoSuchFile"),
        (b"this is no protobuf \xff\xff", "InvalidProtobuf"),
        (b"", "InvalidGraph"),
    ],
)
def test_what_cannot_be_loaded_has_its_class(source: Any, kind: str) -> None:
    with pytest.raises(getattr(errors, kind)) as caught:
        InferenceSession(source)
    assert isinstance(caught.value, getattr(their, kind))
    assert isinstance(caught.value, FlourError)


def test_an_operator_nobody_has_is_refused() -> None:
    made = model([node("Frobnicate", ["x"], ["y"])], [("x", FLOAT, ["N", 4])], [("y", FLOAT, None)])
    with pytest.raises(errors.OnnxError, match="Frobnicate") as caught:
        InferenceSession(made)
    assert type(caught.value).__name__ in {"Fail", "InvalidGraph"}


def test_from_a_path_and_from_a_proto(tmp_path: Path) -> None:
    data = classifier([0, 1], zipmap=False)
    (tmp_path / "m.onnx").write_bytes(data)
    want = InferenceSession(data).run(None, {"X": X})
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), ModelProto.FromString(data)):
        got = InferenceSession(source).run(None, {"X": X})
        np.testing.assert_array_equal(got[1], want[1])


def test_parts_on_onnxruntime_and_shapes_of_several_axes() -> None:
    made = black_in_the_middle()
    ours, theirs = both(made.SerializeToString())
    np.testing.assert_allclose(
        ours.run(None, {"x": X})[0], theirs.run(None, {"x": X})[0], atol=1e-5
    )
    with pytest.raises(errors.Fail):
        InferenceSession(made, native_only=True)
    cube = model(
        [node("Transpose", ["x"], ["y"], perm=[0, 2, 1])],
        [("x", FLOAT, ["N", 2, 3])],
        [("y", FLOAT, ["N", 3, 2])],
    )
    ours, theirs = both(cube.SerializeToString())
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.testing.assert_array_equal(ours.run(None, {"x": x})[0], theirs.run(None, {"x": x})[0])


def test_strings_come_and_go() -> None:
    made = model([node("Identity", ["x"], ["y"])], [("x", STRING, ["N", 1])], [("y", STRING, None)])
    ours, theirs = both(made.SerializeToString())
    for texts in (np.array([["a"], ["é ü"]]), np.array([["a"], [""]], object)):
        got, want = ours.run(None, {"x": texts})[0], theirs.run(None, {"x": texts})[0]
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


def test_a_session_is_a_plan_that_a_runtime_can_serve() -> None:
    session = runtime.InferenceSession(classifier([0, 1, 2], zipmap=False))
    want = session.run(["probabilities"], {"X": X})[0]
    with runtime.Runtime() as serving:
        serving.register("m", session.plan)
        np.testing.assert_array_equal(serving.predict("m", X)["probabilities"], want)


def test_answers_belong_to_the_caller_alone() -> None:
    """The list is filled with what the entry made, which nothing else refers to.

    That is so for answers that are too long for the shelf of those that are used again.
    """
    many = np.tile(X, (2, 1))
    session = InferenceSession(classifier([0, 1], zipmap=False))
    assert type(session.run).__name__ == "builtin_function_or_method"
    for _ in range(1000):
        answers = session.run(None, {"X": many})
        assert type(answers) is list
        # The list's and the call's own: a third would keep the array for good.
        assert [sys.getrefcount(answers[place]) for place in range(2)] == [2, 2]
    gone = [weakref.ref(item) for item in answers]
    label = answers[0].copy()
    first = answers.pop(0)
    del answers
    gc.collect()
    np.testing.assert_array_equal(first, label)
    assert gone[0]() is first
    assert gone[1]() is None


def test_a_gate_orders_and_shapes_answers() -> None:
    """What becomes of an answer is the session's to say; what goes wrong goes the long way."""
    session = InferenceSession(classifier([0, 1], zipmap=False))
    entry = session.plan.code.column_entry({"X": COLUMN}, lambda _: None)
    feed = {"X": np.tile(X, (2, 1))}  # longer than the answers that are kept to be used again
    assert isinstance(entry, BuiltinFunctionType)
    label, probabilities = session.run(None, feed)

    def general(*_: object) -> list[Any]:
        return ["the long way"]

    def broken(_: object) -> Any:
        raise ValueError("not today")

    names = ["probabilities", "label"]
    swapped = open_gate(entry, general, [(1, np.ndarray.tolist), (0, None)], names)
    failing = open_gate(entry, general, [(0, len), (1, broken)], names[::-1])
    assert swapped is not None
    assert failing is not None
    alone = object()  # what a variable alone counts for differs between versions of Python
    for _ in range(100):
        lists, again = swapped(None, feed)
        assert lists == probabilities.tolist()
        np.testing.assert_array_equal(again, label)
        assert sys.getrefcount(again) == sys.getrefcount(alone)
        assert failing(None, feed) == ["the long way"]
        twice, others, same = swapped(["label", "probabilities", "label"], feed)
        assert (twice is same, others) == (True, lists)
        del same
        np.testing.assert_array_equal(twice, label)
        assert sys.getrefcount(twice) == sys.getrefcount(alone)
        assert failing(["label", "probabilities"], feed) == ["the long way"]
    for wrong in ([], ["labels"], ("label",), "label", [5]):
        assert swapped(wrong, feed) == ["the long way"]
    assert swapped(None, 5) == ["the long way"]


@pytest.mark.parametrize("rows", [1, 2, 60])
def test_labels_that_lie_side_by_side_go_straight_out(rows: int) -> None:
    fit = QuadraticDiscriminantAnalysis().fit(X, np.argmax(X[:, :3], axis=1))
    ours, theirs = both(to_onnx(fit, X[:1], options={"zipmap": False}).SerializeToString())
    feed = {"X": X[:rows]}
    got, want = ours.run(None, feed), theirs.run(None, feed)
    assert (got[0].shape, got[0].dtype) == (want[0].shape, want[0].dtype)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1], atol=1e-5)
    (label,) = ours.run([theirs.get_outputs()[0].name], feed)
    assert label.shape == want[0].shape
    assert ours._short is not None


@pytest.mark.parametrize("rows", [1, 31, 32, 60])
def test_lists_of_probabilities_are_taken_apart(rows: int) -> None:
    fit = MultiOutputClassifier(LogisticRegression()).fit(X, (X[:, :3] > 0).astype(int))
    ours, theirs = both(to_onnx(fit, X[:1], options={"zipmap": False}).SerializeToString())
    got, want = ours.run(None, {"X": X[:rows]}), theirs.run(None, {"X": X[:rows]})
    np.testing.assert_array_equal(got[0], want[0])
    assert len(got[1]) == len(want[1])
    for one, other in zip(got[1], want[1], strict=True):
        assert (one.shape, one.dtype, one.flags.c_contiguous) == (other.shape, other.dtype, True)
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_column_of_documents_goes_straight_in() -> None:
    texts = ["good good day", "bad day", "good night", "bad bad night", "", "ü good"] * 3
    labels = [1, 0, 1, 0, 0, 1] * 3
    fit = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, labels)
    options = {id(fit): {"zipmap": False}, TfidfVectorizer: {"tokenexp": "[a-zA-Z0-9_]+"}}
    kinds = [("X", StringTensorType([None, 1]))]
    made = to_onnx(fit, initial_types=kinds, options=options)
    session = InferenceSession(made)
    assert [str(kind) for kind in session.plan.inputs.values()] == ["Text"]
    want = session.program.flow.reference({"X": np.array(texts, object)[:, None]})
    for column in (np.array(texts)[:, None], np.array(texts, object)[:, None]):
        for rows in (column, column[:1], column[::2]):
            label, probabilities = session.run(None, {"X": rows})
            assert probabilities.dtype == np.float32
            np.testing.assert_array_equal(label, session.run(["label"], {"X": rows})[0])
        np.testing.assert_array_equal(session.run(None, {"X": column})[0], want["label"])
        np.testing.assert_allclose(
            session.run(None, {"X": column})[1], want["probabilities"], atol=1e-6
        )
    with pytest.raises(errors.InvalidArgument):
        session.run(None, {"X": np.array(texts)})


def texts() -> bytes:
    """Words counted, and a logistic regression."""
    fit = make_pipeline(TfidfVectorizer(lowercase=False), LogisticRegression())
    fit.fit(["one two", "two three", "three four", "four one"], [0, 1, 1, 0])
    options = {id(fit): {"zipmap": False}, TfidfVectorizer: {"tokenexp": "[a-zA-Z0-9_]+"}}
    kinds = [("X", StringTensorType([None, 1]))]
    data: bytes = to_onnx(fit, initial_types=kinds, options=options).SerializeToString()
    return data


@pytest.mark.parametrize("documents", [["one two"], ["", "four four one", "two"]], ids=len)
def test_documents_answer_the_same_whatever_holds_them(documents: list[str]) -> None:
    ours, theirs = both(texts())
    column = np.array(documents)[:, None]
    want = theirs.run(None, {"X": column})
    for feed in (column, column.astype(object), column.tolist()):
        for names in (None, ["probabilities", "label"]):
            got = ours.run(names, {"X": feed})
            for mine, yours in zip(got, want if names is None else want[::-1], strict=True):
                assert mine.dtype == yours.dtype
                np.testing.assert_allclose(mine, yours, rtol=1e-5)


@pytest.mark.parametrize("wrong", [[["a", "b"]], []], ids=str)
def test_what_is_no_document_is_refused(wrong: list[Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        both(texts())[0].run(None, {"X": np.array(wrong, object)})


def test_what_is_mostly_black_is_left_to_onnxruntime_as_a_whole() -> None:
    data = black_in_the_middle().SerializeToString()
    ours, theirs = both(data)
    (stage,) = ours.plan.program.stages
    assert stage.kind == "python"
    assert "onnxruntime (black)" in explain(ours.plan)
    for rows in (X, X[:1]):
        got, want = ours.run(["y"], {"x": rows}), theirs.run(None, {"x": rows})
        np.testing.assert_array_equal(got[0], want[0])
    with pytest.raises(errors.InvalidArgument):
        ours.run(None, {"x": X.astype(np.float64)})
    with pytest.raises(errors.InvalidArgument):
        ours.run(None, {"z": X})


@pytest.mark.parametrize("feed", [None, [1], "x", {}, {"x": None}], ids=repr)
def test_a_feed_that_is_none_is_refused(feed: Any) -> None:
    for data in (classifier([0, 1], zipmap=False), black_in_the_middle().SerializeToString()):
        with pytest.raises(errors.InvalidArgument):
            InferenceSession(data).run(None, feed)


def test_what_is_the_same_for_all_rows_is_there_for_none() -> None:
    made = model(
        [node("Neg", ["y"], ["a"]), node("Add", ["x", "y"], ["b"])],
        [("x", FLOAT, ["N", 2]), ("y", FLOAT, [2])],
        [("a", FLOAT, [2]), ("b", FLOAT, ["N", 2])],
    )
    ours, theirs = both(made.SerializeToString())
    for rows in (0, 3):
        feed = {"x": np.ones((rows, 2), np.float32), "y": np.array([1, 2], np.float32)}
        for got, want in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
            np.testing.assert_array_equal(got, want)
            assert got.shape == want.shape


def test_run_is_machine_code_and_means_the_same() -> None:
    session = InferenceSession(classifier([3, 5, 9], zipmap=False))
    assert type(session.run).__name__ == "builtin_function_or_method"
    assert str(inspect.signature(session.run)) == "(output_names, input_feed, run_options=None)"
    want = InferenceSession.run(session, None, {"X": X})
    names = [item.name for item in session.get_outputs()]
    for got in (
        session.run(None, {"X": X}),
        session.run(None, input_feed={"X": X}),
        session.run(output_names=None, input_feed={"X": X}),
        session.run(None, {"X": X}, None),
        session.run(names, {"X": X}),
        session.run(None, {"X": X.tolist()}),
        session.run(None, UserDict({"X": X})),
    ):
        assert type(got) is list
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)
    wrong: list[Any] = [
        {"Y": X},
        {"X": X, "Y": X},
        {},
        {"X": X[0]},
        {"X": X[:, :2]},
        X,
        None,
        {3: X},
    ]
    wrong += [{"X": X.astype(np.float64)}, {"X": None}]
    for feed in wrong:
        with pytest.raises(errors.InvalidArgument):
            session.run(None, feed)
    with pytest.raises(TypeError):
        session.run()  # type: ignore[call-arg]


def test_a_session_goes_when_nobody_has_it() -> None:
    session = InferenceSession(classifier([0, 1], zipmap=False))
    gone, run = weakref.ref(session), session.run
    before = [sys.getrefcount(X), sys.getrefcount(run)]
    gc.disable()
    try:
        del session
        assert gone() is None
    finally:
        gc.enable()
    for _ in range(50):
        assert len(run(None, {"X": X})) == 2
    assert [sys.getrefcount(X), sys.getrefcount(run)] == [before[0], before[1] - 1]


def test_somebodys_own_run_is_kept() -> None:
    class Counting(InferenceSession):
        calls = 0

        def run(self, *arguments: Any, **named: Any) -> list[Any]:
            self.calls += 1
            return super().run(*arguments, **named)

    session = Counting(classifier([0, 1], zipmap=False))
    session.run(None, {"X": X})
    assert session.calls == 1


def test_columns_of_different_lengths_are_refused() -> None:
    nodes = [node("Concat", ["a", "b"], ["y"], axis=1)]
    one = ("N", 1)
    data = model(nodes, [("a", FLOAT, one), ("b", FLOAT, one)], [("y", FLOAT, ("N", 2))])
    for ours in (InferenceSession(data), InferenceSession(data, compiled=False)):
        for rows in (1, 2, 4):
            feed = {"a": np.ones((3, 1), np.float32), "b": np.ones((rows, 1), np.float32)}
            with pytest.raises(errors.InvalidArgument, match="numbers of rows") as caught:
                ours.run(None, feed)
            assert caught.value.where == "b"


def test_shapes_that_a_model_does_not_declare() -> None:
    data = model([node("Neg", ["x"], ["y"])], [("x", FLOAT, (None, 3))], [("y", FLOAT, None)])
    data.graph.output[0].type.tensor_type.ClearField("shape")
    data.domain = "my.shop"
    ours, theirs = both(data.SerializeToString())
    assert [v.shape for v in ours.get_outputs()] == [v.shape for v in theirs.get_outputs()]
    assert ours.get_modelmeta().domain == theirs.get_modelmeta().domain == "my.shop"


def test_what_a_session_is_not() -> None:
    ours, theirs = both(classifier([0, 1], zipmap=False))
    assert ours.get_provider_options() == theirs.get_provider_options()
    for session in (ours, theirs):
        session.set_providers(["CPUExecutionProvider"])
        session.disable_fallback()
        session.enable_fallback()
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(session)
    assert copy.copy(ours).run(None, {"X": X})[0].size == len(X)
    with pytest.raises(AttributeError, match=r"io_binding.*numpy arrays"):
        _ = ours.io_binding
    assert not hasattr(ours, "no_such_thing")


def test_a_session_answers_while_its_code_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(background, "BY_DEFAULT", [True])
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "code"))
    go_on = threading.Event()
    compiler = background.shared()
    compiler.submit(go_on.wait)
    steps = (StandardScaler(), MinMaxScaler(), Normalizer(), Binarizer(), LogisticRegression())
    fit = make_pipeline(*steps).fit(X, X[:, 0] > X[:, 1])  # of a structure that no cache has
    proto = to_onnx(fit, X[:1], options={"zipmap": False})
    ours, theirs = both(proto.SerializeToString())
    try:
        for names in (None, ["probabilities"]):
            want, got = theirs.run(names, {"X": X}), ours.run(names, {"X": X})
            for one, other in zip(want, got, strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-5)
        assert ours.plan.code.tier == 0
    finally:
        go_on.set()
    ours.plan.wait(30)
    np.testing.assert_allclose(ours.run(None, {"X": X})[1], want[0], rtol=1e-5)
    assert type(ours.run) is BuiltinFunctionType
