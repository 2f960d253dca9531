"""ONNX's own suite pointed at `runtime.onnx.backend`, with onnxruntime beside it.

The ordinary suite takes every case of the operators in `OFTEN`, which converters of classical
models write, by the operators' definitions. Under the marker `conformance` all of the suite's
node cases run, compiled.
"""

from __future__ import annotations

import unittest
import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from runtime.onnx import backend
from runtime.onnx.errors import Fail, InvalidArgument
from tests.onnx_cases import cases as every_case
from tests.onnx_cases import difference, native_alone
from tests.onnx_parts import session

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ONNX makes its cases at import, out of infinities
    from onnx.backend.test import BackendTest
    from onnx.backend.test.loader import load_model_tests
    from onnx.backend.test.runner import Runner

OFTEN = {
    *("Add", "Sub", "Mul", "Div", "MatMul", "Gemm", "ArgMax", "Cast", "Reshape", "Concat"),
    *("Identity", "Softmax", "Sigmoid", "Where", "Gather", "Transpose", "ReduceSum", "Not"),
    *("ArrayFeatureExtractor", "LabelEncoder", "TfIdfVectorizer", "TreeEnsemble", "Binarizer"),
    *("Conv", "NonZero", "Unique", "SequenceInsert", "LSTM", "If", "Loop", "Compress"),
}


@cache
def cases() -> dict[str, Any]:
    """ONNX's node cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node") if case.data_sets}


def arrays(values: Any) -> list[Any]:
    """A case's values, with tensors as arrays."""
    tensor = onnx.TensorProto
    return [numpy_helper.to_array(v) if isinstance(v, tensor) else v for v in values]


def problem(case: Any, prepare: Any) -> str:
    """What goes wrong when a case is run by a backend; empty if nothing does."""
    try:
        run = prepare(case.model)
        for given, want in case.data_sets:
            got = run(arrays(given))
            Runner.assert_similar_outputs(arrays(want), got, rtol=case.rtol, atol=case.atol)
    except (Exception, unittest.SkipTest) as error:  # noqa: BLE001 (any counts)
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def theirs(model: Any) -> Any:
    """onnxruntime, likewise."""
    asked = session(model)
    names = [item.name for item in asked.get_inputs()]
    return lambda values: asked.run(None, dict(zip(names, values, strict=False)))


#: onnxruntime reads operator sets that are older than our importer does.
OLDER = {"test_not_2d", "test_not_3d", "test_not_4d"}


def failures(chosen: dict[str, Any], *, compiled: bool) -> dict[str, str]:
    """Cases that onnxruntime passes and we do not."""
    found = {
        name: problem(case, lambda model: backend.prepare(model, compiled=compiled).run)
        for name, case in chosen.items()
    }
    return {
        name: said
        for name, said in found.items()
        if said and name not in OLDER and not problem(chosen[name], theirs)
    }


def test_cases_of_frequent_operators_pass_where_onnxruntime_passes_them() -> None:
    chosen = {
        name: case
        for name, case in cases().items()
        if {item.op_type for item in case.model.graph.node} <= OFTEN
    }
    assert len(chosen) > 150
    assert failures(chosen, compiled=False) == {}


@pytest.mark.conformance
def test_every_case_passes_where_onnxruntime_passes_it() -> None:
    assert failures(cases(), compiled=True) == {}


def test_the_suite_itself_takes_the_module_for_a_backend() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite = BackendTest(backend, __name__)  # type: ignore[arg-type]  # a module will do
    suite.include("^test_(matmul|softmax_axis_1|argmax_keepdims_example|and_bcast3v1d)_?.*_cpu$")
    ran, result = 0, unittest.TestResult()
    for group in suite.test_cases.values():
        for name in unittest.defaultTestLoader.getTestCaseNames(group):
            group(name).run(result)
            ran += 1
    assert result.errors == result.failures == []
    done = ran - len(result.skipped)
    assert done >= 5, [name for name, _ in result.skipped[:3]]


