"""MLflow's and SageMaker's way to ask: `/invocations`, for the one model of a server.

    {"dataframe_split": {"columns": ["age", "city"], "data": [[41, "Oslo"]]}}

In place of `dataframe_split` there may be `dataframe_records`, `instances` or `inputs`, or the
whole body is CSV (`Content-Type: text/csv`). Predictions are those of `/v1/models/{model}:predict`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import StringIO
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np

from flour.core.types import Record, Text, Vector
from flour.data.batch import Batch
from runtime.errors import UnknownEndpoint
from runtime.http.answer import models
from runtime.http.answer.experiments import by_route
from runtime.http.answer.inference import PREDICTIONS, at_once, in_pieces
from runtime.http.answer.plain_json import batch_of, predicted, predictions_of
from runtime.http.codec.array_pieces import LARGE, ArrayPieces
from runtime.http.codec.bodies import DataframeSplit, Invocation
from runtime.http.codec.codec_json import converted, decoded
from runtime.http.codec.column_arrays import joined, outlined, whole
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.routes import HandlerContext
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.http.wire.settings import server_version

_invocation = msgspec.json.Decoder(Invocation)
_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
#: Rows of CSV, or of columns, that are answered at a time.
_LINES = 512
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
    return predicted(service, front, request, _batch(front, request))


async def _aside(service: HandlerContext, front: ModelCodec, request: Request) -> Response:
    cut, form = partial(_batches, front, request), partial(predictions_of, front)
    answer = await in_pieces(service, front, request, cut, form, PREDICTIONS)
    read, then = partial(_batch, front, request), partial(predicted, service, front, request)
    return answer or await at_once(service, request, read, then)


def _rows(service: HandlerContext, request: Request) -> object:
    """The data of a body, for a route that reads it."""
    return _batch(service.front(request.params["model"]), request).data


_answer = by_route(_invoked, _rows)


# --- reading -------------------------------------------------------------------------------------


def _batch(front: ModelCodec, request: Request) -> Batch:
    """The batch of a whole body."""
    options = _csv_options(request)
    if options is not None:
        return _rows_batch(front, next(_csv(front, request.body, options, None)))
    if len(request.body) > LARGE:
        return _read(front, [], whole(request.body))
    return _read(front, [], decoded(request.body, _invocation, Invocation))


def _csv_options(request: Request) -> str | None:
    """The options of CSV in the content type; None for JSON."""
    kind, _, options = (request.header("content-type") or "").lower().partition(";")
    return options if kind.strip() == "text/csv" else None


def _read(front: ModelCodec, columns: list[str], body: object) -> Batch:
    """The batch of a body; `columns` has those of the first row of all, once it is read."""
    asked: Invocation = converted(body, Invocation)
    form, value = _given({name: getattr(asked, name) for name in _FORMS})
    where = f"$.{form}"
    return _rows_batch(front, _data(front, value, where, columns), where)


def _rows_batch(front: ModelCodec, data: object, where: str = "the body") -> Batch:
    batch = batch_of(front, data, where)
    if batch.single:
        raise HttpError("each row is an array or an object of its own", where="$", found="one row")
    return batch


def _given(forms: Mapping[str, Any]) -> tuple[str, Any]:
    """The one form that a body has, and its value."""
    given = {name: forms[name] for name in _FORMS if forms.get(name) is not None}
    if len(given) != 1:
        what, found = "a body has one of these", ", ".join(given) or "none"
        raise HttpError(what, where="$", found=found, hint=", ".join(_FORMS))
    return next(iter(given.items()))


def _batches(front: ModelCodec, request: Request) -> Iterable[Batch] | None:
    """Some rows of a large body at a time; None where only the whole can be read."""
    options = _csv_options(request)
    if options is not None:
        return map(partial(_rows_batch, front), _csv(front, request.body, options, _LINES))
    value = outlined(request.body)
    form, given = _given(value) if isinstance(value, dict) else ("", None)
    bodies = _bodies(form, given)
    return None if bodies is None else map(partial(_read, front, []), bodies)


def _bodies(form: str, given: object) -> Iterator[dict[str, Any]] | None:
    """Bodies with some of the rows."""
    if isinstance(given, ArrayPieces):
        return ({form: whole(each)} for each in given)
    if not isinstance(given, dict):
        return None
    if form == "dataframe_split":
        pieces, columns = given.get("data"), joined(given.get("columns"))
        if not isinstance(pieces, ArrayPieces):
            return None
        return ({form: {"columns": columns, "data": whole(each)}} for each in pieces)
    table = joined(given)
    _check_lengths(table, f"$.{form}")
    starts = range(0, len(next(iter(table.values()), ())), _LINES)
    return ({form: {name: each[at : at + _LINES] for name, each in table.items()}} for at in starts)


def _data(
    front: ModelCodec,
    value: DataframeSplit | dict[str, Any] | list[Any],
    where: str,
    columns: list[str],
) -> Any:
    """The model's data from a table, from columns or from rows."""
    if isinstance(value, DataframeSplit):
        return _table(front, value.columns, value.data, where)
    if isinstance(value, dict):
        _check_lengths(value, where)
        return _table(front, list(value), list(zip(*value.values(), strict=True)), where)
    first = value[0] if value else None
    if isinstance(_only(front), Record) or not isinstance(first, dict):
        return value
    columns[:] = columns or first
    if not all(isinstance(each, dict) and each.keys() == {*columns} for each in value):
        raise HttpError("rows have the same columns", where=where, hint=", ".join(columns)[:200])
    return _table(front, columns, [[each[name] for name in columns] for each in value], where)


