"""Plain JSON for people: rows in, answers out, without the words of the protocol.

    curl localhost:8000/predict/fraud -d '{"age": 41, "city": "Oslo"}'
    {"label": "no", "probabilities": {"no": 0.93, "yes": 0.07}}

A row is an object of columns, an array of numbers, or a text, as the model takes it; an array of
rows gets an array of answers. Blocks may come and go as streams of Arrow: codec_arrow.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from time import perf_counter
from typing import Any
from urllib.parse import parse_qs

import msgspec
import numpy as np
from numpy.typing import NDArray

from flour.core.types import Pairs, Record, Type, Vector
from flour.data.batch import Batch
from runtime.http.answer.inference import PREDICTIONS, at_once, in_pieces, quick, soon_answered
from runtime.http.codec import codec_arrow
from runtime.http.codec.array_pieces import LARGE, ArrayPieces
from runtime.http.codec.bodies import Instances, Predictions
from runtime.http.codec.codec_json import converted, decoded, encode
from runtime.http.codec.column_arrays import column_pieces, outlined, whole
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.number_arrays import LEAST_BYTES, read
from runtime.http.codec.response_options import NOTHING, ResponseOptions, tells, timeout
from runtime.http.codec.row_texts import encoded_column, encoded_rows, named
from runtime.http.routes import HandlerContext
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.service.call import named_outputs
from runtime.service.private import column_names

#: Columns that a model does not read; and the most rows of a body that are checked for them.
_MOST_COLUMNS, _FEW_ROWS = 4096, 64
_WIDE, _SIZED = Vector | Record, dict | list | str
#: Rows of numbers of a large body that are answered at a time.
_SOME_ROWS = 4096
#: Queries come again and again.
_parsed = lru_cache(maxsize=64)(parse_qs)
_instances = msgspec.json.Decoder(Instances)


def predict(service: HandlerContext, request: Request) -> Answer:
    """Answer a row with an object, rows with an array of objects."""
    front = request.front = _front(service, request)
    arrow = codec_arrow.is_wanted(request)
    foreign = arrow or codec_arrow.is_stream(request.body)
    if len(request.body) > LARGE or (foreign and not codec_arrow.is_loaded()):
        return _aside(service, front, request, arrow=arrow)
    return _predicted(service, front, request, _read(front, request.body), arrow=arrow)


def _front(service: HandlerContext, request: Request, *, predicting: bool = False) -> ModelCodec:
    """The codec of the model that is asked, for the outputs that the query names, if any."""
    front = service.front(request.params["model"], request.params.get("version"))
    asked = _parsed(request.query, keep_blank_values=True).get("outputs") if request.query else None
    if not asked:
        return front.predicting if predicting else front
    names = [name for each in asked for name in each.split(",") if name]
    outputs = named_outputs(names, front.version.outputs, front.version.owner)
    assert outputs is not None, "there is a list of names"
    return front.answering(outputs)


def rows(service: HandlerContext, request: Request) -> object:
    """The data of a body, for a route that reads it."""
    if codec_arrow.is_stream(request.body):
        return _read(_front(service, request), request.body).data
    return whole(request.body)


def rows_of_instances(_service: HandlerContext, request: Request) -> object:
    """The rows of a body of the first version of the protocol."""
    asked: Instances = converted(whole(request.body), Instances)
    return asked.instances


async def _aside(
    service: HandlerContext, front: ModelCodec, request: Request, *, arrow: bool
) -> Response:
    """The answer to a large body, which is decoded on a thread: others do not wait for that."""
    if arrow:
        await asyncio.to_thread(codec_arrow.load)
    cut = partial(_batches, front, request.body)
    form = partial(encoded_rows, classes=front.class_names)
    answer = None if arrow else await in_pieces(service, front, request, cut, form)
    read = partial(_read, front, request.body)
    then = partial(_predicted, service, front, request, arrow=arrow)
    return answer or await at_once(service, request, read, then)


def _batches(front: ModelCodec, body: bytes | memoryview) -> Iterable[Batch] | None:
    """Some rows or columns of a large body at a time; None for other bodies."""
    if codec_arrow.is_stream(body):
        return None
    numbers, read = _numbers(front, body), partial(_read, front)
    if numbers is not None:
        starts = range(0, len(numbers), _SOME_ROWS)
        return (front.version.read(numbers[at : at + _SOME_ROWS]) for at in starts)
    value = outlined(body)
    if isinstance(value, ArrayPieces):
        return map(read, value) if value.has_rows else None
    columns = column_pieces(value, front.version.inputs)
    return None if columns is None else (batch_of(front, each) for each in columns.pieces)


def _instances_of(front: ModelCodec, body: bytes | memoryview) -> Iterable[Batch] | None:
    value = outlined(body)
    rows = value.get("instances") if isinstance(value, dict) else None
    if not isinstance(rows, ArrayPieces) or not rows.has_rows:
        return None
    return map(partial(_read, front), rows)


def _read(front: ModelCodec, body: bytes | memoryview) -> Batch:
    """The batch of a body: rows of numbers as an array, if the model takes that."""
    if codec_arrow.is_stream(body):
        rows = codec_arrow.rows(body, front.version.inputs)
        version = front.version
        return version.read(version.reader.nulls.settled(rows)).as_block
    numbers = _numbers(front, body)
    return batch_of(front, whole(body)) if numbers is None else front.version.read(numbers)


def _numbers(front: ModelCodec, body: bytes | memoryview) -> NDArray[np.float64] | None:
    """Rows of numbers, which native code reads; None for others."""
    width = front.quick_width if front.quick_type == "FP64" else 0
    if not width or len(body) < LEAST_BYTES or body[0] != _OPENING:
        return None
    numbers = read(body, 0)
    # Missing numbers and rows of another width are for the usual way to judge.
    if numbers is None or numbers.end != len(body) or numbers.width != width:
        return None
    rows = numbers.values.reshape(-1, width)
    return None if np.isnan(rows).any() else rows


_OPENING = ord("[")


def _predicted(
    service: HandlerContext, front: ModelCodec, request: Request, batch: Batch, *, arrow: bool
) -> Answer:
    batch = batch.as_block if arrow else batch
    wished = NOTHING if request.plain else ResponseOptions(timeout=timeout({}, request))

    def response(answers: dict[str, Any]) -> Response:
        if arrow:
            return codec_arrow.response(answers, front.version.kinds)
        if batch.single:
            return Response(encode(_row(front, answers)))
        return Response(encoded_rows(answers, front.class_names))

    return soon_answered(service, front, batch, request, wished, response)


def instances(service: HandlerContext, request: Request) -> Answer:
    """The first version of the protocol: `instances` in, `predictions` out."""
    front = request.front = _front(service, request, predicting=True)
    if len(request.body) > LARGE:
        return _many_instances(service, front, request)
    asked: Instances = decoded(request.body, _instances, Instances)
    return _instances_answered(service, front, request, asked)


async def _many_instances(service: HandlerContext, front: ModelCodec, request: Request) -> Response:
    cut, form = partial(_instances_of, front, request.body), partial(predictions_of, front)
    answer = await in_pieces(service, front, request, cut, form, PREDICTIONS)
    then = partial(_instances_answered, service, front, request)
    return answer or await at_once(
        service, request, lambda: converted(whole(request.body), Instances), then
    )


def _instances_answered(
    service: HandlerContext, front: ModelCodec, request: Request, asked: Instances
) -> Answer:
    rows = asked.instances
    if len(rows) == 1 and (request.plain or not tells(request)):
        row = front.version.read(rows[0])
        outputs = quick(service, front, row) if row.single else None
        if outputs is not None:
            answers = front.told(outputs)
            only = [_plain(value) for value in answers.values()]
            response = Response(
                encode(Predictions(only if len(only) == 1 else [_row(front, answers)]))
            )
            front.counts.done(1, perf_counter() - request.started)
            return response
    batch = batch_of(front, rows, "$.instances")
    if batch.single:
        raise HttpError(
            "each instance is a row of its own",
            where="$.instances[0]",
            found=type(rows[0]).__name__,
            hint="a single row is [[1.0, 2.0]], not [1.0, 2.0]",
        )
    return predicted(service, front, request, batch)


def predicted(service: HandlerContext, front: ModelCodec, request: Request, batch: Batch) -> Answer:
    """The answer to rows as `predictions`."""

    def response(answers: dict[str, Any]) -> Response:
        return Response(b'{"predictions":%b}' % predictions_of(front, answers))

    wished = NOTHING if request.plain else ResponseOptions(timeout=timeout({}, request))
    return soon_answered(service, front, batch, request, wished, response)


def predictions_of(front: ModelCodec, answers: Mapping[str, Any]) -> bytes:
    """Values alone of one output, as of models with a `predict`; objects of several."""
    only = len(answers) == 1
    return encoded_column(*answers.values()) if only else encoded_rows(answers, front.class_names)


def batch_of(front: ModelCodec, data: object, where: str = "$") -> Batch:
    """The batch of what JSON holds; rows of several inputs become each input's rows."""
    inputs = front.version.inputs
    for row in data if isinstance(data, list) and len(data) <= _FEW_ROWS else (data,):
        if isinstance(row, _SIZED) and len(row) > _MOST_COLUMNS:
            _check_columns(row, inputs)
    wide = len(inputs) > 1 or isinstance(next(iter(inputs.values())), _WIDE)
    if wide and isinstance(data, list) and not data:  # which says no columns
        hint = _expected(inputs)
        raise HttpError("there is no row", where=where, found="an empty array", hint=hint)
    rows = data if len(inputs) > 1 and isinstance(data, list) else []
    if rows and all(isinstance(row, dict) and row.keys() == inputs.keys() for row in rows):
        data = {name: [row[name] for row in rows] for name in inputs}
    return front.version.read(data)


