"""Documents as bytes: decoded as the vectoriser that was imported decodes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from flour.core.errors import DamagedProgram, NotDecodable, ParameterError, WrongDtype
from flour.core.types import Text, from_data, to_data
from runtime import Runtime
from tests.estimators import check

DOCUMENTS = ["Un café, s'il vous plaît", "der große Bär", "plain words only", "", "two words"]
LABELS = [0, 1, 0, 1, 1]
ENCODINGS = ["utf-8", "latin-1", "cp1252", "utf-16", "utf-8-sig", "shift_jis", "ascii", "utf-7"]
HOW = ["replace", "ignore"]
WRONG = [("hex", "strict"), ("utf-8", "explode"), ("no such", "ignore")]
#: No text in one encoding or another: a lone byte, half a character, undefined, overlong, odd.
BROKEN = [b"caf\xe9 words", b"two \xc3", b"\x81\x8d plain", b"\xc0\xaf only", b"\xff\xfew\xd8"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("how", HOW)
def test_any_bytes_in_any_encoding(encoding: str, how: str) -> None:
    made = TfidfVectorizer(encoding=encoding, decode_error=how).fit(DOCUMENTS)
    raw = [text.encode(encoding, "replace") for text in DOCUMENTS]
    check(made, [*raw, *BROKEN, *DOCUMENTS], sample=raw)


@pytest.mark.parametrize("settings", [{"analyzer": "char", "ngram_range": (1, 2)}, {}])
@pytest.mark.parametrize("kind", [CountVectorizer, HashingVectorizer])
def test_vectorisers(kind: Any, settings: dict[str, Any]) -> None:
    made = kind(**settings, decode_error="replace").fit(DOCUMENTS)
    check(made, [*(text.encode() for text in DOCUMENTS), *BROKEN])


@pytest.mark.parametrize("document", BROKEN)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_strict_refuses_where_the_library_does(document: bytes, encoding: str) -> None:
    made = CountVectorizer(encoding=encoding).fit(DOCUMENTS)
    program = flour.from_sklearn(made)
    place = _undecodable(made, document)
    if place is None:
        check(made, [document])
        return
    with pytest.raises(NotDecodable) as caught:
        program.reference(["fine", document])
    assert caught.value.where == "$[1]"
    assert f"at byte {place} of {len(document)}" in str(caught.value)


def _undecodable(made: Any, document: bytes) -> int | None:
    """Where the library says that the document cannot be decoded."""
    try:
        made.transform([document])
    except UnicodeDecodeError as problem:
        return problem.start
    return None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=20)), max_size=6))
def test_random_bytes(documents: list[Any]) -> None:
    made, program = _CHARACTERS
    got, want = program.reference(documents)["features"], made.transform(documents)
    assert got.shape == want.shape
    assert (got != want).nnz == 0


def _characters() -> tuple[Any, flour.Flow]:
    made = CountVectorizer(analyzer="char", decode_error="replace", lowercase=False)
    made.fit(["".join(map(chr, range(256))) + "\ufffd"])
    return made, flour.from_sklearn(made)


_CHARACTERS = _characters()


# --- every way in -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Any, oven.Plan, Runtime]]:
    """A classifier of documents in cp1252, as a plan and in a runtime."""
    model = make_pipeline(TfidfVectorizer(encoding="cp1252"), LogisticRegression())
    plan = oven.bake(flour.from_sklearn(model.fit(DOCUMENTS, LABELS)))
    with Runtime() as runtime:
        runtime.register("m", plan)
        yield model, plan, runtime


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series, lambda x: np.array(x, object)])
def test_blocks(served: tuple[Any, oven.Plan, Runtime], kind: Any) -> None:
    model, plan, runtime = served
    block = kind([text.encode("cp1252") for text in DOCUMENTS])
    want = model.predict_proba(DOCUMENTS)
    names = list(plan.outputs)
    for got in (
        plan.run(block)["probabilities"],
        plan.entry()(block)[names.index("probabilities")],
        runtime.predict("m", block)["probabilities"],
    ):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_one_row(served: tuple[Any, oven.Plan, Runtime]) -> None:
    model, plan, runtime = served
    raw = DOCUMENTS[0].encode("cp1252")
    want, place = model.predict_proba(DOCUMENTS[:1])[0], list(plan.outputs).index("probabilities")
    for data in (raw, np.bytes_(raw), {"X": raw}):
        np.testing.assert_allclose(plan.entry()(data)[place], want, rtol=1e-12)
        got = runtime.predict("m", data)["probabilities"]
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_row_that_cannot_be_decoded_is_named_at_every_entry(
    served: tuple[Any, oven.Plan, Runtime],
) -> None:
    _, plan, runtime = served
    bad = b"und\x81efined"
    calls = plan.entry(), plan.run, lambda data: runtime.predict("m", data)
    for call in calls:
        with pytest.raises(NotDecodable, match=r"\$\[1\]\n.*81 at byte 3 of 10"):
            call([b"fine", bad])
    for call in (plan.entry(), calls[2]):
        with pytest.raises(NotDecodable, match="81 at byte 3 of 10"):
            call(bad)
    assert runtime.predict("m", b"fine")["label"] in (0, 1), "it goes on"


def test_nul_at_the_end_is_kept() -> None:
    """numpy's own arrays of bytes would lose it."""
    made = CountVectorizer(analyzer="char").fit(["a\0"])
    check(made, [b"a\0\0", b"\0"])


