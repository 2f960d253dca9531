"""Pickles that are read as data: nothing in them is run, and hostile ones end in an error."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import random
import subprocess
import sys
import zlib
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import flour
from flour.core.errors import FlourError, ImportRefused
from flour.pickles import read_pickle
from flour.pickles.standins import Global, StandIn
from flour.sklearn.file import read_as_data
from tests.flour.old_models.make import FOLDER

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
FITTED = make_pipeline(
    FunctionTransformer(np.arctan), StandardScaler(), RandomForestClassifier(3, max_depth=3)
).fit(X, X[:, 0] > 0)


class Runs:
    """An object whose pickle calls a function."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self._reduced = call, arguments

    def __reduce__(self) -> Any:
        return self._reduced


DATA: dict[str, Any] = {
    "plain": [
        None,
        True,
        1,
        -(1 << 70),
        1.5,
        "ä\ud83e",
        b"\0\xff",
        bytearray(b"ab"),
        (),
        (1, (2,)),
    ],
    "containers": (
        {1: "a", "b": [2]},
        {3, 4},
        frozenset("xy"),
        OrderedDict(a=1),
        slice(1, None, 2),
    ),
    "default": defaultdict(list, a=[1]),
    "numbers": [np.float32(1.5), np.int64(7), np.bool_(True), np.str_("x"), np.datetime64(9, "D")],
    "arrays": [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
        np.array(["a", "bc"]),
        np.array(["a", None, 2.0], object),
        np.array([(1, 2.0)], [("a", "<i4"), ("b", ">f8")]),
        np.zeros((0, 4)),
        np.array(3.0),
        np.arange(3, dtype=">i2"),
    ],
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and repr(one) == repr(other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(map(same, one, other)) and len(one) == len(other)
    return bool(one == other) and type(one) is type(other)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", DATA)
def test_data_is_what_it_was(name: str, protocol: int) -> None:
    assert same(DATA[name], read_pickle(pickle.dumps(DATA[name], protocol)))


@pytest.mark.parametrize("compress", [0, 1, ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3)])
def test_files_of_joblib(compress: Any) -> None:
    kept = io.BytesIO()
    joblib.dump(DATA["arrays"], kept, compress=compress)
    assert same(DATA["arrays"], read_pickle(kept.getvalue()))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("pack", [bytes, zlib.compress, gzip.compress, bz2.compress, lzma.compress])
def test_an_estimator_is_the_same_program(protocol: int, pack: Any) -> None:
    read = read_as_data(pack(pickle.dumps(FITTED, protocol)))
    assert isinstance(read, StandIn)
    assert flour.from_sklearn(read).digest == flour.from_sklearn(FITTED).digest


def test_sparse_matrices_and_references_to_oneself() -> None:
    table = sparse.random_array((5, 7), density=0.4, rng=RNG)
    for each in (table.tocsr(), table.tocsc(), sparse.csr_matrix(table)):
        read = read_pickle(pickle.dumps(each))
        assert same(read.toarray(), each.toarray())
        assert read.shape == each.shape
    me: list[Any] = []
    me.append(me)
    read = read_pickle(pickle.dumps(me))
    assert read[0] is read


def test_nothing_is_imported(tmp_path: Path) -> None:
    for name in ("1.2.2-forest.joblib", "1.7.2-boosted.joblib", "0.24.2-stack.joblib"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    code = f"""
import sys
for name in ("sklearn", "scipy", "joblib", "pandas"):
    sys.modules[name] = None
import warnings; warnings.simplefilter("ignore")
from pathlib import Path
import flour
from flour.sklearn.file import read_with_version
for path in Path({str(tmp_path)!r}).iterdir():
    made, version = read_with_version(path.read_bytes())
    assert flour.from_sklearn(made).outputs and path.name.startswith(version)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- hostile files -------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [os.system, eval, exec, os.mkdir, print, open, getattr])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_what_a_file_would_call_is_a_name(call: Any, protocol: int, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    text = {os.system: f"touch {canary}", os.mkdir: str(canary), open: str(canary)}.get(
        call, f"open({str(canary)!r}, 'w')"
    )
    hidden = np.array([Runs(call, text, "w")], object)
    for each in (Runs(call, text), [hidden], {"a": (Runs(call, text),)}):
        read_pickle(pickle.dumps(each, protocol))
    kept = io.BytesIO()
    joblib.dump([hidden], kept)
    read_pickle(kept.getvalue())
    assert not canary.exists()


def _deep(count: int, begin: bytes, end: bytes) -> bytes:
    return begin * count + b"N" + end * count + b"."


HOSTILE = {
    "empty": b"",
    "no end": b"\x80\x04]",
    "huge text": b"\x8d" + (1 << 60).to_bytes(8, "little") + b"x.",
    "negative size": b"T\xff\xff\xff\xffx.",
    "huge place": b"Nr\xff\xff\xff\xff0.",
    "outside": b"\x82\x01.",
    "persistent": b"Pabc\n.",
    "later protocol": b"\x80\x63N.",
    "deep tuples as keys": b"}" + _deep(5000, b"", b"\x85")[:-1] + b"Ns.",
    "huge keys": b"}\x8a\x0f" + b"\xff" * 14 + b"\x01Ns.",
    "mutable key": b"}]Ns.",
    "call of a number": b"K\x01)R.",
    "state of a number": b"K\x01}b.",
    "unfinished array": pickle.dumps(np.arange(300))[:-200],
    "bomb": zlib.compress(bytes(1 << 29)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    with pytest.raises(ImportRefused, match="cannot be read"):
        read_pickle(HOSTILE[name], "m.pkl")


def test_copies_are_paid_for() -> None:
    """A list of many items is copied by each of many calls, or its bytes by arrays."""
    many = b"c__builtin__\nlist\nq\x00](" + b"K\x01" * 50_000 + b"eq\x01"
    with pytest.raises(ImportRefused, match="over and over"):
        read_pickle(many + b"h\x00h\x01\x85R" * 50_000 + b".")


def test_deep_lists_are_read_and_taken_apart() -> None:
    read_pickle(b"]" * 100_000 + b"a" * 99_999 + b".")
    nested = np.array([None], object)
    for _ in range(200):
        nested, outer = np.array([None], object), nested
        nested[0] = outer
    with pytest.raises(ImportRefused, match="too deeply"):
        read_pickle(pickle.dumps(nested))


def test_names_are_never_what_they_name() -> None:
    for module, name in (("os", "system"), ("builtins", "eval"), ("numpy", "load")):
        read = read_pickle(f"c{module}\n{name}\n.".encode())
        assert isinstance(read, Global)
        assert not callable(read)
        with pytest.raises(AttributeError):
            read.module = "other"


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    canary = tmp_path / "canary"
    files = [pickle.dumps([FITTED, Runs(os.system, f"touch {canary}")], p) for p in (0, 2, 5)]
    for _ in range(150):
        damaged = bytearray(rng.choice(files))
        for _ in range(rng.choice((1, 2, 8))):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        try:
            read_as_data(bytes(damaged))
        except FlourError:
            continue
    assert not canary.exists()
