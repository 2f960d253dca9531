"""Inference: a request of the protocol to a call, and its answers to a response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from time import perf_counter
from typing import Any

import numpy as np

from runtime.http.codec import ModelCodec
from runtime.http.interfaces import InferCall
from runtime.http.messages import HEADER_LENGTH, TIMEOUT_HEADER, Answer, Request, Response
from runtime.http.response_options import NOTHING, ResponseOptions
from runtime.http.routes import HandlerContext
from runtime.service.inputs import row_count

_ARRAY = np.ndarray

Encode = Callable[[dict[str, Any]], Response]

_LENGTH, _TIMEOUT = HEADER_LENGTH.encode(), TIMEOUT_HEADER.encode()


def infer(service: HandlerContext, request: Request) -> Answer:
    """Answer a request for inference."""
    params = request.params
    name = params["model"]
    if len(params) > 1:
        name = f"{name}@{params['version']}"
    front = service.runtime.find(name).front
    if type(front) is not ModelCodec:
        front = service.front(name)
    request.front = front
    if (front.quick_type or front.rows is not None) and (request.plain or not tells(request)):
        made = _quick(service, front, request)
        if made is not None:
            return made
    try:
        ask, wished = front.decode(request, service.settings.default_priority)
    except BaseException:
        front.counts.failed += 1
        raise
    made = None if wished.timeout is not None else _few(service, front, ask, request, wished)
    if made is not None:
        return made
    return answered(service, front, ask, request, lambda answers: front.encode(answers, wished))


def _few(
    service: HandlerContext,
    front: ModelCodec,
    ask: InferCall,
    request: Request,
    wished: ResponseOptions,
) -> Response | None:
    """The answer to a few rows that were asked for in another way than most."""
    found = front.fitting.look(ask.data)
    if found is None:
        return None
    data, rows = found
    answers = quick(service, front, data)
    if answers is None:
        return None
    if not rows:  # it was a row of its own, and is answered as the block that it came as
        answers = front.as_block(answers)
    every = dict(zip(front.served.outputs, answers, strict=True))
    made = front.encode(front.told(answers) if wished.outputs is None else every, wished)
    front.counts.done(rows or 1, perf_counter() - request.started)
    return made


def tells(request: Request) -> bool:
    """Whether a header says how the body is to be read, or how soon it has to be answered."""
    return _LENGTH in request.headers or _TIMEOUT in request.headers


def _quick(service: HandlerContext, front: ModelCodec, request: Request) -> Answer | None:
    """The short way, for requests as most are; None for others."""
    known = front.quick(request.body)
    if known is None:
        return None
    data, name = known
    answers = quick(service, front, data)
    one = type(data) is not _ARRAY
    if one and answers is not None:
        front.counts.done(1, perf_counter() - request.started)
        return Response(front.encode_row(answers, name))
    wished = NOTHING if name is None else ResponseOptions(id=name)
    if answers is None:
        ask = front.ask(_block(data) if one else data, wished)
        return answered(service, front, ask, request, lambda answers: front.encode(answers, wished))
    made = front.encode(front.told(answers), wished)
    front.counts.done(len(data), perf_counter() - request.started)
    return made


def quick(service: HandlerContext, front: ModelCodec, data: Any) -> tuple[Any, ...] | None:
    """The outputs of a row or a few rows, if they can be had at once; else None."""
    try:
        return service.answering.quick(front.served, data)
    except BaseException:
        front.counts.failed += 1
        raise


def _block(row: Any) -> Any:
    """A row as a block of one, as the long way has them."""
    if type(row) is dict:
        return {name: [value] for name, value in row.items()}
    return [row]


def answered(
    service: HandlerContext, front: ModelCodec, ask: InferCall, request: Request, encode: Encode
) -> Answer:
    """The response to a call, at once if its answers are there."""
    try:
        future = service.answering.answer(ask)
        if not future.done():
            return _awaited(front, future, request, encode)
        return _made(front, future.result(), request, encode)
    except BaseException:
        front.counts.failed += 1
        raise


async def _awaited(
    front: ModelCodec, future: Future[dict[str, Any]], request: Request, encode: Encode
) -> Response:
    try:
        return _made(front, await asyncio.wrap_future(future), request, encode)
    except BaseException:
        front.counts.failed += 1
        raise


def _made(front: ModelCodec, answers: dict[str, Any], request: Request, encode: Encode) -> Response:
    made = encode(answers)
    front.counts.done(max(1, row_count(answers)), perf_counter() - request.started)
    return made
