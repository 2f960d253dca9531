"""Text in files that gzip or Zstandard have compressed, which the endings of their names say."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, TextIOWrapper
from pathlib import Path
from typing import IO, Any, BinaryIO

from flour.data.arrow_reader import library
from runtime.errors import UnreadableFile

_KINDS = {".gz": "gzip", ".zst": "zstd"}


def compression(path: Path) -> str | None:
    """The compression of a file with this name."""
    return _KINDS.get(path.suffix.lower())


def plain_suffix(path: Path) -> str:
    """The ending that says what is in a file, in small letters."""
    return Path(path.stem if compression(path) else path.name).suffix.lower()


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file: its decompressed bytes, and the file itself, whose position is the progress."""
    kind = compression(path)
    with path.open("rb") as raw:
        if kind and not raw.peek(1):
            raise damaged(path, "0 bytes")
        if kind == "gzip":
            with gzip.GzipFile(fileobj=raw, mode="rb") as file:
                yield _binary(file), raw
        elif kind:
            with library().CompressedInputStream(raw, kind) as file:
                yield _binary(file), raw
        else:
            yield raw, raw


def _binary(file: Any) -> BinaryIO:
    """Readers of compressed data, which have the methods and not the type."""
    return file  # type: ignore[no-any-return]


@contextmanager
def told(path: Path, name: str) -> Iterator[None]:
    """Errors of decompressing, with the file."""
    try:
        yield
    except (EOFError, zlib.error, OSError) as problem:
        if not compression(path):
            raise
        raise damaged(name, str(problem)) from None


def damaged(path: Path | str, found: str) -> UnreadableFile:
    """The error that a compressed file cannot be read to its end."""
    return UnreadableFile(
        "this file is damaged, or cut short, or not compressed as its name says",
        where=str(path),
        found=found[:120],
        hint="write it anew; names that end in .gz and .zst are those of compressed files",
    )


@contextmanager
def written(path: Path, name: str) -> Iterator[IO[str]]:
    """A file for text, which is compressed as its `name` says; equal text makes equal bytes."""
    kind = compression(Path(name))
    with path.open("wb") as raw:
        file: Any = raw
        if kind == "gzip":
            file = gzip.GzipFile("", "wb", 6, raw, mtime=0)
        elif kind:
            file = BufferedWriter(library().CompressedOutputStream(raw, kind))
        with TextIOWrapper(file, "utf-8", newline="") as text:
            yield text
