"""Plans as functions of DuckDB's SQL, over its C API and over Python."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection as Connection

import flour
import oven
import runtime.bulk as pretzel
from flour.core.types import Scalar, Vector
from runtime.bulk import duckdb_native
from runtime.bulk.sql_function import SqlFunction
from runtime.errors import BadCall, BadRegistration
from tests.runtime.bulk import models
from tests.runtime.bulk.conftest import Known


def opened(known: Known, *, native: bool = True) -> Connection:
    """Return a connection that has the rows as a table, and the function."""
    connection = pretzel.duckdb.connect() if native else duckdb.connect()
    rows = known.table.append_column("row", pa.array(range(known.table.num_rows)))
    connection.execute("create table rows as select * from rows")
    assert rows.num_rows == known.table.num_rows
    assert pretzel.duckdb.register(connection, "fraud", known.plan) is native
    return connection


def asked(connection: Connection, call: str) -> pa.Table:
    """Return the answers of a call for each row, in the order of the rows."""
    query = f"select {call} as a, row from rows order by row"
    made = connection.sql(query).to_arrow_table()
    answers = made["a"].combine_chunks()
    return pa.table(answers.flatten(), names=[field.name for field in answers.type])


def columns(known: Known) -> str:
    """Return the plan's columns as SQL."""
    return ", ".join(f'"{name}"' for name in known.table.column_names)


@pytest.mark.parametrize("native", [True, False])
def test_answers_are_those_of_predict(known: Known, native: bool) -> None:  # noqa: FBT001
    connection = opened(known, native=native)
    known.check(asked(connection, f"fraud({columns(known)})"))


def test_structs_are_read_by_name(known: Known) -> None:
    connection = opened(known)
    names = list(known.table.column_names)
    struct = ", ".join(f'"{name}": "{name}"' for name in names)
    more = f"fraud({{{struct}, 'more': 1}})"
    if isinstance(next(iter(known.plan.inputs.values())), Vector):  # columns go by position
        for call in (more, "fraud(rows)"):
            with pytest.raises(duckdb.Error, match="trained without names"):
                asked(connection, call)
        known.check(asked(connection, f"fraud({{{struct}}})"))
    else:
        known.check(asked(connection, more))
        known.check(asked(connection, "fraud(rows)"))


@pytest.mark.parametrize("kind", ["double[]", "double[6]", "float[6]"])
def test_lists_of_numbers(kind: str) -> None:
    plan, table = models.numbers()
    known = Known(plan, table, plan.run(table))
    if kind.startswith("float"):
        narrow = np.column_stack(table.columns).astype(np.float32)
        known = known._replace(answers=plan.run(narrow))
    found = asked(opened(known), f"fraud([{columns(known)}]::{kind})")
    known.check(found)
    with pytest.raises(duckdb.InvalidInputException, match="6"):
        opened(known).execute("select fraud([c0, c1]) from rows").fetchall()


@pytest.fixture(scope="module")
def one() -> Known:
    """Return the plan over columns of every type."""
    plan, table = models.mixed()
    return Known(plan, table, plan.run(table))


def test_one_output_is_no_struct(one: Known) -> None:
    connection = opened(one)
    pretzel.duckdb.register(connection, "label", one.plan, outputs="label")
    pretzel.duckdb.register(connection, "two", one.plan, outputs=["label", "scores"])
    query = f"select two({columns(one)}).label, label({columns(one)}) from rows"
    found = connection.execute(query).fetchall()
    assert [row[0] for row in found] == one.answers["label"].tolist()
    assert all(first == second for first, second in found)
    with pytest.raises(duckdb.BinderException, match="probabilities"):
        connection.execute(f"select two({columns(one)}).probabilities[1] from rows")
    with pytest.raises(BadCall, match="no output 'labels'"):
        pretzel.duckdb.register(connection, "labels", one.plan, outputs="labels")


def test_vectors_are_arrays(one: Known) -> None:
    query = f"select fraud({columns(one)}).probabilities[2] from rows"
    found = [value for (value,) in opened(one).execute(query).fetchall()]
    assert found == one.answers["probabilities"][:, 1].tolist()


