"""Plain JSON for people: rows in, answers out, without the words of the protocol.

    curl localhost:8000/predict/fraud -d '{"age": 41, "city": "Oslo"}'
    {"label": "no", "probabilities": {"no": 0.93, "yes": 0.07}}

A row is an object of columns, an array of numbers, or a text, as the model takes it; an array of
rows gets an array of answers. Blocks may come and go as streams of Arrow: codec_arrow.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from flour.core.types import Pairs, Type
from flour.data.batch import Batch
from runtime.http.answer.inference import LARGE, answered, check_deadline, quick, quick_block
from runtime.http.answer.piecewise import in_pieces
from runtime.http.codec import codec_arrow
from runtime.http.codec.array_pieces import RowPieces, rows_in_pieces
from runtime.http.codec.bodies import Instances, Predictions
from runtime.http.codec.codec_json import decoded, encode
from runtime.http.codec.column_arrays import ColumnPieces, column_pieces
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.number_arrays import LEAST_BYTES, read
from runtime.http.codec.response_options import NOTHING, ResponseOptions, tells, timeout
from runtime.http.codec.row_texts import encoded_column, encoded_rows, named
from runtime.http.routes import HandlerContext
from runtime.http.watch import telemetry
from runtime.http.wire.loop_fairness import uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.service.private import column_names

#: Columns that a model does not read; and the most rows of a body that are checked for them.
_MOST_COLUMNS, _FEW_ROWS = 4096, 64
_anything = msgspec.json.Decoder()
_instances = msgspec.json.Decoder(Instances)


def predict(service: HandlerContext, request: Request) -> Answer:
    """Answer a row with an object, rows with an array of objects."""
    front = request.front = _front(service, request)
    arrow = codec_arrow.is_wanted(request)
    foreign = arrow or codec_arrow.is_stream(request.body)
    if len(request.body) > LARGE or (foreign and not codec_arrow.is_loaded()):
        return _aside(service, front, request, arrow=arrow)
    return _predicted(service, front, request, _read(front, request.body), arrow=arrow)


def _front(service: HandlerContext, request: Request) -> ModelCodec:
    return service.front(request.params["model"], request.params.get("version"))


def rows(service: HandlerContext, request: Request) -> object:
    """The data of a body, for a route that reads it."""
    if codec_arrow.is_stream(request.body):
        return _read(_front(service, request), request.body).data
    return decoded(request.body, _anything, Any)


def rows_of_instances(_service: HandlerContext, request: Request) -> object:
    """The rows of a body of the first version of the protocol."""
    asked: Instances = decoded(request.body, _instances, Instances)
    return asked.instances


async def _aside(
    service: HandlerContext, front: ModelCodec, request: Request, *, arrow: bool
) -> Response:
    """The answer to a large body, which is decoded on a thread: others do not wait for that."""
    if arrow:
        await asyncio.to_thread(codec_arrow.load)
    batch = await asyncio.to_thread(_numbers, front, request.body)
    if batch is None and not arrow:
        whole = await in_pieces(service, front, request, _cut, _read, partial(_rows, front))
        if whole is not None:
            return whole
    if batch is None:
        with uncollected():
            batch = await asyncio.to_thread(_read, front, request.body)
    telemetry.resume(service, request)
    answer = _predicted(service, front, request, batch, arrow=arrow)
    return answer if isinstance(answer, Response) else await answer


def _cut(front: ModelCodec, body: bytes | memoryview) -> RowPieces | ColumnPieces | None:
    return rows_in_pieces(body) or column_pieces(body, front.version.inputs)


def _read(front: ModelCodec, body: bytes | memoryview | dict[str, Any]) -> Batch:
    """The batch of a body: rows of numbers as an array, if the model takes that."""
    if isinstance(body, dict):
        return batch_of(front, body)
    if codec_arrow.is_stream(body):
        rows = codec_arrow.rows(body, front.version.inputs)
        version = front.version
        return version.read(version.reader.nulls.settled(rows)).as_block
    return _numbers(front, body) or batch_of(front, decoded(body, _anything, Any))


def _numbers(front: ModelCodec, body: bytes | memoryview) -> Batch | None:
    """The batch of rows of numbers, which native code reads; None for others."""
    width = front.quick_width if front.quick_type == "FP64" else 0
    if not width or len(body) < LEAST_BYTES or body[0] != _OPENING:
        return None
    numbers = read(body, 0)
    # Missing numbers and rows of another width are for the usual way to judge.
    if numbers is None or numbers.end != len(body) or numbers.width != width:
        return None
    rows = numbers.values.reshape(-1, width)
    return None if np.isnan(rows).any() else front.version.read(rows)


_OPENING = ord("[")


def _predicted(
    service: HandlerContext, front: ModelCodec, request: Request, batch: Batch, *, arrow: bool
) -> Answer:
    batch = batch.as_block if arrow else batch
    wished = NOTHING if request.plain else ResponseOptions(timeout=timeout({}, request))
    check_deadline(front, request, wished.timeout)
    outputs = (quick if batch.single else quick_block)(service, front, batch)
    if outputs is not None:
        check_deadline(front, request, wished.timeout)
        told = front.told(outputs)
        if arrow:
            ready = codec_arrow.response(told, front.version.kinds)
            return _counted(front, request, ready, batch.rows)
        text = encode(_row(front, told)) if batch.single else _rows(front, told)
        return _counted(front, request, Response(text), batch.rows)

    def response(answers: dict[str, Any]) -> Response:
        if arrow:
            return codec_arrow.response(answers, front.version.kinds)
        return Response(encode(_row(front, answers)) if batch.single else _rows(front, answers))

    return answered(service, front, front.call(batch, wished), request, response)


def instances(service: HandlerContext, request: Request) -> Answer:
    """The first version of the protocol: `instances` in, `predictions` out."""
    front = request.front = _front(service, request).predicting
    if len(request.body) > LARGE:
        return _many_instances(service, front, request)
    asked: Instances = decoded(request.body, _instances, Instances)
    return _instances_answered(service, front, request, asked)


async def _many_instances(service: HandlerContext, front: ModelCodec, request: Request) -> Response:
    form, cut = partial(predictions_of, front), lambda _, body: rows_in_pieces(body)
    whole = await in_pieces(service, front, request, cut, _read, form)
    if whole is not None:
        return whole
    with uncollected():
        asked = await asyncio.to_thread(decoded, request.body, _instances, Instances)
    telemetry.resume(service, request)
    answer = _instances_answered(service, front, request, asked)
    return answer if isinstance(answer, Response) else await answer


def _instances_answered(
    service: HandlerContext, front: ModelCodec, request: Request, asked: Instances
) -> Answer:
    if not asked.instances:
        raise HttpError("there is no instance", where="$.instances")
    if len(asked.instances) == 1 and (request.plain or not tells(request)):
        row = front.version.read(asked.instances[0])
        outputs = quick(service, front, row) if row.single else None
        if outputs is not None:
            answers_of_row = front.told(outputs)
            only = [_plain(value) for value in answers_of_row.values()]
            predictions = only if len(only) == 1 else [_row(front, answers_of_row)]
            return _counted(front, request, Response(encode(Predictions(predictions))), 1)
    batch = batch_of(front, asked.instances)
    if batch.single:
        raise HttpError(
            "each instance is a row of its own",
            where="$.instances[0]",
            found=type(asked.instances[0]).__name__,
            hint="a single row is [[1.0, 2.0]], not [1.0, 2.0]",
        )

    def response(answers: dict[str, Any]) -> Response:
        return Response(b'{"predictions":%b}' % predictions_of(front, answers))

    wished = ResponseOptions(timeout=timeout({}, request))
    return answered(service, front, front.call(batch, wished), request, response)


def predictions_of(front: ModelCodec, answers: Mapping[str, Any]) -> bytes:
    """Values alone of one output, as of models with a `predict`; objects of several."""
    only = len(answers) == 1
    return encoded_column(*answers.values()) if only else _rows(front, answers)


def _counted(front: ModelCodec, request: Request, response: Response, rows: int) -> Response:
    """The answer to rows that were over at once."""
    front.counts.done(rows, perf_counter() - request.started)
    return response


def batch_of(front: ModelCodec, data: object) -> Batch:
    """The batch of what JSON holds; rows of several inputs become each input's rows."""
    inputs = front.version.inputs
    for row in data if isinstance(data, list) and len(data) <= _FEW_ROWS else (data,):
        if isinstance(row, dict) and len(row) > _MOST_COLUMNS:
            _check_columns(row, inputs)
    rows = data if len(inputs) > 1 and isinstance(data, list) else []
    if rows and all(isinstance(row, dict) and row.keys() == inputs.keys() for row in rows):
        data = {name: [row[name] for row in rows] for name in inputs}
    return front.version.read(data)


def _check_columns(row: dict[str, Any], inputs: Mapping[str, Type]) -> None:
    """Refuse a row of very many columns that no model reads: each would be looked at."""
    kinds = inputs.values()
    known = len(column_names(inputs)) + sum(getattr(kind, "width", 0) for kind in kinds)
    if len(row) > _MOST_COLUMNS + known and not any(isinstance(kind, Pairs) for kind in kinds):
        hint = "send those that the model reads"
        raise HttpError("these are too many columns", found=f"{len(row)} columns", hint=hint)


def _row(front: ModelCodec, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers to one row, probabilities by class."""
    made = {name: _plain(value) for name, value in answers.items()}
    if "probabilities" in made:
        made["probabilities"] = named(made["probabilities"], front.class_names)
    return made


def _rows(front: ModelCodec, answers: Mapping[str, Any]) -> bytes:
    return encoded_rows(answers, front.class_names)


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if hasattr(value, "toarray"):
        value = value.toarray()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
