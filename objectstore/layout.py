"""The binary layout of a container: parameters and a manifest in one file.

    header     64 bytes   magic, version, counts, sizes, seal
    arrays     104 bytes each: digest, dtype, named, dimensions, offset, bytes, shape
    tables     24 bytes each: digest of a string table, index of its offsets, index of its data
    manifest   canonical JSON
    payloads   each at a multiple of 64 bytes, in the order of the arrays, without gaps or overlap

All numbers are little-endian. Records are sorted by digest and every offset is determined, so equal
content gives equal files, and every field can be checked against the others. The seal
is a digest over header, records and manifest; payloads are covered by their own digests.

`encode` makes a container. `decode` reads an untrusted one: each number is checked before it is
used, and no memory is allocated from a size that only the file states.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from objectstore.blob import ALIGNMENT, DTYPES, MAX_DIMENSIONS, Blob
from objectstore.digest import DIGEST_BYTES, combine, strings_digest
from objectstore.errors import ArchiveError
from objectstore.strings import Parameter, Strings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from objectstore.atomic import Chunk

MAGIC: Final = b"PRETZEL\n"
VERSION: Final = 1

MAX_RECORDS: Final = 1 << 16
"""Most records of either kind; a plan has a few hundred. Bounds the table of contents to 8 MiB."""

MAX_MANIFEST: Final = 4 << 20
"""Most bytes of a manifest: parsed, the densest JSON of this size takes about 150 MB."""

MAX_ELEMENTS: Final = 1 << 48
"""Most elements of an array, dimensions of zero counted as one: products cannot overflow."""

# magic, version, reserved, arrays, tables, manifest bytes, file bytes, seal, reserved
_HEADER: Final = struct.Struct("<8sIIIIQQ16s8s")
# digest, dtype, named, dimensions, offset, bytes, shape
_ARRAY: Final = struct.Struct(f"<16s4sHHQQ{MAX_DIMENSIONS}Q")
# digest, index of offsets, index of data
_TABLE: Final = struct.Struct("<16sII")
_SEAL: Final = slice(40, 40 + DIGEST_BYTES)


class ArrayRecord(NamedTuple):
    """An array's offset in the file, with its dtype and shape."""

    digest: str
    dtype: str
    named: bool  # a parameter itself, not only half of a string table
    offset: int
    nbytes: int
    shape: tuple[int, ...]


class TableRecord(NamedTuple):
    """The two arrays of a string table."""

    digest: str
    offsets: ArrayRecord
    data: ArrayRecord


class ContainerContents(NamedTuple):
    """Everything a container holds, checked; the manifest is still text."""

    arrays: dict[str, ArrayRecord]
    tables: dict[str, TableRecord]
    manifest: bytes


class Copied:
    """A container in memory, in parts by the offsets at which they begin."""

    def __init__(self, parts: Mapping[int, NDArray[np.uint8]], size: int) -> None:
        self._starts, self._parts, self._size = [*parts], [*parts.values()], size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, where: slice) -> NDArray[np.uint8]:
        part = bisect_right(self._starts, where.start or 0) - 1
        start = self._starts[part]
        return self._parts[part][(where.start or 0) - start : where.stop - start]


Container: TypeAlias = "NDArray[np.uint8] | Copied"
"""The bytes of a container, mapped or in memory."""


def encode(manifest: bytes, parameters: Iterable[Parameter]) -> list[Chunk]:
    """The bytes of a container as a list of chunks; arrays are not copied."""
    named = {parameter.digest: parameter for parameter in parameters}
    tables = [named[key] for key in sorted(named) if isinstance(named[key], Strings)]
    arrays = {blob.digest: blob for parameter in named.values() for blob in _blobs(parameter)}
    ordered = [arrays[key] for key in sorted(arrays)]
    _check_limits(len(manifest), len(ordered), len(tables))
    head = _HEADER.size + _ARRAY.size * len(ordered) + _TABLE.size * len(tables) + len(manifest)
    offsets, size = _places(head, ordered)
    rows = {blob.digest: row for row, blob in enumerate(ordered)}
    records = b"".join(
        _array_bytes(blob, offset, named=blob.digest in named)
        for blob, offset in zip(ordered, offsets, strict=True)
    ) + b"".join(_table_bytes(table, rows) for table in tables)
    counts = (len(ordered), len(tables), len(manifest), size)
    header = bytearray(_HEADER.pack(MAGIC, VERSION, 0, *counts, bytes(16), bytes(8)))
    header[_SEAL] = bytes.fromhex(combine(bytes(header), records, manifest))
    chunks: list[Chunk] = [bytes(header) + records + manifest]
    end = head
    for blob, offset in zip(ordered, offsets, strict=True):
        chunks += [bytes(offset - end), blob.array.reshape(-1).view(np.uint8).data]
        end = offset + blob.nbytes
    return chunks