def sums(factor: float) -> oven.Plan:
    """Return a plan of two columns."""
    return oven.bake(
        flour.scalar("a").plus(flour.scalar("b")).scale([0.0], [factor]).named("total")
    )


@pytest.mark.parametrize("native", [True, False])
def test_another_plan_takes_its_place(one: Known, native: bool) -> None:  # noqa: FBT001
    connection = opened(one, native=native)
    pretzel.duckdb.register(connection, "sums", sums(1))
    prepared = connection.sql("select sums(1.5, 2).total")
    pretzel.duckdb.register(connection, "Sums", sums(0.5))
    assert connection.execute("select sums(1.5, 2).total").fetchall() == [(7,)]
    assert prepared.fetchall() in ([(3.5,)], [(7,)])
    other = pretzel.duckdb.connect() if native else duckdb.connect()
    pretzel.duckdb.register(other, "sums", sums(0.25))
    assert connection.execute("select sums(1.5, 2).total").fetchall() == [(7,)]
    assert other.execute("select sums(1.5, 2).total").fetchall() == [(14,)]


@pytest.mark.parametrize("native", [True, False])
def test_one_of_another_type_takes_its_place(one: Known, native: bool) -> None:  # noqa: FBT001
    """DuckDB 1.x keeps both functions then, so it is refused there."""
    connection = opened(one, native=native)
    if native and duckdb.__version__ < "2":
        with pytest.raises(BadRegistration, match="cannot replace"):
            pretzel.duckdb.register(connection, "fraud", sums(1))
        return
    pretzel.duckdb.register(connection, "fraud", sums(1))
    assert connection.execute("select fraud(1.5, 2).total").fetchall() == [(3.5,)]


def test_what_queries_needed_is_forgotten(one: Known) -> None:
    connection = opened(one)
    for _ in range(3):
        connection.execute(f"select fraud({columns(one)}).label from rows").fetchall()
    native = list(duckdb_native._kept.values())[-1]
    assert native.function._plan is one.plan
    connection.close()
    assert not native._planned


def test_mistakes_are_errors_of_the_query(one: Known) -> None:
    connection = opened(one)
    with pytest.raises(duckdb.BinderException, match=r"takes 4 columns.*\n.*\n.*age, rooms, city"):
        connection.execute("select fraud(age) from rows")
    with pytest.raises(duckdb.BinderException, match="has no 'city'"):
        connection.execute("select fraud({age: age, rooms: 1, new: true}) from rows")
    with pytest.raises(duckdb.InvalidInputException, match="expected numbers"):
        connection.execute("select fraud(city, rooms, city, new) from rows").fetchall()
    no_plan: Any = 5
    with pytest.raises(BadRegistration, match="no plan"):
        pretzel.duckdb.register(connection, "fraud", no_plan)
    assert len(connection.execute("select fraud(rows) from rows").fetchall()) == models.ROWS


