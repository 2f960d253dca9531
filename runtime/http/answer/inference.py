"""Inference: a request of the protocol to a call, and its answers to a response.

Large bodies of rows are answered piece by piece: others are answered in between.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from flour.core.errors import InputError
from flour.data.batch import Batch, row_count
from runtime.http.answer.experiments import by_route
from runtime.http.codec.array_pieces import LARGE
from runtime.http.codec.model_codec import ModelCodec, is_dense
from runtime.http.codec.response_options import ResponseOptions, tells, timeout
from runtime.http.routes import HandlerContext
from runtime.http.watch import telemetry
from runtime.http.wire.loop_fairness import uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.service.answerers import InferCall
from runtime.service.entry import Outputs
from scheduler import DeadlineExceeded

Encode = Callable[[dict[str, Any]], Response]

#: Shorter bodies are read in one step where they can be: the long way costs more than numbers do.
SHORT_BYTES = 8 << 10
#: Before and behind the answers of protocols that have them in an object.
PREDICTIONS = b'{"predictions":[', b"]}"
_NUMBER = re.compile(r"\[(\d+)\]")
T = TypeVar("T")
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
        then = partial(_as_wished, service, front, request)
        return at_once(service, request, partial(_decoded, front, request), then)
    usual = request.plain or not tells(request)
    if usual and size < SHORT_BYTES and (front.quick_type or front.rows is not None):
        decoded = front.quick(request)
        if decoded is not None:
            front, batch, name = decoded
            outputs = quick(service, front, batch)
            if outputs is not None:
                return front.answered(request, batch, outputs, name)
            wished = ResponseOptions(id=name)
            call = front.call(batch.as_block, wished)
            return answered(service, front, call, request, partial(front.encode, wished=wished))
    return _as_wished(service, front, request, _decoded(front, request))


def _infer_chosen(service: HandlerContext, request: Request) -> Answer:
    params = request.params
    return infer_by(service, service.front(params["model"], params.get("version")), request)


def _rows(service: HandlerContext, request: Request) -> object:
    """The data of a body as the champion reads it, for a route that does, too."""
    return service.front(request.params["model"]).decode(request)[0].batch.data


_by_route = by_route(_infer_chosen, _rows)


def _decoded(front: ModelCodec, request: Request) -> tuple[InferCall, ResponseOptions]:
    with front.counts:
        return front.decode(request)


def _as_wished(
    service: HandlerContext,
    front: ModelCodec,
    request: Request,
    decoded: tuple[InferCall, ResponseOptions],
) -> Answer:
    """The answer to a call with options, or to one that is as large as few are."""
    call, wished = decoded
    if wished.explain is not None:
        return _explained(service, front, call, request, wished)
    encode, version = partial(front.encode, wished=wished), front.version
    dense = all(map(is_dense, version.kinds.values())) and not version.mixes_rows
    if len(request.body) > LARGE and dense and _has_texts(call.batch.data):
        return _by_documents(service, front, call, request, encode)
    return soon_answered(service, front, call.batch, request, wished, encode)


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
        respond = partial(_response, front, request, encode, deadline, single=False)
        return await asyncio.to_thread(respond, answers)


def soon_answered(
    service: HandlerContext,
    front: ModelCodec,
    batch: Batch,
    request: Request,
    wished: ResponseOptions,
    encode: Encode,
) -> Answer:
    """The response to rows: now if they are few, as other rows may take long."""
    if wished.timeout is not None:
        check_deadline(front, request, wished.timeout)
    outputs = None
    if len(request.body) <= LARGE:
        outputs = (quick if batch.single else quick_block)(service, front, batch)
    if outputs is None:
        return answered(service, front, front.call(batch, wished), request, encode)
    if wished.timeout is not None:
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
        respond = partial(_response, front, request, encode, deadline, single=call.batch.single)
        if not future.done() or call.batch.rows > MANY_ROWS:
            return _awaited(front, future, respond)
        return respond(future.result())


def check_deadline(front: ModelCodec, request: Request, timeout: float) -> None:
    """Raise if a request's deadline, which counts from its arrival, has passed."""
    if perf_counter() > request.started + timeout:
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
    front: ModelCodec, future: Future[dict[str, Any]], respond: Callable[..., Response]
) -> Response:
    with front.counts:
        answers = await asyncio.wrap_future(future)
        if row_count(answers) > MANY_ROWS:
            return await asyncio.to_thread(respond, answers)
        return respond(answers)


def _response(
    front: ModelCodec,
    request: Request,
    encode: Encode,
    deadline: float | None,
    answers: dict[str, Any],
    *,
    single: bool,
) -> Response:
    if deadline is not None:  # answers may have waited for the event loop
        left(deadline)
    response = encode(answers)
    rows = 1 if single else max(1, row_count(answers))  # which counts the letters of one label
    front.counts.done(rows, perf_counter() - request.started)
    return response


# --- large bodies of rows ------------------------------------------------------------------------


async def at_once(
    service: HandlerContext, request: Request, read: Callable[[], T], answer: Callable[[T], Answer]
) -> Response:
    """The answer to the whole of a large body, which is read on a thread."""
    with uncollected():
        found = await asyncio.to_thread(read)
    telemetry.resume(service, request)
    coming = answer(found)
    return coming if isinstance(coming, Response) else await coming


async def in_pieces(
    service: HandlerContext,
    front: ModelCodec,
    request: Request,
    cut: Callable[[], Iterable[Batch] | None],
    form: Callable[[dict[str, Any]], bytes],
    ends: tuple[bytes, bytes] = (b"[", b"]"),
) -> Response | None:
    """The answer to rows or columns; None for other bodies, and where rows depend on each other.

    `cut` finds the batches, which are read one by one; `form` makes an array of their answers.
    """
    wished = ResponseOptions(timeout=timeout({}, request))
    if front.version.mixes_rows:
        return None
    found = await asyncio.to_thread(cut)
    if found is None:
        return None
    deadline = None if wished.timeout is None else request.started + wished.timeout
    texts: list[bytes] = []
    rows = 0
    try:
        batches = iter(found)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            if batch.single:  # the array is one row
                return None
            telemetry.resume(service, request)
            call = front.call(batch, wished)
            if deadline is not None:
                call = call._replace(timeout=left(deadline))
            answers = await asyncio.wrap_future(service.answering.answer(call))
            texts.append((await asyncio.to_thread(form, answers))[1:-1])
            rows += row_count(answers)
    except BaseException as problem:
        front.counts.failed += 1
        if rows and isinstance(problem, InputError | HttpError):
            problem.where = _among_all(problem.where or "$", rows)
        raise
    del found, batches
    request.body = b""  # it may be as large as the answer
    texts[0], texts[-1] = ends[0] + texts[0], texts[-1] + ends[1]
    response = Response(await asyncio.to_thread(b",".join, texts))
    front.counts.done(rows, perf_counter() - request.started)
    return response


def _among_all(where: str, before: int) -> str:
    """A place in a piece, by the number of its row among all: the first that it has."""
    moved, found = _NUMBER.subn(lambda number: f"[{int(number[1]) + before}]", where, count=1)
    return moved if found else f"rows from {before}, {where}"
