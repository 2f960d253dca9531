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

from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import flour
    from flour import from_lightgbm, from_onnx, from_sklearn, from_skops, from_xgboost, to_onnx
    from objectstore import Explained as PretzelError
    from pretzel.asgi_app import AsgiApp as asgi  # noqa: N813 (made as a function is called)
    from pretzel.model import Model, compile, load  # noqa: A004 (pretzel.compile)
    from pretzel.serving import serve
    from runtime import InferenceSession, Runtime
    from runtime.bulk import duckdb, mlflow, pandas, polars, ray, spark
    from runtime.client import AsyncClient, Client
    from runtime.http import Server, ServerSettings

__all__ = [
    "AsyncClient",
    "Client",
    "InferenceSession",
    "Model",
    "PretzelError",
    "Runtime",
    "Server",
    "ServerSettings",
    "asgi",
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

#: Where each name comes from: a module, and the name there if it is another one.
_HOMES = {
    "InferenceSession": "runtime",
    "Model": "pretzel.model",
    "PretzelError": "objectstore:Explained",
    "Runtime": "runtime",
    "Server": "runtime.http",
    "ServerSettings": "runtime.http",
    "asgi": "pretzel.asgi_app:AsgiApp",
    "compile": "pretzel.model",
    "load": "pretzel.model",
    "serve": "pretzel.serving",
    **dict.fromkeys(("AsyncClient", "Client"), "runtime.client"),
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


#: How the packages that are installed beside this one begin.
_OURS = {
    "flour": b'"""Flour: what a prediction pipeline is',
    "objectstore": b'"""The object store: every fitted number',
    "oven": b'"""Oven: a program becomes native code',
    "runtime": b'"""Plans in service: catalog',
    "scheduler": b'"""Pure concurrency: engines',
}


def _check_packages() -> None:
    """Refuse a package that another distribution has put, or written, in place of ours."""
    for name, begins in _OURS.items():
        spec = find_spec(name)  # which imports nothing
        place = "" if spec is None else spec.origin or ""
        if not place or not Path(place).read_bytes().startswith(begins):
            others = ", ".join({*packages_distributions().get(name, ())} - {"pretzel-runtime"})
            where = f"{place or 'it is not there'} is of {others or 'no distribution'}"
            way = "install pretzel-runtime in an environment without that distribution"
            if place and not others:  # a file of the user's own, beside a script
                way = "rename it"
            raise ImportError(f"the package {name!r} is not Pretzel's own: {where}; {way}")


_check_packages()

from flour.core.provenance import belongs_to_us  # noqa: E402 (once the packages are known)

belongs_to_us(__file__)