def decode(buffer: Container, where: str) -> ContainerContents:
    """The checked contents of a container; `ArchiveError` if anything is wrong with it."""
    arrays, tables, manifest = _decode_header(buffer, where)
    start = _HEADER.size
    split = start + arrays * _ARRAY.size
    end = split + tables * _TABLE.size
    _check_seal(buffer, end, manifest, where)
    array_list = _decode_arrays(buffer[start:split].tobytes(), where)
    _check_places(array_list, end + manifest, len(buffer), where)
    table_list = _decode_tables(buffer[split:end].tobytes(), array_list, where)
    _check_owned(array_list, table_list, where)
    return ContainerContents(
        {record.digest: record for record in array_list},
        {record.digest: record for record in table_list},
        buffer[end : end + manifest].tobytes(),
    )


def head(buffer: Container) -> bytes | None:
    """The bytes before the payloads; None if this cannot be a container of this length.

    The seal is included but not checked: it serves for comparing with the bytes of a checked file.
    """
    raw = buffer[: _HEADER.size].tobytes()
    if len(raw) < _HEADER.size:
        return None
    magic, version, _, arrays, tables, manifest, size, _, _ = _HEADER.unpack(raw)
    if magic != MAGIC or version != VERSION or size != len(buffer):
        return None
    end = _HEADER.size + arrays * _ARRAY.size + tables * _TABLE.size + manifest
    return buffer[:end].tobytes() if end <= size else None


def places(head: bytes) -> Iterator[tuple[str, int, int]]:
    """The digest, offset and size of each array as the head states them: nothing is checked."""
    (_, _, _, arrays, *_), start = _HEADER.unpack_from(head), _HEADER.size
    for digest, _, _, _, *place in _ARRAY.iter_unpack(head[start : start + _ARRAY.size * arrays]):
        yield digest.hex(), place[0], place[1]


def payload(buffer: Container, record: ArrayRecord) -> NDArray[np.generic]:
    """An array of a decoded container, as a view."""
    part = buffer[record.offset : record.offset + record.nbytes]
    return part.view(DTYPES[record.dtype]).reshape(record.shape)


def encoded_size(chunks: Iterable[Chunk]) -> int:
    """The size of the file in bytes."""
    return sum(len(chunk) for chunk in chunks)


def _blobs(parameter: Parameter) -> tuple[Blob, ...]:
    return parameter.blobs() if isinstance(parameter, Strings) else (parameter,)


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _places(head: int, blobs: Iterable[Blob]) -> tuple[list[int], int]:
    """The offset of each array, and the size of the file."""
    offsets, end = [], head
    for blob in blobs:
        offsets.append(_aligned(end))
        end = offsets[-1] + blob.nbytes
    return offsets, end


def _array_bytes(blob: Blob, offset: int, *, named: bool) -> bytes:
    shape = blob.shape + (0,) * (MAX_DIMENSIONS - len(blob.shape))
    digest, dtype = bytes.fromhex(blob.digest), blob.dtype.str.encode("ascii")
    return _ARRAY.pack(digest, dtype, named, len(blob.shape), offset, blob.nbytes, *shape)


def _table_bytes(table: Parameter, index: Mapping[str, int]) -> bytes:
    offsets, data = (index[blob.digest] for blob in _blobs(table))
    return _TABLE.pack(bytes.fromhex(table.digest), offsets, data)


def _check_limits(manifest: int, arrays: int, tables: int) -> None:
    """Refuse to write a container that `decode` would refuse."""
    if manifest > MAX_MANIFEST:
        raise ArchiveError(
            "the manifest is too long",
            where="encode",
            found=f"{manifest:,} bytes, at most {MAX_MANIFEST:,} are allowed",
            hint="bulk data belongs into blobs",
        )
    if max(arrays, tables) > MAX_RECORDS:
        raise ArchiveError(
            "too many parameters for one container",
            where="encode",
            found=f"{arrays:,} arrays, {tables:,} string tables; at most {MAX_RECORDS:,} of each",
            hint="write them as several containers",
        )


def _decode_header(buffer: Container, where: str) -> tuple[int, int, int]:
    """The number of arrays and tables and the length of the manifest."""
    raw = buffer[: _HEADER.size].tobytes()
    _check_magic(raw, where)
    if len(raw) < _HEADER.size:
        raise ArchiveError("the header is cut off", where=where, found=f"{len(raw)} bytes")
    _, version, zero, arrays, tables, manifest, size, _, zeros = _HEADER.unpack(raw)
    if version != VERSION:
        raise ArchiveError(
            "this container has an unknown version",
            where=where,
            found=f"version {version}, this release reads version {VERSION}",
            hint="save it again with this release, or update",
        )
    if zero or any(zeros):
        raise ArchiveError("reserved bytes of the header are set", where=where)
    if size != len(buffer):
        raise ArchiveError(
            "the file does not have the length its header states",
            where=where,
            found=f"{len(buffer)} bytes instead of {size}",
            hint="it was cut off or appended to; copy it again",
        )
    counts = f"{arrays} arrays, {tables} string tables, {manifest} bytes of manifest"
    if max(arrays, tables) > MAX_RECORDS or manifest > MAX_MANIFEST:
        raise ArchiveError("the header states too much", where=where, found=counts)
    if _HEADER.size + arrays * _ARRAY.size + tables * _TABLE.size + manifest > size:
        raise ArchiveError("the table of contents is cut off", where=where, found=counts)
    return arrays, tables, manifest


