"""Plans on Arrow data: the answers of `run` on the same rows, whatever the columns' types are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
import oven
from flour.core.errors import InputError, NotDecodable
from flour.core.types import Record, Scalar, Tokens, Vector
from flour.data import arrow_reader

ROWS = 400
RNG = np.random.default_rng(0)
CITIES = np.array(["Oslo", "Rome", "Graz", "a city with a long name"], object)


def frame() -> pd.DataFrame:
    """Return rows with holes and with a city that no model has seen."""
    made = pd.DataFrame(
        {
            "age": RNG.normal(40, 9, ROWS),
            "rooms": RNG.integers(1, 6, ROWS),
            "city": RNG.choice(CITIES, ROWS),
        }
    )
    made.loc[::7, "age"] = np.nan
    return made


@pytest.fixture(scope="module")
def plan() -> oven.Plan:
    """Return a plan over numbers and categories."""
    rows = frame()
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "rooms"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
    )
    labels = np.where(rows["rooms"] > 2, "yes", "no")
    model = make_pipeline(columns, LogisticRegression()).fit(rows, labels)
    return oven.bake(flour.from_sklearn(model, sample=rows)).wait()


def table(rows: pd.DataFrame | None = None) -> pa.Table:
    """Return the rows as Arrow's plain types."""
    rows = frame() if rows is None else rows
    made = pa.Table.from_pandas(rows, preserve_index=False)
    return made.set_column(2, "city", made["city"].cast(pa.string()))


def same(plan: oven.Plan, data: pa.Table, rows: Any = None) -> None:
    """Check the answers for a table against those of `run` for the same rows."""
    wanted = plan.run(data if rows is None else rows)
    made = plan.run_arrow(data)
    assert made.num_rows == data.num_rows
    assert made.column_names == list(wanted)
    for name, values in wanted.items():
        found = made[name].to_pylist()
        for one, other in zip(found, values.tolist(), strict=True):
            assert one == other or (one is None and other is None), name
            assert type(one) is type(other)


