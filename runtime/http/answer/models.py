"""Handlers of models: metadata, readiness, statistics, loading and unloading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from runtime.http.codec.bodies import (
    ConfigTensor,
    Duration,
    IndexEntry,
    IndexRequest,
    InferenceStatistics,
    Loaded,
    ModelConfig,
    ModelMetadata,
    ModelNames,
    ModelReady,
    ModelStatistics,
    RepositoryRequest,
    Statistics,
    TensorMetadata,
    Unloaded,
    body_of,
    json,
)
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.signature import TensorSpec
from runtime.http.codec.tensors import BYTES
from runtime.http.guard.clients import may_ask
from runtime.http.routes import HandlerContext
from runtime.http.wire.interfaces import ModelRepository, ModelState
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.service.stats import VersionStats


def _platform(front: ModelCodec) -> str:
    """The model's platform, by the name of its layout."""
    return str(front.version.notes.get("platform", "pretzel"))


def _front(service: HandlerContext, request: Request) -> ModelCodec:
    return service.front(request.params["model"], request.params.get("version"))


def names(service: HandlerContext, request: Request) -> Answer:
    """The names of all models in service that the client may ask."""
    may = may_ask(service, request)
    return json(ModelNames([name for each in service.runtime.endpoints if may(name := each.name)]))


def metadata(service: HandlerContext, request: Request) -> Answer:
    """A model's versions, inputs and outputs."""
    front = _front(service, request)
    endpoints = [each for each in service.runtime.endpoints if each.name == front.version.name]
    versions = list(endpoints[0].versions) if endpoints else [front.version.version]
    inputs, outputs = _tensors(front.inputs), _tensors(front.outputs)
    return json(ModelMetadata(front.version.name, versions, _platform(front), inputs, outputs))


def _tensors(specs: Iterable[TensorSpec]) -> list[TensorMetadata]:
    return [TensorMetadata(spec.name, spec.datatype, list(spec.shape)) for spec in specs]


def ready(service: HandlerContext, request: Request) -> Answer:
    """True if a model's code is there; an unknown model is an error."""
    version = _front(service, request).version
    return json(ModelReady(version.name, version.ready), 200 if version.ready else 503)


def config(service: HandlerContext, request: Request) -> Answer:
    """The model's configuration, in Triton's format."""
    front = _front(service, request)
    inputs, outputs = _config(front.inputs), _config(front.outputs)
    return json(ModelConfig(front.version.name, _platform(front), "pretzel", 0, inputs, outputs))


def _config(specs: Iterable[TensorSpec]) -> list[ConfigTensor]:
    return [ConfigTensor(spec.name, _triton(spec), list(spec.shape)) for spec in specs]


def _triton(spec: TensorSpec) -> str:
    return "TYPE_STRING" if spec.datatype == BYTES else f"TYPE_{spec.datatype}"


def statistics(service: HandlerContext, request: Request) -> Answer:
    """Statistics of all versions, of a model's versions, or of one."""
    name, version = request.params.get("model"), request.params.get("version")
    if name is not None:
        service.front(name, version)  # raises if there is no such model
    every, may = service.runtime.stats().versions, may_ask(service, request)
    wanted = [each for each in every if name in {None, each.name} and may(each.name)]
    chosen = [each for each in wanted if version in {None, each.version}]
    return json(Statistics([_statistics(service, each) for each in chosen]))


def _statistics(service: HandlerContext, version: VersionStats) -> ModelStatistics:
    counts = service.front(version.name, version.version).counts
    return ModelStatistics(
        name=version.name,
        version=version.version,
        inference_count=counts.rows,
        execution_count=version.inline_calls + version.batch_calls,
        inference_stats=InferenceStatistics(
            success=Duration(counts.calls, int(counts.seconds * 1e9)),
            fail=Duration(counts.failed, 0),
        ),
        engine=version.engine,
        resident=version.resident,
    )


# --- the repository ------------------------------------------------------------------------------


def _repository(service: HandlerContext) -> ModelRepository:
    if service.repository is None:
        raise HttpError(
            "this server has no repository", 501, hint="its models are registered by its process"
        )
    return service.repository


def index(service: HandlerContext, request: Request) -> Answer:
    """All models of the repository, loaded or not."""
    wanted = body_of(request, IndexRequest)
    return _index(service, may_ask(service, request), ready=wanted.ready)


async def _index(service: HandlerContext, may: Callable[[str], bool], *, ready: bool) -> Response:
    repository = service.repository
    states = _registered(service)
    if repository is not None:
        states = await asyncio.to_thread(repository.index)
    listed = []
    for each in states:
        if each.name and may(each.name) and (not ready or each.state == "READY"):
            graph = (
                None if each.reason else service.runtime.graphs.facts(f"{each.name}@{each.version}")
            )
            reason = each.reason if graph is None else graph.problem
            listed.append(IndexEntry(each.name, each.version, each.state, reason))
    return json(listed)


def _registered(service: HandlerContext) -> Iterable[ModelState]:
    for each in service.runtime.endpoints:
        for version in each.versions:
            yield ModelState(each.name, version)


def load(service: HandlerContext, request: Request) -> Answer:
    """Load a model, or load it again."""
    repository, name = _repository_and_name(service, request)
    return _act(repository.load, name, Loaded(name, load=True))


def unload(service: HandlerContext, request: Request) -> Answer:
    """Unload a model."""
    repository, name = _repository_and_name(service, request)
    return _act(repository.unload, name, Unloaded(name, unload=True))


def _repository_and_name(service: HandlerContext, request: Request) -> tuple[ModelRepository, str]:
    """The repository and the model's name; unknown fields of the body are refused."""
    repository = _repository(service)
    check_parameters(body_of(request, RepositoryRequest).parameters or {})
    return repository, request.params["model"]


def check_scope(service: HandlerContext, request: Request, model: str) -> None:
    """Refuse a model outside the scope of the client, where the path does not name it."""
    if service.guards and not may_ask(service, request)(model):
        raise HttpError("this token does not allow that", 403)


def check_parameters(parameters: Mapping[str, object]) -> None:
    """Refuse what would have to change the model: a model is what its folder holds."""
    refused = [name for name in parameters if name == "config" or name.startswith("file:")]
    if refused:
        raise HttpError(
            "models are loaded from their folder as they are, without files or settings of a call",
            where=f"$.parameters.{refused[0]}",
            hint="put the files into the folder, then load without parameters",
        )


async def _act(act: Callable[[str], object], name: str, answer: Loaded | Unloaded) -> Response:
    await asyncio.to_thread(act, name)
    return json(answer)