def _check_magic(raw: bytes, where: str) -> None:
    if raw.startswith(MAGIC):
        return
    hint = "a plan is written by plan.save(path), and by pretzel import"
    if raw.startswith((b"\x80", b"PK\x03\x04", b"\x1f\x8b")):
        hint = "pickles, joblib and zip files are never opened here; import the model and save it"
    raise ArchiveError(
        "this is not a Pretzel container", where=where, found=f"{raw[:8]!r}", hint=hint
    )


def _check_seal(buffer: Container, end: int, manifest: int, where: str) -> None:
    header = bytearray(buffer[: _HEADER.size].tobytes())
    stated = header[_SEAL].hex()
    header[_SEAL] = bytes(DIGEST_BYTES)
    records = buffer[_HEADER.size : end].tobytes()
    computed = combine(bytes(header), records, buffer[end : end + manifest].tobytes())
    if computed != stated:
        raise ArchiveError(
            "the table of contents or the manifest was changed",
            where=where,
            found=f"digest {computed}, the header states {stated}",
            hint="the file is damaged; copy it again",
        )


def _decode_arrays(raw: bytes, where: str) -> list[ArrayRecord]:
    records = []
    for digest, dtype, named, dimensions, offset, nbytes, *shape in _ARRAY.iter_unpack(raw):
        position = f"{where}, array {digest.hex()}"
        if named > 1 or dimensions > MAX_DIMENSIONS or any(shape[dimensions:]):
            raise ArchiveError("a record is not well-formed", where=position)
        text = dtype.rstrip(b"\0").decode("latin-1")
        sizes = tuple(shape[:dimensions])
        record = ArrayRecord(digest.hex(), text, bool(named), offset, nbytes, sizes)
        description = f"dtype {record.dtype!r}, shape {record.shape}, {record.nbytes} bytes"
        if record.dtype not in DTYPES:
            raise ArchiveError("an array has an unknown dtype", where=position, found=description)
        # Python's integers do not overflow.
        if math.prod(max(size, 1) for size in record.shape) > MAX_ELEMENTS:
            raise ArchiveError("an array is too large", where=position, found=description)
        if math.prod(record.shape) * DTYPES[record.dtype].itemsize != record.nbytes:
            raise ArchiveError("shape and bytes disagree", where=position, found=description)
        records.append(record)
    _check_sorted([record.digest for record in records], f"{where}, arrays")
    return records


def _check_sorted(digests: list[str], where: str) -> None:
    for before, after in pairwise(digests):
        if before >= after:
            raise ArchiveError(
                "records are not in order", where=where, found=f"{after} after {before}"
            )


def _check_places(records: Iterable[ArrayRecord], end: int, size: int, where: str) -> None:
    """Check each payload's offset, so that none overlaps another or ends beyond the file."""
    for record in records:
        position = f"{where}, array {record.digest}"
        if record.offset != _aligned(end):
            raise ArchiveError(
                "an array is not where it must be",
                where=position,
                found=f"{record.offset}, not {_aligned(end)}",
            )
        end = record.offset + record.nbytes
        if end > size:
            raise ArchiveError(
                "an array reaches out of the file", where=position, found=f"ends at {end} of {size}"
            )
    if end != size:
        raise ArchiveError("bytes follow the last array", where=where, found=f"{size - end} bytes")


def _decode_tables(raw: bytes, arrays: list[ArrayRecord], where: str) -> list[TableRecord]:
    records = []
    for digest, offsets, data in _TABLE.iter_unpack(raw):
        position = f"{where}, string table {digest.hex()}"
        if max(offsets, data) >= len(arrays):
            raise ArchiveError(
                "a string table names an array that is not there",
                where=position,
                found=f"{offsets}, {data}",
            )
        record = TableRecord(digest.hex(), arrays[offsets], arrays[data])
        kinds = (
            record.offsets.dtype,
            len(record.offsets.shape),
            record.data.dtype,
            len(record.data.shape),
        )
        if kinds != ("<i8", 1, "|u1", 1):
            raise ArchiveError(
                "a string table has the wrong arrays", where=position, found=f"{kinds}"
            )
        if strings_digest(record.offsets.digest, record.data.digest) != record.digest:
            raise ArchiveError("a string table has another digest than its arrays", where=position)
        records.append(record)
    _check_sorted([record.digest for record in records], f"{where}, string tables")
    return records


def _check_owned(arrays: Iterable[ArrayRecord], tables: Iterable[TableRecord], where: str) -> None:
    """Check that each array is a parameter or half of a string table, so that none is hidden."""
    halves = {half.digest for table in tables for half in (table.offsets, table.data)}
    for record in arrays:
        if not record.named and record.digest not in halves:
            raise ArchiveError("an array belongs to nothing", where=where, found=record.digest)
