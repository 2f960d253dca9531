"""Arrow over HTTP: rows as an IPC stream in, answers as one out; pyarrow is imported only then.

    POST /predict/{model}    Content-Type: application/vnd.apache.arrow.stream

Columns are read over the memory of the body where their types allow (flour/data/arrow_reader.py).
A stream is known by its first byte, which no JSON begins with; it is answered with a stream unless
the client accepts JSON only, and JSON is answered with a stream if the client accepts that.
"""

from __future__ import annotations

import gc
import os
import struct
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from flour.core.types import Type
from flour.data.arrow_reader import ArrowReader, library, no_rows
from objectstore import system
from oven.plans.arrow import answers_batch
from runtime.http.wire.loop_fairness import uncollected
from runtime.http.wire.messages import JSON, Request, Response
from runtime.http.wire.problems import HttpError

ARROW = "application/vnd.apache.arrow.stream"
#: What a message of a stream begins with.
_OPENING = b"\xff\xff\xff\xff"
#: Rows for each byte of a stream: a column of bools has no more of them.
_MOST_ROWS = 8
_loaded = threading.Event()


def is_stream(body: bytes | memoryview) -> bool:
    """True if a body is an IPC stream."""
    return body[:4] == _OPENING


def is_wanted(request: Request) -> bool:
    """True if the answer is to be a stream."""
    accepted = request.headers.get(b"accept", b"").lower()
    return ARROW.encode() in accepted or (JSON.encode() not in accepted and is_stream(request.body))


def is_loaded() -> bool:
    """True if pyarrow is there; importing it takes some tenths of a second."""
    return _loaded.is_set()


def load() -> None:
    """Import pyarrow, and pandas that it asks about arrays: on a thread, for the first time."""
    if is_loaded():
        return
    _load_libraries()
    try:
        with uncollected():
            library().array([])
            gc.freeze()  # what was imported stays: to look at it would stop all threads
        _loaded.set()
    except ModuleNotFoundError as problem:
        raise HttpError(
            "this server does not speak Arrow",
            415,
            found=f"no {problem.name}",
            hint="pip install 'pretzel-runtime[arrow]' where it runs, or send JSON",
        ) from None


def _load_libraries() -> None:
    """Load what pyarrow is linked to without the GIL, which an import holds for all that time."""
    found = find_spec("pyarrow")
    if found is not None and found.origin is not None:
        for path in Path(found.origin).parent.glob("lib.*.so"):  # there is none on Windows
            system.c_library().dlopen(os.fsencode(path), os.RTLD_NOW)


def rows(body: bytes | memoryview, inputs: Mapping[str, Type]) -> Any:
    """The rows of a stream as the data of a call."""
    load()
    pa = library()
    try:
        _check_plain(pa, body)
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)  # offsets that point elsewhere would be followed
    except (pa.ArrowException, struct.error, OSError, UnicodeDecodeError) as problem:
        raise HttpError(
            "the body is no Arrow stream", found=str(problem).splitlines()[0][:200]
        ) from None
    if table.num_rows > _MOST_ROWS * len(body):
        raise HttpError("the rows have no data", found=f"{table.num_rows} rows")
    batches = table.combine_chunks().to_batches() or [no_rows(table.schema)]
    return ArrowReader(inputs).read(batches[0])


def response(answers: Mapping[str, Any], outputs: Mapping[str, Type]) -> Response:
    """The answers to a block of rows as a stream of one batch."""
    load()
    pa = library()
    batch = answers_batch(answers, outputs)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return Response(sink.getvalue().to_pybytes(), content_type=ARROW)


def _check_plain(pa: ModuleType, body: bytes | memoryview) -> None:
    """Refuse compressed batches: they say themselves how large they get."""
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        head = message.metadata.to_pybytes()
        table = _table(head, 0)
        if message.type == "dictionary":
            table = _table(head, _field(head, table, 2))
            batch = _field(head, table, 1)
        elif message.type == "record batch":
            batch = _field(head, table, 2)
        else:
            continue
        if _field(head, _table(head, batch), _COMPRESSION):
            raise HttpError(
                "the batches of a stream cannot be compressed one by one",
                hint="compress the whole body, and say so in Content-Encoding",
            )


# The metadata of a message is a flatbuffer: tables refer to a list of where their fields are.
_COMPRESSION = 3


def _table(head: bytes, at: int) -> int:
    """The position of the table that is referred to here."""
    return at + int(struct.unpack_from("<I", head, at)[0])


def _field(head: bytes, table: int, number: int) -> int:
    """The position of a table's field; 0 if it is absent."""
    fields = table - struct.unpack_from("<i", head, table)[0]
    (size,), at = struct.unpack_from("<H", head, fields), 4 + 2 * number
    offset = struct.unpack_from("<H", head, fields + at)[0] if at < size else 0
    return table + offset if offset else 0
