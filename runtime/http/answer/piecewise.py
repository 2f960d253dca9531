"""Large bodies of rows, answered piece by piece: others are answered in between."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, TypeVar

from flour.core.errors import InputError
from flour.data.batch import Batch, row_count
from runtime.http.answer.inference import left
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.response_options import ResponseOptions, timeout
from runtime.http.routes import HandlerContext
from runtime.http.watch import telemetry
from runtime.http.wire.loop_fairness import uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError

_NUMBER = re.compile(r"\[(\d+)\]")
#: Before and behind the answers of protocols that have them in an object.
PREDICTIONS = b'{"predictions":[', b"]}"
T = TypeVar("T")


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
