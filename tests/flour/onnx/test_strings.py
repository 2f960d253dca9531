"""Strings joined, cut, matched, dropped and made unique, held to onnxruntime."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flour
from flour.core.types import Scalar
from flour.onnx import NotNative, import_model
from flour.onnx.re2 import with_ends
from tests.onnx_models import model, needs_locale, node, same, wanted

SOME = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
VERSIONS = {"": 20}


def texts(*values: str) -> Any:
    return np.array(values, object)


def known(op: str, value: Any, outputs: dict[str, str], opset: int = 20, **how: Any) -> None:
    """Raise unless a value fixed at import has the answers that onnxruntime gives."""
    proto = model(
        [node(op, ["X"], list(outputs), **how)],
        {"X": ("string" if value.dtype == object else str(value.dtype), value.shape)},
        outputs,
        opsets={"": opset},
    )
    want = wanted(proto, {"X": value})
    program = import_model(proto, native_only=True, fixed={"X": value})
    got = program.answer(program.flow.reference({"rows": np.zeros(1)}))
    for name, expected in want.items():
        assert got[name].shape == expected.shape
        assert got[name].tolist() == expected.tolist()


# --- joined ---------------------------------------------------------------------------------------


def test_known_strings_are_joined() -> None:
    proto = model(
        [node("StringConcat", ["X", "Y"], ["Z"])],
        {"X": ("string", (2, 1)), "Y": ("string", (3,))},
        {"Z": "string"},
        opsets=VERSIONS,
    )
    feed = {"X": texts("a", "日").reshape(2, 1), "Y": texts("", "b", "é")}
    program = import_model(proto, native_only=True, fixed=feed)
    got = program.answer(program.flow.reference({"rows": np.zeros(1)}))["Z"]
    assert got.tolist() == wanted(proto, feed)["Z"].tolist()


def test_joined_documents_are_one_document() -> None:
    proto = model(
        [
            node("StringConcat", ["X", "Z"], ["two"]),
            node("StringConcat", ["two", "X"], ["three"]),
            node("RegexFullMatch", ["three"], ["Y"], pattern="[a-z]+ [a-zé]+"),
        ],
        {"X": ("string", [None]), "Z": ("string", [None])},
        {"Y": "bool"},
        opsets=VERSIONS,
    )
    heads = ["the SEA", "Sea", "", "Ab", "A" * 300, "x", "a ", "Aİ"]
    tails = ["", " salt", "a b", " é", "b c", " " + "é" * 400, "É", " b"]
    feed = {"X": texts(*heads), "Z": texts(*tails)}
    assert same(proto, feed, native=True).flow.types["Y"] == Scalar("bool")
    plan = flour.from_onnx(proto, native_only=True).plan()
    assert all(stage.native for stage in plan.stages)


def test_joined_strings_that_are_an_answer_are_left_to_onnxruntime() -> None:
    proto = model(
        [node("StringConcat", ["X", "X"], ["Z"])],
        {"X": ("string", (None, 1))},
        {"Z": "string"},
        opsets=VERSIONS,
    )
    with pytest.raises(NotNative):
        import_model(proto, native_only=True)
    assert flour.from_onnx(proto).plan().run(["ab", "é"])["Z"].tolist() == ["abab", "éé"]


# --- cut ------------------------------------------------------------------------------------------

CUT = ["a b", "  a\tb\n", "", "a--b---c", "\u00a0x\u2003y", "é-éx", " ", "a b  c  ", " a b"]


@pytest.mark.parametrize("most", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("separator", [None, "", " ", "-", "--", "é"])
def test_known_strings_are_cut(separator: str | None, most: int | None) -> None:
    how = {"delimiter": separator, "maxsplit": most}
    given: dict[str, Any] = {key: value for key, value in how.items() if value is not None}
    kinds = {"A": "string", "B": "int64"}
    known("StringSplit", texts(*CUT), kinds, **given)
    known("StringSplit", texts(*CUT[:8]).reshape(2, 4), kinds, **given)


def test_strings_of_the_data_are_not_cut() -> None:
    proto = model(
        [node("StringSplit", ["X"], ["A", "B"])],
        {"X": ("string", (None, 1))},
        {"A": "string", "B": "int64"},
        opsets=VERSIONS,
    )
    with pytest.raises(NotNative, match="no native code"):
        import_model(proto, native_only=True)


# --- matched --------------------------------------------------------------------------------------

WHOLE = ["a", "ab", "", "a\n", "é", "aaa", "ab ab", "a-b", "A", "日本 a", "ab" * 200, "x@y.de"]
PATTERNS = [
    "a+",
    r"\w+",
    ".+",
    "(?s).+",
    r"[\w.-]+@[\w-]+\.[a-z]+",
    "(?i)a+",
    "[^a]+",
    r"a\b.*",
    "é",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_strings_that_match_as_a_whole(pattern: str) -> None:
    made = [node("RegexFullMatch", ["X"], ["Y"], pattern=pattern)]
    for shape in ((None, 1), (None, 2), (12,)):
        proto = model(made, {"X": ("string", shape)}, {"Y": "bool"}, opsets=VERSIONS)
        size = [-1 if length is None else length for length in shape]
        same(proto, {"X": texts(*WHOLE).reshape(size)}, native=shape == (None, 2))


def test_no_memory_behind_one_string_is_looked_at_for_another() -> None:
    made = [node("RegexFullMatch", ["X"], ["Y"], pattern="b+")]
    proto = model(made, {"X": ("string", (None, 3))}, {"Y": "bool"}, opsets=VERSIONS)
    rows = [["b" * n, "", "b" * (n % 9) + "a" * (n % 2)] for n in range(64)]
    same(proto, {"X": np.array(rows, object)}, native=True)


@SOME
@given(st.lists(st.text("ab .\n", max_size=9), min_size=1, max_size=6), st.sampled_from(PATTERNS))
def test_any_strings_match_as_they_do_there(values: list[str], pattern: str) -> None:
    made = [node("RegexFullMatch", ["X"], ["Y"], pattern=pattern)]
    proto = model(made, {"X": ("string", (None, 1))}, {"Y": "bool"}, opsets=VERSIONS)
    same(proto, {"X": texts(*values)[:, None]})


@pytest.mark.parametrize("pattern", ["^a$", "a|ab", "a*", r"\Aab\z", "(^|b)a($|b)", "", ".*", "a$"])
def test_known_strings_match_patterns_with_ends(pattern: str) -> None:
    known("RegexFullMatch", texts(*WHOLE, "bab"), {"Y": "bool"}, pattern=pattern)


@pytest.mark.parametrize("pattern", ["a|ab", "a*", "^a$", "(?m)a", "(?=a)"])
def test_patterns_that_native_code_does_not_match(pattern: str) -> None:
    made = [node("RegexFullMatch", ["X"], ["Y"], pattern=pattern)]
    proto = model(made, {"X": ("string", (None, 1))}, {"Y": "bool"}, opsets=VERSIONS)
    with pytest.raises(NotNative):
        import_model(proto, native_only=True)


def test_the_end_of_a_text_is_its_very_end() -> None:
    assert re.search(with_ends("a$"), "a\n") is None
    assert re.search(with_ends(r"^a\z"), "a") is not None


# --- dropped --------------------------------------------------------------------------------------


@needs_locale
@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
def test_stop_words_of_known_strings(action: str, case: int) -> None:
    how = {"case_change_action": action, "is_case_sensitive": case, "stopwords": ["the", "éA", "i"]}
    for values in (texts("Monday", "the", "THE", "Éa"), texts("the"), texts("Ab", "the")[None]):
        known("StringNormalizer", values, {"Y": "string"}, 17, **how)


def test_stop_words_of_the_data_are_left_to_onnxruntime() -> None:
    made = [node("StringNormalizer", ["X"], ["Y"], stopwords=["the"])]
    proto = model(made, {"X": ("string", [None])}, {"Y": "string"})
    with pytest.raises(NotNative, match="no native code"):
        import_model(proto, native_only=True)


# --- made unique ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"sorted": 0}, {"axis": 0}, {"axis": -1, "sorted": 0}])
def test_known_values_that_differ(how: dict[str, Any]) -> None:
    values = np.array([[2, 1, 2], [0, 1, 0], [2, 1, 2]], np.int64)
    known("Unique", values, dict.fromkeys("ABCD", "int64"), 17, **how)


def test_how_many_of_the_data_differ_is_not_known() -> None:
    made = [node("Unique", ["X"], ["Y"])]
    for kind, shape in (("float32", (None, 2)), ("float32", (2, 2))):
        proto = model(made, {"X": (kind, shape)}, {"Y": kind})
        with pytest.raises(NotNative):
            import_model(proto, native_only=True)
    proto = model(made, {"X": ("float32", (2,))}, {"Y": "float32"})
    nothing = {"X": np.array([np.nan, 1], np.float32)}
    with pytest.raises(NotNative):
        import_model(proto, native_only=True, fixed=nothing)
