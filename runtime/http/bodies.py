"""What goes over the wire besides tensors, as types: bodies are decoded and described by them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Error(Struct):
    """What every answer of 400 and above has."""

    error: str


class ServerMetadata(Struct):
    """What the server is, and what it can do beyond the protocol."""

    name: str
    version: str
    extensions: list[str]


class Live(Struct):
    """The process answers."""

    live: bool


class Ready(Struct):
    """Requests for inference will be answered."""

    ready: bool


class TensorMetadata(Struct):
    """A tensor that a model takes or gives; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(Struct):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ModelReady(Struct):
    """Whether a model answers."""

    name: str
    ready: bool


class ModelNames(Struct):
    """Every model."""

    models: list[str]


class ConfigTensor(Struct):
    """A tensor as Triton's configurations say it; the dimension of rows is not listed."""

    name: str
    data_type: str
    dims: list[int]


class ModelConfig(Struct):
    """The part of Triton's model configuration that means something here."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[ConfigTensor]
    output: list[ConfigTensor]


class Duration(Struct):
    """How often, and how long in all."""

    count: int
    ns: int


class InferenceStatistics(Struct):
    """Requests that were answered, and others."""

    success: Duration
    fail: Duration


class ModelStatistics(Struct):
    """What one version has done."""

    name: str
    version: str
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics
    engine: str | None
    resident: bool


class Statistics(Struct):
    """What all versions have done."""

    model_stats: list[ModelStatistics]


class OutputTensor(Struct, omit_defaults=True):
    """A tensor of an answer; its data follows the JSON where that was asked for."""

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
    """Which models to list."""

    ready: bool = False


class IndexEntry(Struct):
    """A model of the repository."""

    name: str
    version: str
    state: str
    reason: str


class RepositoryRequest(Struct):
    """Parameters of loading and unloading, which other servers know."""

    parameters: dict[str, Any] | None = None


class Loaded(Struct):
    """A model was loaded."""

    name: str
    load: bool


class Unloaded(Struct):
    """A model was unloaded."""

    name: str
    unload: bool


class Instances(Struct):
    """Rows, as the first version of the protocol has them."""

    instances: list[Any]


class Predictions(Struct):
    """An answer for each row: its only output, or an object of all."""

    predictions: list[Any]
