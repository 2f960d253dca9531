"""Every form of the data x every mix of column types x every entry, against the original.

`verify` and import once replayed frames only, while rows as dicts of an int and a float column were
answered wrongly. Here all forms go in at all entries.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import flour
import oven
from flour.core.errors import FlourError
from oven import Plan
from pretzel import compile as compile_model
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.codec.codec_arrow import ARROW
from tests.forms import DTYPES, blocks, frame_of, single_rows
from tests.runtime.cli.conftest import pretzel  # noqa: F401 (a fixture)
from tests.runtime.http.client import Client

PAIRS = list(itertools.combinations(DTYPES, 2))
OTHERS: list[tuple[str, ...]] = [
    *((dtype,) for dtype in DTYPES),
    ("float64", "int64", "float32"),
    ("int8", "uint8", "int16"),
    ("bool", "uint8", "float32"),
    ("uint64", "int64", "bool", "float32"),
    ("string", "int64", "float64"),
    ("bool", "string", "float32", "int64"),
    ("int64", "string", "int64", "string", "float64"),
    DTYPES,
    (*DTYPES, "string"),
]


class Case(NamedTuple):
    """An original with its plan and rows."""

    name: str
    original: Any
    frame: Any
    plan: Plan

    @property
    def want(self) -> Any:
        """The original's answers, as float32 where it may have computed in that width."""
        narrow = any(kind == np.float32 for kind in self.frame.dtypes)
        return self.original.predict(self.frame).astype(np.float32 if narrow else np.float64)


def pipeline(kind: str, frame: Any) -> Any:
    """A pipeline that reads the columns together, apart, or twice."""
    words = [name for name in frame.columns if name.endswith("string")]
    numbers = [name for name in frame.columns if name not in words]
    encoded = ("words", OneHotEncoder(sparse_output=False), words)
    match kind:
        case "together":
            first: Any = ColumnTransformer([("all", "passthrough", numbers), encoded])
            last: Any = LinearRegression()
        case "apart":
            parts = [(name, StandardScaler(), [name]) for name in numbers]
            first, last = ColumnTransformer([*parts, encoded]), LinearRegression()
        case _:  # a column of its own type for the encoder, and as one of many for the scaler
            codes = ("codes", OrdinalEncoder(), numbers[:1])
            first = ColumnTransformer([("scaled", StandardScaler(), numbers), codes, encoded])
            last = DecisionTreeRegressor(max_depth=5, random_state=0)
    return make_pipeline(first, last) if words or kind != "together" else LinearRegression()


KINDS = ("together", "apart", "twice")
#: Each pair of dtypes by one kind of pipeline, and all other mixes by all.
ALL = [*itertools.product(KINDS, OTHERS), *zip(itertools.cycle(KINDS), PAIRS, strict=False)]


def case(kind: str, dtypes: tuple[str, ...]) -> Case:
    train = frame_of(dtypes, 60, seed=1)
    weights = 10.0 ** np.arange(len(dtypes))
    codes = pd.DataFrame({c: pd.factorize(train[c])[0] for c in train.columns}).to_numpy()
    original = pipeline(kind, train).fit(train, codes @ weights)
    frame = train.head(7)
    return Case(
        f"{kind}-{'-'.join(dtypes)}",
        original,
        frame,
        oven.bake(flour.from_sklearn(original, train)),
    )


def same(got: Any, want: Any, about: str) -> None:
    """Equal but for rounding; a frame of float32 is computed in float32, an array need not be."""
    rtol = 1e-4 if np.asarray(want).dtype == np.float32 else 1e-9
    np.testing.assert_allclose(np.ravel(got), want, rtol=rtol, atol=rtol, err_msg=about)


@pytest.mark.parametrize(("kind", "dtypes"), ALL, ids=str)
def test_in_process(kind: str, dtypes: tuple[str, ...]) -> None:
    made = case(kind, dtypes)
    want, entry = made.want, made.plan.entry()
    compiled = compile_model(made.original, made.frame)
    with Runtime(executors=1) as served:
        served.register("m", made.plan)
        for form, data in blocks(made.frame):
            same(made.plan.flow.reference(data)["value"], want, f"reference, {form}")
            same(made.plan.run(data)["value"], want, f"plan.run, {form}")
            same(compiled.predict(data), want, f"compile, {form}")
            same(served.predict("m", data, engine="batch")["value"], want, f"batch, {form}")
            (block,) = served.predict_batch("m", [data])
            same(block["value"], want, f"predict_batch, {form}")
            for way, answer in ways(served, entry, data):
                same(answer, want, f"{way}, {form}")
        for row in (0, 6):
            for form, data in single_rows(made.frame, row):
                for way, answer in ways(served, entry, data):
                    same(answer, want[row : row + 1], f"{way}, {form}")


