"""One-file container for saved plans: a manifest and parameters, as data.

Opening one checks its whole structure (see `objectstore.layout`) and reads its manifest;
parameters are views into one mapping of the file and are verified when first asked for. A
corrupted or hostile file gives an `ArchiveError`, never more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from objectstore import layout
from objectstore.atomic import write_file
from objectstore.blob import ALIGNMENT, Blob, frozen
from objectstore.closing import Closing
from objectstore.digest import array_digest
from objectstore.errors import ArchiveError, DamagedBlob, MissingBlob, StoreClosed, StoreError
from objectstore.mapping import frozen_bytes, read_only, release
from objectstore.strings import Parameter, Strings, live_parameter

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value in a manifest."""

COPIED_BYTES = 64 << 10
"""Arrays of fewer bytes are copied out of a file: reading a page makes the kernel map this many
bytes around it, most of which would belong to other arrays."""

APART_BYTES = 16 << 10
"""Smaller arrays are copied together with their neighbours: a forest has hundreds of them."""

_COPIES: WeakValueDictionary[str, NDArray[np.uint8]] = WeakValueDictionary()
"""Memory that `copied` has made: arrays by the digests that files state, the rest by file."""

MAX_DEPTH = 64
"""Deepest nesting of lists and objects in a manifest: bounds the stack of readers."""


def write(
    target: str | os.PathLike[str] | IO[bytes],
    manifest: Mapping[str, object],
    parameters: Mapping[str, Parameter],
    *,
    durable: bool = True,
) -> None:
    """Write a container; a path is replaced in one step, complete or not at all."""
    for digest, parameter in parameters.items():
        if digest != parameter.digest:
            raise ArchiveError(
                "a parameter is not filed under its digest",
                where=f"parameters[{digest!r}]",
                found=repr(parameter),
                hint=f"its digest is {parameter.digest}",
            )
    chunks = layout.encode(manifest_bytes(manifest), parameters.values())
    if isinstance(target, str | os.PathLike):
        write_file(Path(target), chunks, durable=durable)
        return
    for chunk in chunks:
        target.write(chunk)


def manifest_bytes(manifest: Mapping[str, object]) -> bytes:
    """A manifest as canonical JSON: sorted keys, no spaces, ASCII, no NaN or infinity."""
    try:
        level: list[Any] = [manifest]
        depth = 0
        while level:  # `_inside` refuses keys that JSON would silently turn into texts
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"lists and objects nest deeper than {MAX_DEPTH}")
            level = [inner for outer in level for inner in _inside(outer)]
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArchiveError(
            "this manifest cannot be written as JSON",
            where="manifest",
            found=str(error),
            hint="only None, bool, int, finite float, str, list and dict with text keys",
        ) from error
    return text.encode("ascii")


class Archive(Closing):
    """An open container. Arrays stay valid after `close`, as long as they are referenced."""

    def __init__(self, buffer: layout.Container, where: str, *, verify: bool = True) -> None:
        self._buffer: layout.Container | None = buffer
        self._where, self._verify = where, verify
        self._contents = layout.decode(buffer, where)
        self._verified: set[str] = set()
        self.manifest: dict[str, Json] = _parse_manifest(self._contents.manifest, where)

    @staticmethod
    def open(path: str | os.PathLike[str], *, verify: bool = True) -> Archive:
        """Map a container file. `verify=False` trusts its payloads and checks structure only."""
        return Archive(opened(path), os.fspath(path), verify=verify)

    @staticmethod
    def from_bytes(data: bytes | memoryview, where: str = "bytes") -> Archive:
        """A container that is in memory already (received over the network); copied once."""
        return Archive(frozen_bytes(data), where)

    def digests(self) -> tuple[str, ...]:
        """The parameters in it, by digest."""
        arrays = self._contents.arrays.values()
        return (*(record.digest for record in arrays if record.named), *self._contents.tables)

    def get(self, digest: str) -> Parameter:
        """A parameter: the one this process has already, else a view into the file, verified."""
        if digest not in self:
            raise MissingBlob(
                "no such parameter in this container", where=self._where, found=digest
            )
        live = live_parameter(digest)
        return self.load(digest) if live is None else live

    def load(self, digest: str, *, preferred: bool = False) -> Parameter:
        """A parameter as a view into the file, also if this process has a live one."""
        buffer = self._open_buffer()
        table = self._contents.tables.get(digest)
        if table is None:
            return self._blob(buffer, self._contents.arrays[digest], preferred=preferred)
        offsets = self._blob(buffer, table.offsets, preferred=preferred)
        data = self._blob(buffer, table.data, preferred=preferred)
        where = f"{self._where}, string table {digest}"
        trusted = digest in self._verified or not self._verify
        try:
            strings = Strings.from_blobs(offsets, data, where, trusted=trusted, preferred=preferred)
        except DamagedBlob as error:
            raise ArchiveError(error.what, where=where, found=error.found) from error
        self._verified.add(digest)
        return strings

    def verify(self) -> None:
        """Read and check every payload."""
        for digest in self.digests():
            self.load(digest)

    def record(self, digest: str) -> layout.ArrayRecord | None:
        """The record of an array in the file, None if it is not there."""
        return self._contents.arrays.get(digest)

    def nbytes(self, digest: str) -> int:
        """The size of a parameter, without reading it."""
        table = self._contents.tables.get(digest)
        if table is None:
            return self._contents.arrays[digest].nbytes
        return table.offsets.nbytes + table.data.nbytes

    def release(self) -> None:
        """Give back the pages that were read; reading them again costs a page fault."""
        release(self._open_buffer())

    def close(self) -> None:
        """Drop the mapping; parameters that were handed out keep it alive."""
        self._buffer = None

    def __contains__(self, digest: object) -> bool:
        return digest in self._contents.tables or digest in self._contents.arrays

    def __repr__(self) -> str:
        return f"Archive({self._where!r}, {len(self.digests())} parameters)"

    def _open_buffer(self) -> layout.Container:
        if self._buffer is None:
            raise StoreClosed("this container was closed", where=self._where)
        return self._buffer

    def _blob(
        self, buffer: layout.Container, record: layout.ArrayRecord, *, preferred: bool
    ) -> Blob:
        array = layout.payload(buffer, record)
        if self._verify and record.digest not in self._verified:
            _check(array, record, self._where)
            self._verified.add(record.digest)
        return Blob.view(array, record.digest, preferred=preferred)


