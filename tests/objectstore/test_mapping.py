"""Pages of mapped files: given back after verification, there again when read."""

from __future__ import annotations

import gc
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from objectstore import Blob, FileStore, Parameter, Strings, mapping
from objectstore.archive import COPIED_BYTES, Archive, array_at, write
from objectstore.mapping import frozen_bytes, read_only, release
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
