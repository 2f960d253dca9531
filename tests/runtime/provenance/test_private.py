"""Values of private columns are found nowhere: on disk, in logs, metrics, traces, errors."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import flour
from flour import Flow
from flour.core.errors import FlourError, ParameterError, WrongDtype
from flour.core.types import Record, Scalar, Type
from runtime import Runtime
from runtime.errors import BadRegistration
from runtime.http import Server, ServerSettings
from runtime.provenance import AnswerKeeper
from runtime.routing import Pair
from runtime.service.private import redacted, without
from tests.house import until
from tests.runtime.http.client import Client

#: What is looked for: a part of each value, as errors shorten what they quote.
SECRET = "q7-secret"
NOTES = {"private": ("ssn", "phone")}


def program(factor: float = 2.0) -> Flow:
    row = flour.record(ssn=flour.text, phone=float, amount=float, city=flour.text)
    hashed = row["phone"] * 0.5
    words = sum(
        row[name].tokenize().word_ngrams(["Rome"], 1, 1)[0] * 0.0 for name in ("ssn", "city")
    )
    return flour.outputs(score=row["amount"] * factor + hashed * 1e-9 + words, hashed=hashed)


def secret(number: int) -> str:
    return f"{SECRET}-{number}"


def bad_and_good(number: int) -> Any:
    """A row with secrets in it, wrong in one of several ways or right."""
    row = {"ssn": secret(number), "phone": 8.25, "amount": 1.0, "city": "Rome"}
    changes: list[dict[str, Any]] = [
        {},
        {"phone": secret(number)},
        {"amount": secret(number)},
        {"ssn": [secret(number)]},
        {"ssn": {"a": secret(number)}},
        {"ssn": secret(number).encode() + b"\xff"},
        {"city": ["x", secret(number)]},
        {"other": secret(number)},
    ]
    row.update(changes[number % len(changes)])
    if number % 11 == 3:
        del row["amount"]
    return [row] if number % 3 == 0 else row


def asked(runtime: Runtime, number: int, name: str) -> list[str]:
    """The texts that a caller sees of a call, if it fails."""
    row, texts = bad_and_good(number), []
    for ask in (runtime.predict, lambda *each: runtime.submit(*each).result()):
        try:
            ask(name, row)
        except Exception as problem:  # noqa: BLE001 (whatever it is, it must not tell)
            texts.append("".join(traceback.format_exception(problem)))
    return texts


def body(number: int) -> Any:
    if number % 5 == 4:
        return f'{{"inputs": [{{"name": "ssn", "data": ["{secret(number)}"'.encode()
    tensors = {
        "ssn": ("BYTES", [secret(number)]),
        "phone": ("FP64" if number % 4 else "BYTES", [8.25 if number % 4 else secret(number)]),
        "amount": ("FP64", [1.0] if number % 7 else [secret(number)]),
        "city": ("BYTES", ["Rome"]),
    }
    return {"inputs": [
        {"name": name, "datatype": kind, "shape": [1, 1], "data": data}
        for name, (kind, data) in tensors.items()
    ]}  # fmt: skip


@dataclass
class Version:
    inputs: dict[str, Type]
    private: frozenset[str]


@dataclass
class Ring:
    pairs: list[Pair] = field(default_factory=list)

    def add(self, pair: Pair) -> None:
        self.pairs.append(pair)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        made.register("m", program(), notes=NOTES)
        made.register("m", program(3.0), notes=NOTES, activate=False)
        yield made


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def test_a_planted_value_is_found_nowhere(
    runtime: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter
) -> None:
    caplog.set_level(logging.DEBUG)
    ring, failed, answered = Ring(), 0, 0
    runtime.keep("m", tmp_path / "answers", private="hash")
    runtime.route("m", "m@1", shadow="m@2")
    runtime.experiments.observe("m", ring)
    rows = [{"ssn": secret(0), "phone": 8.25, "amount": 1.0, "city": "Rome"}]
    watch = runtime.watch("m", reference=rows * 20, segments=("city",), outliers=("range",))
    log = str(tmp_path / "access.log")
    settings = ServerSettings(port=0, access_log=log, tracing=True, trace_stages=0.5)
    seen: list[str] = []
    with Server(runtime, settings) as server:
        client = Client(server.port)
        for number in range(100):
            texts = asked(runtime, number, "m" if number % 2 else "m@1")
            failed += len(texts)
            seen += texts
            path = "/v2/models/m/infer" if number % 2 else "/v2/models/m/versions/1/infer"
            plain = {"ssn": secret(number), "phone": secret(number), "amount": 1.0}
            replies = [client.post(path, body(number)), client.post("/predict/m", plain)]
            answered += sum(reply.status == 200 for reply in replies)
            failed += sum(reply.status >= 400 for reply in replies)
            seen += [reply.body.decode() + str(reply.headers) for reply in replies]
        watch.fold()
        seen += [client.get("/metrics").body.decode(), client.get("/").body.decode()]
    keeper = runtime.routes.keeper("m")
    assert isinstance(keeper, AnswerKeeper)
    keeper.flush()
    assert len(keeper) > 20
    assert failed > 100 < answered + failed
    assert answered > 20
    seen += [repr(watch.drift()), repr(watch.cells()), repr(ring.pairs), caplog.text]
    seen += [str(record.exc_info) for record in caplog.records]
    runtime.close()
    assert ring.pairs
    assert len(spans.get_finished_spans()) > 200
    seen += [span.to_json() for span in spans.get_finished_spans()]
    seen += [repr(each.strangest) for each in watch.outliers]
    for text in seen:
        assert SECRET not in text
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file
    assert any(path.suffix == ".log" for path in (tmp_path / "answers").iterdir())


def test_without_privacy_the_value_is_found(tmp_path: Path) -> None:
    """What the test above looks at does tell values, unless it is told not to."""
    with Runtime() as runtime:
        runtime.register("m", program())
        runtime.keep("m", tmp_path)
        texts = [text for number in range(8) for text in asked(runtime, number, "m")]
        assert any(SECRET in text for text in texts)
        runtime.close()
        assert any(SECRET.encode() in path.read_bytes() for path in tmp_path.glob("*.log"))


def test_errors_name_columns_and_keep_their_class(runtime: Runtime) -> None:
    row = {"ssn": "1", "phone": 8.25, "amount": SECRET, "city": "Rome"}
    with pytest.raises(FlourError) as caught:
        runtime.predict("m", row)
    assert "values are not shown" in str(caught.value)
    assert caught.value.__context__ is caught.value.__cause__ is None
    error = WrongDtype("column 'amount' holds 'q7'", found="q7")
    error.__cause__ = ValueError("q7")
    shown = redacted(error, program().inputs())
    assert shown is error
    assert "amount" in str(shown)
    assert "q7" not in "".join(traceback.format_exception(shown))
    foreign = redacted(ValueError("q7"), program().inputs())
    assert isinstance(foreign, ValueError)
    assert "q7" not in str(foreign)


def test_taps_and_segments_of_private_columns_are_refused(runtime: Runtime) -> None:
    with pytest.raises(ParameterError):
        runtime.watch("m", segments=("ssn",))
    with pytest.raises(ParameterError):
        runtime.watch("m", segments=("phone // 10",))


def test_a_step_that_reads_a_private_column_is_not_tapped() -> None:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["a", "ssn"])
    parts = [("open", StandardScaler(), ["a"]), ("hidden", MinMaxScaler(), ["ssn"])]
    model = make_pipeline(ColumnTransformer(parts), LogisticRegression())
    flow = flour.from_sklearn(model.fit(rows, np.arange(50) % 2), rows)
    with Runtime() as runtime:
        runtime.register("m", flow, notes={"private": ["ssn"]})
        runtime.tap("m", "open").close()
        with pytest.raises(ParameterError, match="private"):
            runtime.tap("m", "hidden")


def test_private_columns_have_to_be_columns() -> None:
    with Runtime() as runtime:
        for wrong in ("ssn", ("snn",), 3):
            with pytest.raises(BadRegistration):
                runtime.register("m", program(), notes={"private": wrong})
        with suppress(FlourError):
            runtime.unregister("m")
        runtime.register("m", program(), notes={"private": ()})
        assert "m" in runtime.endpoints.routes


@pytest.mark.parametrize("name", ["privat", "Private", "private_columns"])
def test_a_note_that_is_spelt_wrongly_is_refused(name: str) -> None:
    program = flour.outputs(score=flour.record(ssn=float)["ssn"])
    with Runtime() as runtime, pytest.raises(BadRegistration, match="hides nothing"):
        runtime.register("m", program, notes={name: ("ssn",)})


def test_a_version_that_hides_less_is_told(caplog: pytest.LogCaptureFixture) -> None:
    program = flour.outputs(score=flour.record(ssn=float, age=float)["age"])
    with Runtime() as runtime:
        runtime.register("m", program, notes={"private": ("ssn", "age")})
        runtime.register("m", program, notes={"private": ("ssn",)})
        assert "m@2 shows columns that m@1 hides: age" in caplog.text
        caplog.clear()
        runtime.switch("m", "1")
        assert "shows columns" not in caplog.text


def test_rows_without_names_are_dropped() -> None:
    record = Record((("a", Scalar()), ("b", Scalar())))
    version = Version({"in": record}, frozenset({"a"}))
    assert without([[1, 2]], version) is None
    assert without({"a": 1, "b": 2, "c": 3}, version) == {"a": None, "b": 2}
    assert without([{"a": 1, "b": 2}], version, str) == [{"a": "1", "b": 2}]
    assert without({"in": [[1, 2]], "b": [1]}, version) == {"in": None, "b": [1]}
    assert without({"a": np.array([1, 2])}, version) == {"a": [None, None]}


def test_an_answer_without_its_private_rows_is_recomputed_from_given_ones(
    runtime: Runtime, tmp_path: Path
) -> None:
    runtime.keep("m", tmp_path)
    row = {"ssn": SECRET, "phone": 8.25, "amount": 1.0, "city": "Rome"}
    answer: Any = runtime.predict("m", row)
    why = runtime.why(answer.id)
    assert why.inputs == {**row, "ssn": None, "phone": None}
    with pytest.raises(FlourError, match="private"):
        why.recomputed()
    assert why.agrees(row)


_ROW = flour.record(pay=float, amount=float, ssn=float)
_RENAMED = flour.record(a=float, b=float)


@pytest.mark.parametrize(
    ("graph", "hidden"),
    [
        (lambda f: f(_ROW), {"ssn"}),
        (lambda f: f(_ROW["ssn", "amount"]), {"ssn"}),
        (lambda f: f(_ROW["amount"], ssn=_ROW["pay"] * 2.0), {"pay"}),
        (lambda f: f(_ROW["amount"], ssn=f(_ROW)["score"]), {"ssn", "pay", "amount"}),
        (lambda f: f(_RENAMED["a"], _RENAMED["b"]), {"a", "b"}),  # in order: which is not asked
        (lambda f: flour.outputs(score=f(_RENAMED["a"], ssn=_RENAMED["b"])["score"] + 1.0), {"b"}),
    ],
)
def test_what_is_private_in_a_model_is_so_in_its_graphs(graph: Any, hidden: set[str]) -> None:
    row = flour.record(amount=float, ssn=float)
    with Runtime(executors=1) as runtime:
        notes = {"private": ("ssn",)}
        runtime.register("f", flour.outputs(score=row["amount"] + row["ssn"]), notes=notes)
        runtime.register("g", graph(flour.model("f")))
        assert runtime.endpoints.find("g").private == hidden
        (inputs,) = runtime.endpoints.find("g").inputs.values()
        assert isinstance(inputs, Record)
        with pytest.raises(FlourError) as refused:
            runtime.predict("g", dict.fromkeys(inputs.names, SECRET))
        assert SECRET not in str(refused.value)


def test_a_graph_hides_what_a_model_hides_from_now_on() -> None:
    row = flour.record(amount=float, ssn=float)
    program = flour.outputs(score=row["amount"] + row["ssn"])
    with Runtime(executors=1) as runtime:
        runtime.register("f", program)
        runtime.register("g", flour.model("f")(row), notes={"private": ("amount",)})
        assert runtime.endpoints.find("g").private == {"amount"}
        runtime.register("f", program, notes={"private": ("ssn",)})  # the same program
        until(lambda: runtime.endpoints.find("g").private == {"amount", "ssn"})
        runtime.switch("f", "1")
        until(lambda: runtime.endpoints.find("g").private == {"amount"})
