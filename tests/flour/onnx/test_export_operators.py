"""Every operator as ONNX: the same from onnxruntime, from ONNX's evaluator, and read back again.

Runs over the table of operators (tests/cases.py). What has no form says why; what onnxruntime has
no kernel for is listed here.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, checker
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from flour.core.errors import UnsupportedSetting
from flour.core.op import REGISTRY
from flour.core.reference import apply_op
from flour.core.sparse import densify
from flour.core.types import Record, Text, Vector
from flour.language.flow import Flow, source
from flour.onnx import import_model
from flour.onnx.export.writer import FORMS, WITHOUT, load
from tests.cases import CASES, Case
from tests.columns import assert_close
from tests.flour.test_cases import columns, made
from tests.house import ROOT
from tests.onnx_models import has_locale, needs_locale

sys.path.insert(0, str(ROOT / "scripts"))

import onnx_export_page

import flour

#: Operators that cannot be written with these settings or types, and what is said about it.
REFUSED = {
    "PowerOf": "int",
    "ShiftLeft": "int",
    "ShiftRight": "int",
    "Tokenize": "all of unicode",
    "TreeNearest": "hamming",
    "WordNgrams": "tokens",
}
#: What onnxruntime has no kernel for, though ONNX has the operator: by operator, the dtypes.
NO_KERNEL = {
    **dict.fromkeys(("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh"), ("float64",)),
    **dict.fromkeys(("LargerOf", "SmallerOf", "Modulo", "Remainder", "WholeQuotient"), ("uint64",)),
    **dict.fromkeys(("SegmentSum", "SegmentMax", "TopPlaces"), ("uint64",)),
    **dict.fromkeys(("Negate", "Abs", "Sign", "Square"), ("int8",)),
    **dict.fromkeys(("ShiftLeft", "ShiftRight"), ("uint64", "uint16")),
}
#: What ONNX's evaluator does as Python does it.
PYTHONS = {"LowerLetters", "UpperLetters", "WriteFloats"}
#: What onnxruntime refuses to run on no rows at all.
NEEDS_ROWS = {"LetterNgrams", "LowerLetters", "UpperLetters"}
load()
WITH_FORM = [case for case in CASES if case.op.name in FORMS]
ROWS = 7


@cache
def written(case: Case) -> bytes:
    """The operator over inputs x0, x1, ... as a model with the output y."""
    inputs = [source(f"x{i}", kind) for i, kind in enumerate(case.inputs)]
    flow: Flow = case.op(*inputs)
    return flour.to_onnx(flow.named("y"))


def of(case: Case) -> bytes:
    """The model, or a skipped test where these settings are refused for a reason that is known."""
    try:
        return written(case)
    except UnsupportedSetting as refusal:
        if REFUSED[case.op.name] not in str(refusal).lower():
            raise
        pytest.skip(refusal.what)


def drawn(case: Case, rows: int, *, odd: bool) -> tuple[dict[str, Any], Any]:
    """What the model is fed, and what the operator answers."""
    given = [_present(column) for column in columns(case, rows, odd=odd)]
    with np.errstate(all="ignore"):
        want = np.asarray(densify(apply_op(made(case), given)))
    feed: dict[str, Any] = {}
    for i, (kind, column) in enumerate(zip(case.inputs, given, strict=True)):
        if isinstance(kind, Record):
            feed |= {name: np.asarray(part)[:, None] for name, part in column.items()}
        else:
            feed[f"x{i}"] = np.asarray(
                densify(column), object if isinstance(column, list) else None
            )
    return feed, want


def _present(column: Any) -> Any:
    """Strings without missing ones, which ONNX does not have."""
    if not isinstance(column, np.ndarray) or column.dtype != object:
        return column
    flat = [value if isinstance(value, str) else "gone" for value in column.reshape(-1)]
    return np.array(flat, object).reshape(column.shape)


def held(case: Case, got: Any, want: Any) -> None:
    """Of one shape and dtype, and equal but for what is stated: thirty roundings, or its own."""
    got = got.astype(object) if got.dtype.kind == "U" else got
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert_close(got, want, max(30 * case.tolerance, 3e-12), case.name)


@pytest.mark.parametrize("case", WITH_FORM, ids=[case.name for case in WITH_FORM])
def test_onnxruntime_and_onnx_answer_the_same_and_it_is_read_back(case: Case) -> None:
    data = of(case)
    read_back_native(case, data)
    evaluated_by_onnx(case, data)
    if not has_locale():
        pytest.skip("onnxruntime needs a locale for text")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except NoKernel:
        dtypes = {str(getattr(kind, "dtype", "")) for kind in case.inputs}
        assert dtypes <= set(NO_KERNEL[case.op.name])
        return
    least = 1 if case.op.name in NEEDS_ROWS else 0
    for rows, odd in ((ROWS, False), (ROWS, case.odd), (least, False)):
        feed, want = drawn(case, rows, odd=odd)
        held(case, session.run(None, feed)[0], want)


def evaluated_by_onnx(case: Case, data: bytes) -> None:
    """ONNX's own evaluator answers the same, where it has the operators."""
    proto = ModelProto.FromString(data)
    if case.op.name in PYTHONS or any(n.domain == "com.microsoft" for n in proto.graph.node):
        return
    checker.check_model(proto, full_check=True)
    feed, want = drawn(case, ROWS, odd=False)
    with np.errstate(all="ignore"):
        (got,) = ReferenceEvaluator(proto).run(None, feed)
    held(case, np.asarray(got), want)


