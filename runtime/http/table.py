"""The table of routes."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta

from runtime.http.answer import experiments, health, invocations, models, plain_json, rollouts
from runtime.http.answer.attributions import counterfactual
from runtime.http.answer.experiments import by_route
from runtime.http.answer.inference import infer
from runtime.http.codec.bodies import (
    Compared,
    CounterfactualRequest,
    CounterfactualResponse,
    IndexEntry,
    IndexRequest,
    InferResponse,
    Instances,
    Invocation,
    LabelsNoted,
    LabelsRequest,
    Live,
    Loaded,
    LogLevel,
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
from runtime.http.pages.trying import listed, trying
from runtime.http.routes import Handler, HttpRoute, RequestParameter
from runtime.http.watch import logs
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
) -> tuple[HttpRoute, HttpRoute]:
    """A route of a model, and of a version of it."""
    known = {"statuses": (404,), **known}
    model, version = f"{base}/{{model}}{tail}", f"{base}/{{model}}/versions/{{version}}{tail}"
    return (
        HttpRoute(method, model, handler, summary, **known),
        HttpRoute(method, version, handler, f"{summary} (of a version)", **known),
    )


_TIMEOUT = RequestParameter(
    TIMEOUT_HEADER,
    Annotated[float, Meta(ge=0, lt=1e12)],
    "Milliseconds after which the answer is not wanted any more",
)
_CALL: dict[str, Any] = {"right": "predict", "body_required": True, "headers": (_TIMEOUT,)}
_OUTPUTS = (RequestParameter("outputs", str, "Names of outputs, with commas between"),)
_CHANGE: dict[str, Any] = {"right": "change", "tag": "repository", "statuses": (404, 501)}
_server = partial(HttpRoute, "GET", tag="server", scoped=True)
_models = partial(_both, tag="models")

_FIND = (
    RequestParameter("q", str, "Part of the names of models to show"),
    RequestParameter(
        "refresh", Annotated[int, Meta(ge=0, le=LONGEST_REFRESH)], "Seconds between refreshes"
    ),
)
_STEP = (RequestParameter("step", Literal[STEPS], "The step on the way to machine code"),)
_PAGE: dict[str, Any] = {"answer": str, "content_type": HTML, "tag": "pages"}

predict = by_route(plain_json.predict, plain_json.rows)
instances = by_route(plain_json.instances, plain_json.rows_of_instances)


def _experiment(
    method: str, tail: str, handler: Handler, summary: str, body: object, answer: object
) -> HttpRoute:
    """A route of the table that tells or changes the route of an endpoint."""
    changes = method != "GET"
    return HttpRoute(
        *(method, f"/v2/models/{{model}}/{tail}", handler, summary, body, answer),
        statuses=(404, 409, 504) if changes else (404,),
        body_required=method == "PUT",
        tag="experiments",
        right="change" if changes else "read",
    )


def _call(path: str, handler: Handler, summary: str, body: object, answer: object) -> HttpRoute:
    """A route that answers rows."""
    return HttpRoute("POST", path, handler, summary, body, answer, (404,), _OUTPUTS, **_CALL)


def _change(action: str, handler: Handler, summary: str, answer: object) -> HttpRoute:
    """A route that loads a model of the repository or takes it out of service."""
    path = f"/v2/repository/models/{{model}}/{action}"
    return HttpRoute("POST", path, handler, summary, RepositoryRequest, answer, **_CHANGE)


#: Calls of Triton's client that have no meaning here.
_UNSUPPORTED = [
    HttpRoute(method, f"/v2/{path}", invocations.unsupported, "No such feature", hidden=True)
    for method, paths in (
        ("GET", ("trace/setting", "models/{model}/trace/setting", "logging")),
        ("POST", ("trace/setting", "models/{model}/trace/setting", "logging")),
        *(
            (method, (f"{kind}sharedmemory/{act}", f"{kind}sharedmemory/region/{{region}}/{act}"))
            for kind in ("system", "cuda")
            for method, act in (("GET", "status"), ("POST", "register"), ("POST", "unregister"))
        ),
    )
    for path in paths
]

ROUTES: tuple[HttpRoute, ...] = (
    _server("/v2", health.metadata, "The server", answer=ServerMetadata),
    _server("/v2/health/live", health.live, "Liveness", answer=Live),
    _server("/v2/health/ready", health.ready, "Readiness", None, Ready, (503,)),
    _server("/v2/log-level", logs.level, "The level of the log", answer=LogLevel),
    HttpRoute(
        *(
            "POST",
            "/v2/log-level",
            logs.set_level,
            "Change the level of the log",
            LogLevel,
            LogLevel,
        ),
        right="change",
    ),
    _server("/v2/models", models.names, "All models", answer=ModelNames, tag="models"),
    _server(
        *("/v2/models/stats", models.statistics, "Figures of all models"),
        answer=Statistics,
        tag="models",
    ),
    *_models("", models.metadata, "Inputs and outputs of a model", answer=ModelMetadata),
    *_models("/ready", models.ready, "Readiness of a model", answer=ModelReady),
    *_models("/config", models.config, "A model's configuration", answer=ModelConfig),
    *_models("/stats", models.statistics, "Figures of a model", answer=Statistics),
    *_both("/infer", infer, "Inference", "POST", body=InferRequest, answer=InferResponse, **_CALL),
    *_both(
        *("/counterfactual", counterfactual, "The smallest change of an answer", "POST"),
        body=CounterfactualRequest,
        answer=CounterfactualResponse,
        right="predict",
        body_required=True,
        statuses=(403, 404, 409, 429),
    ),
    _experiment("GET", "route", experiments.route, "The route of a model", None, RouteBody),
    _experiment(
        "PUT", "route", experiments.put_route, "Set the route of a model", RouteBody, RouteBody
    ),
    _experiment(
        "GET", "history", experiments.history, "The changes of a route", None, RouteHistory
    ),
    _experiment("GET", "compare", experiments.compare, "Differences of a shadow", None, Compared),
    _experiment(
        "POST", "promote", experiments.promote, "Make a champion", PromoteRequest, RouteBody
    ),
    _experiment("GET", "rollout", rollouts.told, "State of a rollout", None, RolloutBody),
    _experiment("POST", "rollout", rollouts.begin, "Begin a rollout", RolloutRequest, RolloutBody),
    _experiment(
        *("POST", "rollout/state", rollouts.act, "Pause, go on with, or end a rollout"),
        *(RolloutAction, RolloutBody),
    ),
    HttpRoute(
        *("POST", "/v2/models/{model}/report", rollouts.report),
        "Report values of a request",
        *(ReportRequest, Reported, (404,)),
        tag="experiments",
        right="predict",
    ),
    HttpRoute(
        *("POST", "/v2/models/{model}/labels", rollouts.labels, "Note labels of answers"),
        *(LabelsRequest, LabelsNoted, (404,)),
        tag="experiments",
        right="predict",
        body_required=True,
    ),
    _experiment(
        "POST", "rollback", experiments.rollback, "Undo the last change of a route", None, RouteBody
    ),
    HttpRoute(
        *("POST", "/v2/repository/index", models.index, "All models that are known"),
        *(IndexRequest, list[IndexEntry]),
        tag="repository",
        scoped=True,
    ),
    _change("load", models.load, "Load a model, or load it again", Loaded),
    _change("unload", models.unload, "Take a model out of service", Unloaded),
    _call("/predict/{model}", predict, "Plain JSON: a row, or an array of rows", Any, Any),
    _call(
        *("/v1/models/{model}:predict", instances, "The first version of the protocol"),
        *(Instances, Predictions),
    ),
    _server("/v1/models", models.names, "All models (the first version)", answer=ModelNames),
    HttpRoute(  # behind the route of a model with a colon
        *("GET", "/v1/models/{model}", models.ready, "Whether a model answers (the first version)"),
        answer=ModelReady,
        statuses=(404,),
        tag="models",
    ),
    HttpRoute(
        *("POST", "/invocations", invocations.invocations, "Rows for the server's one model"),
        *(Invocation, Predictions, (404,)),
        scoped=True,
        **_CALL,
    ),
    _server("/ping", health.ready, "Whether models answer", None, Ready, (503,)),
    _server("/version", invocations.version, "The version", answer=str, content_type="text/plain"),
    *_UNSUPPORTED,
    HttpRoute(
        *("GET", "/metrics", metrics, "Figures for Prometheus", None, str, (404,)),
        content_type=TEXT,
        tag="server",
    ),
    HttpRoute("GET", "/", status, "A page about everything", statuses=(404,), query=_FIND, **_PAGE),
    *_both(
        *("", explain, "A page about a plan", "GET", "/explain"),
        **{"statuses": (404, 409), "query": _STEP, **_PAGE},
    ),
    *_both(*("", trying, "A page to try a model", "GET", "/try"), **{"statuses": (404,), **_PAGE}),
    HttpRoute("GET", "/docs", listed, "A page about every route", statuses=(404,), **_PAGE),
    _server("/openapi.json", health.openapi, "This document", answer=dict[str, Any]),
    _server("/v2/docs/dataplane.json", health.openapi, "This document", hidden=True),
)