def ways(served: Runtime, entry: Any, data: object) -> Iterator[tuple[str, Any]]:
    """The answers for a block or a row, by every way that takes both."""
    yield "plan.entry", entry(data)[0]
    yield "predict", served.predict("m", data)["value"]
    yield "submit", served.submit("m", data).result()["value"]
    yield "apredict", asyncio.run(served.apredict("m", data))["value"]


def with_others(frame: Any) -> Any:
    """The frame with columns that the model does not read, before and after its own."""
    first = pd.DataFrame({"id": [f"row {n}" for n in range(len(frame))]}, index=frame.index)
    return first.join(frame).assign(note=None, price=1.5)


@pytest.mark.parametrize("dtypes", [("float64", "int64"), ("string", "int64", "float64")])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_the_model_does_not_read_are_ignored(
    kind: str, dtypes: tuple[str, ...]
) -> None:
    made = case(kind, dtypes)
    frame, want, entry = with_others(made.frame), made.want, made.plan.entry()
    compiled = compile_model(made.original, made.frame)
    with Runtime(executors=1) as served:
        served.register("m", made.plan)
        for form, data in blocks(frame):
            if form.startswith(("array", "list of lists", "list of tuples")):  # by position
                with pytest.raises(FlourError):
                    served.predict("m", data)
                continue
            same(made.plan.flow.reference(data)["value"], want, f"reference, {form}")
            same(made.plan.run(data)["value"], want, f"plan.run, {form}")
            same(compiled.predict(data), want, f"compile, {form}")
            for way, answer in ways(served, entry, data):
                same(answer, want, f"{way}, {form}")
        for form, data in single_rows(frame, 3):
            if form.startswith("dict"):
                more = {"tags": ["a", "b"], "about": {"by": "x"}, **data}
                for row in (data, more):
                    for way, answer in ways(served, entry, row):
                        same(answer, want[3:4], f"{way}, {form}, {len(row)}")


@pytest.mark.parametrize("number", [2**53 + 1, -(2**60) - 1, 2**63 - 1])
def test_whole_numbers_beyond_float64_are_exact_in_every_form(number: int) -> None:
    train = pd.DataFrame({"id": np.array([number, 7, number - 1] * 5), "f": np.arange(15) / 2.0})
    steps = ColumnTransformer([("id", OneHotEncoder(), ["id"]), ("f", "passthrough", ["f"])])
    original = make_pipeline(steps, LinearRegression()).fit(train, [5.0, 1.0, -9.0] * 5)
    plan, frame = oven.bake(flour.from_sklearn(original, train)), train.head(4)
    for form, data in blocks(frame):
        if form.startswith("array"):  # numbers of floats, or of objects made of them
            continue
        same(plan.run(data)["value"], original.predict(frame), form)
        same(plan.entry()(data)[0], original.predict(frame), form)
    for form, row in single_rows(frame, 0):
        if form != "array":
            same(plan.entry()(row)[0], original.predict(frame)[:1], form)


_HOLES = [None, np.nan, pd.NA, 2.5, 7, 7.0, 2.0**63, -1e30]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int64", value) for value in (*_HOLES, 2**63, -(2**70))]
    + [("bool", value) for value in (*_HOLES, 0.5, True, 1)],
)
def test_a_hole_or_a_fraction_in_a_column_of_whole_numbers(dtype: str, value: object) -> None:
    """It is computed as a frame of such values would be: the column is one of floats."""
    train = frame_of((dtype, "float64", "uint8"), 200)
    boosted = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5)
    original = boosted.fit(train, train.to_numpy(np.float64) @ [100.0, 10.0, 1.0])
    plan = oven.bake(flour.from_sklearn(original, train))
    frame = train.head(5).astype(object)
    frame.iloc[3, 0] = value
    want = original.predict(frame.replace({pd.NA: np.nan}).astype(float))
    for form, data in blocks(frame):
        same(plan.run(data)["value"], want, f"plan.run, {form}")
        same(plan.entry()(data)[0], want, f"plan.entry, {form}")
    for form, row in single_rows(frame, 3):
        same(plan.entry()(row)[0], want[3:4], form)


# --- over HTTP, and from files --------------------------------------------------------------------

DATATYPES = {
    "float64": "FP64",
    "float32": "FP32",
    "bool": "BOOL",
    "object": "BYTES",
    "str": "BYTES",
}
DATATYPES |= {f"int{n}": f"INT{n}" for n in (8, 16, 32, 64)}
DATATYPES |= {f"uint{n}": f"UINT{n}" for n in (8, 16, 32, 64)}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Runtime, Client]]:
    with (
        Runtime(executors=1) as made,
        Server(made, ServerSettings(port=0, max_unread=0.0)) as server,
    ):
        yield made, Client(server.port)


def tensors(frame: Any, *, flat: bool, datatype: str = "") -> list[dict[str, Any]]:
    """A tensor for each column."""
    shape = [len(frame)] if flat else [len(frame), 1]
    return [
        {
            "name": name,
            "shape": shape,
            "datatype": (datatype if kind.kind == "f" else "") or DATATYPES[kind.name],
            "data": frame[name].tolist(),
        }
        for name, kind in frame.dtypes.items()
    ]


