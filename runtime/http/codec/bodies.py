"""Types of all bodies except tensors: bodies are decoded, written and documented by them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from runtime.http.codec.array_pieces import LARGE
from runtime.http.codec.codec_json import decoded
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import HttpError

T = TypeVar("T")


class Error(Struct):
    """The body of every answer with a status of 400 and above."""

    error: str


class ServerMetadata(Struct):
    """The server's name, version and protocol extensions."""

    name: str
    version: str
    extensions: list[str]


class Live(Struct):
    """The process answers."""

    live: bool


class LogLevel(Struct):
    """The least level of what is logged."""

    level: Literal["debug", "info", "warning", "error"]


class Ready(Struct, omit_defaults=True):
    """Requests for inference will be answered, except those to models that are missing."""

    ready: bool
    missing: list[str] = []
    compiling: list[str] = []
    seconds_left: float = 0.0
    loading: str = ""


class TensorMetadata(Struct):
    """An input or output tensor of a model; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(Struct):
    """A model's versions, inputs and outputs."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ModelReady(Struct):
    """True if calls of a model compile nothing, as its code is there; they are answered anyway."""

    name: str
    ready: bool


class ModelNames(Struct):
    """Every model."""

    models: list[str]


class ConfigTensor(Struct):
    """A tensor as in Triton's configurations, without the dimension of rows."""

    name: str
    data_type: str
    dims: list[int]


class ModelConfig(Struct):
    """The part of Triton's model configuration that applies here."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[ConfigTensor]
    output: list[ConfigTensor]


class Duration(Struct):
    """A count, and the total time."""

    count: int
    ns: int


class InferenceStatistics(Struct):
    """Requests that were answered, and failed ones."""

    success: Duration
    fail: Duration


class ModelStatistics(Struct):
    """Statistics of one version."""

    name: str
    version: str
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics
    engine: str | None
    resident: bool


class Statistics(Struct):
    """Statistics of all versions."""

    model_stats: list[ModelStatistics]


class OutputTensor(Struct, omit_defaults=True):
    """A tensor of an answer; binary data, if requested, follows the JSON."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] | None = None
    data: list[Any] | None = None


class InferResponse(Struct, omit_defaults=True):
    """The answer to a request for inference."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str | None = None
    parameters: dict[str, Any] | None = None


class IndexRequest(Struct):
    """A request for the index of models."""

    ready: bool = False


class IndexEntry(Struct):
    """A model of the repository."""

    name: str
    version: str
    state: str
    reason: str


class RepositoryRequest(Struct):
    """Parameters of loading and unloading, as in other servers."""

    parameters: dict[str, Any] | None = None


class Loaded(Struct):
    """A model was loaded."""

    name: str
    load: bool


class Unloaded(Struct):
    """A model was unloaded."""

    name: str
    unload: bool


class RouteBody(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A route: which version of an endpoint answers a request; see runtime.routing.Route."""

    champion: str
    split: dict[str, float] | None = None
    by: str | None = None
    header: str | None = None
    salt: str | None = None
    where: str | None = None
    rules: dict[str, str] | None = None
    tenants: dict[str, str] | None = None
    shadow: str | None = None
    sample: float | None = None
    inline: bool | None = None


class PromoteRequest(Struct, forbid_unknown_fields=True):
    """The version that becomes the champion; without one, it is the only challenger."""

    version: str | int | None = None


class RouteChange(Struct, omit_defaults=True):
    """One change of a route: when, in seconds since 1970, and by whom."""

    number: int
    action: str
    who: str
    when: float
    route: RouteBody
    undone_to: int | None = None


class RouteHistory(Struct):
    """The changes of a route, the oldest first."""

    changes: list[RouteChange]


class RolloutRequest(Struct, forbid_unknown_fields=True):
    """A rollout that is to begin; see runtime.rollout."""

    to: str | int
    steps: tuple[float, ...] = (5.0, 20.0, 50.0, 100.0)
    dwell: str | float = "10 min"
    require: tuple[str, ...] = ()
    by: str | None = None
    header: str | None = None
    alpha: float = 0.05
    least: int = 100
    webhook: str | None = None


class RolloutAction(Struct, forbid_unknown_fields=True):
    """An action on a rollout, with its reason."""

    action: Literal["pause", "resume", "abort"]
    why: str = ""


class RolloutBody(Struct):
    """A rollout: where it is, what was counted of each version, and what happened."""

    endpoint: str
    champion: str
    to: str
    state: str
    step: int
    weight: float
    steps: list[float]
    dwell: float
    require: list[str]
    reason: str
    counts: dict[str, dict[str, dict[str, float]]]
    events: list[dict[str, Any]]


class ReportRequest(Struct, forbid_unknown_fields=True):
    """Values from 0 to 1 that became known of a request: of that id in `X-Request-Id`."""

    request: str
    values: dict[str, float]


class LabelsRequest(Struct, forbid_unknown_fields=True):
    """Labels by the ids of answers, of `X-Answer-Id`."""

    labels: dict[str, str | int | float | bool | None]


class LabelsNoted(Struct):
    """The number of labels that were noted."""

    labels: int


class Reported(Struct):
    """True if the request was remembered."""

    known: bool


class CounterfactualRequest(Struct, forbid_unknown_fields=True):
    """A row, and the answer wanted of it: a label, or [low, high] for a number.

    Only `free` columns change, of numbers between bounds [low, high], else to values of a list.
    """

    row: Any
    want: Any
    free: list[str] | None = None
    within: dict[str, list[Any]] | None = None
    most: Annotated[int, Meta(ge=1, le=10)] = 3


class CounterfactualResponse(Struct):
    """The changes, the changed row, and what the model answers before and after."""

    want: Any
    found: bool
    proved: bool
    cost: float
    changes: list[dict[str, Any]]
    row: Any
    before: dict[str, Any]
    after: dict[str, Any]


class Compared(Struct):
    """Differences of a shadow's answers from its champion's."""

    champion: str
    challenger: str
    pairs: int
    disagreements: int
    champion_errors: int
    challenger_errors: int
    seconds: dict[str, float]
    outputs: dict[str, dict[str, float | None]]
    first_difference: str | None
    segments: dict[str, Any] | None = None


class Instances(Struct):
    """Rows, as in version 1 of the protocol."""

    instances: list[Any]


class DataframeSplit(Struct):
    """A table by rows; its index, if there is one, is not looked at."""

    columns: list[Any]
    data: list[list[Any]]


class Invocation(Struct):
    """Rows, as one of MLflow's forms."""

    dataframe_split: DataframeSplit | None = None
    dataframe_records: list[dict[str, Any]] | None = None
    instances: list[Any] | dict[str, Any] | None = None
    inputs: list[Any] | dict[str, Any] | None = None


class Predictions(Struct):
    """An answer for each row: what the model's `predict` returns, else an object of all outputs."""

    predictions: list[Any]


def json(value: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """A value as the body of a response."""
    return Response(msgspec.json.encode(value), status, headers=headers)


def body_of(request: Request, kind: type[T]) -> T:
    """The body as a value of this type; an empty body counts as an empty object."""
    if len(request.body) > LARGE:  # nobody else is answered while it is decoded
        found = f"{len(request.body)} bytes"
        raise HttpError(f"bodies of this path have up to {LARGE} bytes", 413, found=found)
    return cast("T", decoded(request.body or b"{}", msgspec.json.Decoder(kind), kind))
