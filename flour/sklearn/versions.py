"""The version of scikit-learn that wrote a model, where it is not the installed one."""

from __future__ import annotations

import bz2
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from flour.core.errors import OtherVersion
from flour.language.adapters import Fitted, Importer

#: The attribute for the version that wrote an estimator, named as in scikit-learn's files.
KEY = "_sklearn_version"
HINT = "train it again with the installed version, or write ONNX (skl2onnx) where it was trained"
#: How many bytes of a file are unpacked.
_MOST_BYTES = 1 << 26
#: The key and its value in pickles of protocol 1 to 5, of protocol 0, and in files of skops.
_WRITTEN = re.compile(
    rb"_sklearn_version(?:\x94|q.|r.{4})?(?:\x8c|X(?=.\0\0\0))(?P<size>.)(?:(?<=X.)\0{3})?"
    rb"|_sklearn_version(?:\np\d+\n)?V(?P<line>[^\n]{1,40})\n"
    rb'|_sklearn_version": \{[^{}]*?"content": "\\"(?P<json>[^"\\]{1,40})',
    re.DOTALL,
)
_NOT_SO_PACKED = (OSError, KeyError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def installed() -> str:
    """The version of scikit-learn that is installed."""
    import sklearn

    return str(sklearn.__version__)


def differs(writer: str | None) -> str:
    """The version that wrote a model and the installed one in words; empty if they are equal."""
    if not writer or writer == installed():
        return ""
    return f"written by scikit-learn {writer}, installed is {installed()}"


def fitted_before(to: Importer, major: int, minor: int) -> bool:
    """Whether the model's file says that a version before this one wrote it."""
    found = re.match(r"written by scikit-learn (\d+)\.(\d+)", to.caveat)
    return found is not None and (int(found[1]), int(found[2])) < (major, minor)


def changed(to: Importer, fit: Fitted, what: str, last: str) -> NoReturn:
    """Refuse an estimator whose state meant something else up to the version `last`."""
    raise OtherVersion(
        f"{type(fit).__name__} would not answer as the version that fitted it: {what}",
        where=to.where() or None,
        found=to.caveat or f"fitted by scikit-learn {last} or before, installed is {installed()}",
        hint=HINT,
    )


def version_in(data: bytes) -> str:
    """The version of scikit-learn that a pickle, joblib or skops file names; nothing is run."""
    found = _WRITTEN.search(_unpacked(data), 0, 4 * _MOST_BYTES)
    if found is None:
        return ""
    text = found["line"] or found["json"]
    if found["size"]:
        text = found.string[found.end() : found.end() + found["size"][0]]
    return text.decode("ascii", "replace")


def _unpacked(data: bytes) -> bytes:
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: zlib.decompressobj(47).decompress(data, _MOST_BYTES),  # zlib and gzip
        lambda: bz2.BZ2Decompressor().decompress(data, _MOST_BYTES),
        lambda: lzma.LZMADecompressor(memlimit=1 << 28).decompress(data, _MOST_BYTES),
        lambda: zipfile.ZipFile(io.BytesIO(data)).open("schema.json").read(_MOST_BYTES),  # noqa: SIM115 (in memory)
    )
    for unpack in ways:
        with suppress(*_NOT_SO_PACKED):
            return unpack()
    return data