def read_back_native(case: Case, data: bytes) -> None:
    """The model is imported as native code that answers the same."""
    program = import_model(data, native_only=True)
    for odd in {False, case.odd}:
        feed, want = drawn(case, ROWS, odd=odd)
        with np.errstate(all="ignore"):
            got = program.answer(program.flow.reference(program.feed(feed)))["y"]
        held(case, got, want)


# --- text ---------------------------------------------------------------------------------------

DOCUMENTS = np.array(["to be or not to be", "", "Be2 not; 2be", "a b a b", "be"] * 2, object)


@pytest.mark.parametrize("pattern", ["(?a)[a-z]+", r"(?a)\w+", "[^ ]+", "(?u)[a-z]{2,}"])
@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 2), (2, 3)])
@needs_locale
def test_words_and_phrases(pattern: str, low: int, high: int) -> None:
    words = ["be", "to be", "or not to", "2be", "not", "a b", "to"]
    vocabulary = [word for word in words if low <= word.count(" ") + 1 <= high]
    flow = source("t", Text()).tokenize(pattern).word_ngrams(vocabulary, low, high).named("y")
    want = flow.reference(DOCUMENTS)["y"].toarray()
    session = onnxruntime.InferenceSession(flour.to_onnx(flow), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"t": DOCUMENTS})[0], want)
    program = import_model(flour.to_onnx(flow), native_only=True)
    got = program.answer(program.flow.reference(program.feed({"t": DOCUMENTS})))["y"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"\w+", "all of Unicode"),
        ("(?a)([a-z])x", "a group"),
        ("(?a)a|b*", "no ONNX form"),
        ("(?a)(?i:a)", "no ONNX form"),
        ("(?a).", "no ONNX form"),
        (r"(?a)\S+", "no ONNX form"),
        ("(?a)a|ab", "no ONNX form"),
    ],
)
def test_patterns_that_mean_something_else_are_refused(pattern: str, said: str) -> None:
    flow = source("t", Text()).tokenize(pattern).word_ngrams(["a"])
    with pytest.raises(UnsupportedSetting, match=said):
        flour.to_onnx(flow)


def test_phrases_of_words_with_spaces_are_refused() -> None:
    flow = source("t", Text()).tokenize("(?a)[a-z ]+").word_ngrams(["a b"], 1, 2)
    with pytest.raises(UnsupportedSetting, match="spaces in them"):
        flour.to_onnx(flow)


def test_lengths_no_gram_has_take_no_time() -> None:
    words = source("t", Text()).tokenize("(?a)[a-z]+").word_ngrams(["a", "b c"], 1, 2**31 - 1)
    data = flour.to_onnx(words.named("y"))
    (node,) = (n for n in ModelProto.FromString(data).graph.node if n.op_type == "TfIdfVectorizer")
    assert {a.name: a.i for a in node.attribute}["max_gram_length"] == 2


def test_forms_and_reasons_are_of_operators_and_no_operator_has_both() -> None:
    assert set(FORMS) | set(WITHOUT) <= set(REGISTRY)
    assert not set(FORMS) & set(WITHOUT)


def test_an_operator_that_nothing_is_said_about_is_not_exportable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(FORMS, "Softmax")
    flow = source("x", Vector(3)).softmax()
    with pytest.raises(UnsupportedSetting, match="Softmax has no ONNX form") as caught:
        flour.to_onnx(flow)
    assert "not exportable" in str(caught.value)
    case = next(case for case in CASES if case.op.name == "Softmax")
    assert onnx_export_page.line("Softmax", [case]).startswith("| Softmax | 1 | – | not exportable")


def test_a_refusal_says_why() -> None:
    flow = source("t", Text()).lower()
    with pytest.raises(UnsupportedSetting, match="Lower has no ONNX form") as caught:
        flour.to_onnx(flow)
    assert "Unicode" in str(caught.value)
    assert "test_export_operators.py" in str(caught.value)


def test_the_page_is_current() -> None:
    text = (ROOT / "docs" / "reference" / "coverage-onnx-export.md").read_text(encoding="utf-8")
    assert text == onnx_export_page.page()
