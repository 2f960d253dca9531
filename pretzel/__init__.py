"""Pretzel: trained pipelines as native code, and many of them served from one process.

    import pretzel

    model = pretzel.compile(pipeline, verify=X)    # a fitted estimator, or a model's file
    model.predict(X)                               # as the original answers, in microseconds
    model.save("churn.pretzel")                    # data, never code: pretzel.load reads it

    with pretzel.serve({"churn": model}, port=8000) as server:
        print(server.url)

Everything here is imported when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING

from flour.core.errors import FlourError
from flour.core.provenance import belongs_to_us

if TYPE_CHECKING:
    import flour
    from flour import from_lightgbm, from_onnx, from_sklearn, from_skops, from_xgboost, to_onnx
    from flour.core.errors import FlourError as PretzelError
    from pretzel.model import Model, compile, load  # noqa: A004 (pretzel.compile)
    from pretzel.serving import serve
    from runtime import InferenceSession, Runtime
    from runtime.bulk import duckdb, mlflow, pandas, polars, ray, spark
    from runtime.cluster.serving import ClusterClient as Client
    from runtime.http import Server, ServerSettings

__all__ = [
    "Client",
    "InferenceSession",
    "Model",
    "PretzelError",
    "Runtime",
    "Server",
    "ServerSettings",
    "compile",
    "duckdb",
    "flour",
    "from_lightgbm",
    "from_onnx",
    "from_sklearn",
    "from_skops",
    "from_xgboost",
    "load",
    "mlflow",
    "pandas",
    "polars",
    "ray",
    "serve",
    "spark",
    "to_onnx",
]

belongs_to_us(__file__)

#: Where each name comes from: a module, and the name there if it is another one.
_HOMES = {
    "Client": "runtime.cluster.serving:ClusterClient",
    "InferenceSession": "runtime",
    "Model": "pretzel.model",
    "PretzelError": "flour.core.errors:FlourError",
    "Runtime": "runtime",
    "Server": "runtime.http",
    "ServerSettings": "runtime.http",
    "compile": "pretzel.model",
    "load": "pretzel.model",
    "serve": "pretzel.serving",
    **dict.fromkeys(("duckdb", "mlflow", "pandas", "polars", "ray", "spark"), "runtime.bulk"),
    **dict.fromkeys(("from_lightgbm", "from_onnx", "from_skops", "from_sklearn"), "flour"),
    **dict.fromkeys(("from_xgboost", "to_onnx"), "flour"),
}


def __getattr__(name: str) -> object:
    if name == "flour":
        value: object = import_module(name)
    elif name in _HOMES:
        module, _, other = _HOMES[name].partition(":")
        value = getattr(import_module(module), other or name)
    else:
        raise AttributeError(f"module 'pretzel' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _check_packages() -> None:
    """Refuse packages of these names that another distribution has put in place of ours."""
    beside = Path(__file__).parent.parent
    for name in ("flour", "objectstore", "oven", "runtime", "scheduler"):
        found = sys.modules.get(name) or import_module(name)
        file = found.__file__
        if file is not None and Path(file).parent.parent != beside:
            others = ", ".join(packages_distributions().get(name, ())) or "an unknown distribution"
            raise FlourError(
                f"the package {name!r} is not Pretzel's own",
                where=file,
                found=f"a package of {others}",
                hint="install pretzel-runtime in an environment without that distribution",
            )


_check_packages()
