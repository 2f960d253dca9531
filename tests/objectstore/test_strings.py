"""String tables: every Python text comes back as it was."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectstore import Blob, DamagedBlob, Strings, UnstorableValue
from objectstore import strings as strings_module

# Every code point, lone surrogates included.
_TEXTS = st.lists(st.text(st.characters(exclude_categories=())), max_size=8)


@given(_TEXTS)
def test_round_trip(texts: list[str]) -> None:
    table = Strings.of(texts)
    assert table.to_list() == texts
    assert list(table) == texts
    assert len(table) == len(texts)
    assert [table[row] for row in range(len(texts))] == texts
    assert table[1:3] == texts[1:3]
    assert table.nbytes == 8 * (len(texts) + 1) + len(table.data)
    assert Strings.of(iter(texts)) is table
    assert Strings.of(np.array(texts, dtype=object)) is table


@given(_TEXTS, _TEXTS)
def test_digest_is_equality(one: list[str], other: list[str]) -> None:
    assert (Strings.of(one).digest == Strings.of(other).digest) is (one == other)
    assert (Strings.of(one) == Strings.of(other)) is (one == other)


@given(_TEXTS)
def test_from_its_own_arrays(texts: list[str]) -> None:
    table = Strings.of(texts)
    assert Strings.from_blobs(*table.blobs(), "test") is table


def test_same_bytes_cut_elsewhere_are_distinct() -> None:
    tables = [Strings.of(texts) for texts in (["ab"], ["a", "b"], ["", "ab"], ["ab", ""], [])]
    assert len({table.digest for table in tables}) == 5


def test_a_table_is_not_its_arrays() -> None:
    table = Strings.of(["a"])
    assert table.digest not in {blob.digest for blob in table.blobs()}
    offsets, data = table.blobs()
    assert offsets is Blob.of([0, 1])
    assert data.array.tobytes() == b"a"


def test_numpy_texts_and_bytes() -> None:
    table = Strings.of(["é", "b"])
    assert Strings.of(np.array(["é", "b"])) is table
    assert Strings.of(["é".encode(), np.bytes_(b"b")]) is table


def test_indexing() -> None:
    table = Strings.of(["a", "b", "c"])
    assert table[-1] == "c"
    assert table[::-1] == ["c", "b", "a"]
    for row in (3, -4):
        with pytest.raises(IndexError, match="3 texts"):
            table[row]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("abc", "pass a list"),
        (b"abc", "pass a list"),
        (7, "pass a list"),
        (["a", 1], "row 1"),
        ([None], "row 0"),
        ([b"\xff"], "not UTF-8"),
    ],
)
def test_refuses_what_is_no_text(texts: object, words: str) -> None:
    with pytest.raises(UnstorableValue, match=words):
        Strings.of(texts)  # type: ignore[arg-type]


def test_immutable_and_one_object() -> None:
    table = Strings.of(["x", "y"])
    assert copy.deepcopy([table])[0] is table
    assert pickle.loads(pickle.dumps(table)) is table
    assert Strings.of(table) is table
    assert repr(table) == f"Strings(2, {table.digest[:4]}…)"
    assert hash(table) == hash(Strings.of(["x", "y"]))
    assert table != ["x", "y"]
    with pytest.raises(AttributeError):
        table.digest = "x"
    with pytest.raises(AttributeError):
        del table.digest


def test_unused_tables_are_freed() -> None:
    table = Strings.of(["only", "here"])
    digest = table.digest
    assert Strings.live(digest) is table
    del table
    gc.collect()
    assert Strings.live(digest) is None


@pytest.mark.parametrize(
    ("offsets", "data", "words"),
    [
        ([0, 2, 1, 3], b"abc", "decrease"),
        ([1, 3], b"abc", "span"),
        ([0, 2], b"abc", "span"),
        ([0, 9, 3], b"abc", "decrease"),
        ([0, -(2**62), 3], b"abc", "decrease"),
        ([0, 2**63 - 1, -(2**63), 3], b"abc", "decrease"),
        ([], b"", "span"),
        ([0, 1], b"\xff", "invalid"),
        ([0, 2, 3], b"a\xc3\xa9", "unexpected end|inside a character|rows"),
        ([[0, 1]], b"a", "offsets int64"),
        ([0.0, 1.0], b"a", "offsets float64"),
    ],
)
def test_refuses_arrays_that_are_no_table(offsets: list[int], data: bytes, words: str) -> None:
    cuts = np.array(offsets, dtype=None if len(offsets) else np.int64)
    run = Blob.of(np.frombuffer(data, dtype=np.uint8))
    with pytest.raises(DamagedBlob, match=words):
        Strings.from_blobs(Blob.of(cuts), run, "test")


def test_texts_are_checked_across_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings_module, "_CHECKED_AT_ONCE", 4)
    texts = ["", "é", "long text é", "", "", "abcd", "€", "", "x", ""]
    table = Strings.of(texts)
    offsets, data = table.blobs()
    assert Strings.from_blobs(offsets, data, "test") is table
    # Cut inside of a character where a run of the check could end too.
    cut = data.array.tobytes().index("€".encode())
    row = texts.index("€")
    moved = table.offsets.copy()
    moved[row] = cut + 1
    with pytest.raises(DamagedBlob):
        Strings.from_blobs(Blob.of(moved), data, "test")
