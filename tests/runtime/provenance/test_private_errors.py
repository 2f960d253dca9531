"""Errors of private endpoints keep all that is no value; what one version hides, all hide."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import flour
from flour import Flow
from flour.core.errors import (
    FlourError,
    FunctionFailed,
    InputError,
    MissingColumn,
    NotNumeric,
    NotRectangular,
    WrongDtype,
)
from flour.core.hidden import hiding
from oven.explain import attribute
from runtime import Runtime
from runtime.errors import BadCall, NodeFailed, UnknownEndpoint
from runtime.http import Server, ServerSettings
from runtime.http.wire.problems import HttpError, text
from runtime.service.direct import Direct
from runtime.service.private import redacted
from tests.house import until
from tests.runtime.http.client import Client

EXECUTORS = 1

INPUTS = flour.outputs(y=flour.record(ssn=flour.text, phone=float, amount=float)["amount"]).inputs()
NOT_SHOWN = "values are not shown, as this endpoint has private columns"


def program(factor: float = 2.0) -> Flow:
    row = flour.record(ssn=flour.text, phone=float, amount=float)
    return flour.outputs(score=row["amount"] * factor + row["phone"])


@pytest.mark.parametrize(
    "error",
    [
        HttpError("the body is no JSON", found="JSON is malformed: trailing characters (byte 8)"),
        HttpError("the body is no JSON", found="Input data was truncated"),
        HttpError("expected `int | null`, got `str`", where="$.inputs[0].shape[0]"),
        HttpError("object missing required field `inputs`", where="$"),
        HttpError("there is no such datatype", where="$.inputs[0].datatype", found="'FP99'"),
        HttpError("a body may have 9 bytes", 413, found="'10'"),
        HttpError("the model has no output 'x'", where="$.outputs", hint="its outputs are score"),
        WrongDtype("expected float64", where="$.phone", found="dtype datetime64[ns]"),
        NotRectangular("expected two dimensions", where="$", found="ndarray of shape (3, 4)"),
        NotRectangular("ragged", where="$[3]", found="2 values, the first row has 3"),
        NotRectangular("lengths", where="$", found="ssn: 3, phone: 2"),
        MissingColumn("there is no column 'ssn'", where="$[1]", found="phone, amount", hint="by"),
        InputError("x refuses NaN", where="row 3, column 2 of the encoder", found="nan"),
        InputError("this is not JSON", where="rows.jsonl:3:7", found="Expecting ',' delimiter"),
        NotRectangular("a row has one", where="$.phone", found="a list among single values"),
        BadCall("m@1 has no output 'q7'", found="outputs: score", hint="did you mean"),
        HttpError("there is no output 'q7' to attribute", found="score"),
        NodeFailed("node 'load' failed", where="m.load", found="expected 2 columns, got 1"),
        NodeFailed(
            "node 'load' failed",
            where="m.load",
            found="a block of rows has two dimensions, got one, found 1 values",
        ),
        UnknownEndpoint("nothing is registered as 'x'", found="2 endpoints", hint="did you mean"),
    ],
)
def test_what_quotes_nothing_stays_as_it_is(error: FlourError) -> None:
    before = text(error)
    assert text(redacted(error, INPUTS, ("score",))) == before


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotNumeric("expected numbers", where="$.phone[3]", found="str 'q7'", hint="convert it"),
         f"expected numbers at $.phone[3] (found: str); convert it; {NOT_SHOWN}"),
        (WrongDtype("expected int64", where="$[0].phone", found="8.25"),
         f"expected int64 at $[0].phone (found: a number); {NOT_SHOWN}"),
        (WrongDtype("expected text", where="$[0].q7", found="a int 1234"),
         f"expected text at $[0].… (found: int); {NOT_SHOWN}"),
        (WrongDtype("expected text", where="$.ssn[0]", found="bytes b'q7'..."),
         f"expected text at $.ssn[0] (found: bytes); {NOT_SHOWN}"),
        (InputError("-8.25 is not a category that was seen in training", found="float"),
         f"'…' is not a category that was seen in training (found: float); {NOT_SHOWN}"),
        (InputError("\"it's q7\" is not a category that was seen in training"),
         f"'…' is not a category that was seen in training; {NOT_SHOWN}"),
        (MissingColumn("there is no column 'phone'", where="$", found="ssn, q7, amount"),
         f"there is no column 'phone' at $ (found: ssn, …, amount); {NOT_SHOWN}"),
        (HttpError("the model has no input 'q7'", where="$.inputs.q7[0]", hint="ssn, phone"),
         f"the model has no input '…' at $.inputs.…[0]; ssn, phone; {NOT_SHOWN}"),
        (HttpError("there is no input 'ssn'", hint="did you mean 'ssm'?"),
         f"there is no input 'ssn'; {NOT_SHOWN}"),
        (HttpError("object contains unknown field `q7`", where="$"),
         f"object contains unknown field '…' at $; {NOT_SHOWN}"),
        (InputError("not a number", where="rows.csv:3:2 (column 'phone')", found="'q7'"),
         f"not a number at rows.csv:3:2 (column 'phone') (found: a text); {NOT_SHOWN}"),
        (InputError("not a number", where="rows.jsonl:3, q7", found="2020-01-02"),
         f"not a number at rows.jsonl:3, …; {NOT_SHOWN}"),
        (FunctionFailed("a Python function failed", where="f", found="ValueError: 'q7'"),
         f"a Python function failed at f (found: ValueError); {NOT_SHOWN}"),
        (FunctionFailed("a Python function failed", where="f", found="KeyError: 77"),
         f"a Python function failed at f (found: KeyError); {NOT_SHOWN}"),
        (FunctionFailed("a Python function failed", where="f", found="ValueError: got 77"),
         f"a Python function failed at f (found: ValueError); {NOT_SHOWN}"),
        (WrongDtype("expected text", where="rows.jsonl:3, [77]", found="[77]"),
         f"expected text at rows.jsonl:3, …; {NOT_SHOWN}"),
        (WrongDtype("expected text", found="(77)"), f"expected text; {NOT_SHOWN}"),
        (NodeFailed("node 'load' failed", where="m.load", found="KeyError: 'q7'"),
         f"node 'load' failed at m.load (found: KeyError); {NOT_SHOWN}"),
        (NodeFailed("node 'q7' failed", where="m.load", found="got q7"),
         f"node '…' failed at m.load; {NOT_SHOWN}"),
        (InputError("a quote that is cut: 'q7 and", found="q7"),
         f"a quote that is cut: '…'; {NOT_SHOWN}"),
    ],
)  # fmt: skip
def test_values_are_left_out_and_nothing_else(error: FlourError, told: str) -> None:
    for _ in range(2):  # an error may be shown twice
        shown = redacted(error, INPUTS)
        assert shown is error
        assert text(error) == told
        assert "q7" not in str(error) + repr(error)


def test_columns_that_are_numbers_do_not_let_numbers_through() -> None:
    inputs = flour.outputs(
        y=flour.record("row", {str(n): flour.Scalar() for n in range(99)})["0"]
    ).inputs()
    for value in ("8.25", "8, 25", "str '8'", "[8, 25]", "8"):
        error = redacted(WrongDtype("expected int64", where="$.8[0]", found=value), inputs)
        assert "25" not in str(error).replace("$.8[0]", "")
        assert not str(getattr(error, "found", None)).startswith("8")


def test_over_http_a_private_endpoint_says_as_much() -> None:
    bodies: list[tuple[str, bytes, dict[str, str]]] = [
        ("/predict/NAME", b'{"ssn": "a", ', {}),
        ("/predict/NAME", b'{"ssn": "a"}', {}),
        ("/predict/NAME", b"[1, 2", {}),
        ("/predict/NAME", b"\xff", {}),
        ("/predict/NAME", b"[]", {"Content-Encoding": "zip"}),
        ("/predict/NAME", b"x" * 3000, {}),
        ("/v2/models/NAME/infer", b'{"inputs": []}', {}),
        ("/v2/models/NAME/infer", b'{"inputs": 3}', {}),
        ("/v2/models/NAME/infer", b'{"input": 3}', {}),
        ("/v2/models/NAME/versions/9/infer", b"{}", {}),
        ("/v1/models/NAME:predict", b'{"instances": 3}', {}),
    ]
    for name, shape in (("amount", [2]), ("phone", [1, 1, 1]), ("ssn", [-1])):
        told = {"name": name, "datatype": "FP64", "shape": shape, "data": [1.0]}
        body = json.dumps({"inputs": [told]}).encode()
        bodies.append(("/v2/models/NAME/infer", body, {}))
    with Runtime() as runtime:
        runtime.register("open", program())
        runtime.register("hide", program(), notes={"private": ("ssn",)})
        with Server(runtime, ServerSettings(port=0, max_body=2000)) as server:
            client = Client(server.port)
            for path, body, headers in bodies:
                one, other = (
                    client.post(path.replace("NAME", name), body, headers)
                    for name in ("open", "hide")
                )
                assert one.status == other.status >= 400
                assert one.body.replace(b"open", b"hide") == other.body


# --- what is told of a name ----------------------------------------------------------------------


def refused(runtime: Runtime, name: str) -> str:
    with pytest.raises(FlourError) as caught:
        runtime.predict(name, {"ssn": "a", "phone": "q7", "amount": 1.0})
    return str(caught.value)


def test_a_later_version_hides_for_the_former_one(runtime: Runtime) -> None:
    runtime.register("m", program())
    assert "q7" in refused(runtime, "m")
    before = runtime.endpoints.find("m")
    runtime.register("m", program(3.0), notes={"private": ("phone",)}, activate=False)
    assert before.private == {"phone"}
    assert "q7" not in refused(runtime, "m") + refused(runtime, "m@1") + refused(runtime, "m@2")
    runtime.switch("m", "2")
    assert "q7" not in refused(runtime, "m") + refused(runtime, "m@1")
    runtime.switch("m", "1")
    runtime.unregister("m", "2")
    assert runtime.endpoints.find("m").private == set()
    assert "q7" in refused(runtime, "m")
    assert runtime.endpoints.routes["m"] is before  # machine code finds it again


def test_a_version_with_other_columns_hides_those_that_it_has(runtime: Runtime) -> None:
    runtime.register("m", program(), notes={"private": ("ssn", "phone")})
    other = flour.record(phone=float, age=float)
    runtime.register("m", flour.outputs(score=other["age"] + other["phone"]))
    assert runtime.endpoints.find("m").private == {"phone"}
    runtime.unregister("m", "1")
    assert runtime.endpoints.find("m").private == set()


def test_a_version_that_is_replaced_hides_what_it_says_now(runtime: Runtime) -> None:
    runtime.register("m", program(), "1", notes={"private": ("ssn",)})
    runtime.register("m", program(3.0), "1", replace=True, notes={"private": ("phone",)})
    assert runtime.endpoints.find("m").private == {"phone"}


def test_pairs_hide_what_became_private_after_they_were_asked_for(runtime: Runtime) -> None:
    pairs: list[Any] = []

    class Ring:
        def add(self, pair: Any) -> None:
            pairs.append(pair)

    runtime.register("m", program())
    runtime.register("m", program(3.0), activate=False)
    runtime.route("m", "m@1", shadow="m@2")
    runtime.experiments.observe("m", Ring())
    row = {"ssn": "q7", "phone": 1.0, "amount": 1.0}
    runtime.predict("m", row)
    until(lambda: len(pairs) == 1)
    assert pairs[0].rows == row
    runtime.register("m", program(4.0), notes={"private": ("ssn",)}, activate=False)
    runtime.predict("m", row)
    until(lambda: len(pairs) == 2)
    assert pairs[1].rows == {**row, "ssn": None}


def test_the_first_difference_of_a_private_endpoint_has_no_values(runtime: Runtime) -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline

    for fill in (7654.5, 7655.5):
        rows = pandas.DataFrame({"phone": [fill, fill, np.nan], "amount": [1.0, 2.0, 4.0]})
        flow = flour.from_sklearn(
            make_pipeline(SimpleImputer(), LinearRegression()).fit(rows, [1.0, 2.0, fill]), rows
        )
        notes = {"private": ("phone",)}
        runtime.register("m", flow, notes=notes, activate=fill < 7655)
    runtime.route("m", "m@1", shadow="m@2")
    comparison = runtime.experiments.compare("m")
    runtime.predict("m", {"phone": float("nan"), "amount": 1.0})
    until(lambda: comparison.agreement()[1] > 0)
    told = str(comparison.to_dict()) + str(comparison) + comparison.to_html()
    assert "Impute" in told
    assert "765" not in told.replace(".", "")


def test_a_request_of_a_version_that_is_gone_is_told_by_what_that_hid(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that was read for a private version fails when another has its name."""
    runtime.register("m", program(), "1", notes={"private": ("phone",)})

    def late(*_: object, **__: object) -> None:
        runtime.register("m", program(), "1", replace=True)
        raise InputError("expected numbers", found="str 'q7'")

    monkeypatch.setattr(Direct, "quick", late)
    monkeypatch.setattr(Direct, "submit", late)
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        row = {"ssn": "a", "phone": 1.0, "amount": 1.0}
        reply = Client(server.port).post("/predict/m", row)
    assert reply.status == 400
    assert "q7" not in reply.error
    assert runtime.endpoints.find("m").private == set()


