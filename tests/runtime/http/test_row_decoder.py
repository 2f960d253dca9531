"""The short way of a row means what the long way means, to the byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import flour
from flour.core.types import Category, Scalar, Type
from flour.language.flow import source
from runtime import Runtime
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.number_arrays import NUMBERS
from runtime.http.service import Service
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.settings import ServerSettings
from tests.runtime.http.conftest import filled, tensor

KINDS = {"city": "BYTES", "age": "INT64", "income": "FP64", "member": "BOOL"}
X36 = tensor("x", "FP64", [9, 4], [0.5] * 36)
FULL: dict[str, Any] = {"city": "Graz", "age": 41, "income": 0.5, "member": True}

Ask = Callable[..., Response]


def people() -> flour.Flow:
    """A row of every kind of value that comes the short way."""
    kinds: dict[str, Type] = {
        "city": Category(),
        "age": Scalar("int64"),
        "income": Scalar(),
        "member": Scalar("bool"),
    }
    row = flour.record("row", kinds)
    return flour.outputs(
        where=row.field("city"),
        years=row.field("age"),
        paid=row.columns(["income"]).multiply([2.0]),
        member=row.field("member"),
    )


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Put a request to a service, without a socket."""
    with Runtime(executors=1, result_bytes=0) as runtime:  # what is shared goes another way
        filled(runtime)
        runtime.register("mixed", people())
        runtime.register("some", people(), notes={"default_outputs": ("paid", "where")})
        left, right = source("left", Scalar()), source("right", Scalar())
        for name, dtype in (("single", "float32"), ("double", "float64")):
            runtime.register(name, flour.vector("x", 3, dtype).multiply([1.0, 2.0, 3.0]).named("y"))
        runtime.register("sum", flour.outputs(sum=left.as_vector().plus(right.as_vector())))
        for endpoint in runtime.endpoints:
            plan = runtime.endpoints.find(endpoint.name).plan
            assert plan is not None
            plan.wait()
        app = Service(runtime, ServerSettings())
        NUMBERS.make()

        def asked(
            path: str, body: object, *, plain: bool = True, known: dict[bytes, bytes] | None = None
        ) -> Response:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            late = {} if plain else {b"x-request-timeout-ms": b"60000"}
            path, _, query = path.partition("?")
            request = Request("POST", path, query, {**late, **(known or {})}, raw)
            request.plain = plain and known is None
            made = app.respond(request)
            if isinstance(made, Response):
                return made

            async def wait() -> Response:
                return await made

            return asyncio.run(wait())

        yield asked


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
)
FITTING = {
    "BYTES": st.one_of(st.text(max_size=6), st.none()),
    "INT64": st.one_of(st.integers(-(2**63), 2**63 - 1)),
    "FP64": st.one_of(st.floats(allow_nan=False), st.integers(-(2**60), 2**60), st.none()),
    "BOOL": st.booleans(),
}
ROWS = st.fixed_dictionaries(
    {name: st.one_of(FITTING[kind], FITTING[kind], VALUES) for name, kind in KINDS.items()}
)
LIMITS = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def inputs(row: dict[str, Any], shape: list[int]) -> list[dict[str, Any]]:
    return [tensor(name, KINDS[name], shape, [value]) for name, value in row.items()]


def same(one: Response, other: Response) -> None:
    assert (one.status, one.body) == (other.status, other.body)


@LIMITS
@given(st.lists(ROWS, min_size=1, max_size=4), st.booleans(), st.sampled_from(["mixed", "some"]))
@example([{"city": None, "age": 1, "income": None, "member": True}], False, "mixed")
@example([{"city": "", "age": -(2**63), "income": 2**53 + 1, "member": False}], False, "some")
def test_columns(ask: Ask, rows: list[dict[str, Any]], wide: bool, name: str) -> None:  # noqa: FBT001
    shape = [len(rows), 1] if wide else [len(rows)]
    items = [tensor(each, KINDS[each], shape, [row[each] for row in rows]) for each in KINDS]
    path, body = f"/v2/models/{name}/infer", {"inputs": items, "id": "7"}
    same(ask(path, body), ask(path, body | {"parameters": {"nobody": "cares"}}))


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("number", [1e300, -3.4028235677973367e38, 3.4028235677973362e38, 10**39])
def test_numbers_beyond_float32(ask: Ask, number: float, rows: int) -> None:
    data = [[0.25, 1, number], *[[0.25, float("inf"), float("nan")]] * (rows - 1)]
    body = {"inputs": [tensor("x", "FP32", [rows, 3], [each for row in data for each in row])]}
    made = ask("/v2/models/single/infer", body)
    same(made, ask("/v2/models/single/infer", body | {"parameters": {"nobody": "cares"}}))
    assert made.status == (200 if number < 1e39 and number > 0 else 400)


