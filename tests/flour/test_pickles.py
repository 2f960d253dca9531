"""Pickles that are read as data: nothing in them is run, and hostile ones end in an error."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import random
import re
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
from sklearn.cluster import FeatureAgglomeration
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # it is asked for
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.neighbors import LocalOutlierFactor, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, SplineTransformer, StandardScaler
from sklearn.svm import SVC

import flour
from flour.core.errors import FlourError, ImportRefused, UnknownEstimator, UnsupportedSetting
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


NAMED = X.round().clip(0, 2)
INSTALLED: dict[str, Any] = {
    "categories": HistGradientBoostingClassifier(max_iter=3, categorical_features=[0, 2]),
    "categories before": make_pipeline(
        StandardScaler(), HistGradientBoostingClassifier(max_iter=3, categorical_features=[0])
    ),
    "pooled": FeatureAgglomeration(2),
    "largest": FeatureAgglomeration(2, pooling_func=np.max),
    "threshold": TunedThresholdClassifierCV(LogisticRegression(), cv=2),
    "threshold of a class": TunedThresholdClassifierCV(LogisticRegression(), cv=2, scoring="f1"),
    "splines": SplineTransformer(4),
    "outliers": LocalOutlierFactor(5, novelty=True),
    "centroids": NearestCentroid(),
    "imputer": IterativeImputer(max_iter=2, missing_values=1),
    "kernel": SVC(kernel="precomputed"),
}


@pytest.mark.parametrize("protocol", [0, 1, 4])
@pytest.mark.parametrize("name", INSTALLED)
def test_a_file_is_the_program_that_its_estimator_is(name: str, protocol: int) -> None:
    rows = NAMED @ NAMED.T if name == "kernel" else NAMED
    fitted = INSTALLED[name].fit(rows, X[:, 0] > 0)
    read = read_as_data(pickle.dumps(fitted, protocol))
    assert flour.from_sklearn(read).digest == flour.from_sklearn(fitted).digest
    for method in ("predict_proba", "decision_function"):
        assert hasattr(read, method) == hasattr(fitted, method)


def test_estimators_within_one_another_by_the_thousand() -> None:
    begin, end = b"ca.b\nGridSearchCV\n)\x81}U\x0fbest_estimator_", b"sb"
    data = begin.replace(b"a.b", b"sklearn.model_selection") * 3000 + b"N" + end * 3000 + b"."
    for sample in (None, X):
        with pytest.raises(UnsupportedSetting, match="too deeply"):
            flour.from_sklearn(read_as_data(data), sample)


def test_sparse_matrices_and_references_to_oneself() -> None:
    table = sparse.random_array((5, 7), density=0.4, rng=RNG)
    for each in (table.tocsr(), table.tocsc(), sparse.csr_matrix(table)):
        read = read_pickle(pickle.dumps(each))
        assert same(read.toarray(), each.toarray())
        assert read.shape == each.shape
    me = StandardScaler()
    me.me = [me]
    read = read_pickle(pickle.dumps(me))
    assert read.me[0] is read


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
from flour.sklearn.file import read_as_data
from flour.sklearn.importer import writer_of
for path in Path({str(tmp_path)!r}).iterdir():
    made = read_as_data(path.read_bytes())
    assert flour.from_sklearn(made).outputs and path.name.startswith(writer_of(made))
    assert flour.from_sklearn(path).digest == flour.from_sklearn(str(path)).digest
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
    "deep lists": b"]" * 100_000 + b"a" * 99_999 + b".",
    "deep tuples": _deep(100_000, b"", b"\x85"),
    "itself": b"]q\0h\0a.",
    "tuples twice": b"K\0" + b"q\0h\0\x86" * 60 + b".",
    "lists twice": b"]q\0" + b"]q\1(h\0h\0e0h\1q\0" * 60 + b".",
    "filled later": b"".join(b"]q%c" % n for n in range(60))
    + b"".join(b"h%c(h%ch%ce" % (n, n - 1, n - 1) for n in range(59, 0, -1))
    + b"h\x3b.",
    "of an object": b"ca\nb\n)\x81}X\1\0\0\0xK\0" + b"q\0h\0\x86" * 60 + b"sb.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    with pytest.raises(ImportRefused, match="cannot be read"):
        read_pickle(HOSTILE[name], "m.pkl")


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ("/etc/hostname", "str"),
        (None, "NoneType"),
        (3, "int"),
        (StandardScaler, "sklearn.preprocessing._data.StandardScaler"),
        (os.system, "system"),
        (np.log1p, "ufunc"),
        (X, "ndarray"),
        ({"model": FITTED, "columns": ["a"]}, "'model': Pipeline, 'columns': list"),
        ((FITTED, {"a": 1}), "'0': Pipeline, '1': dict"),
    ],
)
def test_a_file_that_is_no_model_says_what_it_holds(held: Any, says: str) -> None:
    with pytest.raises(UnknownEstimator, match=re.escape(says)) as refused:
        read_as_data(pickle.dumps(held), "m.pkl")
    assert refused.value.where == "m.pkl"
    if part := re.match("'(.*?)': Pipeline", says):
        read = read_as_data(pickle.dumps(held), "m.pkl", part[1])
        assert flour.from_sklearn(read).digest == flour.from_sklearn(FITTED).digest


def test_copies_are_paid_for() -> None:
    """A list of many items is copied by each of many calls, or its bytes by arrays."""
    many = b"c__builtin__\nlist\nq\x00](" + b"K\x01" * 50_000 + b"eq\x01"
    with pytest.raises(ImportRefused, match="over and over"):
        read_pickle(many + b"h\x00h\x01\x85R" * 50_000 + b".")


def test_lists_in_lists_and_in_several_places_are_read() -> None:
    shared = [[[1, "a"]] * 20] * 20
    assert read_pickle(pickle.dumps(shared)) == shared


def test_arrays_in_arrays_are_refused() -> None:
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
