"""MLflow's and SageMaker's way to ask: `/invocations`, for the one model of a server.

    {"dataframe_split": {"columns": ["age", "city"], "data": [[41, "Oslo"]]}}

In place of `dataframe_split` there may be `dataframe_records`, `instances` or `inputs`, or the
whole body is CSV (`Content-Type: text/csv`). Predictions are those of `/v1/models/{model}:predict`.
"""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import msgspec

from flour.core.types import Record, Text, Vector
from flour.data.batch import Batch
from runtime.errors import UnknownEndpoint
from runtime.http.answer import models
from runtime.http.answer.experiments import following
from runtime.http.answer.inference import LARGE, answered, check_deadline, quick_block
from runtime.http.answer.plain_json import batch_of, predictions_of
from runtime.http.codec.bodies import DataframeSplit, Invocation
from runtime.http.codec.codec_json import decoded
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.response_options import ResponseOptions, timeout
from runtime.http.codec.typed_json import json
from runtime.http.routes import HandlerContext, by_route
from runtime.http.watch import telemetry
from runtime.http.wire.loop_fairness import uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.http.wire.settings import server_version

_invocation = msgspec.json.Decoder(Invocation)
_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
_INTEGER = re.compile(r"[+-]?\d+")


def invocations(service: HandlerContext, request: Request) -> Answer:
    """Answer rows by the server's one model, or the one that its settings name."""
    model = _model(service)
    models.check_scope(service, request, model)
    request.params = {**request.params, "model": model}
    return _answer(service, request)


def _model(service: HandlerContext) -> str:
    model = service.settings.default_model
    if model is not None:
        return model
    names = [each.name for each in islice(service.runtime.endpoints, 2)]
    if len(names) == 1:
        return names[0]
    raise UnknownEndpoint(
        "this path names no model",
        found="no model is loaded" if not names else "several models are loaded",
        hint="default_model is the setting that chooses one; or ask /predict/{model}",
    )


def ping(service: HandlerContext, request: Request) -> Answer:
    """Readiness, as SageMaker and MLflow ask for it."""
    state = service.ready()
    return json(state, 200 if state.ready else 503)


def version(service: HandlerContext, request: Request) -> Answer:
    """The version of the server, as a text."""
    return Response(server_version().encode(), content_type="text/plain")


def unsupported(service: HandlerContext, request: Request) -> Answer:
    """Refuse features that only Triton has, in words that its client shows."""
    raise HttpError(
        "this server has no shared memory with clients, and no trace or log settings over HTTP",
        501,
        where=request.path[:200],
        hint="send tensors in the body; traces and logs are settings of the server",
    )


# --- answering -----------------------------------------------------------------------------------


def _invoked(service: HandlerContext, request: Request) -> Answer:
    front = service.front(request.params["model"], request.params.get("version")).predicting
    request.front = front
    if len(request.body) > LARGE:
        return _aside(service, front, request)
    return _predicted(service, front, request, _batch(front, request))


async def _aside(service: HandlerContext, front: ModelCodec, request: Request) -> Response:
    with uncollected():
        batch = await asyncio.to_thread(_batch, front, request)
    telemetry.resume(service, request)
    answer = _predicted(service, front, request, batch)
    return answer if isinstance(answer, Response) else await answer


def _predicted(
    service: HandlerContext, front: ModelCodec, request: Request, batch: Batch
) -> Answer:
    wished = ResponseOptions(timeout=timeout({}, request))
    check_deadline(front, request, wished.timeout)
    outputs = quick_block(service, front, batch)
    if outputs is None:
        encode = partial(_response, front)
        return answered(service, front, front.call(batch, wished), request, encode)
    check_deadline(front, request, wished.timeout)
    front.counts.done(batch.rows, perf_counter() - request.started)
    return _response(front, front.told(outputs))


def _response(front: ModelCodec, answers: Mapping[str, Any]) -> Response:
    return Response(b'{"predictions":%b}' % predictions_of(front, answers))


def _rows(service: HandlerContext, request: Request) -> object:
    """The data of a body, for a route that reads it."""
    return _batch(service.front(request.params["model"]), request).data


_answer = by_route(_invoked, following(_invoked, _rows))


# --- reading -------------------------------------------------------------------------------------


