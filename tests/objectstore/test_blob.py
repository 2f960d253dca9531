"""Blobs: one canonical form, one digest, one object."""

from __future__ import annotations

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from objectstore import Blob, Strings, UnstorableValue
from objectstore.blob import ALIGNMENT, DTYPES, MAX_DIMENSIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
_DTYPES = st.sampled_from(sorted(DTYPES)).map(np.dtype)


@given(hnp.arrays(dtype=_DTYPES, shape=_SHAPES))
def test_keeps_every_bit(array: NDArray[np.generic]) -> None:
    blob = Blob.of(array)
    assert blob.dtype == array.dtype
    assert blob.shape == array.shape
    assert blob.nbytes == array.nbytes
    assert blob.array.tobytes() == array.tobytes()
    assert Blob.of(array.copy()) is blob


@given(hnp.arrays(dtype=_DTYPES, shape=_SHAPES))
def test_layout_and_byte_order_do_not_matter(array: NDArray[np.generic]) -> None:
    blob = Blob.of(array)
    strided = np.repeat(array[..., None], 2, axis=-1)[..., 0]
    assert Blob.of(array.copy(order="F")) is blob
    assert Blob.of(array.astype(array.dtype.newbyteorder(">"))) is blob
    assert Blob.of(strided) is blob
    # A blob is C-ordered and aligned whatever it was made from.
    assert blob.array.flags.c_contiguous
    assert blob.nbytes == 0 or blob.array.ctypes.data % ALIGNMENT == 0


@given(hnp.arrays(dtype=_DTYPES, shape=_SHAPES), hnp.arrays(dtype=_DTYPES, shape=_SHAPES))
def test_digest_is_equality_of_dtype_shape_and_bytes(
    one: NDArray[np.generic], other: NDArray[np.generic]
) -> None:
    same = (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    assert (Blob.of(one) == Blob.of(other)) is same
    assert (Blob.of(one).digest == Blob.of(other).digest) is same


def test_known_digest() -> None:
    # Digests name files and are written into saved plans: they must never change by accident.
    assert Blob.of([1.0, 2.0]).digest == "52775ed94971a1aa8504f8c8b186b60d"
    assert Strings.of(["a", "b"]).digest == "5edc7d887759ce027d2c4b3c599c9f80"


def test_bits_that_compare_equal_are_distinct() -> None:
    assert Blob.of(0.0) != Blob.of(-0.0)
    payload = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    quiet = Blob.of([np.nan])
    assert Blob.of(payload) != quiet
    assert Blob.of(payload).array.view(np.uint64)[0] == 0x7FF8000000000001
    assert Blob.of([np.nan]) is quiet


def test_same_bytes_of_another_dtype_or_shape_are_distinct() -> None:
    zeros = [
        Blob.of(np.zeros(shape, dtype=dtype))
        for dtype in (np.int64, np.float64, np.uint64)
        for shape in ((4,), (2, 2), (4, 1), (1, 4))
    ]
    assert len({blob.digest for blob in zeros}) == len(zeros)
    empty = [Blob.of(np.zeros(shape)) for shape in ((0,), (0, 3), (3, 0))]
    assert len({blob.digest for blob in empty}) == len(empty)


def test_single_numbers_and_conversions() -> None:
    assert Blob.of(3).shape == ()
    assert Blob.of(3).array.item() == 3
    assert Blob.of([1, 2], dtype=np.float32) is Blob.of(np.array([1, 2], dtype=np.float32))
    assert Blob.of(Blob.of([1, 2]), dtype=np.float64) is Blob.of([1.0, 2.0])
    blob = Blob.of([1, 2])
    assert Blob.of(blob) is blob
    assert np.asarray(blob).tolist() == [1, 2]
    assert np.asarray(blob, dtype=np.float32).dtype == np.float32
    assert len(blob) == 2


def test_booleans_have_one_byte_for_true() -> None:
    odd = np.array([0, 2, 1, 255], dtype=np.uint8).view(np.bool_)
    assert Blob.of(odd) is Blob.of([False, True, True, True])


def test_nobody_can_write() -> None:
    blob = Blob.of([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        blob.array[0] = 5
    for array in (blob.array, blob.array.view(), blob.array[:1]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    with pytest.raises(AttributeError):
        blob.digest = "x"
    with pytest.raises(AttributeError):
        del blob.digest


def test_the_source_may_be_written_afterwards() -> None:
    source = np.array([1.0, 2.0])
    source.flags.writeable = False
    blob = Blob.of(source)
    source.flags.writeable = True
    source[0] = 7
    assert blob.array.tolist() == [1.0, 2.0]
    assert Blob.of(source) is not blob


def test_unused_blobs_are_freed() -> None:
    blob = Blob.of(np.arange(12345.0))
    digest = blob.digest
    assert Blob.live(digest) is blob
    del blob
    gc.collect()
    assert Blob.live(digest) is None


def test_copies_are_the_same_object() -> None:
    blob = Blob.of([[1, 2], [3, 4]])
    assert copy.copy(blob) is blob
    assert copy.deepcopy({"a": [blob]})["a"][0] is blob
    assert pickle.loads(pickle.dumps(blob)) is blob


def test_threads_meet_in_one_object() -> None:
    values = np.arange(1000.0)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Blob.of(values.copy()), range(200)))
    assert len({id(blob) for blob in made}) == 1


def test_hash_and_repr() -> None:
    blob = Blob.of(np.zeros((2, 3), dtype=np.float32))
    assert hash(blob) == hash(Blob.of(np.zeros((2, 3), dtype=np.float32)))
    assert repr(blob) == f"Blob(float32[2, 3], {blob.digest[:4]}…)"
    assert blob != "blob"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a", "b"], "Strings.of"),
        (np.array([b"a"]), "Strings.of"),
        (np.array([None, 1], dtype=object), "Strings.of"),
        (np.array([1j]), "convert to"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "convert to"),
        (np.zeros(2, dtype=np.longdouble), "convert to"),
        (np.zeros(2, dtype=[("a", "f8")]), "convert to"),
        ([[1], [1, 2]], "equal length"),
        (np.ma.masked_array([1, 2], mask=[True, False]), "filled"),
        (np.zeros((1,) * (MAX_DIMENSIONS + 1)), "reshape"),
    ],
)
def test_refuses_what_is_no_numeric_array(values: object, words: str) -> None:
    with pytest.raises(UnstorableValue, match=words):
        Blob.of(values)  # type: ignore[arg-type]


def test_view_wraps_without_copying() -> None:
    array = np.arange(77.0)
    digest = Blob.of(array).digest
    gc.collect()
    array.flags.writeable = False
    blob = Blob.view(array, digest)
    assert blob.array is array
    assert Blob.of(np.arange(77.0)) is blob


def test_view_refuses_what_is_not_canonical() -> None:
    array = np.arange(6.0).reshape(2, 3)
    digest = Blob.of(array).digest
    with pytest.raises(UnstorableValue, match="canonical"):
        Blob.view(array, digest)  # writeable
    array.flags.writeable = False
    with pytest.raises(UnstorableValue, match="canonical"):
        Blob.view(array.T, digest)


def test_a_preferred_view_takes_over() -> None:
    first = Blob.of(np.arange(33.0))
    mapped = first.array.copy()
    mapped.flags.writeable = False
    assert Blob.view(mapped, first.digest) is first
    second = Blob.view(mapped, first.digest, preferred=True)
    assert second is not first
    assert second == first
    assert Blob.of(np.arange(33.0)) is second
