"""The table of routes."""

from __future__ import annotations

from functools import partial
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
from runtime.http.watch.metrics_text import CONTENT_TYPE as TEXT
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
_CHANGE: dict[str, Any] = {"right": "change", "tag": "repository", "statuses": (404, 501)}
_server, _models = partial(Route, "GET", tag="server"), partial(_both, tag="models")

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
    method: str, tail: str, handler: Handler, summary: str, body: object, answer: object
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


def _call(path: str, handler: Handler, summary: str, body: object, answer: object) -> Route:
    """A route that answers rows."""
    return Route("POST", path, handler, summary, body, answer, (404,), **_CALL)


def _change(action: str, handler: Handler, summary: str, answer: object) -> Route:
    """A route that loads a model of the repository or takes it out of service."""
    path = f"/v2/repository/models/{{model}}/{action}"
    return Route("POST", path, handler, summary, RepositoryRequest, answer, **_CHANGE)


ROUTES: tuple[Route, ...] = (
    _server("/v2", health.metadata, "The server", answer=ServerMetadata),
    _server("/v2/health/live", health.live, "Whether it lives", answer=Live),
    _server("/v2/health/ready", health.ready, "Whether it is ready", None, Ready, (503,)),
    Route("GET", "/v2/models", models.names, "All models", answer=ModelNames, tag="models"),
    Route(
        *("GET", "/v2/models/stats", models.statistics, "What all models have done"),
        answer=Statistics,
        tag="models",
    ),
    *_models("", models.metadata, "What a model takes and gives", answer=ModelMetadata),
    *_models("/ready", models.ready, "Whether a model answers", answer=ModelReady),
    *_models("/config", models.config, "A model's configuration", answer=ModelConfig),
    *_models("/stats", models.statistics, "What a model has done", answer=Statistics),
    *_both("/infer", infer, "Inference", "POST", body=InferRequest, answer=InferResponse, **_CALL),
    _experiment("GET", "route", experiments.route, "Which version answers", None, RouteBody),
    _experiment(
        "PUT", "route", experiments.put_route, "Choose which answers", RouteBody, RouteBody
    ),
    _experiment(
        "GET", "history", experiments.history, "The changes of a route", None, RouteHistory
    ),
    _experiment("GET", "compare", experiments.compare, "How a shadow differs", None, Compared),
    _experiment(
        "POST", "promote", experiments.promote, "Make a champion", PromoteRequest, RouteBody
    ),
    _experiment("GET", "rollout", rollouts.told, "How far a rollout is", None, RolloutBody),
    _experiment("POST", "rollout", rollouts.begin, "Begin a rollout", RolloutRequest, RolloutBody),
    _experiment(
        *("POST", "rollout/state", rollouts.act, "Pause, go on with, or end a rollout"),
        *(RolloutAction, RolloutBody),
    ),
    Route(
        *("POST", "/v2/models/{model}/report", rollouts.report),
        "Tell what became known of a request",
        *(ReportRequest, Reported, (404,)),
        tag="experiments",
        right="predict",
    ),
    _experiment(
        "POST", "rollback", experiments.rollback, "Undo the last change of a route", None, RouteBody
    ),
    Route(
        *("POST", "/v2/repository/index", models.index, "All models that are known"),
        *(IndexRequest, list[IndexEntry]),
        tag="repository",
    ),
    _change("load", models.load, "Load a model, or load it again", Loaded),
    _change("unload", models.unload, "Take a model out of service", Unloaded),
    _call("/predict/{model}", predict, "Plain JSON: a row, or an array of rows", Any, Any),
    _call(
        *("/v1/models/{model}:predict", instances, "The first version of the protocol"),
        *(Instances, Predictions),
    ),
    _server("/metrics", metrics, "Figures for Prometheus", None, str, (404,), content_type=TEXT),
    Route("GET", "/", status, "A page about everything", statuses=(404,), query=_FIND, **_PAGE),
    *_both(
        *("", explain, "A page about a plan", "GET", "/explain"),
        **{"statuses": (404, 409), "query": _STEP, **_PAGE},
    ),
    _server("/openapi.json", health.openapi, "This document", answer=dict[str, Any]),
    Route("GET", "/v2/docs/dataplane.json", health.openapi, "This document", hidden=True),
)