def test_all_threads_call_it(one: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = opened(one)
    seen: set[int] = set()
    together = threading.Barrier(2, timeout=30)
    run = SqlFunction.run

    def watched(function: SqlFunction, data: dict[str, Any]) -> dict[str, Any] | None:
        if not together.broken and len(seen) < 2:
            seen.add(threading.get_ident())
            together.wait()
        return run(function, data)

    connection.execute("set threads = 2")
    connection.execute("insert into rows select rows.* from rows, range(80)")
    monkeypatch.setattr(SqlFunction, "run", watched)
    query = f"select sum(fraud({columns(one)}).probabilities[1]) from rows"
    ((total,),) = connection.execute(query).fetchall()
    assert len(seen) == 2
    assert total == pytest.approx(one.answers["probabilities"][:, 0].sum() * 81)


def test_cursors_and_files_have_it(one: Known, tmp_path: Path) -> None:
    path = str(tmp_path / "rows.db")
    with pretzel.duckdb.connect(path) as connection:
        pretzel.duckdb.register(connection, "fraud", one.plan)
        connection.cursor().execute("create table t as select 1.0 as age, 2 as rooms")
        query = "select fraud(age, rooms, 'Oslo', true).label from t"
        wanted = one.plan.run({"age": [1.0], "rooms": [2], "city": ["Oslo"], "new": [True]})
        assert connection.cursor().execute(query).fetchall() == [(wanted["label"][0],)]


def test_missing_rows() -> None:
    """A struct that is missing has missing columns."""
    connection = pretzel.duckdb.connect()
    total = oven.bake(flour.scalar("a").plus(flour.scalar("b")).named("total"))
    pretzel.duckdb.register(connection, "add", total)
    query = "select add(case when i > 1 then {a: i, b: 1} end).total from range(4) t(i)"
    found = [value for (value,) in connection.execute(query).fetchall()]
    assert found[2:] == [3, 4]
    assert all(value != value for value in found[:2])  # noqa: PLR0124 (they are NaN)


def made(rows: int) -> pa.Table:
    """Return rows of strings of all lengths, large whole numbers, and others."""
    words = ["", "é", "short", "x" * 12, "y" * 13, "a rather long string " * 9]
    return pa.table(
        {
            "word": [words[at % len(words)] for at in range(rows)],
            "number": np.arange(rows) / 7,
            "whole": np.arange(rows) + 2**60,
            "flag": np.arange(rows) % 3 == 0,
        }
    )


def echo() -> oven.Plan:
    """Return a plan that answers with what it read."""
    fields = {"word": Scalar("string"), "number": Scalar("float64")}
    fields |= {"whole": Scalar("int64"), "flag": Scalar("bool")}
    row = flour.record("r", fields)
    return oven.bake(flour.outputs(**{name: row[name] for name in fields})).wait()


#: Forms that DuckDB has for vectors: compressed, the same for all rows, some rows, sequences.
FORMS = {
    "all": "select * from rows",
    "few": "select * from rows where whole % 5 = 1",
    "holes": "select case when flag then word end as word, "
    "case when flag then number end as number, whole, flag from rows",
    "whole holes": "select word, number, case when flag then whole end as whole, flag from rows",
    "constant": "select 'a string that is the same for all' as word, 1.5::double as number, "
    "whole, flag from rows",
    "sequence": "select null::varchar as word, range::double as number, range as whole, "
    "range % 2 = 0 as flag from range(5000)",
    "joined": "select a.word, b.number, b.whole, a.flag from rows a join rows b "
    "on a.whole = b.whole + 1 where b.whole % 7 < 5",
}


@pytest.mark.parametrize("form", FORMS)
def test_vectors_of_every_form_are_read(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bool] = []
    reading = duckdb_native.Vectors.read

    def watched(self: duckdb_native.Vectors, chunk: int) -> dict[str, Any] | None:
        found = reading(self, chunk)
        read.append(found is not None)
        return found

    monkeypatch.setattr(duckdb_native.Vectors, "read", watched)
    rows = made(12_000)
    connection = pretzel.duckdb.connect()
    connection.execute("create table rows as select * from rows")
    assert rows.num_rows == connection.execute("select count(*) from rows").fetchall()[0][0]
    pretzel.duckdb.register(connection, "echo", echo())
    call = "unnest(echo(word, number, whole, flag))"
    source = f"from ({FORMS[form]}) order by all"
    found = connection.sql(f"select {call} {source}").fetchall()
    wanted = connection.sql(f"select word, ifnull(number, 'nan'), whole, flag {source}").fetchall()
    assert repr(found) == repr(wanted)  # NaN is not equal to itself
    assert any(read) == (form != "whole holes")


def test_one_number_a_row_is_put_into_the_vector() -> None:
    rows = made(5000)
    connection = pretzel.duckdb.connect()
    connection.execute("create table rows as select * from rows")
    for output in rows.column_names:
        pretzel.duckdb.register(connection, f"one_{output}", echo(), outputs=output)
        query = (
            f"select count(*) from rows where one_{output}(word, number, whole, flag) = {output}"
        )
        assert connection.execute(query).fetchall() == [(rows.num_rows,)]