@pytest.mark.parametrize("rows", [1, 2, 900])
@pytest.mark.parametrize("zero", ["-0", "-0.0", "-0e0", "0e-400", "-0e-400", "-1e-400", "1e-400"])
@pytest.mark.parametrize(("model", "datatype"), [("single", "FP32"), ("double", "FP64")])
def test_signs_of_zeros(ask: Ask, model: str, datatype: str, zero: str, rows: int) -> None:
    """Each door reads as Python's json does: -0 is a whole number, which has no sign."""
    flat = ", ".join([f"{zero}, 1, 2"] * rows)
    data = ", ".join([f"[{zero}, 1, 2]"] * rows)
    head = f'"name": "x", "datatype": "{datatype}", "shape": [{rows}, 3]'
    for path, body in (
        (f"/v2/models/{model}/infer", f'{{"inputs": [{{{head}, "data": [{data}]}}]}}'),
        (f"/v2/models/{model}/infer", f'{{"inputs": [{{{head}, "data": [{flat}]}}]}}'),
        (f"/predict/{model}?outputs=y", f"[{data}]"),
        (f"/predict/{model}", data if rows == 1 else f"[{data}]"),
        (f"/v1/models/{model}:predict", f'{{"instances": [{data}]}}'),
    ):
        made, minus = ask(path, body.encode()).body, str(float(json.loads(zero))) == "-0.0"
        assert (made.count(b"0.0,2.0,6.0"), made.count(b"-")) == (rows, rows * minus), made[:200]


@LIMITS
@given(ROWS, st.sampled_from(["mixed", "some"]))
def test_plain_rows(ask: Ask, row: dict[str, Any], name: str) -> None:
    quick = ask(f"/predict/{name}", row)
    slow = ask(f"/predict/{name}", row, plain=False)
    assert quick.status == slow.status
    if slow.status == 200:
        assert quick.body == slow.body
    first = ask(f"/v1/models/{name}:predict", {"instances": [row]})
    assert first.status == slow.status
    if slow.status == 200:
        assert json.loads(first.body) == {"predictions": [json.loads(slow.body)]}


@pytest.mark.parametrize(
    "change",
    [
        *(lambda i: i.pop(), lambda i: i.reverse(), lambda i: i.clear()),
        *(lambda i: i.append(dict(i[0])), lambda i: i.append(tensor("y", "FP64", [1], [1.0]))),
        *(lambda i: i[0].update(datatype="FP64"), lambda i: i[0].update(shape=[2])),
        *(lambda i: i[0].update(shape=[1, 1, 1]), lambda i: i[0].update(data=["a", "b"])),
        *(lambda i: i[0].update(data=[["a"]]), lambda i: i[1].update(datatype="INT32")),
        lambda i: i[2].update(datatype="FP32"),
        lambda i: i[0].update(parameters={"content_type": "base64"}, data=["YQ=="]),
    ],
)
def test_whatever_is_different_goes_the_long_way(ask: Ask, change: Callable[[Any], Any]) -> None:
    made = inputs({"city": "a", "age": 3, "income": 0.5, "member": True}, [1])
    change(made)
    path, body = "/v2/models/mixed/infer", {"inputs": made}
    same(ask(path, body), ask(path, body | {"parameters": {"nobody": "cares"}}))


def wish(name: str, **parameters: Any) -> dict[str, Any]:
    return {"name": name} | ({"parameters": parameters} if parameters else {})


WISHES = [
    *([], [wish("label")], [wish("paid"), wish("where")], [*map(wish, sorted(people().outputs))]),
    *([wish("label")] * 2, [wish("where")] * 2, [wish("nothing")]),
    [wish("scores") | {"parameters": {}}, wish("label") | {"parameters": None}],
    *([wish("paid", binary_data=each)] for each in (False, True, 0, None, "")),
    *([wish("label", binary_data=False, classification=1)], [wish("scores", classification=2)]),
    [wish("scores", binary_data=True), wish("label")],
]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("wishes", WISHES)
def test_outputs_by_name(ask: Ask, wishes: list[dict[str, Any]], rows: int) -> None:
    table = [tensor(name, KINDS[name], [rows], [value] * rows) for name, value in FULL.items()]
    numbers = [tensor("x", "FP64", [rows, 4], [0.5, 1.5, -2.5, 0.0] * rows)]
    for name, items in (("iris", numbers), ("mixed", table), ("some", table)):
        path, body = f"/v2/models/{name}/infer", {"inputs": items, "outputs": wishes, "id": "7"}
        quick, slow = ask(path, body), ask(path, body | {"parameters": {"nobody": "cares"}})
        same(quick, slow)
        assert quick.headers == slow.headers
        if quick.status == 200 and wishes and not quick.headers:
            names = [each["name"] for each in json.loads(quick.body)["outputs"]]
            assert names == [each["name"] for each in wishes]


