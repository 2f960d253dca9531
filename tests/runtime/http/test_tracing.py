"""Spans: the request, the plan, its stages; whose trace they belong to; what they cost when off."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from sklearn.preprocessing import OrdinalEncoder

import flour
import oven
from flour.core.errors import FlourError
from oven.explain import timing
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.wire.compression import SOON
from tests.house import ROOT
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import classifier, filled, tensor
from tests.runtime.http.test_metrics import ROW

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
THEIRS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    # Only those whose clients record, so that both kinds can be seen.
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    found = {span.name: span for span in spans.get_finished_spans()}
    assert len(found) == len(spans.get_finished_spans())
    return found


def within(inner: ReadableSpan, outer: ReadableSpan) -> bool:
    assert inner.context is not None
    assert outer.context is not None
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert inner.context.trace_id == outer.context.trace_id
    assert None not in {inner.start_time, inner.end_time, outer.start_time, outer.end_time}
    slack = 2_000_000  # moments are told by two clocks
    starts = (outer.start_time or 0) - slack <= (inner.start_time or 0)
    return starts and (inner.end_time or 0) <= (outer.end_time or 0) + slack


def settings(stages: float = 0.0) -> ServerSettings:
    return ServerSettings(port=0, tracing=True, trace_stages=stages)


def test_request_and_plan(spans: InMemorySpanExporter) -> None:
    with Runtime(executors=1) as runtime:
        filled(runtime)
        with Server(runtime, settings()) as server:
            Client(server.port).post("/v2/models/iris/infer", ROW, THEIRS)
    found = named(spans)
    request, plan = found["POST /v2/models/{model}/infer"], found["plan iris@1"]
    assert len(found) == 2
    assert request.context is not None
    assert request.parent is not None
    assert format(request.context.trace_id, "032x") == TRACE
    assert format(request.parent.span_id, "016x") == PARENT
    assert within(plan, request)
    facts = dict(request.attributes or {})
    assert facts["http.response.status_code"] == 200
    assert facts["http.route"] == "/v2/models/{model}/infer"
    assert (facts["pretzel.model"], facts["pretzel.version"]) == ("iris", "1")


def test_a_body_that_is_unpacked_on_a_thread(spans: InMemorySpanExporter) -> None:
    """Its turn comes when others have been looked at."""
    rows = np.random.default_rng(0).normal(size=(400, 4))
    x = tensor("x", "FP64", [400, 4], rows.tolist())
    body = gzip.compress(json.dumps({"inputs": [x]}).encode())
    assert len(body) > SOON
    with Runtime(executors=1) as runtime:
        filled(runtime)
        with Server(runtime, settings()) as server:
            known = THEIRS | {"Content-Encoding": "gzip"}
            reply = Client(server.port).post("/v2/models/iris/infer", body, known)
            assert reply.status == 200
    found = named(spans)
    assert within(found["plan iris@1"], found["POST /v2/models/{model}/infer"])


def test_stages_are_spans_and_answers_stay_the_same(spans: InMemorySpanExporter) -> None:
    original, rows = classifier()
    x = tensor("x", "FP64", [50, 4], rows[:50].tolist())
    with Runtime(executors=1) as runtime:
        runtime.register("iris", flour.from_sklearn(original))
        answers = []
        for stages in (0.0, 1.0):
            with Server(runtime, settings(stages)) as server:
                reply = Client(server.port).post("/v2/models/iris/infer", {"inputs": [x]}, THEIRS)
                answers.append(reply.body)
                one = Client(server.port).post("/v2/models/iris/infer", ROW, {})
                assert one.status == 200
            if not stages:
                spans.clear()
        count = len(runtime.endpoints.find("iris").plan.program.stages)  # type: ignore[union-attr]  # it is there
    assert answers[0] == answers[1]
    found = named(spans)
    plan = found["plan iris@1"]
    stages_found = [span for name, span in found.items() if name.startswith("stage ")]
    assert len(stages_found) == count == len(found) - 2
    assert all(within(span, plan) for span in stages_found)
    assert dict(plan.attributes or {})["pretzel.rows"] == 50
    operators = [name for span in stages_found for name in (span.attributes or {}).values()]
    assert any("Linear" in str(each) for each in operators)


def test_a_single_row_and_chosen_outputs_by_stages(spans: InMemorySpanExporter) -> None:
    asked = {**ROW, "outputs": [{"name": "probabilities"}]}
    with Runtime(executors=1) as runtime:
        filled(runtime)
        with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
            usual = [
                Client(server.port).post("/v2/models/iris/infer", asked).body,
                Client(server.port).post("/predict/iris", [1, 2, 3, 4]).body,
                Client(server.port).post("/predict/text", "some words").body,
            ]
        with Server(runtime, settings(1.0)) as server:
            traced = [
                Client(server.port).post("/v2/models/iris/infer", asked, THEIRS).body,
                Client(server.port).post("/predict/iris", [1, 2, 3, 4], THEIRS).body,
                Client(server.port).post("/predict/text", "some words", THEIRS).body,
            ]
    assert traced == usual
    assert sum(span.name.startswith("stage ") for span in spans.get_finished_spans()) >= 3


def test_errors_are_told(spans: InMemorySpanExporter) -> None:
    with Runtime(executors=1) as runtime:
        filled(runtime)
        with Server(runtime, settings(1.0)) as server:
            bad = {"inputs": [tensor("x", "FP64", [1, 3], [1.0, 2.0, 3.0])]}
            reply = Client(server.port).post("/v2/models/iris/infer", bad, THEIRS)
            assert reply.status == 400
            assert Client(server.port).get("/nothing", **THEIRS).status == 404
    found = named(spans)
    facts = dict(found["POST /v2/models/{model}/infer"].attributes or {})
    assert facts["http.response.status_code"] == 400
    assert dict(found["GET"].attributes or {})["http.response.status_code"] == 404


def test_what_nobody_records_is_no_span(spans: InMemorySpanExporter) -> None:
    with Runtime(executors=1) as runtime:
        filled(runtime)
        with Server(runtime, settings(1.0)) as server:
            assert Client(server.port).post("/v2/models/iris/infer", ROW).status == 200
            broken = {"traceparent": "00-zz-00-01"}
            assert Client(server.port).post("/v2/models/iris/infer", ROW, broken).status == 200
    assert not spans.get_finished_spans()


def test_without_a_provider_nothing_looks_on(caplog: pytest.LogCaptureFixture) -> None:
    with Runtime(executors=1) as runtime:
        service = Server(runtime, settings()).service
        assert not service.guards
        assert type(service.answering).__name__ == "Cached"
    assert "no provider of OpenTelemetry was set" in caplog.text


def test_without_the_distribution_it_says_so() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from flour.core.errors import ParameterError
from runtime import Runtime
from runtime.http import Server, ServerSettings
with Runtime() as runtime:
    Server(runtime, ServerSettings(port=0, max_unread=0.0))
    try:
        Server(runtime, ServerSettings(port=0, tracing=True))
    except ParameterError as refused:
        print(refused.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "pip install 'pretzel-runtime[trace]'\n"


def test_stages_one_by_one_answer_what_the_plan_answers() -> None:
    original, rows = classifier()
    plan = oven.bake(flour.from_sklearn(original))
    answers, count, spans = timing.staged(plan, rows)
    whole = plan.run(rows)
    assert count == len(rows)
    assert answers.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(answers[name], value)
    assert [span.stage for span in spans] == list(plan.program.stages)
    moments = [moment for span in spans for moment in (span.began, span.ended)]
    assert moments == sorted(moments)


def test_rows_that_native_code_refuses_are_refused_alike() -> None:
    encoder = OrdinalEncoder().fit([[1.0], [2.0], [3.0]])
    plan = oven.bake(flour.from_sklearn(encoder))
    known = np.array([[2.0], [3.0]])
    np.testing.assert_array_equal(
        next(iter(timing.staged(plan, known)[0].values())), next(iter(plan.run(known).values()))
    )
    said = []
    for run in (plan.run, lambda rows: timing.staged(plan, rows)):
        with pytest.raises(FlourError) as refused:
            run(np.array([[2.0], [9.0]]))
        said.append(str(refused.value))
    assert said[0] == said[1]
