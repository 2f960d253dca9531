"""The contestants, one file each; `find(name)` imports only that file, and no library."""

from __future__ import annotations

import importlib

from bench.contestant import Contestant

#: In the order of the report: ours, what pipelines are trained with, what people use instead.
NAMES = (
    "pretzel",
    "pretzel_v3",
    "pretzel_v2",
    "sklearn",
    "sklearn_intelex",
    "onnxruntime",
    "onnxruntime_default",
    "lightgbm",
    "lightgbm_fast",
    "xgboost",
    "hessboost",
    "tl2cgen",
    "lleaves",
    "m2cgen",
    "onedal",
    "catboost",
    "handwritten_c",
)


def find(name: str) -> type[Contestant]:
    """The class of a contestant."""
    if name not in NAMES:
        raise LookupError(f"no contestant is called {name!r}; there are {', '.join(NAMES)}")
    found: type[Contestant] = importlib.import_module(f"bench.contestants.{name}").CONTESTANT
    return found
