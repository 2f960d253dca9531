"""The table of routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from runtime.http.answer import experiments, health, models, plain_json, rollouts
from runtime.http.answer.experiments import following
from runtime.http.answer.inference import infer as infer_version
from runtime.http.answer.inference import rows
from runtime.http.codec.bodies import (
    Compared,
    IndexEntry,
    IndexRequest,
    InferResponse,
    Instances,
    Live,
    Loaded,
    ModelConfig,
    ModelMetadata,
    ModelNames,
    ModelReady,
    Predictions,
    PromoteRequest,
    Ready,
    Reported,
    ReportRequest,
    RepositoryRequest,
    RolloutAction,
    RolloutBody,
    RolloutRequest,
    RouteBody,
    RouteHistory,
    ServerMetadata,
    Statistics,
    Unloaded,
)
from runtime.http.codec.codec_json import InferRequest
from runtime.http.pages.page import HTML, LONGEST_REFRESH, STEPS, explain, status
from runtime.http.routes import Field, Handler, Route, by_route
from runtime.http.watch.metrics import metrics
from runtime.http.watch.metrics_text import CONTENT_TYPE as METRICS_TEXT
from runtime.http.wire.messages import TIMEOUT_HEADER


def _both(
    tail: str,
    handler: Handler,
    summary: str,
    method: str = "GET",
    base: str = "/v2/models",
    **known: Any,
) -> tuple[Route, Route]:
    """A route of a model, and of a version of it."""
    known = {"statuses": (404,), **known}
    model, version = f"{base}/{{model}}{tail}", f"{base}/{{model}}/versions/{{version}}{tail}"
    return (
        Route(method, model, handler, summary, **known),
        Route(method, version, handler, f"{summary} (of a version)", **known),
    )


_TIMEOUT = Field(
    TIMEOUT_HEADER,
    Annotated[float, Meta(ge=0, lt=1e12)],
    "Milliseconds after which the answer is not wanted any more",
)
_CALL: dict[str, Any] = {"right": "predict", "body_required": True, "headers": (_TIMEOUT,)}

_FIND = (
    Field("q", str, "Part of the names of models to show"),
    Field("refresh", Annotated[int, Meta(ge=0, le=LONGEST_REFRESH)], "Seconds between refreshes"),
)
_STEP = (Field("step", Literal[STEPS], "The step on the way to machine code"),)
_PAGE: dict[str, Any] = {"answer": str, "content_type": HTML, "tag": "pages"}

infer = by_route(infer_version, following(infer_version, rows))
predict = by_route(plain_json.predict, following(plain_json.predict, plain_json.rows))
instances = by_route(
    plain_json.instances, following(plain_json.instances, plain_json.rows_of_instances)
)


def _experiment(
    method: str,
    tail: str,
    handler: Handler,
    summary: str,
    *,
    answer: object = RouteBody,
    body: object = None,
) -> Route:
    """A route of the table that tells or changes the route of an endpoint."""
    changes = method != "GET"
    return Route(
        *(method, f"/v2/models/{{model}}/{tail}", handler, summary, body, answer),
        statuses=(404, 409, 504) if changes else (404,),
        body_required=method == "PUT",
        tag="experiments",
        right="change" if changes else "read",
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v2", health.metadata, "The server", answer=ServerMetadata, tag="server"),
    Route("GET", "/v2/health/live", health.live, "Whether it lives", answer=Live, tag="server"),
    Route(
        "GET",
        "/v2/health/ready",
        health.ready,
        "Whether it is ready",
        answer=Ready,
        statuses=(503,),
        tag="server",
    ),
    Route("GET", "/v2/models", models.names, "All models", answer=ModelNames, tag="models"),
    Route(
        "GET",
        "/v2/models/stats",
        models.statistics,
        "What all models have done",
        answer=Statistics,
        tag="models",
    ),
    *_both("", models.metadata, "What a model takes and gives", answer=ModelMetadata, tag="models"),
    *_both("/ready", models.ready, "Whether a model answers", answer=ModelReady, tag="models"),
    *_both("/config", models.config, "A model's configuration", answer=ModelConfig, tag="models"),
    *_both("/stats", models.statistics, "What a model has done", answer=Statistics, tag="models"),
    *_both(
        "/infer",
        infer,
        "Inference",
        body=InferRequest,
        answer=InferResponse,
        method="POST",
        **_CALL,
    ),
    _experiment("GET", "route", experiments.route, "Which version answers"),
    _experiment("PUT", "route", experiments.put_route, "Choose which answers", body=RouteBody),
    _experiment(
        "GET", "history", experiments.history, "The changes of a route", answer=RouteHistory
    ),
    _experiment("GET", "compare", experiments.compare, "How a shadow differs", answer=Compared),
    _experiment("POST", "promote", experiments.promote, "Make a champion", body=PromoteRequest),
    _experiment("GET", "rollout", rollouts.told, "How far a rollout is", answer=RolloutBody),
    _experiment(
        *("POST", "rollout", rollouts.begin, "Begin a rollout"),
        body=RolloutRequest,
        answer=RolloutBody,
    ),
    _experiment(
        *("POST", "rollout/state", rollouts.act, "Pause, go on with, or end a rollout"),
        body=RolloutAction,
        answer=RolloutBody,
    ),
    Route(
        "POST",
        "/v2/models/{model}/report",
        rollouts.report,
        "Tell what became known of a request",
        *(ReportRequest, Reported),
        statuses=(404,),
        tag="experiments",
        right="predict",
    ),
    _experiment("POST", "rollback", experiments.rollback, "Undo the last change of a route"),
    Route(
        "POST",
        "/v2/repository/index",
        models.index,
        "All models that are known",
        body=IndexRequest,
        answer=list[IndexEntry],
        tag="repository",
    ),
    Route(
        "POST",
        "/v2/repository/models/{model}/load",
        models.load,
        "Load a model, or load it again",
        body=RepositoryRequest,
        answer=Loaded,
        statuses=(404, 501),
        right="change",
        tag="repository",
    ),
    Route(
        "POST",
        "/v2/repository/models/{model}/unload",
        models.unload,
        "Take a model out of service",
        body=RepositoryRequest,
        answer=Unloaded,
        statuses=(404, 501),
        right="change",
        tag="repository",
    ),
    Route(
        "POST",
        "/predict/{model}",
        predict,
        "Plain JSON: a row, or an array of rows",
        *(Any, Any, (404,)),
        **_CALL,
    ),
    Route(
        "POST",
        "/v1/models/{model}:predict",
        instances,
        "The first version of the protocol",
        *(Instances, Predictions, (404,)),
        **_CALL,
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        "Figures for Prometheus",
        answer=str,
        statuses=(404,),
        content_type=METRICS_TEXT,
        tag="server",
    ),
    Route("GET", "/", status, "A page about everything", statuses=(404,), query=_FIND, **_PAGE),
    *_both(
        *("", explain, "A page about a plan"),
        base="/explain",
        statuses=(404, 409),
        query=_STEP,
        **_PAGE,
    ),
    Route(
        "GET", "/openapi.json", health.openapi, "This document", answer=dict[str, Any], tag="server"
    ),
    Route("GET", "/v2/docs/dataplane.json", health.openapi, "This document", hidden=True),
)