def test_one_node_and_one_model() -> None:
    add = helper.make_node("Add", ["a", "b"], ["c"])
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = backend.run_node(add, [a, a])
    np.testing.assert_array_equal(got, a + a)
    (got,) = backend.run_node(add, [a, a], opset_version=13)
    np.testing.assert_array_equal(got, a + a)
    case = cases()["test_add"]
    (got,) = backend.run_model(case.model, arrays(case.data_sets[0][0]))
    np.testing.assert_array_equal(got, case.data_sets[0][1][0])


def test_what_it_supports() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    with pytest.raises(ValueError, match="CUDA"):
        backend.prepare(cases()["test_add"].model, "CUDA")
    black = cases()["test_basic_conv_with_padding"].model
    assert backend.is_compatible(cases()["test_add"].model, native_only=True)
    assert backend.is_compatible(black)
    assert not backend.is_compatible(black, native_only=True)
    with pytest.raises(Fail):
        backend.prepare(black, native_only=True)


def test_what_the_backend_calls_native_passes() -> None:
    made, wrong, alone = backend.Backend(native_only=True, compiled=False), {}, 0
    for case in filter(native_alone, every_case()):
        alone += 1
        prepared, names = made.prepare(case.model), [o.name for o in case.model.graph.output]
        for inputs, wanted in case.sets:
            got = prepared.run(list(case.feed(inputs).values()))
            if said := difference(case, dict(zip(names, got, strict=True)), wanted):
                wrong[case.name] = said
    assert wrong == {}
    assert alone > 700


def test_what_it_does_not_call_native_is_refused() -> None:
    made, refused = backend.Backend(native_only=True, compiled=False), 0
    for case in every_case()[::9]:
        if not native_alone(case):
            with pytest.raises(Fail) as caught:
                made.prepare(case.model)
            assert caught.value.found
            assert not made.is_compatible(case.model)
            refused += 1
    assert refused > 80


def test_a_refusal_names_the_node_and_the_reason() -> None:
    black = cases()["test_basic_conv_with_padding"].model
    with pytest.raises(Fail, match="no native code for this operator") as caught:
        backend.Backend(native_only=True).prepare(black)
    assert "Conv" in str(caught.value)


def test_inputs_come_by_name_in_order_or_alone() -> None:
    absolute = helper.make_node("Abs", ["a"], ["c"])
    add = helper.make_node("Add", ["a", "b"], ["c"])
    a = np.array([-1.0, 2.0], np.float32)
    for inputs in (a, [a], {"a": a}):
        np.testing.assert_array_equal(backend.run_node(absolute, inputs)[0], np.abs(a))
    np.testing.assert_array_equal(backend.run_node(add, {"b": a * 2, "a": a})[0], a * 3)
    twice = helper.make_node("Add", ["a", "a"], ["c"])
    np.testing.assert_array_equal(backend.run_node(twice, [a])[0], a * 2)
    with pytest.raises(InvalidArgument, match="more inputs"):
        backend.run_node(absolute, [a, a])
    with pytest.raises(InvalidArgument, match="'b'"):
        backend.run_node(add, [a])
    with pytest.raises(InvalidArgument, match="more inputs"):
        backend.prepare(cases()["test_add"].model).run([a, a, a])


def test_an_operator_of_another_set_runs_in_its_newest_version() -> None:
    binary = helper.make_node("Binarizer", ["a"], ["c"], domain="ai.onnx.ml", threshold=0.5)
    a = np.array([[0.0, 1.0]], np.float32)
    np.testing.assert_array_equal(backend.run_node(binary, a)[0], [[0, 1]])
    labels = helper.make_node(
        *("LabelEncoder", ["a"], ["c"]), domain="ai.onnx.ml", keys_int64s=[1], values_int64s=[7]
    )
    np.testing.assert_array_equal(backend.run_node(labels, np.array([1, 2]))[0], [7, -1])
