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
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np

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
#: In Universal Binary JSON, and in the JSON of older versions.
_XGBOOST = re.compile(
    rb'version(?:\[#L\0{7}\x03(?P<whole>(?:i[\0-\x7f]){3})|":\s*\[(?P<text>[\d,\s]{5,20})\])',
    re.DOTALL,
)
_NOT_SO_PACKED = (OSError, KeyError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


@lru_cache
def installed(library: str = "scikit-learn") -> str:
    """The version of a library that is installed, which is not imported for that."""
    for name in (library, f"{library}-cpu"):
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def differs(writer: str | None, library: str = "scikit-learn") -> str:
    """The version that wrote a model and the installed one in words; empty if they are equal."""
    here = installed(library)
    if not writer or writer == here:
        return ""
    return f"written by {library} {writer}, installed is {here or 'none'}"


def numbers(writer: str) -> tuple[int, int]:
    """The first two numbers of a version, or of the installed one where none is known."""
    found = re.match(r"(\d+)\.(\d+)", writer or installed())
    return (int(found[1]), int(found[2])) if found else Importer.fitted


def _own(name: str) -> Callable[[Any], Any]:
    """Return an attribute of an estimator by its name in a former version."""
    return lambda fit: vars(fit)[name]


def _widths(fit: Fitted) -> list[int]:
    drops = vars(fit)["drop_idx_"]
    drops = [None] * len(fit.categories_) if drops is None else drops
    each = zip(fit.categories_, drops, strict=True)
    return [len(values) - (drop is not None) for values, drop in each]


def _places(fit: Fitted) -> dict[str, list[int]]:
    """The columns of each transformer, which files to 1.2 say by number, name, mask or slice."""
    names = getattr(fit, "feature_names_in_", vars(fit).get("_feature_names_in"))
    every = list(names) if names is not None else list(range(fit.n_features_in_))
    found = {}
    for name, _, picked in fit.transformers_:
        if isinstance(picked, slice):
            ends = [
                every.index(end) if isinstance(end, str) else end
                for end in (picked.start, picked.stop)
            ]
            last = ends[1] + 1 if isinstance(picked.stop, str) else ends[1]
            found[name] = list(range(len(every)))[ends[0] : last : picked.step]
            continue
        some = np.atleast_1d(np.asarray(picked, None if len(np.atleast_1d(picked)) else int))
        if some.dtype == bool:
            found[name] = np.flatnonzero(some).tolist()
        else:
            found[name] = [
                every.index(each) if isinstance(each, str) else int(each) % len(every)
                for each in some.tolist()
            ]
    return found


def _depths(fit: Fitted) -> list[Any]:
    """The number of nodes passed on the way to each node of each tree, itself included."""
    found = []
    for tree in (each.tree_ for each in fit.estimators_):
        left, right = tree.children_left, tree.children_right
        depths = np.ones(len(left), np.int64)
        for node in range(len(left)):  # children have larger numbers
            if left[node] >= 0:
                depths[[left[node], right[node]]] = depths[node] + 1
        found.append(depths)
    return found


def _path_lengths(fit: Fitted) -> list[Any]:
    """The mean length of ways in random trees over as many rows as each node has."""
    found = []
    for tree in (each.tree_ for each in fit.estimators_):
        rows = np.asarray(tree.n_node_samples, np.float64)
        more = np.maximum(rows, 3.0)
        long = 2.0 * (np.log(more - 1.0) + np.euler_gamma) - 2.0 * (more - 1.0) / more
        found.append(np.where(rows <= 1, 0.0, np.where(rows == 2, 1.0, long)))
    return found


def _loss(fit: Fitted) -> Any:
    """The loss of a generalised linear model, of which the link matters."""
    return SimpleNamespace(link=fit._link_instance)


#: Attributes of classes and their former names, where the meaning has stayed.
FORMER: dict[str, dict[str, Callable[[Any], Any]]] = {
    "MaxAbsScaler": {"clip": lambda _: False},
    "MinMaxScaler": {"clip": lambda _: False},
    "KBinsDiscretizer": {"dtype": lambda _: None},
    "MissingIndicator": {"_precomputed": lambda _: False},
    **{name: {"_probA": _own("probA_"), "_probB": _own("probB_")} for name in ("SVC", "NuSVC")},
    "GaussianProcessRegressor": {"_y_train_std": lambda _: 1.0},
    "SplineTransformer": {"handle_missing": lambda _: "error", "sparse_output": lambda _: False},
    "SimpleImputer": {"keep_empty_features": lambda _: False},
    "KNNImputer": {
        "keep_empty_features": lambda _: False,
        "_valid_mask": lambda fit: ~fit._mask_fit_X.all(axis=0),
    },
    "IterativeImputer": {
        "keep_empty_features": lambda _: False,
        "_is_empty_feature": lambda fit: fit.initial_imputer_.statistics_ * 0 != 0,  # NaN
    },
    "GaussianNB": {"var_": _own("sigma_")},
    "KernelPCA": {
        "gamma_": lambda fit: fit.gamma or 1.0 / fit.X_fit_.shape[1],
        "eigenvalues_": _own("lambdas_"),
        "eigenvectors_": _own("alphas_"),
    },
    "RidgeClassifier": {"classes_": lambda fit: fit._label_binarizer.classes_},
    "RidgeClassifierCV": {"classes_": lambda fit: fit._label_binarizer.classes_},
    "SelfTrainingClassifier": {"estimator_": _own("base_estimator_")},
    "BaggingClassifier": {"estimator_": _own("base_estimator_")},
    "ClassifierChain": {"estimator": _own("base_estimator")},
    "RegressorChain": {"estimator": _own("base_estimator")},
    "StackingClassifier": {"_label_encoder": _own("_le")},
    "OrdinalEncoder": {
        "_infrequent_enabled": lambda _: False,
        "_missing_indices": lambda _: {},
        "handle_unknown": lambda _: "error",
        "encoded_missing_value": lambda _: np.nan,
    },
    "PolynomialFeatures": {
        "_min_degree": lambda _: 0,
        "_max_degree": _own("degree"),
        "_n_out_full": lambda fit: comb(fit.n_features_in_ + fit.degree, fit.degree),
    },
    "IsolationForest": {
        "_decision_path_lengths": _depths,
        "_average_path_length_per_tree": _path_lengths,
    },
    "ColumnTransformer": {"_transformer_to_input_indices": _places},
    **{
        f"HistGradientBoosting{kind}": {
            "_preprocessor": lambda _: None,
            "is_categorical_": lambda _: None,
        }
        for kind in ("Classifier", "Regressor")
    },
    "TreePredictor": {"raw_left_cat_bitsets": lambda _: np.zeros((0, 8), np.uint32)},
    **{
        name: {
            "_predict_1d": lambda _: False,
            "coef_": _own("_coef_"),
            **{f"_{each}": _own(f"{each}_") for each in ("x_mean", "y_mean", "x_std", "y_std")},
        }
        for name in ("CCA", "PLSCanonical", "PLSRegression", "PLSSVD")
    },
    "TweedieRegressor": {"_base_loss": _loss},
    "PoissonRegressor": {"_base_loss": _loss},
    "GammaRegressor": {"_base_loss": _loss},
    "OneHotEncoder": {
        "_infrequent_enabled": lambda _: False,
        "_drop_idx_after_grouping": _own("drop_idx_"),
        "sparse_output": _own("sparse"),
        "_n_features_outs": _widths,
    },
    "_CalibratedClassifier": {
        "estimator": _own("base_estimator"),
        "calibrators": _own("calibrators_"),
    },
    "BSpline": {"_t": _own("t"), "_c": _own("c"), "_asarray": lambda _: np.asarray},
    "TfidfTransformer": {"idf_": lambda fit: vars(fit)["_idf_diag"].diagonal()},
}


def renewed(fit: Fitted) -> Fitted:
    """The estimator, or a copy of one of a former version that has these attributes, too."""
    former = FORMER.get(type(fit).__name__, {})
    names = [name for name in former if not hasattr(fit, name)]
    if not names:
        return fit
    made: Fitted = object.__new__(type(fit))
    for name, value in vars(fit).items():
        vars(made)[name] = [*map(renewed, value)] if isinstance(value, list) else value
    for name in names:
        with suppress(AttributeError, KeyError):  # it is not fitted
            vars(made)[name] = former[name](fit)
    return made


def version_in(data: bytes) -> str:
    """The version of scikit-learn that a pickle, joblib or skops file names; nothing is run."""
    found = _WRITTEN.search(_unpacked(data), 0, 4 * _MOST_BYTES)
    if found is None:
        return ""
    text = found["line"] or found["json"]
    if found["size"]:
        text = found.string[found.end() : found.end() + found["size"][0]]
    return text.decode("ascii", "replace")


def xgboost_in(data: bytes) -> str:
    """The version of XGBoost that a pickle with a model of it names."""
    raw = _unpacked(data)
    found = _XGBOOST.search(raw) if b"xgboost" in raw else None
    if found is None:
        return ""
    numbers = (
        found["text"].split(b",") if found["text"] else map(ord, found["whole"][1::2].decode())
    )
    return ".".join(str(int(each)) for each in numbers)


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
