"""Pages of mapped files: given back after verification, there again when read."""

from __future__ import annotations

import gc
import io
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from objectstore import Blob, FileStore, Parameter, Strings, mapping
from objectstore.archive import COPIED_BYTES, Archive, array_at, write
from objectstore.mapping import AT_ONCE, frozen_bytes, read_only, release, settle
from tests.resident import resident_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about its pages")


def test_released_pages_are_there_again_when_read(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(256)) * 1024)
    buffer = read_only(path)
    before = buffer.copy()
    assert resident_bytes(path) == len(buffer)
    release(buffer)
    assert resident_bytes(path) == 0
    assert np.array_equal(buffer, before)


def test_memory_that_is_no_mapping_is_left_alone(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"abc" * 100)
    for kept in (frozen_bytes(b"abc" * 100_000), read_only(small)):
        release(kept)
        assert kept.tobytes() == b"abc" * (len(kept) // 3)


def _parts(buffer: NDArray[np.uint8], *starts: int) -> list[NDArray[np.uint8]]:
    """Arrays of a hundred pages, read one after the other."""
    return [buffer[start : start + 100 * mmap.PAGESIZE] for start in starts]


def test_what_is_read_comes_without_its_neighbours(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(1000 * mmap.PAGESIZE))
    middle = 333 * mmap.PAGESIZE + 64
    plain = read_only(path)
    _parts(plain, middle)[0].sum()
    around = resident_bytes(path)
    release(plain)
    buffer = read_only(path)
    parts = _parts(buffer, middle)
    settle(buffer, parts)
    assert resident_bytes(path) == 0
    parts[0].sum()
    assert resident_bytes(path) == 101 * mmap.PAGESIZE < around


def test_a_little_comes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(1000 * mmap.PAGESIZE))
    buffer = read_only(path)
    one, other = (buffer[start : start + AT_ONCE // 4] for start in (0, 500 * mmap.PAGESIZE))
    assert not settle(buffer, [one, other])
    assert resident_bytes(path) in (0, AT_ONCE // 2), "kernels before 5.14 do not"


def test_more_comes_at_once_where_all_of_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(2 * AT_ONCE))
    buffer = read_only(path)
    assert settle(buffer, [buffer])
    assert resident_bytes(path) == 0
    assert not settle(buffer, [buffer], None)
    assert resident_bytes(path) in (0, 2 * AT_ONCE), "kernels before 5.14 do not"


def test_arrays_that_touch_are_one_and_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(1000 * mmap.PAGESIZE))
    buffer = read_only(path)
    before = len(mapping._apart)
    parts = _parts(buffer, 100, 100 + 100 * mmap.PAGESIZE)
    settle(buffer, [*parts, np.zeros(100, np.uint8), frozen_bytes(b"abc")])
    assert len(mapping._apart) == before + 1
    parts[1].sum()
    assert 100 * mmap.PAGESIZE <= resident_bytes(path) <= 201 * mmap.PAGESIZE
    del buffer, parts
    gc.collect()
    assert len(mapping._apart) == before


def test_there_are_not_more_mappings_than_a_process_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(1000 * mmap.PAGESIZE))
    buffer = read_only(path)
    monkeypatch.setattr(mapping, "MOST_APART", len(mapping._apart) + 2)
    before = len(mapping._apart)
    settle(buffer, [buffer[start : start + 10] for start in range(0, len(buffer), 50_000)])
    assert len(mapping._apart) == before + 2


def test_a_mapped_or_copied_array_cannot_be_made_writeable(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(1 << 16))
    for array in (read_only(path), frozen_bytes(b"abc" * 100), Blob.of([1.0, 2.0]).array):
        view = array[1:]
        assert memoryview(array).readonly  # type: ignore[arg-type]  # numpy's stubs for 3.11
        for one in (array, view, array.view(np.uint8)):
            with pytest.raises(ValueError, match=r"cannot set WRITEABLE"):
                one.flags.writeable = True


def test_where_a_mapping_was_nothing_is_released(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(1 << 16))
    address = read_only(path).ctypes.data
    gc.collect()
    assert address not in mapping._mappings


def test_what_a_store_has_verified_takes_nothing_until_it_is_read(tmp_path: Path) -> None:
    store = FileStore(tmp_path, durable=False)
    numbers, texts = Blob.of(np.arange(1 << 15)), Strings.of(map(str, range(1 << 14)))
    found = [store.share(parameter) for parameter in (numbers, texts)]
    assert resident_bytes(tmp_path, below=True) == 0
    for one in found:
        assert Archive.from_bytes(_written({one.digest: one})).get(one.digest) == one
    assert resident_bytes(tmp_path, below=True) >= sum(one.nbytes for one in found)


def _written(parameters: dict[str, Parameter]) -> bytes:
    """A container with these, every byte of which is read for it."""
    target = io.BytesIO()
    write(target, {}, parameters)
    return target.getvalue()


def test_what_code_reads_of_a_file_is_a_copy_if_small(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    small, large = np.arange(COPIED_BYTES // 8 - 1), np.arange(COPIED_BYTES // 8)
    digests = [Blob.of(values).digest for values in (small, large)]
    write(path, {}, {item.digest: item for item in map(Blob.of, (small, large))})
    archive, buffer = Archive.open(path), read_only(path)
    gc.collect()
    kept = [array_at(buffer, record, "here") for record in map(archive.record, digests) if record]
    inside = [0 <= one.array.ctypes.data - buffer.ctypes.data < len(buffer) for one in kept]
    assert inside == [False, True]
    assert all(np.array_equal(one.array, x) for one, x in zip(kept, (small, large), strict=True))
    assert all(one.array.ctypes.data % 64 == 0 and not one.array.flags.writeable for one in kept)