def test_a_text_column_of_bytes() -> None:
    frame = pd.DataFrame({"size": np.arange(5.0), "text": DOCUMENTS})
    made = ColumnTransformer(
        [("t", TfidfVectorizer(encoding="latin-1"), "text"), ("s", StandardScaler(), ["size"])]
    )
    model = make_pipeline(made, LogisticRegression()).fit(frame, LABELS)
    raw = frame.assign(text=[text.encode("latin-1") for text in DOCUMENTS])
    check(model, raw)
    row = {"size": 1.0, "text": raw.text[1]}
    plan = oven.bake(flour.from_sklearn(model, raw))
    with Runtime() as runtime:
        runtime.register("m", plan)
        got = runtime.predict("m", row)["probabilities"]
    np.testing.assert_allclose(got, model.predict_proba(frame[1:2])[0], rtol=1e-12)


def test_readers_that_do_not_agree() -> None:
    """Strings they read alike; of bytes each would make something else."""
    parts = [("a", CountVectorizer()), ("b", CountVectorizer(analyzer="char", encoding="latin-1"))]
    model = FeatureUnion(parts).fit(DOCUMENTS)
    program = flour.from_sklearn(model)
    check(model, DOCUMENTS)
    with pytest.raises(WrongDtype, match="disagree"):
        program.reference([b"bytes"])
    frame = pd.DataFrame({"text": DOCUMENTS})
    columns = ColumnTransformer([(name, part, "text") for name, part in parts]).fit(frame)
    check(columns, frame)
    with pytest.raises(WrongDtype, match="disagree"):
        flour.from_sklearn(columns).reference({"text": [b"bytes"]})


def test_an_encoding_that_nobody_knows() -> None:
    """The library finds out when bytes come; so does the program."""
    made = CountVectorizer(encoding="no such").fit(DOCUMENTS)
    check(made, DOCUMENTS)
    with pytest.raises(WrongDtype):
        flour.from_sklearn(made).reference([b"bytes"])


# --- as data ----------------------------------------------------------------------------------


def test_inputs_say_how_they_decode(tmp_path: Any) -> None:
    program = flour.text("t", "UTF8", "replace").char_ngrams(["\ufffd"], 1, 1)
    assert program.inputs() == {"t": Text("utf-8", "replace")}
    assert flour.text("t").inputs() == {"t": Text()}, "without one, bytes are refused"
    plan = oven.bake(flour.outputs(n=program))
    plan.save(tmp_path / "plan")
    again = oven.load(tmp_path / "plan")
    assert again.inputs == plan.inputs
    assert again.run([b"\xff\xff", "\ufffd"])["n"].toarray().tolist() == [[2.0], [1.0]]


@pytest.mark.parametrize("kind", [Text(), Text("latin-1"), Text("utf-16", "ignore")])
def test_types_as_data(kind: Text) -> None:
    assert from_data(json.loads(json.dumps(to_data(kind)))) == kind


@pytest.mark.parametrize("data", [*WRONG, ("a\0b", "strict"), ("", "strict"), ("utf-8",)])
def test_damaged_types(data: Any) -> None:
    with pytest.raises(DamagedProgram):
        from_data(["Text", *data])


@pytest.mark.parametrize("wrong", WRONG)
def test_no_encoding_of_text(wrong: tuple[str, str]) -> None:
    with pytest.raises(ParameterError, match="test_bytes"):
        flour.text("t", *wrong)


@pytest.mark.parametrize("how", HOW)
def test_a_megabyte_of_bytes_that_are_none(how: str) -> None:
    """Twice as many take about twice the time, and not four times."""
    made = CountVectorizer(decode_error=how).fit(DOCUMENTS)
    plan = oven.bake(flour.from_sklearn(made))
    took = [float("inf")] * 2
    for place in (0, 1, 0, 1, 1):  # the least of some: others may be busy just then
        document = b"\xff\xc3 two \xed\xa0\x80 words " * ((1 << 18 + 2 * place) // 18)
        began = process_time()
        got = plan.run([document])["features"]
        took[place] = min(took[place], process_time() - began)
        assert (got != made.transform([document])).nnz == 0
    assert took[1] < 0.1 + 9 * took[0], f"{took} seconds for 0.25 and 1 MB"
