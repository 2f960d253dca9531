"""File formats of models, and the importer of each.

| format | files | read by |
|---|---|---|
| plan | .pretzel .plan | oven.load |
| lightgbm | .txt .lgb .bst | flour.from_lightgbm |
| xgboost | .json .ubj .model .bst .xgb .deprecated | flour.from_xgboost |
| onnx | .onnx | flour.from_onnx |
| sklearn | .joblib .pkl .pickle | flour.from_sklearn, where pickles are trusted |

The ending gives the possible formats of a file, its first bytes decide.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flour
from flour.language.flow import Flow
from objectstore.layout import MAGIC
from runtime.repository.errors import UnsupportedModel, Untrusted
from runtime.repository.files import Folder, shown

PLAN, LIGHTGBM, XGBOOST, ONNX, SKLEARN = "plan", "lightgbm", "xgboost", "onnx", "sklearn"

ENDINGS: dict[str, tuple[str, ...]] = {
    ".pretzel": (PLAN,),
    ".plan": (PLAN,),
    ".txt": (LIGHTGBM,),
    ".lgb": (LIGHTGBM,),
    ".bst": (LIGHTGBM, XGBOOST),
    ".model": (XGBOOST, LIGHTGBM),
    ".json": (XGBOOST,),
    ".ubj": (XGBOOST,),
    ".xgb": (XGBOOST,),
    ".deprecated": (XGBOOST,),
    ".onnx": (ONNX,),
    ".joblib": (SKLEARN,),
    ".pkl": (SKLEARN,),
    ".pickle": (SKLEARN,),
}
"""Possible formats by the ending of a file's name."""

_HEAD = 16


def by_name(path: Path) -> tuple[str, ...]:
    """The possible formats of a file with this name; none if it is not a model."""
    return ENDINGS.get(path.suffix.lower(), ())


def of(folder: Folder, path: Path) -> str:
    """The format of a file."""
    possible = by_name(path)
    if not possible:
        raise UnsupportedModel(
            "this is no kind of model that is known here",
            where=shown(path),
            hint="known are " + ", ".join(ENDINGS),
        )
    if len(possible) == 1:
        return possible[0]
    with folder.open(path) as file:
        head = file.read(_HEAD)
    return LIGHTGBM if head.startswith(b"tree") else XGBOOST


def is_plan(head: bytes) -> bool:
    """Whether a file with these first bytes is a plan."""
    return head.startswith(MAGIC)


def check_trust(form: str, where: str, *, trust_pickle: bool) -> None:
    """Raise unless a file of this format may be read."""
    if form == SKLEARN and not trust_pickle:
        raise Untrusted(
            "this is a pickle, which runs code when it is read",
            where=where,
            hint="if you trust whoever wrote it: --trust-pickle; better: import it once, "
            "pretzel import FILE --trust-pickle --into DIR, and serve the plan",
        )


def estimator(raw: bytes, where: str) -> Any:
    """The fitted estimator in a pickle that is trusted."""
    from flour.sklearn.file import read_pickle

    return read_pickle(raw, where)


def program(form: str, raw: bytes, where: str) -> Flow:
    """The program of a model, with the outputs that its importer gives it."""
    if form == SKLEARN:
        return flour.from_sklearn(estimator(raw, where))
    read = importer(form, where)
    flow: Flow = read(raw)
    return flow


def importer(form: str, where: str) -> Callable[[bytes], Flow]:
    """The importer of a format whose files are data."""
    name = f"from_{form}"
    if form not in (LIGHTGBM, XGBOOST, ONNX) or not hasattr(flour, name):
        raise UnsupportedModel(f"models of the format {form!r} are not served here", where=where)
    function: Callable[[bytes], Flow] = getattr(flour, name)
    return function