# --- programs ------------------------------------------------------------------------------------


def test_public_columns_stay_explained() -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rows = pandas.DataFrame({"ssn": ["q7", "q8"] * 4, "city": ["Rome", "Oslo"] * 4})
    parts = [(name, OneHotEncoder(), [name]) for name in ("ssn", "city")]
    model = make_pipeline(ColumnTransformer(parts), LogisticRegression())
    flow = flour.from_sklearn(model.fit(rows, np.arange(8) % 2), rows)
    for form in ("text", "mermaid", "html"):
        assert "q7" in flour.show(flow, form)
        with hiding({"ssn"}):
            shown = flour.show(flow, form)
        assert "q7" not in shown
        assert "q8" not in shown
        assert "Rome" in shown
        assert "ssn" in shown
        assert "2 texts" in shown


def test_a_graph_shows_nothing_of_what_its_models_hide(runtime: Runtime) -> None:
    row = flour.record(ssn=flour.Category(), amount=float)
    one = flour.outputs(score=flour.where(row["ssn"] == "q7", row["amount"], 7654.5))
    runtime.register("f", one, notes={"private": ("ssn",)})
    runtime.register("g", flour.outputs(final=flour.model("f")(row)["score"] * 2.0))
    assert runtime.endpoints.find("g").private == {"ssn"}
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        client = Client(server.port)
        for name in ("f", "g"):
            for step in ("stages", "logical", "optimised", "source"):
                page = client.get(f"/explain/{name}?step={step}").body
                assert b"q7" not in page
                assert b"7654" not in page
                assert b"ssn" in page or step == "source"


