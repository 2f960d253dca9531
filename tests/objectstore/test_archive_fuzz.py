"""Mutated containers: an `ArchiveError` each, or exactly the right answer.

Every second mutation is sealed again, as somebody hostile would, so that the checks behind the
seal are reached and not only the seal.
"""

from __future__ import annotations

import gc
import io
import random
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from objectstore import Archive, ArchiveError, Blob, Parameter, Strings
from objectstore import archive as archives
from objectstore.digest import array_digest, combine, strings_digest

if TYPE_CHECKING:
    from pathlib import Path

_HEADER, _ARRAY, _TABLE, _SEAL = 64, 104, 24, slice(40, 56)

# Numbers at which a check that is off by one, or a sum that overflows, would show.
_EDGES = (0, 1, 2, 63, 64, 65, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**48, 2**63, 2**64 - 1)


def _seed_file(second: int) -> bytes:
    parameters: list[Parameter] = [
        Blob.of(np.arange(6.0).reshape(2, 3) + second),
        Blob.of(np.array([True, False, True])),
        Blob.of(np.zeros((0, 4), dtype=np.int32)),
        Blob.of(np.float32(2.5 + second)),
        Strings.of(["a", "é", "", f"text {second}"]),
    ]
    file = io.BytesIO()
    archives.write(
        file, {"nodes": [1, 2.5, None, second], "x": {"y": "é"}}, {p.digest: p for p in parameters}
    )
    return file.getvalue()


def _mutated(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """One of the ways in which files go wrong or are made wrong."""
    out = bytearray(data)
    place = chance.randrange(len(out))
    way = chance.randrange(8)
    if way == 0:
        out[place] ^= 1 << chance.randrange(8)
    elif way == 1:
        out[place] = chance.randrange(256)
    elif way == 2:
        del out[place:]
    elif way == 3:
        out += chance.randbytes(chance.choice((1, 64, 200)))
    elif way == 4:
        del out[place : place + chance.choice((1, 8, 64))]
    elif way == 5:
        source = chance.randrange(len(other))
        size = chance.choice((1, 8, 16, 64, 104, 300))
        out[place : place + size] = other[source : source + size]
    elif way == 6:
        _poke(out, chance.randrange(0, 800) // 4 * 4, chance)
    else:
        for _ in range(chance.randrange(2, 6)):
            _poke(out, chance.randrange(len(out)), chance)
    return bytes(out)


def _poke(data: bytearray, place: int, chance: random.Random) -> None:
    """Write an edge number somewhere, 2, 4 or 8 bytes wide."""
    fmt, top = chance.choice((("<H", 2**16), ("<I", 2**32), ("<Q", 2**64)))
    if place + struct.calcsize(fmt) <= len(data):
        struct.pack_into(fmt, data, place, chance.choice(_EDGES) % top)


def _sealed(data: bytes) -> bytes:
    """With the length and the seal that belong to what is there now, where there is room."""
    out = bytearray(data)
    if len(out) < _HEADER:
        return data
    struct.pack_into("<Q", out, 32, len(out))
    arrays, tables, manifest = struct.unpack_from("<IIQ", out, 16)
    end = _HEADER + _ARRAY * arrays + _TABLE * tables
    out[_SEAL] = bytes(16)
    parts = bytes(out[:_HEADER]), bytes(out[_HEADER:end]), bytes(out[end : end + manifest])
    out[_SEAL] = bytes.fromhex(combine(*parts))
    return bytes(out)


def _content_digest(parameter: Parameter) -> str:
    """The digest computed here from what the parameter really holds."""
    if isinstance(parameter, Blob):
        return array_digest(parameter.array)
    parameter.to_list()
    return strings_digest(*(array_digest(blob.array) for blob in parameter.blobs()))


def _fuzz(count: int, seed: int, path: Path) -> tuple[int, int]:
    """Open mutations and read everything in them; how many were refused and how many fine."""
    chance = random.Random(seed)
    files = [_seed_file(0), _seed_file(1)]
    manifests = [Archive.from_bytes(data).manifest for data in files]
    gc.collect()
    refused = fine = 0
    for turn in range(count):
        data = _mutated(files[turn % 2], files[1 - turn % 2], chance)
        sealed = chance.random() < 0.5
        data = _sealed(data) if sealed else data
        try:
            if turn % 16:
                archive = Archive.from_bytes(data)
            else:
                path.write_bytes(data)
                archive = Archive.open(path)
            found = {digest: archive.load(digest) for digest in archive.digests()}
        except ArchiveError:
            refused += 1
            continue
        fine += 1
        for digest, parameter in found.items():
            assert _content_digest(parameter) == digest == parameter.digest
        # Unless sealed again by somebody, what is accepted is what was written.
        assert sealed or archive.manifest in manifests
    return refused, fine


def test_mutations(tmp_path: Path) -> None:
    refused, fine = _fuzz(3_000, 1, tmp_path / "plan")
    # Both happen: bytes of padding do not matter, nearly everything else does.
    assert refused > 2_000
    assert fine > 10


@pytest.mark.soak
def test_100_000_mutations(tmp_path: Path) -> None:
    refused, fine = _fuzz(100_000, 2, tmp_path / "plan")
    assert refused > 80_000
    assert fine > 300
