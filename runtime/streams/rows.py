"""From messages to the rows of a model, and from its answers to messages.

A message is a row, as `POST /predict/NAME` takes it, or an array of rows; its answer is an object,
or an array of them. The rows of a batch of messages are answered as one block. What the model
refuses is found by halving the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import NoneType
from typing import Any

import msgspec

from flour.core.errors import nearest
from flour.core.types import Text
from runtime.bulk.refused import ROW_ERRORS, separated
from runtime.errors import NodeFailed
from runtime.http.answer.plain_json import batch_of
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.response_options import NOTHING
from runtime.http.codec.row_texts import encoded_lines
from runtime.http.wire.problems import HttpError
from runtime.runtime import Runtime
from runtime.service.answerers import Asked
from runtime.service.private_answers import shown
from runtime.service.stacks import Stacks
from runtime.service.stream_counts import StreamCounts
from runtime.streams.messages import RefusedMessage, StreamMessage, message

_decode = msgspec.json.Decoder().decode
#: Errors that a message may be to blame for.
REFUSED = (*ROW_ERRORS, NodeFailed, HttpError)
_NUMBERS = {int, float, NoneType}
#: Calls a function, again and again where the runtime has no room for it; so many times at most
#: if a node of a graph fails.
Retry = Callable[[Callable[[], list[bytes]], int], list[bytes]]
#: How often a whole batch is tried; its parts are tried once.
_TRIES = 3


class MessageRows:
    """Answers messages by the stack of an endpoint, which may change between two batches."""

    def __init__(
        self,
        runtime: Runtime,
        counts: StreamCounts,
        keep: Sequence[str] = (),
        priority: int | None = None,
    ) -> None:
        self._stacks = Stacks(runtime.direct, runtime.endpoints, runtime.routes)
        self._endpoints, self._endpoint, self._counts = runtime.endpoints, counts.endpoint, counts
        self._keep, self._priority, self._asked = keep, priority, Asked({})

    @property
    def mixes_rows(self) -> bool:
        """True if the answer for a message would depend on others in its batch."""
        version = self._endpoints.find(self._endpoint)
        # Graphs keep the rows of a request together; their answers do not depend on one another
        # unless those of a step do.
        steps = getattr(version.plan, "plans", None)
        return version.mixes_rows if steps is None else any(each.mixes_rows for each in steps)

    def answered(
        self, taken: Sequence[StreamMessage], retry: Retry
    ) -> tuple[list[StreamMessage], list[StreamMessage]]:
        """The answers, and the messages that are refused, with the reason."""
        values = _decoded(taken)
        good = [at for at, value in enumerate(values) if not isinstance(value, Exception)]
        wrong = {at: each for at, each in enumerate(values) if isinstance(each, Exception)}
        data = values if len(good) == len(values) else [values[at] for at in good]

        def run(start: int, end: int) -> list[bytes]:
            part = data[start:end]
            return retry(lambda: self._texts(part), 1) if part else []

        try:
            texts = retry(lambda: self._texts(data), _TRIES) if data else []
        except REFUSED:
            parts, refused = separated(run, len(data), REFUSED)
            texts = list(chain.from_iterable(parts))
            wrong |= {good[at]: problem for at, problem in refused.items()}
        letters = [taken[at]._replace(reason=_reason(wrong[at])) for at in sorted(wrong)]
        rest = [each for at, each in enumerate(taken) if at not in wrong] if wrong else taken
        _, keys, positions, none = zip(*rest, strict=True) if rest else ((),) * 4
        return [*map(message, zip(texts, keys, positions, none, strict=True))], letters

    def _texts(self, values: Sequence[Any]) -> list[bytes]:
        """The answer to each message."""
        kinds = set(map(type, values))
        if kinds == {list} and all(values) and {type(value[0]) for value in values} <= _NUMBERS:
            kinds = {dict}
        if kinds == {dict}:  # each is one row, as usual
            return self._lines(values)
        inputs = self._endpoints.find(self._endpoint).inputs
        is_text = len(inputs) == 1 and isinstance(next(iter(inputs.values())), Text)
        sizes = [len(value) if _is_block(value, is_text=is_text) else -1 for value in values]
        rows = [
            row
            for value, size in zip(values, sizes, strict=True)
            for row in ([value] if size < 0 else value)
        ]
        lines = iter(self._lines(rows) if rows else ())
        return [
            next(lines) if size < 0 else b"[%b]" % b",".join(next(lines) for _ in range(size))
            for size in sizes
        ]

    def _lines(self, rows: Sequence[Any]) -> list[bytes]:
        """The answer to each row."""
        version, stack, _ = self._stacks.open(self._endpoint, rows)
        front = version.front if isinstance(version.front, ModelCodec) else ModelCodec(version)
        version.front = front
        kept = {name: [_cell(row, name) for row in rows] for name in self._keep}
        try:
            batch = batch_of(front, rows)
            if batch.single or batch.rows != len(rows):
                kind = type(rows[0]).__name__
                raise RefusedMessage("a message is a row, or an array of rows", found=kind)
        except REFUSED as problem:
            raise shown(problem, version) from None
        call = front.call(batch, NOTHING)
        call = call._replace(priority=self._priority, waits=True, asked=self._asked)
        answers: Mapping[str, Any] = stack.answer(call).result()
        self._counts.rows += len(rows)
        return encoded_lines({**kept, **answers}, front.class_names)


def _decoded(taken: Sequence[StreamMessage]) -> list[Any]:
    """Values of the messages; an error for each that is not JSON."""
    try:
        return [_decode(each.value) for each in taken]  # type: ignore[arg-type]  # below
    except (msgspec.MsgspecError, TypeError, RecursionError, UnicodeDecodeError):
        return [_decoded_alone(each.value) for each in taken]


def _decoded_alone(value: bytes | None) -> Any:
    if value is None:
        return ValueError("the message has no value, or was deleted since")
    try:
        return _decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
        return ValueError(f"this is not JSON: {problem}")


def _is_block(value: object, *, is_text: bool) -> bool:
    """True for an array of rows; a row may be an array itself."""
    if not isinstance(value, list):
        return False
    if not value:  # of a model with columns, it is a row that has none
        return is_text
    return isinstance(value[0], list | dict) or (is_text and type(value[0]) is str)


def _cell(row: object, name: str) -> object:
    if isinstance(row, dict) and name in row:
        return row[name]
    hint = nearest(name, row) if isinstance(row, dict) else "rows are objects with names"
    raise RefusedMessage(f"a row has no column {name!r} to keep", hint=hint)


def _reason(problem: Exception) -> str:
    lines = (" ".join(line.split()) for line in str(problem).splitlines())
    return "; ".join(lines)[:1000] or type(problem).__name__
