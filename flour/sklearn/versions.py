"""Models that another version of scikit-learn wrote: told to the caller, refused where they differ.

A file says which version wrote it. scikit-learn warns of another one while reading and forgets it;
`flour.sklearn.file` puts it back. An estimator that a caller has read shows it where the parameters
that it has are not those of its class in the installed version.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from inspect import signature
from typing import Any, NoReturn

from flour.core.errors import OtherVersion, OtherVersionWarning
from flour.language.adapters import Fitted, Importer
from flour.tracing.fitted import is_object

#: The attribute for the version that wrote an estimator, named as in scikit-learn's files.
KEY = "_sklearn_version"
HINT = "train it again with the installed version, or write ONNX (skl2onnx) where it was trained"
#: How many values inside an estimator are looked at, and bytes of a file, unpacked ones too.
_MOST_VALUES, _MOST_BYTES = 512, 1 << 26
#: The key in a pickle of any protocol and in a file of skops, and its value.
_WRITTEN = re.compile(
    rb"_sklearn_version(?:\x94|q.|r.{4})?(?:\x8c|X(?=.\0\0\0))(?P<size>.)(?:(?<=X.)\0{3})?"
    rb"|_sklearn_version(?:\np\d+\n)?V(?P<line>[^\n]{1,40})\n"
    rb'|_sklearn_version": \{[^{}]*?"content": "\\"(?P<json>[^"\\]{1,40})',
    re.DOTALL,
)


def installed() -> str:
    """The version of scikit-learn that is installed."""
    import sklearn

    return str(sklearn.__version__)


def differs(writer: str | None) -> str:
    """The version that wrote a model and the installed one in words; empty if they are equal."""
    if not writer or writer == installed():
        return ""
    return f"written by scikit-learn {writer}, installed is {installed()}"


def fitted_before(to: Importer, *release: int) -> bool:
    """Whether a file says that a version before this release wrote the model."""
    return bool(to.writer) and [*map(int, re.findall(r"\d+", to.writer)[:2])] < [*release]


def writer_of(root: object) -> str:
    """The version that wrote an estimator, where it came from a file of another version."""
    return str(getattr(root, "__dict__", {}).get(KEY, ""))


def caveat(root: object) -> str:
    """What is to be told about the version that wrote an estimator; empty if nothing shows it."""
    for each in _inside(root):
        said = differs(vars(each).get(KEY)) or _strange(each)
        if said:
            return said
    return ""


def warn(root: object, means: str) -> str:
    """Warn of an estimator of another version: `means` is what follows. Returns the caveat."""
    said = caveat(root)
    if said:
        warnings.warn(f"{type(root).__name__}: {said}; {means}", OtherVersionWarning, stacklevel=3)
    return said


def changed(to: Importer, fit: Fitted, what: str, last: str) -> NoReturn:
    """Refuse an estimator whose state meant something else up to the version `last`."""
    writer = to.caveat or f"fitted by scikit-learn {last} or before, installed is {installed()}"
    raise OtherVersion(
        f"{type(fit).__name__} would not answer as the version that fitted it: {what}",
        where=to.where() or None,
        found=writer,
        hint=HINT,
    )


def _inside(root: object) -> Iterator[Any]:
    """An estimator, and scikit-learn's objects inside it."""
    rest, looked_at = [root], 0
    while rest and looked_at < _MOST_VALUES:
        value: Any = rest.pop()
        looked_at += 1
        if isinstance(value, list | tuple):
            rest += value[:_MOST_VALUES]
        elif is_object(value) or (value is root and hasattr(value, "__dict__")):
            yield value
            rest += vars(value).values()


def _strange(estimator: Any) -> str:
    """Parameters that the estimator has and its class has not, or the other way about, in words."""
    known = _parameters(type(estimator))
    if known is None:
        return ""
    own, every = known
    names = vars(estimator).keys()
    lacks = sorted(own - names)
    strange = lacks or [n for n in names - every if n[0] != "_" and n[-1] != "_"]
    if not strange:
        return ""
    name = f"{type(estimator).__name__} {'lacks' if lacks else 'has'} {', '.join(strange)}"
    return f"another version than the installed scikit-learn {installed()} made it ({name})"


@lru_cache(512)
def _parameters(kind: Any) -> tuple[frozenset[str], frozenset[str]] | None:
    """The parameters of one of scikit-learn's classes, and these with all that its bases have."""
    if not kind.__module__.startswith("sklearn.") or not hasattr(kind, "_get_param_names"):
        return None
    every = (signature(base.__init__).parameters for base in kind.__mro__[:-1])
    return frozenset(kind._get_param_names()), frozenset(name for names in every for name in names)


# --- files ---------------------------------------------------------------------------------------


def version_in(data: bytes) -> str:
    """The version of scikit-learn that a pickle, joblib or skops file names; nothing is run."""
    found = _WRITTEN.search(_unpacked(data)[: 4 * _MOST_BYTES])
    if found is None:
        return ""
    size = found["size"]
    raw = found.string[found.end() :][: size[0]] if size else found["line"] or found["json"]
    return raw.decode("ascii", "replace")


def _unpacked(data: bytes) -> bytes:
    """The bytes of a file that may be compressed, as far as they are looked at."""
    try:
        if data[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("schema.json") as file:
                return file.read(_MOST_BYTES)
        if data[:1] == b"x" or data[:2] == b"\x1f\x8b":
            return zlib.decompressobj(47).decompress(data, _MOST_BYTES)  # zlib or gzip
        if data[:3] == b"BZh":
            return bz2.BZ2Decompressor().decompress(data, _MOST_BYTES)
        if data[:6] == b"\xfd7zXZ\0" or data[:3] == b"]\0\0":
            return lzma.LZMADecompressor().decompress(data, _MOST_BYTES)
    except (KeyError, OSError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile):
        pass
    return data