# --- inputs that are private as a whole ----------------------------------------------------------


def _vector() -> tuple[Flow, Any, str]:
    return (
        flour.outputs(score=flour.vector("x", 2).linear([[2.0, 3.0]], [0.5])),
        [[4455667788.0, 1.0]],
        "x",
    )


def _record() -> tuple[Flow, Any, str]:
    row = flour.record("row", {"a": flour.Scalar(), "b": flour.Scalar()})
    return flour.outputs(score=row["a"] + row["b"]), [{"a": 4455667788.0, "b": 1.0}], "row"


def _two_inputs() -> tuple[Flow, Any, str]:
    one = flour.record("one", {"a": flour.Scalar()})
    two = flour.record("two", {"u": flour.Scalar(), "v": flour.Scalar()})
    rows = {"one": {"a": [1.0]}, "two": {"u": [4455667788.0], "v": [2.0]}}
    return flour.outputs(score=one["a"] + two["u"] - two["v"]), rows, "u"


@pytest.mark.parametrize("case", [_vector, _record, _two_inputs])
def test_a_private_input_is_hidden_by_all_names_of_its_columns(
    runtime: Runtime, case: Any, tmp_path: Any
) -> None:
    flow, rows, private = case()
    runtime.register("m", flow, notes={"private": (private,)})
    version = runtime.endpoints.find("m")
    keeper: Any = runtime.keep("m", tmp_path)
    watch: Any = None
    if case is not _two_inputs:
        watch = runtime.watch("m", reference=rows * 9)
    answer: Any = runtime.predict("m", rows)
    why: Any = runtime.why(answer.id)
    told = repr(why.inputs)
    assert version.plan is not None
    found = attribute(version.plan, rows, output="score").hiding(version.private)
    told += found.to_text() + found.to_html() + repr(found.to_dict()["rows"][0].get("words"))
    if watch is not None:
        watch.fold()
        told += repr(watch.drift()) + repr(watch.reference.columns)
        assert not watch.reference.columns
    keeper.flush()
    assert "4455667788" not in told