def casts() -> Iterator[tuple[str, Callable[[pa.Table], pa.Table]]]:
    """Yield a change of a table that must not change the answers."""

    def column(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
        def change(data: pa.Table) -> pa.Table:
            return data.set_column(data.column_names.index(name), name, data[name].cast(kind))

        return change

    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        yield f"city as {kind}", column("city", kind)
    for kind in (pa.int8(), pa.uint16(), pa.float64(), pa.float32()):
        yield f"rooms as {kind}", column("rooms", kind)
    yield "another order", lambda data: data.select(["city", "rooms", "age"])
    yield "a column that is not read", lambda data: data.append_column("id", data["rooms"])
    yield "a slice", lambda data: data.slice(3, 50)
    yield "chunks", lambda data: pa.concat_tables([data.slice(0, 9), data.slice(9)])


@pytest.mark.parametrize("change", [pytest.param(f, id=name) for name, f in casts()])
def test_types_of_columns(plan: oven.Plan, change: Callable[[pa.Table], pa.Table]) -> None:
    data = change(table())
    same(plan, data, data.select(["age", "rooms", "city"]))


def test_missing_values(plan: oven.Plan) -> None:
    data = table()
    holes = pa.array(RNG.random(ROWS) < 0.2)
    for name in data.column_names:
        place = data.column_names.index(name)
        empty = pa.scalar(None, data[name].type)
        holed = data.set_column(place, name, pa.compute.if_else(holes, empty, data[name]))
        same(plan, holed)
        if name == "city":
            coded = holed.set_column(2, "city", holed["city"].dictionary_encode())
            assert plan.run_arrow(coded) == plan.run_arrow(holed)


def test_every_form(plan: oven.Plan) -> None:
    data = table()
    wanted = plan.run_arrow(data)
    assert isinstance(wanted, pa.Table)
    (batch,) = data.to_batches()
    assert isinstance(plan.run_arrow(batch), pa.RecordBatch)
    assert pa.Table.from_batches([plan.run_arrow(batch)]) == wanted
    for source in (data.to_reader(max_chunksize=90), pl.DataFrame(frame().iloc[:0]), data):
        rows = plan.run_arrow(source)
        assert rows.schema.names == wanted.column_names
    stream = plan.run_arrow(data.to_reader(max_chunksize=90))
    assert isinstance(stream, pa.RecordBatchReader)
    assert stream.read_all() == wanted
    struct = data.to_struct_array().combine_chunks()
    assert pa.Table.from_batches([plan.run_arrow(OnlyArray(struct))]) == wanted
    frames = (pl.from_arrow(data), data.to_pandas())
    assert all(plan.run_arrow(each).read_all() == wanted for each in frames)


class OnlyArray:
    """What another library hands in: the C data interface and nothing else."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        """Return the two capsules."""
        return self._array.__arrow_c_array__(requested_schema)


def test_a_stream_is_read_as_it_is_asked_for(plan: oven.Plan) -> None:
    (batch,) = table().to_batches()
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            read.append(number)
            yield batch

    stream = plan.run_arrow(pa.RecordBatchReader.from_batches(batch.schema, batches()))
    assert len(read) == 1
    stream.read_next_batch()
    stream.read_next_batch()
    assert len(read) == 2


def test_mistakes(plan: oven.Plan) -> None:
    data = table()
    with pytest.raises(InputError, match="no column 'city'"):
        plan.run_arrow(data.drop_columns(["city"]))
    nested = data.set_column(0, "age", pa.array([[1.0]] * ROWS))
    with pytest.raises(InputError, match="unnest") as problem:
        plan.run_arrow(nested)
    assert problem.value.where == "$.age"
    with pytest.raises(InputError, match="expected numbers"):
        plan.run_arrow(data.set_column(0, "age", pa.array(["x"] * ROWS)))
    with pytest.raises(InputError, match="run\\(\\) takes rows"):
        plan.run_arrow({"age": [1.0]})


# --- memory ------------------------------------------------------------------------------------


def address(array: Any) -> int:
    """Return where an array's values are."""
    return int(array.__array_interface__["data"][0])


def test_numbers_are_read_where_they_are() -> None:
    kind = Record((("a", Scalar()), ("b", Scalar("int64"))))
    reader = arrow_reader.ArrowReader({"r": kind})
    batch = pa.record_batch({"a": np.arange(9.0), "b": np.arange(9)})
    for name, array in reader.read(batch).items():
        assert address(array) == batch.column(name).buffers()[1].address
    lists = pa.FixedSizeListArray.from_arrays(np.arange(12.0), 3)
    matrix = arrow_reader.ArrowReader({"x": Vector(3)}).read(pa.record_batch({"x": lists}))
    assert matrix.shape == (4, 3)
    assert address(matrix) == lists.values.buffers()[1].address


def test_answers_are_handed_out_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    program = flour.vector("x", 2).scale([0.0, 0.0], [2.0, 2.0])
    plan = oven.bake(program).wait()
    made = plan.run(np.ones((5, 2)))
    monkeypatch.setattr(plan, "run", lambda _: made)
    (name,) = made
    rows = pa.array([[1.0, 1.0]] * 5, pa.list_(pa.float64(), 2))
    answers = plan.run_arrow(pa.record_batch({"x": rows}))
    assert address(made[name]) == answers[name].values.buffers()[1].address


# --- vectors, words, several inputs --------------------------------------------------------------


def test_vectors() -> None:
    plan = oven.bake(flour.vector("x", 3).linear([[1.0, 2.0, 3.0]], [0.5])).wait()
    rows = RNG.normal(size=(20, 3))
    (wanted,) = plan.run(rows).values()
    lists = rows.tolist()
    for data in (
        {"a": rows[:, 0], "b": rows[:, 1], "c": rows[:, 2]},
        {"x": pa.array(lists, pa.list_(pa.float64(), 3))},
        {"x": pa.array(lists, pa.list_(pa.float64()))},
        {"x": pa.array([[9.0] * 3, *lists], pa.large_list(pa.float64())).slice(1)},
    ):
        (made,) = plan.run_arrow(pa.table(data)).columns
        assert np.array_equal(np.array(made.to_pylist()), wanted)
    with pytest.raises(InputError):
        plan.run_arrow(pa.table({"a": rows[:, 0]}))
    with pytest.raises(InputError):
        plan.run_arrow(pa.table({"x": [[1.0], [2.0, 3.0]]}))


@pytest.mark.parametrize("kinds", [("float32",), ("float32", "float64"), ("int64",)])
def test_float_width_is_that_of_run(kinds: tuple[str, ...]) -> None:
    plan = oven.bake(flour.vector("x", 2, "float32").linear([[0.1, 0.2]], [0.3])).wait()
    numbers = RNG.normal(size=(2, 30)) * 9
    columns = [numbers[at].astype(kinds[at % len(kinds)]) for at in range(2)]
    same(plan, pa.table(columns, names=["a", "b"]))


def test_words_and_several_inputs() -> None:
    counted = flour.tokens("w").word_ngrams(["good", "bad"], 1, 1)
    words = oven.bake(counted.linear([[1.0, -1.0]], [0.0]))
    assert words.inputs == {"w": Tokens()}
    rows = [["good", "good"], ["bad"], []]
    made = words.run_arrow(pa.table({"w": rows}))
    assert [made[0].to_pylist()] == [each.tolist() for each in words.run(rows).values()]
    total = oven.bake(flour.scalar("a").plus(flour.scalar("b")))
    assert total.run_arrow(pa.table({"b": [1, 2], "a": [0.5, 1.5]}))[0].to_pylist() == [1.5, 3.5]


# --- dictionaries ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reviews() -> oven.Plan:
    """Return a plan over one document."""
    texts = ["good soup", "bad soup", "good good", "awful"] * 5
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0] * 5)
    return oven.bake(flour.from_sklearn(model, sample=texts)).wait()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_documents(reviews: oven.Plan, kind: pa.DataType) -> None:
    texts = ["good soup, and a long text behind it", "", "über gut", "bad"]
    same(reviews, pa.table({"review": pa.array(texts, kind)}), texts)


