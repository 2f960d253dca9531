"""Text operators of ONNX against onnxruntime: letters, words, n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oven
from flour.onnx import import_model
from flour.onnx.errors import NotNative
from flour.onnx.text_ngrams import MICROSOFT
from flour.ops.onnx_text import LetterNgrams
from flour.strings import unicode
from runtime import InferenceSession
from tests.onnx_models import answered, model, needs_locale, node, same, wanted

_OFTEN = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
_LETTERS = st.text(st.sampled_from("aAbB1_ .,!?İIıΣσßé\t\n日ǅ-"), max_size=12)
_POOL = ["a", "b", "ab", "1", "_", "é", "日"]


def _tokens(**how: Any) -> Any:
    given = {"mark": 0, "pad_value": "#", "mincharnum": 1} | how
    return node("Tokenizer", ["N"], ["T"], "com.microsoft", **given)


def _counts(pool: list[str], **how: Any) -> Any:
    given: dict[str, Any] = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 1,
        "max_skip_count": 0,
        "ngram_counts": [0],
        "ngram_indexes": list(range(len(pool))),
        "pool_strings": pool,
    }
    return node("TfIdfVectorizer", ["F"], ["Y"], **(given | how))


def _pipeline(words: Any, counts: Any, case: str = "LOWER") -> Any:
    nodes = [
        node("StringNormalizer", ["X"], ["N"], case_change_action=case, is_case_sensitive=0),
        words,
        node("Flatten", ["T"], ["F"]),
        counts,
    ]
    return model(nodes, {"X": ("string", [None])}, {"Y": "float32"})


def _texts(documents: list[str]) -> Any:
    return np.array(documents, object)


@needs_locale
@_OFTEN
@given(st.lists(_LETTERS, min_size=1, max_size=4), st.sampled_from(["LOWER", "UPPER", "NONE"]))
def test_letters_change_one_by_one(documents: list[str], case: str) -> None:
    normal = node("StringNormalizer", ["X"], ["Y"], case_change_action=case, is_case_sensitive=0)
    same(model([normal], {"X": ("string", [None])}, {"Y": "string"}), {"X": _texts(documents)})


@needs_locale
@pytest.mark.parametrize("case", ["LOWER", "UPPER"])
def test_every_letter_there_is(case: str) -> None:
    letters = [c for c in unicode.everything() if c != "\0" and not "\ud800" <= c <= "\udfff"]
    # One document for each block: the C library and Python may know different newest letters.
    documents = ["".join(letters[start : start + 256]) for start in range(0, 0x3000, 256)]
    normal = node("StringNormalizer", ["X"], ["Y"], case_change_action=case, is_case_sensitive=0)
    same(model([normal], {"X": ("string", [None])}, {"Y": "string"}), {"X": _texts(documents)})


@needs_locale
@_OFTEN
@given(
    st.lists(_LETTERS, min_size=1, max_size=4),
    st.sampled_from(
        [
            {"tokenexp": "[a-zA-Z0-9_]+"},
            {"tokenexp": "\\w+"},
            {"tokenexp": "[a-z]+|[0-9]"},
            {"tokenexp": "(a|b)+[^\\s]"},
            {"tokenexp": "[a-z]+", "mincharnum": 2},
            {"separators": [" ", ","]},
            {"separators": ["[ ,.]", "\\?", "\\s"], "mincharnum": 2},
            {"separators": [""]},
            {"separators": ["a", "b "], "mark": 1},
            {"separators": ["ab*", " ", "1é"], "mincharnum": 2},
            {"separators": [", ", "  ", "bb"]},
            {"separators": ["a[b1]|1", "é"], "mark": 1},
            {"tokenexp": "[a-z]+", "mark": 1},
        ]
    ),
)
def test_words_are_cut_as_onnxruntime_cuts_them(documents: list[str], how: dict[str, Any]) -> None:
    pool = [*_POOL, "aa", "ba", "ab1", "."]
    same(_pipeline(_tokens(**how), _counts(pool)), {"X": _texts([*documents, "ab a,b a1 aa"])})


_TWO = {"min_gram_length": 1, "max_gram_length": 2, "ngram_counts": [0, 3]}
_WEIGHTS = {"weights": [0.5, 2.0, 1.5, 3.0, 0.25]}


@needs_locale
@_OFTEN
@given(st.lists(_LETTERS, min_size=1, max_size=4), st.sampled_from(["TF", "IDF", "TFIDF"]))
def test_phrases_count_and_weigh(documents: list[str], mode: str) -> None:
    pool = ["a", "b", "1", "a", "b", "b", "1"]
    how = {**_TWO, "mode": mode, "ngram_indexes": [2, 0, 4, 1, 3], **_WEIGHTS}
    proto = _pipeline(_tokens(tokenexp="[a-z0-9]"), _counts(pool, **how))
    same(proto, {"X": _texts([*documents, "a b b 1 a", ""])})


_RUNS = [*"ab \n", *("ab", "b ", " a", "  ", "é日"), *("ab ", " ab", "b\n "), *("a  b", "日é a")]


def _runs(pool: list[str]) -> dict[str, Any]:
    """The attributes of a pool of runs of characters, shortest first."""
    sizes = [sum(len(run) for run in pool if len(run) == size) for size in range(1, 5)]
    starts = np.cumsum([0, *sizes])[: max(map(len, pool))].tolist()
    return {
        "pool": [letter for run in pool for letter in run],
        "max_gram_length": len(starts),
        "ngram_counts": starts,
        "ngram_indexes": list(range(len(pool))),
    }


@needs_locale
@_OFTEN
@given(
    st.lists(st.text("ab \n\té日", max_size=12), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(3, 4),
)
def test_runs_of_characters_white_space_among_them(
    documents: list[str], least: int, most: int
) -> None:
    feed = {"X": _texts([*documents, "ab ab", " a  b", "", "ba\nab a"])}
    pool = [run for run in _RUNS if least <= len(run) <= max(least, most)]
    proto = _pipeline(_tokens(tokenexp="."), _counts(**_runs(pool), min_gram_length=least))
    same(proto, feed)
    program = import_model(proto, native_only=True)
    assert [type(item.op) for item in program.flow.nodes()].count(LetterNgrams) == 1
    native, defined = (answered(program, feed, native=way)["Y"] for way in (True, False))
    np.testing.assert_array_equal(native, defined)


@needs_locale
def test_a_word_of_letters_is_no_character() -> None:
    """The words ab and c side by side read like three characters, which they never are."""
    pool = ["a", "b", "c", "a", "b", "ab", "c"]
    how = {"max_gram_length": 2, "ngram_counts": [0, 3], "ngram_indexes": list(range(5))}
    same(_pipeline(_tokens(tokenexp="."), _counts(pool, **how)), {"X": _texts(["abc", "ab c"])})


@needs_locale
def test_documents_in_native_code() -> None:
    proto = _pipeline(_tokens(tokenexp="[a-zA-Z0-9_]+"), _counts(_POOL))
    same(proto, {"X": _texts(["A b ab AB", "", "é 日 1_ _"])}, native=True)


def test_native_and_defined_answers_agree_without_onnxruntime() -> None:
    """What runs where the locale cannot be had."""
    program = import_model(_pipeline(_tokens(tokenexp="\\w+"), _counts(_POOL)), native_only=True)
    feed = {"X": _texts(["A b ab AB", "", "İ ß 1_ _ ΑΣ"])}
    native, defined = (answered(program, feed, native=way)["Y"] for way in (True, False))
    np.testing.assert_array_equal(native, defined)
    assert native[0].tolist() == [1, 1, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_ngrams_of_rows_of_a_fixed_length_are_onnxruntimes(kind: str) -> None:
    x = np.array([[1, 2, 3], [2, 2, 1]]).astype(object if kind == "string" else kind)
    x = x.astype(str).astype(object) if kind == "string" else x
    pool = {"pool_strings": ["1", "2"]} if kind == "string" else {"pool_int64s": [1, 2]}
    how: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 1, "mode": "TF", **pool}
    how |= {"max_skip_count": 0, "ngram_counts": [0], "ngram_indexes": [0, 1]}
    made = model(
        [node("TfIdfVectorizer", ["X"], ["Y"], **how)], {"X": (kind, (None, 3))}, {"Y": "float32"}
    )
    with pytest.raises(NotNative, match="no native code"):
        import_model(made, native_only=True)
    (got,) = InferenceSession(made).run(None, {"X": x})
    np.testing.assert_array_equal(got, wanted(made, {"X": x})["Y"])


@pytest.mark.parametrize(
    ("words", "counts", "why"),
    [
        (_tokens(tokenexp="\\p{Greek}+"), {}, "RE2"),
        (_tokens(tokenexp="(?i)é+"), {}, "beyond ASCII"),
        (_tokens(tokenexp="a{,2}"), {}, "RE2"),
        (_tokens(tokenexp="a|ab"), {}, "longest"),
        (_tokens(tokenexp="a+?"), {}, "longest"),
        (_tokens(separators=["a|ab", " "]), {}, "separator"),
        (_tokens(separators=["\\bab"]), {}, "separator"),
        (_tokens(separators=["ab", "c?"]), {}, "separator"),
        (_tokens(tokenexp="a$"), {}, "RE2"),
        (_tokens(tokenexp="[a-z]+", pad_value="a"), {}, "filled up"),
        (_tokens(tokenexp="[a-z ]+"), _TWO, "spaces"),
    ],
)
def test_what_has_no_exact_translation_is_not_native(words: Any, counts: Any, why: str) -> None:
    pool = ["a", "b", "1", "a", "b"] if counts else ["a"]
    how: dict[str, Any] = {**counts, "ngram_indexes": list(range(4 if counts else 1))}
    with pytest.raises(NotNative, match=why):
        import_model(_pipeline(words, _counts(pool, **how)), native_only=True)


@needs_locale
@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (_tokens(tokenexp="[a-z]+", mark=1), {}),
        (_tokens(tokenexp="[a-z]+", pad_value="a"), {}),
        (_tokens(tokenexp="[a-z ]+"), _TWO),
    ],
)
def test_words_on_their_way_do_not_leave_native_code(words: Any, counts: Any) -> None:
    """What makes them runs on onnxruntime too, where what reads them does."""
    pool = ["a", "b", "1", "a", "b"] if counts else ["a"]
    how: dict[str, Any] = {**counts, "ngram_indexes": list(range(4 if counts else 1))}
    proto, feed = _pipeline(words, _counts(pool, **how)), {"X": _texts(["a B a", "b", "a  b b"])}
    got = answered(import_model(proto), feed, native=False)["Y"]
    np.testing.assert_array_equal(got, wanted(proto, feed)["Y"])


@needs_locale
def test_words_as_the_answer_are_as_wide_as_the_longest_text() -> None:
    nodes = [node("Identity", ["X"], ["N"]), _tokens(tokenexp="[a-z]+")]
    proto = model(nodes, {"X": ("string", [None])}, {"T": "string"})
    feed = {"X": _texts(["a b a", "b", "a  b b"])}
    got = answered(import_model(proto), feed, native=False)["T"]
    assert got.tolist() == wanted(proto, feed)["T"].tolist()


_HASHED: dict[str, Any] = {
    "string": ["a", "", "日本", "abcdefghi"],
    "int32": [1, -1, 5, -(1 << 31)],
    "uint64": [1, 2, 1 << 40, (1 << 64) - 1],
    "int64": [1, -1, 1 << 40, -(1 << 63)],
    "float32": [1.5, -0.0, 3e38, -1e-40],
    "float64": [1.5, -0.0, 1e308, 5e-324],
}


@pytest.mark.parametrize("kind", ["string", "int32", "uint64", "int64", "float32", "float64"])
@pytest.mark.parametrize("positive", [0, 1])
def test_hashes_are_those_of_the_bytes(kind: str, positive: int) -> None:
    made = node("MurmurHash3", ["X"], ["Y"], MICROSOFT, positive=positive, seed=3)
    x = np.array(_HASHED[kind], object if kind == "string" else kind).reshape(2, 2)
    proto = model([made], {"X": (kind, (None, 2))}, {"Y": "uint32" if positive else "int32"})
    same(proto, {"X": x}, native=kind in ("string", "float64"))


@needs_locale
def test_marks_are_beside_the_words() -> None:
    texts = {"X": _texts(["a b", "", "b a", "1 b b"])}
    pool = ["a", "b", "1", "a", "b", "b", "1"]
    words = _tokens(separators=[" "], mark=1)
    for skips in (0, 1):
        how = {**_TWO, "ngram_indexes": [2, 0, 4, 1, 3], "max_skip_count": skips}
        proto = _pipeline(words, _counts(pool, **how))
        if skips:
            with pytest.raises(NotNative, match="gaps"):
                import_model(proto, native_only=True)
        else:
            same(proto, texts)
    with pytest.raises(NotNative, match="marks"):
        import_model(_pipeline(words, _counts(["a", "\x02"])), native_only=True)


@needs_locale
def test_documents_cut_in_native_code() -> None:
    """Separators of several characters, at the ends and behind one another."""
    texts = _texts(["ab, b, a", ", , a", "", ", ", "a,b", "  a  ", "日, éé", "a, " * 70 + "b"])
    words = _tokens(separators=[", ", "  "])
    for least in (1, 2):
        words = _tokens(separators=[", ", "  "], mincharnum=least)
        pool = ["a", "b", "ab", "日", "éé", "a,b", ",", " "]
        how = {"ngram_indexes": list(range(len(pool)))}
        program = same(_pipeline(words, _counts(pool, **how)), {"X": texts}, native=True)
        assert all(stage.native for stage in oven.bake(program.flow).program.stages)