def _batch(front: ModelCodec, request: Request) -> Batch:
    kind, _, options = (request.header("content-type") or "").lower().partition(";")
    if kind.strip() == "text/csv":
        data = _csv(front, request.body, options)
    else:
        asked: Invocation = decoded(request.body, _invocation, Invocation)
        given = {name: getattr(asked, name) for name in _FORMS}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            what, found = "a body has one of these", ", ".join(given) or "none"
            raise HttpError(what, where="$", found=found, hint=", ".join(_FORMS))
        ((form, value),) = given.items()
        data = _data(front, value, f"$.{form}")
    batch = batch_of(front, data)
    if batch.single:
        raise HttpError("each row is an array or an object of its own", where="$", found="one row")
    return batch


def _data(front: ModelCodec, value: DataframeSplit | dict[str, Any] | list[Any], where: str) -> Any:
    """The model's data from a table, from columns or from rows."""
    if isinstance(value, DataframeSplit):
        return _table(front, value.columns, value.data, where)
    if isinstance(value, dict):
        columns = list(value.values())
        if not all(isinstance(each, list) and len(each) == len(columns[0]) for each in columns):
            raise HttpError("columns are arrays of one length", where=where)
        return _table(front, list(value), list(zip(*columns, strict=True)), where)
    if not value:
        raise HttpError("there is no row", where=where)
    first = value[0]
    if isinstance(_only(front), Record) or not isinstance(first, dict):
        return value
    if not all(isinstance(each, dict) and each.keys() == first.keys() for each in value):
        raise HttpError("rows have the same columns", where=where, hint=", ".join(first)[:200])
    return _table(front, list(first), [[each[name] for name in first] for each in value], where)


def _only(front: ModelCodec) -> object:
    """The type of the model's input, if it has only one."""
    inputs = front.version.inputs
    return next(iter(inputs.values())) if len(inputs) == 1 else None


def _table(
    front: ModelCodec, columns: Sequence[Any], rows: Sequence[Sequence[Any]], where: str
) -> Any:
    """A table as the model reads it: by name where it has names, else by position."""
    _check(columns, rows, where)
    kind = _only(front)
    if isinstance(kind, Vector):
        return list(map(list, rows))
    if kind is not None and not isinstance(kind, Record) and len(columns) == 1:
        return [row[0] for row in rows]
    return {str(name): [row[index] for row in rows] for index, name in enumerate(columns)}


def _check(columns: Sequence[Any], rows: Sequence[Sequence[Any]], where: str) -> None:
    """Refuse a table without rows, and one whose rows are longer or shorter than its header."""
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns):
            found = f"{len(row)} values in row {number}"
            raise HttpError(f"there are {len(columns)} columns", where=where, found=found)
    if not rows:
        raise HttpError("there is no row", where=where)


def _csv(front: ModelCodec, body: bytes | memoryview, options: str) -> Any:
    """The table of a body of CSV; its first line is a header, unless all of it is numbers."""
    try:
        text = bytes(body).decode("utf-8-sig")
        lines = [row for row in csv.reader(text.splitlines(keepends=True), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise HttpError("this is not CSV in UTF-8", found=str(problem)[:100]) from None
    kind, first = _only(front), lines[0] if lines else []
    fields = dict(kind.fields) if isinstance(kind, Record) else {}
    names: Sequence[str] = list(fields) or list(map(str, range(len(first))))
    if lines and _has_header(first, options):
        names = lines.pop(0)
    _check(names, lines, "the body")
    texts = [_is_text(fields.get(name, kind)) for name in names]
    rows = [
        [(cell or None) if plain else _value(cell) for cell, plain in zip(row, texts, strict=True)]
        for row in lines
    ]
    return _table(front, names, rows, "the body")


def _is_text(kind: object) -> bool:
    return isinstance(kind, Text) or getattr(kind, "dtype", "") == "string"


def _has_header(first: list[str], options: str) -> bool:
    for told in ("present", "absent"):
        if f"header={told}" in options:
            return told == "present"
    if first == list(map(str, range(len(first)))):
        raise HttpError(
            "the first line may be a header or a row",
            where="the body",
            found=",".join(first)[:100],
            hint="Content-Type: text/csv; header=present, or header=absent",
        )
    return any(isinstance(_value(each), str) for each in first)


def _value(cell: str) -> object:
    """The value of a cell: none, a truth value, a number, or the text itself."""
    if cell.lower() in {"", "true", "false"}:
        return cell.lower() == "true" if cell else None
    if _INTEGER.fullmatch(cell) is not None and len(cell) < 19:
        return int(cell)
    try:
        return cell if "_" in cell else float(cell)
    except ValueError:
        return cell
