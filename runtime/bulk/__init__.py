"""Scoring where the data is: in databases, data frames, clusters and files.

    import runtime.bulk as pretzel

    pretzel.duckdb.register(connection, "fraud", plan)
    frame.with_columns(pretzel.polars.predict(plan, "age", "city").struct.field("label"))

Each integration is one module with the name of its library, imported when it is first used. All
stand on `plan.run_arrow`. `plan` is a plan, a program, or the path of a model's file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from flour.core.provenance import belongs_to_us

if TYPE_CHECKING:
    import runtime.bulk.duckdb
    import runtime.bulk.mlflow
    import runtime.bulk.pandas
    import runtime.bulk.polars
    import runtime.bulk.ray
    import runtime.bulk.spark  # noqa: F401 (what `__getattr__` imports when it is asked for)
    from runtime.bulk.plans import open_plan

__all__ = ["duckdb", "mlflow", "open_plan", "pandas", "polars", "ray", "spark"]

belongs_to_us(__file__)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "open_plan":
        return import_module("runtime.bulk.plans").open_plan
    return import_module(f"runtime.bulk.{name}")