def test_documents_of_a_dictionary_are_read_once(
    reviews: oven.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = np.array(["good", "bad", "never used", "awful soup"], object)
    codes = RNG.choice([0, 1, 3], 1000)
    wanted = reviews.run(texts[codes])
    seen: list[int] = []
    run = reviews.run

    def watched(data: Any) -> Any:
        seen.append(len(data))
        return run(data)

    monkeypatch.setattr(reviews, "run", watched)
    data = pa.table({"review": pa.DictionaryArray.from_arrays(codes, texts)})
    made = reviews.run_arrow(data)
    assert seen == [3]
    assert made["label"].to_pylist() == wanted["label"].tolist()
    assert np.array_equal(np.array(made["probabilities"].to_pylist()), wanted["probabilities"])


def test_combinations_of_dictionaries() -> None:
    rows = pd.DataFrame({"a": RNG.choice(["x", "y", "z"], 600), "b": RNG.choice([1.0, 2.0], 600)})
    columns = make_column_transformer((OneHotEncoder(), ["a"]), ("passthrough", ["b"]))
    model = make_pipeline(columns, HistGradientBoostingClassifier(max_iter=5)).fit(
        rows, rows["b"] > 1
    )
    plan = oven.bake(flour.from_sklearn(model, sample=rows)).wait()
    plain = table_of(rows)
    coded = pa.table({name: plain[name].dictionary_encode() for name in plain.column_names})
    reader = arrow_reader.ArrowReader(plan.inputs)
    found = reader.distinct(coded.to_batches()[0])
    assert found is not None
    assert found.batch.num_rows == 6
    assert plan.run_arrow(coded) == plan.run_arrow(plain)


def table_of(rows: pd.DataFrame) -> pa.Table:
    """Return a frame as plain columns."""
    return pa.table({name: pa.array(rows[name].tolist()) for name in rows})


def test_a_missing_document_is_told_by_its_row(reviews: oven.Plan) -> None:
    codes = pa.array([0, 1] * 400 + [None, 1], pa.int32())
    data = pa.table({"review": pa.DictionaryArray.from_arrays(codes, pa.array(["good", "bad"]))})
    with pytest.raises(InputError) as problem:
        reviews.run_arrow(data)
    assert "[800]" in str(problem.value.where)


WIDE = [2**53 + 1, 2**53 + 3, 5, -(2**53) - 1, 2**53 + 2]


@pytest.mark.parametrize("coded", [False, True])
def test_whole_numbers_are_exact_beside_missing_ones(*, coded: bool) -> None:
    """The answer for a row does not depend on whether another row has a missing value."""
    fields = flour.record("r", {"a": Scalar("int64"), "b": Scalar("int64")})
    plan = oven.bake(fields["a"].minus(fields["b"]).named("z"))
    a = pa.array([*WIDE, None, 7, None], pa.int64())
    b = pa.array([5, 4, 3, 2, 1, 2, None, None], pa.int64())
    if coded:
        a = a.dictionary_encode()
    made = plan.run_arrow(pa.table({"a": a, "b": b}))["z"].to_pylist()
    wanted = [one - other for one, other in zip(WIDE, (5, 4, 3, 2, 1), strict=True)]
    assert made == [*wanted, None, None, None]
    batches = [pa.record_batch({"a": a, "b": b}).slice(at, 1) for at in range(len(a))]
    assert [plan.run_arrow(each)["z"].to_pylist()[0] for each in batches[:5]] == wanted


def test_unknown_whole_numbers_are_unknown_beside_missing_ones() -> None:
    """2^53 is no category, and is not taken for 2^53 + 1 where both would be rounded."""
    rows = pd.DataFrame({"id": np.array([2**53 + 1, 2**53 + 3, 5])})
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(rows)
    plan = oven.bake(flour.from_sklearn(encode, sample=rows))
    asked = pa.table({"id": pa.array([2**53, 2**53 + 1, None, 5], pa.int64())})
    (made,) = plan.run_arrow(asked).columns
    assert made.to_pylist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_errors_of_parts_have_the_rows_of_the_batch() -> None:
    rows = pd.DataFrame({"id": np.array([2**53 + 1, 5]), "city": ["Graz", "Oslo"]})
    columns = make_column_transformer(
        (SimpleImputer(), ["id"]), (OneHotEncoder(sparse_output=False), ["city"])
    )
    plan = oven.bake(flour.from_sklearn(columns.fit(rows), sample=rows))
    asked = pa.table({"id": [2**53 + 1, None, 5], "city": ["Graz", "Graz", "Rome"]})
    with pytest.raises(InputError) as alone:
        plan.run(asked)
    with pytest.raises(InputError) as parted:
        plan.run_arrow(asked)
    assert parted.value.where == alone.value.where


@pytest.mark.parametrize("rows", [4, ROWS])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("coded", [False, True])
def test_what_is_no_utf8_is_told_by_its_row(
    reviews: oven.Plan, rows: int, kind: pa.DataType, *, coded: bool
) -> None:
    column = pa.array([b"good", b"bad", b"r\xe9sum\xe9", b"good"], pa.binary())
    column = (column.cast(pa.binary_view()) if kind == pa.string_view() else column).view(
        pa.string_view() if kind == pa.string_view() else pa.string()
    )
    if kind == pa.large_string():
        column = column.cast(pa.large_binary(), safe=False).view(kind)
    places = pa.array([0, 1, 1, 2] * (rows // 4), pa.int32())
    one = pa.DictionaryArray.from_arrays(places, column)
    data = pa.table({"review": one if coded else column})
    for door in (reviews.run_arrow, reviews.run):
        with pytest.raises(NotDecodable, match="e9 at byte 1 of 6") as caught:
            door(data)
        assert str(caught.value.where).endswith("[3]" if coded else "[2]")
        assert "decode or write them anew" in str(caught.value.hint)


@pytest.mark.parametrize("rows", [1, ROWS])
def test_dictionaries_of_views(plan: oven.Plan, reviews: oven.Plan, rows: int) -> None:
    """As polars hands out its categories."""
    for asked, column in ((plan, "city"), (reviews, "review")):
        words = table() if column == "city" else pa.table({column: ["good", "bad"] * 200})
        words = words.slice(0, rows)
        codes = pa.array([n % 2 for n in range(rows)], pa.int32())
        views = pa.array(["Oslo", "good"], pa.string()).cast(pa.string_view())
        coded = pa.DictionaryArray.from_arrays(codes, views)
        at = words.column_names.index(column)
        plain = words.set_column(at, column, pa.array(coded.to_pylist()))
        given = words.set_column(at, column, coded)
        assert asked.run_arrow(given).equals(asked.run_arrow(plain))
        for name, values in asked.run(given).items():
            assert np.array_equal(values, asked.run(plain)[name])


def test_columns_of_one_name_are_refused(plan: oven.Plan) -> None:
    (batch,) = table().to_batches()
    twice = pa.RecordBatch.from_arrays(
        [*batch.columns, batch.column("age")], names=[*batch.schema.names, "age"]
    )
    for data in (twice, pa.Table.from_batches([twice])):
        with pytest.raises(InputError, match="several columns have the name 'age'"):
            plan.run_arrow(data)