def _check_lengths(columns: Mapping[str, Any], where: str) -> None:
    lengths = {len(each) if isinstance(each, list) else -1 for each in columns.values()}
    if -1 in lengths or len(lengths) > 1:
        raise HttpError("columns are arrays of one length", where=where)


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
        return list(map(list, rows)) or np.empty((0, len(columns)))
    if kind is not None and not isinstance(kind, Record) and len(columns) == 1:
        return [row[0] for row in rows]
    read = {*kind.names} - {*kind.unread} if isinstance(kind, Record) else {*columns}
    if twice := [name for name in read if columns.count(name) > 1]:
        raise HttpError(f"several columns have the name {twice[0]!r}"[:200], where=where)
    return {str(name): [row[index] for row in rows] for index, name in enumerate(columns)}


def _check(columns: Sequence[Any], rows: Sequence[Sequence[Any]], where: str) -> None:
    """Refuse a table without columns, and one whose rows are longer or shorter than its header."""
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns):
            found = f"{len(row)} values in row {number}"
            raise HttpError(f"there are {len(columns)} columns", where=where, found=found)
    if not columns:
        raise HttpError("there is no row", where=where, hint="a table without rows has columns")


def _csv(
    front: ModelCodec, body: bytes | memoryview, options: str, lines: int | None
) -> Iterator[Any]:
    """The model's data from a body of CSV, of so many rows at a time, or of all.

    Its first line is a header, unless all of it is numbers.
    """
    try:
        text = StringIO(bytes(body).decode("utf-8-sig"), newline="")
        read: Iterator[list[str]] = filter(None, csv.reader(text, strict=True))
        first = next(read, [])
        kind = _only(front)
        fields = dict(kind.fields) if isinstance(kind, Record) and first else {}
        names: Sequence[str] = list(fields) or list(map(str, range(len(first))))
        if first and _has_header(first, options):
            names = first
        else:
            read = chain([first] if first else [], read)
        texts = [_is_text(fields.get(name, kind)) for name in names]
        some = list(islice(read, lines))
        while True:
            _check(names, some, "the body")
            rows = [list(map(_cell, row, texts)) for row in some]
            yield _table(front, names, rows, "the body")
            some = list(islice(read, lines))
            if not some:
                return
    except (UnicodeDecodeError, csv.Error) as problem:
        raise HttpError("this is not CSV in UTF-8", found=str(problem)[:100]) from None


def _cell(cell: str, plain: bool) -> object:  # noqa: FBT001 (a fact of each column)
    return (cell or None) if plain else _value(cell)


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
