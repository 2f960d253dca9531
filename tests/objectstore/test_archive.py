"""Containers: what is written comes back without copying, and nothing else gets through."""

from __future__ import annotations

import gc
import io
import json
import math
import os
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from objectstore import (
    Archive,
    ArchiveError,
    Blob,
    MissingBlob,
    Parameter,
    StoreClosed,
    Strings,
    layout,
)
from objectstore import archive as archives
from objectstore.archive import opened
from objectstore.blob import ALIGNMENT, DTYPES
from objectstore.digest import combine

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ARRAYS = hnp.arrays(
    dtype=st.sampled_from(sorted(DTYPES)).map(np.dtype),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def _by_digest(*parameters: Parameter) -> dict[str, Parameter]:
    return {parameter.digest: parameter for parameter in parameters}


def _bytes(manifest: dict[str, object], *parameters: Parameter) -> bytes:
    file = io.BytesIO()
    archives.write(file, manifest, _by_digest(*parameters))
    return file.getvalue()


@given(st.lists(_ARRAYS, max_size=4), st.lists(st.lists(st.text(), max_size=3), max_size=3))
def test_round_trip(arrays: list[NDArray[np.generic]], tables: list[list[str]]) -> None:
    parameters: list[Parameter] = [Blob.of(array) for array in arrays]
    parameters += [Strings.of(table) for table in tables]
    data = _bytes({}, *parameters)
    del parameters
    gc.collect(1)  # they are young, and the whole of the process's objects takes 0.1 s each time
    archive = Archive.from_bytes(data)
    wanted = {Blob.of(array).digest: array for array in arrays}
    texts = {Strings.of(table).digest: table for table in tables}
    assert set(archive.digests()) == {*wanted, *texts}
    for digest, array in wanted.items():
        blob = archive.load(digest)
        assert isinstance(blob, Blob)
        assert (blob.dtype, blob.shape) == (array.dtype, array.shape)
        assert blob.array.tobytes() == array.tobytes()
    for digest, table in texts.items():
        strings = archive.load(digest)
        assert isinstance(strings, Strings)
        assert strings.to_list() == table


@given(st.dictionaries(st.text(), _JSON, max_size=4))
def test_manifest_round_trip(manifest: dict[str, object]) -> None:
    assert Archive.from_bytes(_bytes(manifest)).manifest == manifest


def test_equal_content_gives_equal_files() -> None:
    parameters: list[Parameter] = [Blob.of([1.0]), Strings.of(["a"]), Blob.of(7)]
    one = _bytes({"a": 1, "b": 2}, *parameters)
    assert one == _bytes({"b": 2, "a": 1}, *reversed(parameters))


def test_views_of_one_mapping(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    values = np.arange(100_000.0)
    digest = Blob.of(values).digest
    archives.write(path, {"kind": "test"}, _by_digest(Blob.of(values), Strings.of(["a", "b"])))
    gc.collect()
    archive = Archive.open(path)
    mapped = archive.get(digest)
    assert isinstance(mapped, Blob)
    assert archive._buffer is not None
    assert np.shares_memory(mapped.array, archive._buffer)
    assert mapped.array.ctypes.data % ALIGNMENT == 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        mapped.array.flags.writeable = True
    archive.close()
    path.unlink()
    assert mapped.array.tobytes() == values.tobytes()


@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc shows")
def test_mappings_cost_no_descriptors_and_go_away(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    archives.write(path, {}, _by_digest(Blob.of(np.arange(100_000.0))))
    before = len(list(Path("/proc/self/fd").iterdir()))
    opened = [Archive.open(path) for _ in range(20)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert Path("/proc/self/maps").read_text().count(str(path)) >= 1
    del opened
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_copied_containers_share_equal_arrays_and_outlive_their_files(tmp_path: Path) -> None:
    large, small = np.arange(30_000.0) + 0.25, np.arange(300.0) + 0.25
    known = {Blob.of(each).digest: each for each in (large, small)}
    first, second, lying = (tmp_path / name for name in ("first", "second", "lying"))
    for path, own in ((first, 1.0), (second, 2.0)):
        archives.write(path, {}, _by_digest(*map(Blob.of, (large, small, large + own))))
    data = bytearray(first.read_bytes())
    place = data.index(large.tobytes())
    data[place : place + 8] = bytes(8)
    lying.write_bytes(data)
    gc.collect()
    # The digests that the first one states are not believed by the others.
    containers = [archives.copied(opened(path), "a file") for path in (lying, first, second)]
    again = archives.copied(opened(first), "a file")
    assert np.shares_memory(again[:1], containers[1][:1])
    assert not np.shares_memory(again[:1], containers[2][:1])
    for path in (lying, first, second):
        path.write_bytes(b"short")
    wrong, *right = (Archive(each, "there") for each in containers)
    for digest, values in known.items():
        one, other = (each.load(digest) for each in right)
        assert isinstance(one, Blob)
        assert isinstance(other, Blob)
        assert one.array.tobytes() == values.tobytes()
        assert np.shares_memory(one.array, other.array)
        assert one.array.ctypes.data % ALIGNMENT == 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.array.flags.writeable = True
    del one, other, again, right
    gc.collect()
    with pytest.raises(ArchiveError, match="an array is damaged"):
        wrong.load(Blob.of(large).digest)
    for container in containers[1:]:
        Archive(container, "there").verify()


def test_arrays_side_by_side_are_shared(tmp_path: Path) -> None:
    blobs, made = [Blob.of(np.full(4096, float(number))) for number in range(10)], []
    for own in (1.0, 2.0):
        archives.write(tmp_path / "a", {}, _by_digest(*blobs, Blob.of([own])))
        made.append(archives.copied(opened(tmp_path / "a"), "a file"))
    one, other = (
        {n: a[at : at + size] for n, at, size in layout.places(layout.head(a) or b"")} for a in made
    )
    assert all(np.shares_memory(one[blob.digest], other[blob.digest]) for blob in blobs)


@pytest.mark.parametrize("offset", [65, 100, 128, 168])
def test_places_in_the_head_are_refused_in_copies_too(offset: int) -> None:
    data = bytearray(_bytes({}, Blob.of(np.arange(30_000.0))))
    struct.pack_into("<QQ", data, 64 + 24, offset, len(data) - offset)
    data[40:56] = bytes(16)
    data[40:56] = bytes.fromhex(combine(bytes(data[:64]), bytes(data[64:offset]), b"{}"))
    with pytest.raises(ArchiveError):
        Archive(archives.copied(np.frombuffer(data, np.uint8), "a file"), "there")


def test_a_parameter_this_process_has_is_not_loaded_again() -> None:
    blob = Blob.of([1.0, 2.0])
    archive = Archive.from_bytes(_bytes({}, blob))
    assert archive.get(blob.digest) is blob


def test_arrays_of_a_table_are_not_parameters_of_their_own() -> None:
    table = Strings.of(["a", "b"])
    offsets, data = table.blobs()
    archive = Archive.from_bytes(_bytes({}, table))
    assert archive.digests() == (table.digest,)
    archive = Archive.from_bytes(_bytes({}, table, data))
    assert set(archive.digests()) == {table.digest, data.digest}
    assert archive.nbytes(table.digest) == offsets.nbytes + data.nbytes == table.nbytes
    assert archive.nbytes(data.digest) == data.nbytes


def test_asking_for_what_is_not_there() -> None:
    archive = Archive.from_bytes(_bytes({}, Blob.of(1)))
    with pytest.raises(MissingBlob, match="no such parameter"):
        archive.get("0" * 32)


def test_closed() -> None:
    digest = Blob.of([5.0, 6.0]).digest
    with Archive.from_bytes(_bytes({}, Blob.of([5.0, 6.0]))) as archive:
        pass
    gc.collect()
    with pytest.raises(StoreClosed):
        archive.get(digest)


def test_written_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    archives.write(path, {"n": 1}, {})
    before = Archive.open(path)
    archives.write(path, {"n": 2}, _by_digest(Blob.of(1)))
    assert before.manifest == {"n": 1}
    assert Archive.open(path).manifest == {"n": 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan"]


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan"
    archives.write(path, {"n": 1}, {})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        archives.write(path, {"n": 2}, {})
    assert Archive.open(path).manifest == {"n": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan"]


@pytest.mark.parametrize(
    "manifest",
    [
        {"a": float("nan")},
        {"a": math.inf},
        {"a": {1: 2}},
        {"a": np.int64(1)},
        {"a": {1, 2}},
        {"a": b"bytes"},
        {"long": "x" * (layout.MAX_MANIFEST + 1)},
    ],
    ids=["nan", "inf", "key", "numpy", "set", "bytes", "long"],
)
def test_refuses_to_write_what_json_cannot_say(manifest: dict[str, object]) -> None:
    with pytest.raises(ArchiveError, match="manifest"):
        _bytes(manifest)


def test_refuses_to_write_deep_nesting() -> None:
    deep: object = 1
    for _ in range(archives.MAX_DEPTH - 1):
        deep = [deep]
    assert Archive.from_bytes(_bytes({"a": deep})).manifest == {"a": deep}
    with pytest.raises(ArchiveError, match="deeper"):
        _bytes({"a": [deep]})


def test_refuses_to_write_under_a_wrong_digest() -> None:
    with pytest.raises(ArchiveError, match="not filed under its digest"):
        archives.write(io.BytesIO(), {}, {"0" * 32: Blob.of(1)})


def test_refuses_too_many_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _bytes({}, Blob.of(1), Blob.of(2), Blob.of(3))
    monkeypatch.setattr(layout, "MAX_RECORDS", 2)
    with pytest.raises(ArchiveError, match="too many"):
        _bytes({}, Blob.of(1), Blob.of(2), Blob.of(3))
    with pytest.raises(ArchiveError, match="states too much"):
        Archive.from_bytes(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a Pretzel container"),
        (b"PRETZEL\n", "header is cut off"),
        (b"\x80\x04\x95pickle", "pickles"),
        (b"PK\x03\x04zip", "pickles"),
        (b"x" * 100, "not a Pretzel container"),
    ],
)
def test_refuses_other_files(data: bytes, words: str) -> None:
    with pytest.raises(ArchiveError, match=words) as caught:
        Archive.from_bytes(data)
    assert caught.value.hint


def test_refuses_what_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(ArchiveError, match="cannot be opened"):
            Archive.open(path)


def test_refuses_an_unknown_version() -> None:
    data = bytearray(_bytes({}))
    struct.pack_into("<I", data, 8, 2)
    with pytest.raises(ArchiveError, match="unknown version") as caught:
        Archive.from_bytes(bytes(data))
    assert "version 2" in str(caught.value)
    assert "hint" in str(caught.value)


def _sealed(data: bytearray, manifest: int) -> bytes:
    """The container with its seal made right again, as somebody hostile would."""
    arrays, tables = struct.unpack_from("<II", data, 16)
    end = 64 + 104 * arrays + 24 * tables
    data[40:56] = bytes(16)
    seal = combine(bytes(data[:64]), bytes(data[64:end]), bytes(data[end : end + manifest]))
    data[40:56] = bytes.fromhex(seal)
    return bytes(data)


def _with_manifest(text: bytes) -> bytes:
    data = bytearray(_bytes({}))[:64] + text
    struct.pack_into("<QQ", data, 24, len(text), len(data))
    return _sealed(data, len(text))


def test_the_forged_seal_of_these_tests_is_right() -> None:
    assert Archive.from_bytes(_with_manifest(b'{"a":1}')).manifest == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"a":1,"a":2}',
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":1e2}',
        b'{"a":1',
        b'{"a":"\xff"}',
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"a":' + b"9" * 10_000 + b"}",
    ],
)
def test_refuses_hostile_manifests(text: bytes) -> None:
    with pytest.raises(ArchiveError, match="manifest"):
        Archive.from_bytes(_with_manifest(text))


def _forged(position: int, fmt: str, *values: int | bytes) -> bytes:
    """A container of an array and a table with some bytes changed and the seal made right."""
    data = bytearray(_bytes({}, Blob.of(np.arange(6.0).reshape(2, 3)), Strings.of(["a", "bc"])))
    struct.pack_into("<" + fmt, data, position, *values)
    return _sealed(data, 2)


def _record(position: int) -> int:
    """Where in `_forged` the record of the 2 by 3 array has its field at this position."""
    digests = sorted(
        blob.digest for blob in (Blob.of(np.arange(6.0).reshape(2, 3)), *_table().blobs())
    )
    return 64 + 104 * digests.index(Blob.of(np.arange(6.0).reshape(2, 3)).digest) + position


def _table() -> Strings:
    return Strings.of(["a", "bc"])


@pytest.mark.parametrize(
    ("field", "fmt", "values", "words"),
    [
        (16, "4s", (b"|O8\0",), "unknown dtype"),
        (16, "4s", (b">f8\0",), "unknown dtype"),
        (16, "4s", (b"<U2\0",), "unknown dtype"),
        (16, "4s", (b"<i4\0",), "shape and bytes disagree"),
        (20, "H", (2,), "not well-formed"),
        (20, "H", (0,), "belongs to nothing"),
        (22, "H", (9,), "not well-formed"),
        (22, "H", (1,), "not well-formed"),
        (24, "Q", (2**63,), "not where it must be"),
        (24, "Q", (0,), "not where it must be"),
        (32, "Q", (2**64 - 8,), "shape and bytes disagree"),
        (40, "QQ", (2**32, 2**32), "too large"),
        (40, "QQ", (2**63, 2), "too large"),
        (40, "QQ", (0, 2**60), "too large"),
        (40, "QQQ", (2, 3, 1), "not well-formed"),
        (32, "QQQ", (48 * 2**20, 2 * 2**20, 3), "reaches out|not where"),
    ],
)
def test_refuses_forged_records(
    field: int, fmt: str, values: tuple[int | bytes, ...], words: str
) -> None:
    with pytest.raises(ArchiveError, match=words) as caught:
        Archive.from_bytes(_forged(_record(field), fmt, *values))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("field", "fmt", "values", "words"),
    [
        (16, "II", (3, 0), "not there"),
        (16, "II", (0, 2**32 - 1), "not there"),
        (0, "16s", (bytes(16),), "another digest"),
    ],
)
def test_refuses_forged_tables(
    field: int, fmt: str, values: tuple[int | bytes, ...], words: str
) -> None:
    with pytest.raises(ArchiveError, match=words):
        Archive.from_bytes(_forged(64 + 3 * 104 + field, fmt, *values))


def test_refuses_a_table_over_the_wrong_arrays() -> None:
    array = Blob.of(np.arange(6.0).reshape(2, 3))
    digests = sorted(blob.digest for blob in (array, *_table().blobs()))
    wrong = digests.index(array.digest)
    with pytest.raises(ArchiveError, match="wrong arrays"):
        Archive.from_bytes(_forged(64 + 3 * 104 + 16, "II", wrong, wrong))


def _lying(array: NDArray[np.generic], tell: NDArray[np.generic]) -> bytes:
    """A container whose payload is well-sealed but illegal: the bytes of `tell` as `array`."""
    blob = Blob.of(array)
    fake = tell.view(array.dtype)
    fake.flags.writeable = False
    return _bytes({}, Blob(fake, combine(blob.digest, fake.tobytes())))


def test_refuses_booleans_that_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _lying(np.array([True, False]), np.array([1, 7], dtype=np.uint8))
    archive = Archive.from_bytes(data)
    (digest,) = archive.digests()
    with pytest.raises(ArchiveError, match="array is damaged"):
        archive.get(digest)
    # Even when the digest is that of these bytes.
    monkeypatch.setattr(archives, "array_digest", lambda _: digest)
    with pytest.raises(ArchiveError, match="neither 0 nor 1"):
        archive.get(digest)


@pytest.mark.parametrize(
    ("offsets", "data"), [([0, 5, 3], b"abc"), ([0, 3], b"\xff\xfe\xfd"), ([0, 9], b"abc")]
)
def test_refuses_string_tables_that_lead_astray(offsets: list[int], data: bytes) -> None:
    halves = Blob.of(np.array(offsets)), Blob.of(np.frombuffer(data, dtype=np.uint8))
    archive = Archive.from_bytes(_bytes({}, Strings(*halves)))
    (digest,) = archive.digests()
    with pytest.raises(ArchiveError, match="do not form a string table"):
        archive.get(digest)


def test_a_damaged_payload_is_found_when_it_is_asked_for() -> None:
    good, bad = Blob.of(np.arange(64.0)), Blob.of(np.arange(65.0))
    data = bytearray(_bytes({}, good, bad))
    index = bytes(data).index(np.arange(65.0).tobytes())
    last = 8 * 64
    data[index + last] ^= 1
    digests = good.digest, bad.digest
    del good, bad
    gc.collect()
    archive = Archive.from_bytes(bytes(data))
    assert archive.get(digests[0]).nbytes == 512
    with pytest.raises(ArchiveError, match="damaged") as caught:
        archive.get(digests[1])
    assert digests[1] in str(caught.value)
    with pytest.raises(ArchiveError, match="damaged"):
        archive.verify()
    assert json.loads(archives.manifest_bytes(archive.manifest)) == {}


def test_threads_can_share_an_archive() -> None:
    blob = Blob.of(np.arange(5000.0))
    digest = blob.digest
    archive = Archive.from_bytes(_bytes({}, blob))
    del blob
    gc.collect()
    seen: list[Parameter] = []
    threads = [threading.Thread(target=lambda: seen.append(archive.get(digest))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(seen) == 8
    assert len({id(one) for one in seen}) == 1