def _check(array: NDArray[np.generic], record: layout.ArrayRecord, where: str) -> None:
    where = f"{where}, array {record.digest}"
    computed = array_digest(array)
    if computed != record.digest:
        raise ArchiveError(
            "an array is damaged",
            where=where,
            found=f"content with digest {computed}",
            hint="copy or save the file again",
        )
    # A digest does not make a value legal: native code may use a boolean as a number.
    if record.dtype == "|b1" and array.size and int(array.view(np.uint8).max()) > 1:
        raise ArchiveError("a boolean is neither 0 nor 1", where=where)


def opened(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """The bytes of a container file, mapped and not checked."""
    try:
        return read_only(path)
    except (OSError, StoreError) as error:
        raise ArchiveError(
            "this file cannot be opened",
            where=os.fspath(path),
            found=str(error),
            hint="the path of a file that may be read",
        ) from error


def copied(buffer: NDArray[np.uint8], where: str) -> layout.Container:
    """A container in memory, whatever becomes of its file; large equal arrays are there once."""
    head = layout.head(buffer)
    if head is None or len(buffer) < COPIED_BYTES:
        return frozen(buffer)
    parts, start, file = dict[int, NDArray[np.uint8]](), 0, hash(head)
    for digest, offset, nbytes in layout.places(head):
        # Arrays out of place are left to `decode`, which says so.
        if nbytes >= APART_BYTES and max(start, len(head)) <= offset <= len(buffer) - nbytes:
            if start < offset:
                parts[start] = _in_memory(buffer[start:offset], f"{file} {start}")
            parts[offset] = _in_memory(buffer[offset : offset + nbytes], digest)
            start = offset + nbytes - (offset + nbytes) % ALIGNMENT
    parts[start] = _in_memory(buffer[start:], f"{file} {start}")
    if parts[0][: len(head)].tobytes() != head:
        raise ArchiveError("the file was written over while it was read", where=where)
    return layout.Copied(parts, len(buffer))


def _in_memory(array: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """The bytes of the live array of this digest, an equal copy of this name, or a new one."""
    live, known = Blob.live(name), _COPIES.get(name)
    if live is not None and live.nbytes == array.nbytes:
        return live.array.reshape(-1).view(np.uint8)
    # Nothing is verified yet: a file that states a wrong digest must not harm another one.
    if known is not None and np.array_equal(known, array):
        return known
    _COPIES[name] = made = frozen(array)
    return made


def array_at(buffer: layout.Container, record: layout.ArrayRecord, where: str) -> Blob:
    """An array by its record: the live one of its digest, else read from the file and verified.

    An array is a copy if it is small, or not aligned as its numbers have to be.
    """
    live = Blob.live(record.digest)
    if live is not None:
        return live
    array = layout.payload(buffer, record)
    shared = isinstance(buffer, layout.Copied)
    if not shared and (record.nbytes < COPIED_BYTES or not array.flags.aligned):
        array = frozen(array)
    _check(array, record, where)
    return Blob.view(array, record.digest)


def _parse_manifest(text: bytes, where: str) -> dict[str, Json]:
    """A manifest from canonical JSON; anything else that JSON allows is refused."""
    where = f"{where}, manifest"
    try:
        manifest = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ArchiveError("the manifest is not JSON", where=where, found=str(error)) from error
    if not isinstance(manifest, dict):
        raise ArchiveError("the manifest is not an object", where=where, found=f"{text[:40]!r}")
    # Encoding it again must give the same bytes: no repeated keys, no NaN, no other form of a
    # number.
    if manifest_bytes(manifest) != text:
        raise ArchiveError("the manifest is not canonical", where=where)
    return manifest


def _inside(value: Any) -> Iterable[Any]:
    """The lists and objects directly inside a value."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is not a text")
        value = value.values()
    return [inner for inner in value if isinstance(inner, (dict, list, tuple))]  # unions are slow