def _check_columns(row: dict[str, Any] | list[Any] | str, inputs: Mapping[str, Type]) -> None:
    """Refuse a row of very many columns that no model reads: each would be looked at."""
    kinds = inputs.values()
    if isinstance(row, str | list) and not all(isinstance(each, _WIDE) for each in kinds):
        return  # these are rows, or their values
    if isinstance(row, str):
        found = f"a text of {len(row)} characters"
        raise HttpError("a row of this model has columns", where="$", found=found)
    known = len(column_names(inputs)) + sum(getattr(kind, "width", 0) for kind in kinds)
    rows = isinstance(row, list) and isinstance(row[0], dict | list)
    if len(row) > _MOST_COLUMNS + known and not (
        rows or any(isinstance(kind, Pairs) for kind in kinds)
    ):
        hint = "send those that the model reads"
        raise HttpError("these are too many columns", found=f"{len(row)} columns", hint=hint)


def _expected(inputs: Mapping[str, Type]) -> str:
    """The form of rows, for a body without any."""
    widths = [kind.width for kind in inputs.values() if isinstance(kind, Vector)]
    names = [each for name, kind in inputs.items() for each in getattr(kind, "names", [name])]
    each = f"{widths[0]} values" if len(widths) == len(inputs) == 1 else ", ".join(names)[:200]
    return f"rows are an array, and each has {each}"


def _row(front: ModelCodec, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers to one row, probabilities by class."""
    made = {name: _plain(value) for name, value in answers.items()}
    if "probabilities" in made:
        made["probabilities"] = named(made["probabilities"], front.class_names)
    return made


def _plain(value: object) -> Any:
    if type(value) is np.ndarray:
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if hasattr(value, "toarray"):  # one row
        value = value.toarray()[0]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