@pytest.mark.parametrize("text", ["word001 word002", "", "\N{SNOWMAN}", None, 3])
def test_texts(ask: Ask, text: object) -> None:
    for shape in ([1], [1, 1]):
        body = {"inputs": [tensor("any", "BYTES", shape, [text])]}
        path = "/v2/models/text/infer"
        same(ask(path, body), ask(path, body | {"parameters": {"nobody": "cares"}}))
    quick, slow = ask("/predict/text", text), ask("/predict/text", text, plain=False)
    assert (quick.status, quick.body) == (slow.status, slow.body)


def test_numbers_and_several_inputs(ask: Ask) -> None:
    row = np.arange(4.0).tolist()
    for path, body in (("/predict/iris", row), ("/predict/sum", {"left": 1, "right": 2.5})):
        same(ask(path, body), ask(path, body, plain=False))
    one = ask("/v1/models/iris:predict", {"instances": [row]})
    two = ask("/v1/models/iris:predict", {"instances": [row, row]})
    assert json.loads(one.body)["predictions"] * 2 == json.loads(two.body)["predictions"]
    both = [tensor("left", "FP64", [1], [1]), tensor("right", "FP64", [1], [2.5])]
    assert b'"data":[3.5]' in ask("/v2/models/sum/infer", {"inputs": both}).body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/mixed/infer", {"inputs": inputs(FULL, [1])}),
        ("/v2/models/some/infer", {"inputs": inputs(FULL | {"income": None}, [1, 1])}),
        (
            "/v2/models/sum/infer",
            {"inputs": [tensor(each, "FP64", [2, 1], [1, 2.5]) for each in ("left", "right")]},
        ),
        ("/v2/models/iris/infer", {"inputs": [X36]}),
        ("/v2/models/text/infer", {"inputs": [tensor("x", "BYTES", [1], ["word001"])]}),
        ("/v2/models/some/infer", {"inputs": inputs(FULL, [1]), "outputs": [wish("member")]}),
        *(
            ("/v2/models/iris/infer", {"inputs": [X36], "outputs": [wish("label", **told)]})
            for told in ({}, {"binary_data": False})
        ),
        ("/predict/mixed", FULL),
        ("/predict/text", "word001"),
        ("/predict/iris", [1.0, 2.0, 3.0, 4.0]),
        ("/v1/models/some:predict", {"instances": [FULL]}),
    ],
)
def test_rows_do_go_the_short_way(
    ask: Ask, path: str, body: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def long_way(*_: object) -> None:
        raise AssertionError("this is the long way")

    monkeypatch.setattr(ModelCodec, "decode", long_way)
    monkeypatch.setattr(ModelCodec, "call", long_way)
    monkeypatch.setattr(ModelCodec, "encode", long_way)
    for _ in range(5):
        assert ask(path, body).status == 200


@pytest.mark.parametrize("rows", [1, 2, 40])
@pytest.mark.parametrize(
    "wishes",
    [
        *({}, {"id": "7", "parameters": {"binary_data_output": True}}),
        {"outputs": [wish("probabilities", classification=2)]},
        {"outputs": [wish("scores", binary_data=True), wish("label")]},
    ],
)
@pytest.mark.parametrize("datatype", ["FP64", "FP32"])
def test_raw_tensors(ask: Ask, rows: int, wishes: dict[str, Any], datatype: str) -> None:
    dtype = np.float64 if datatype == "FP64" else np.float32
    raw = np.random.default_rng(rows).normal(size=(rows, 4)).astype(dtype)
    item: dict[str, Any] = {"name": "x", "datatype": datatype, "shape": [rows, 4]}
    item["parameters"] = {"binary_data_size": raw.nbytes}
    head = json.dumps({"inputs": [item], **wishes}).encode()
    known = {b"inference-header-content-length": str(len(head)).encode()}
    path, body = "/v2/models/iris/infer", head + raw.tobytes()
    quick, slow = (ask(path, body, plain=plain, known=known) for plain in (True, False))
    same(quick, slow)
    assert quick.status == 200
    assert quick.headers == slow.headers


def test_a_raw_row_of_every_kind_of_output(ask: Ask) -> None:
    """One row goes by the way of rows, and is answered as the block it came as."""
    raw = np.array([[3, -4]], np.int64)
    item: dict[str, Any] = {"name": "x", "datatype": "INT64", "shape": [1, 2]}
    for path, rows, datatype in (
        ("/v2/models/whole/infer", raw, "INT64"),
        ("/v2/models/shift/infer", np.arange(4.0)[None], "FP64"),
        ("/v2/models/iris/infer", np.arange(4.0)[None], "FP64"),
    ):
        item |= {"datatype": datatype, "shape": list(rows.shape)}
        item["parameters"] = {"binary_data_size": rows.nbytes}
        head = json.dumps({"inputs": [item]}).encode()
        known = {b"inference-header-content-length": str(len(head)).encode()}
        body = head + rows.tobytes()
        same(*(ask(path, body, plain=plain, known=known) for plain in (True, False)))
