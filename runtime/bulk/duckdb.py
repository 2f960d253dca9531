"""DuckDB: a plan as a function of SQL, which answers whole vectors of rows, on all of its threads.

    connection = pretzel.duckdb.connect("shop.db")
    pretzel.duckdb.register(connection, "fraud", plan)
    connection.sql("select id, fraud(age, city).label from orders")
    connection.sql("select id, fraud(orders).probabilities[2] from orders")

The function takes the columns that the plan reads, in the plan's order, or one struct, whose
columns are found by name; a table's name stands for the struct of its row. For numbers side by side
it also takes one list or array of them. It answers a struct of
the outputs, or with `outputs="label"` that output itself. Vectors of a plan are arrays.

DuckDB runs functions that were made in Python on one thread. So the function is registered over
DuckDB's C API, which extensions are given: the one that is loaded here is a jump back into this
process (`shared_object`). DuckDB only loads it where `allow_unsigned_extensions` is set, as
`connect` does; with any other connection the function is one of Python's, over Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runtime.bulk.duckdb_native import is_possible
from runtime.bulk.plans import Source, open_plan
from runtime.bulk.sql_function import SqlFunction, sql_type

if TYPE_CHECKING:
    import duckdb

#: The setting that an unsigned extension needs, and the oldest release with Arrow in its C API.
_SETTING, _OLDEST = "allow_unsigned_extensions", (1, 4)


def connect(database: str = ":memory:", **options: Any) -> duckdb.DuckDBPyConnection:
    """`duckdb.connect`, with the setting that functions on all threads need."""
    import duckdb

    config = {_SETTING: "true", **options.pop("config", {})}
    return duckdb.connect(database, config=config, **options)


def register(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    plan: Source,
    outputs: str | Sequence[str] | None = None,
    on_error: str | None = None,
) -> bool:
    """Make a plan a function of SQL; returns whether it runs on all threads.

    All connections to the same database have it. Another plan under the same name takes its place.
    Rows that the plan refuses end a query with an error; with `on_error="null"` they have NULL.
    """
    function = SqlFunction(open_plan(plan), outputs, on_error)
    import duckdb

    release = tuple(map(int, duckdb.__version__.split(".")[:2]))
    ((allowed,),) = connection.execute(f"select current_setting('{_SETTING}')").fetchall()
    if is_possible() and release >= _OLDEST and bool(allowed):
        from runtime.bulk.duckdb_native import register_native

        register_native(connection, name, function)
        return True
    query = "select count(*) from duckdb_functions() where function_name = ?"
    ((count,),) = connection.execute(query, [name.lower()]).fetchall()
    if count:
        connection.remove_function(name)
    # Over Arrow the types are names, which DuckDB's own annotations do not allow for.
    create: Any = connection.create_function
    kinds, returned = function.input_types(), sql_type(function.returned)
    call = function.with_parameters()
    create(name, call, kinds, returned, type="arrow", null_handling="special")
    return False
