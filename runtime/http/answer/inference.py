"""Inference: a request of the protocol to a call, and its answers to a response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from flour.data.batch import Batch, row_count
from runtime.http.answer.experiments import by_route
from runtime.http.codec.array_pieces import LARGE
from runtime.http.codec.model_codec import ModelCodec, is_dense
from runtime.http.codec.response_options import ResponseOptions, tells
from runtime.http.routes import HandlerContext
from runtime.http.watch import telemetry
from runtime.http.wire.loop_fairness import uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.service.answerers import InferCall
from runtime.service.entry import Outputs
from scheduler import DeadlineExceeded

Encode = Callable[[dict[str, Any]], Response]

#: Shorter bodies are read in one step where they can be: the long way costs more than numbers do.
SHORT_BYTES = 8 << 10
#: Answers to more rows are encoded on a thread.
MANY_ROWS = 4096
#: So many documents are answered together, of a large body.
DOCUMENTS = 1024


def infer(service: HandlerContext, request: Request) -> Answer:
    """Answer a request for inference, by its version or as the route of the endpoint says."""
    params = request.params
    name = params["model"]
    if len(params) > 1:
        name = f"{name}@{params['version']}"
    version = service.table.get(name)
    if version is None:
        return _by_route(service, request)
    front = version.front
    return infer_by(service, front if type(front) is ModelCodec else service.front(name), request)


def infer_by(service: HandlerContext, front: ModelCodec, request: Request) -> Answer:
    """Answer a request for inference that this codec reads."""
    request.front = front
    size = len(request.body)
    if size > LARGE:
        return _aside(service, front, request)
    usual = request.plain or not tells(request)
    if usual and size < SHORT_BYTES and (front.quick_type or front.rows is not None):
        decoded = front.quick(request)
        if decoded is not None:
            batch, name = decoded
            outputs = quick(service, front, batch)
            if outputs is not None:
                return front.answered(request, batch, outputs, name)
            wished = ResponseOptions(id=name)
            call = front.call(batch.as_block, wished)
            return answered(service, front, call, request, partial(front.encode, wished=wished))
    call, wished = _decoded(service, front, request)
    if wished.explain is not None:
        return _explained(service, front, call, request, wished)
    encode = partial(front.encode, wished=wished)
    return soon_answered(service, front, call.batch, request, wished, encode)


def _infer_chosen(service: HandlerContext, request: Request) -> Answer:
    params = request.params
    return infer_by(service, service.front(params["model"], params.get("version")), request)


def _rows(service: HandlerContext, request: Request) -> object:
    """The data of a body as the champion reads it, for a route that does, too."""
    return service.front(request.params["model"]).decode(request)[0].batch.data


_by_route = by_route(_infer_chosen, _rows)


def _decoded(
    service: HandlerContext, front: ModelCodec, request: Request
) -> tuple[InferCall, ResponseOptions]:
    with front.counts:
        return front.decode(request)


async def _aside(service: HandlerContext, front: ModelCodec, request: Request) -> Response:
    """The answer to a large body, which is decoded on a thread: others do not wait for that."""
    with uncollected():
        call, wished = await asyncio.to_thread(_decoded, service, front, request)
    telemetry.resume(service, request)
    if wished.explain is not None:
        return await _explained(service, front, call, request, wished)
    encode = partial(front.encode, wished=wished)
    version = front.version
    dense = all(map(is_dense, version.kinds.values()))
    if _has_texts(call.batch.data) and dense and not version.mixes_rows:
        return await _by_documents(service, front, call, request, encode)
    answer = answered(service, front, call, request, encode)
    return answer if isinstance(answer, Response) else await answer


async def _explained(
    service: HandlerContext,
    front: ModelCodec,
    call: InferCall,
    request: Request,
    wished: ResponseOptions,
) -> Response:
    """The answer with what each column adds to its scores, which a thread finds out."""
    with front.counts:
        made = await service.attribution.of(front.version, call.batch, wished.explain or "")
    encode = partial(front.encode, wished=replace(wished, attribution=made))
    answer = answered(service, front, call, request, encode)
    return answer if isinstance(answer, Response) else await answer


def _has_texts(data: object) -> bool:
    """True for texts, and for columns of which some are texts."""
    columns = [*data.values()] if isinstance(data, dict) else [data]
    types = [each.dtype for each in columns if isinstance(each, np.ndarray)]
    return len(types) == len(columns) and np.dtype(object) in types


async def _by_documents(
    service: HandlerContext, front: ModelCodec, call: InferCall, request: Request, encode: Encode
) -> Response:
    """The response to many documents, some at a time: reading all of them at once keeps the GIL."""
    deadline = None if call.timeout is None else request.started + call.timeout
    made: list[dict[str, Any]] = []
    with front.counts:
        for at in range(0, call.batch.rows, DOCUMENTS):
            data, rows = call.batch.data, slice(at, at + DOCUMENTS)
            columns = isinstance(data, dict)
            some = {name: each[rows] for name, each in data.items()} if columns else data[rows]
            batch = front.version.read(some).as_block
            timeout = None if deadline is None else left(deadline)
            part = call._replace(batch=batch, timeout=timeout)
            made.append(await asyncio.wrap_future(service.answering.answer(part)))
        answers = {name: np.concatenate([each[name] for each in made]) for name in made[0]}
        return await asyncio.to_thread(_response, front, answers, request, encode, deadline)


def soon_answered(
    service: HandlerContext,
    front: ModelCodec,
    batch: Batch,
    request: Request,
    wished: ResponseOptions,
    encode: Encode,
) -> Answer:
    """The response to rows: now if they are few, as other rows may take long."""
    check_deadline(front, request, wished.timeout)
    outputs = None
    if len(request.body) <= LARGE:
        outputs = (quick if batch.single else quick_block)(service, front, batch)
    if outputs is None:
        return answered(service, front, front.call(batch, wished), request, encode)
    check_deadline(front, request, wished.timeout)
    response = encode(front.told(outputs, wished))
    front.counts.done(batch.rows, perf_counter() - request.started)
    return response


def quick_block(service: HandlerContext, front: ModelCodec, block: Batch) -> Outputs | None:
    """The outputs of a block, if it has few rows and they can be had at once; else None."""
    batch = front.direct.match(block)
    outputs = None if batch is None else quick(service, front, batch)
    if batch is None or outputs is None:
        return None
    return front.as_block(outputs) if batch.single else outputs


def quick(service: HandlerContext, front: ModelCodec, batch: Batch) -> Outputs | None:
    """The outputs of a row or a few rows, if they can be had at once; else None."""
    try:
        return service.answering.quick(front.version, batch)
    except BaseException:
        front.counts.failed += 1
        raise


def answered(
    service: HandlerContext, front: ModelCodec, call: InferCall, request: Request, encode: Encode
) -> Answer:
    """The response to a call, at once if its answers are there. Deadlines count from arrival."""
    deadline = None if call.timeout is None else request.started + call.timeout
    with front.counts:
        if deadline is not None:
            call = call._replace(timeout=left(deadline))
        future = service.answering.answer(call)
        if not future.done() or call.batch.rows > MANY_ROWS:
            return _awaited(front, future, request, encode, deadline)
        return _response(front, future.result(), request, encode, deadline)


def check_deadline(front: ModelCodec, request: Request, timeout: float | None) -> None:
    """Raise if a request's deadline, which counts from its arrival, has passed."""
    if timeout is not None and perf_counter() > request.started + timeout:
        front.counts.failed += 1
        raise _missed()


def left(deadline: float) -> float:
    """The seconds until a deadline; raises if it has passed."""
    left = deadline - perf_counter()
    if left <= 0:
        raise _missed()
    return left


def _missed() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed before the answer was there")


async def _awaited(
    front: ModelCodec,
    future: Future[dict[str, Any]],
    request: Request,
    encode: Encode,
    deadline: float | None,
) -> Response:
    with front.counts:
        answers = await asyncio.wrap_future(future)
        if row_count(answers) > MANY_ROWS:
            return await asyncio.to_thread(_response, front, answers, request, encode, deadline)
        return _response(front, answers, request, encode, deadline)


def _response(
    front: ModelCodec,
    answers: dict[str, Any],
    request: Request,
    encode: Encode,
    deadline: float | None,
) -> Response:
    if deadline is not None:  # answers may have waited for the event loop
        left(deadline)
    response = encode(answers)
    front.counts.done(max(1, row_count(answers)), perf_counter() - request.started)
    return response