def bodies(frame: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Bodies of the inference protocol."""
    yield "tensors", {"inputs": tensors(frame, flat=True)}
    yield "tensors of one column", {"inputs": tensors(frame, flat=False)}
    yield "tensors reversed", {"inputs": tensors(frame, flat=True)[::-1]}
    if all(kind.kind in "biuf" for kind in frame.dtypes):
        data = frame.to_numpy(np.float64).tolist()
        whole = {"name": "rows", "datatype": "FP64", "shape": list(frame.shape), "data": data}
        yield "one tensor", {"inputs": [whole]}


@pytest.mark.parametrize("dtypes", [*OTHERS, *PAIRS[::3]], ids="-".join)
def test_over_http(served: tuple[Runtime, Client], dtypes: tuple[str, ...]) -> None:
    made, client = served
    asked = case("twice", dtypes)
    made.register(asked.name, asked.plan)
    frame, want = asked.frame, asked.want
    for rows in (frame, frame.head(1)):
        expected = want[: len(rows)]
        more = with_others(rows).drop(columns="note")
        named = ((f"{form} and others", body) for form, body in bodies(more))
        for form, body in [*bodies(rows), *named]:
            if form == "one tensor and others":  # by position
                continue
            reply = client.post(f"/v2/models/{asked.name}/infer", body)
            assert reply.status == 200, (form, reply.body)
            same(reply.json["outputs"][0]["data"], expected, form)
        plain = {
            "objects": json.loads(rows.to_json(orient="records")),
            "columns": rows.to_dict(orient="list"),
            "arrays": [list(row.values()) for row in rows.to_dict(orient="records")],
        }
        for form, data in plain.items():
            reply = client.post(f"/predict/{asked.name}", data)
            assert reply.status == 200, (form, reply.body)
            same([row["value"] for row in reply.json], expected, form)
        for form, data in (("Arrow", rows), ("Arrow and others", with_others(rows))):
            same(over_arrow(client, asked.name, streamed(data))["value"], expected, form)
        same(over_arrow(client, asked.name, plain["objects"])["value"], expected, "JSON to Arrow")
        others = [{"id": n, **each, "note": None} for n, each in enumerate(plain["objects"])]
        for path in (f"/predict/{asked.name}", f"/v1/models/{asked.name}:predict"):
            reply = client.post(path, {"instances": others} if path.startswith("/v1") else others)
            assert reply.status == 200, (path, reply.body)
            answers = reply.json["predictions"] if path.startswith("/v1") else reply.json
            same([_value(row) for row in answers], expected, path)
        instances = client.post(f"/v1/models/{asked.name}:predict", {"instances": plain["objects"]})
        assert instances.status == 200, instances.body
        same([_value(row) for row in instances.json["predictions"]], expected, "instances")
    one = plain["objects"][0]
    more = {"id": "x", **one, "tags": ["a", "b"], "about": {"by": 1}}
    rows = [("an object", one), ("with others", more), ("an array", plain["arrays"][0])]
    for form, row in rows:
        reply = client.post(f"/predict/{asked.name}", row)
        assert reply.status == 200, (form, reply.body)
        same(reply.json["value"], want[:1], form)


def streamed(frame: Any) -> bytes:
    """A frame as a stream of Arrow, in two batches if it has the rows."""
    table, sink = pa.Table.from_pandas(frame, preserve_index=False), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=5)
    return bytes(sink.getvalue())


def over_arrow(client: Client, model: str, data: Any) -> Any:
    """The answers as columns of Arrow, which has what JSON takes for equal."""
    reply = client.post(f"/predict/{model}", data, {"accept": ARROW})
    assert (reply.status, reply.headers["content-type"]) == (200, ARROW), reply.body
    return pa.ipc.open_stream(reply.body).read_all()


def _value(prediction: Any) -> Any:
    return prediction["value"] if isinstance(prediction, dict) else prediction


@pytest.mark.parametrize("dtypes", [*OTHERS, *PAIRS[::3]], ids="-".join)
def test_from_files(pretzel: Any, tmp_path: Path, dtypes: tuple[str, ...]) -> None:  # noqa: F811
    asked = case("twice", dtypes)
    asked.plan.save(tmp_path / "m.pretzel")
    frame = with_others(asked.frame)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_json(tmp_path / "rows.jsonl", orient="records", lines=True, force_ascii=False)
    for ending in ("csv", "jsonl", "parquet"):
        answers = tmp_path / f"answers-{ending}.jsonl"
        ran = pretzel(
            "predict", tmp_path / "m.pretzel", tmp_path / f"rows.{ending}", "--output", answers
        )
        assert ran.code == 0, (ending, ran.err)
        got = [json.loads(line)["value"] for line in answers.read_text().splitlines()]
        same(got, asked.want, ending)
