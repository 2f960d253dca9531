"""Bodies of requests, past the parser of headers: into their place in memory, or nowhere.

Connections read into one small piece of memory that they share, which holds the headers and all of
a small body. The rest of a larger one goes from the system into its own place, without a copy, and
what is left of the body of a request that will be refused is dropped by the system, unread.
"""

from __future__ import annotations

import ctypes
import socket

import numpy as np

from objectstore import system
from runtime.http.wire.messages import HEADER_LENGTH, Response
from runtime.http.wire.problems import refusal
from runtime.http.wire.settings import ServerSettings

#: The shared memory: what is read at once where the bytes have no place yet.
READ_BYTES = 16 << 10
#: Fewer bytes of a head than this are not looked at, as they hold a few hundred fields at most.
FEW_BYTES = 2048
#: The number of chunks that may be of any size; bodies of more have a mean of these bytes.
_SMALL_CHUNKS, _CHUNK_BYTES = 256, 8
_HEADER_LENGTH = HEADER_LENGTH.encode()
#: Linux drops what is received with these flags, instead of copying it.
_FLAGS = (socket.MSG_TRUNC | socket.MSG_DONTWAIT) if system.LINUX else 0


def place_for(length: int, headers: dict[bytes, bytes]) -> memoryview:
    """Memory for a body; raw tensors behind a JSON header are aligned in it.

    Memory of numpy is not cleared first: the system gives it page by page, as it is filled.
    """
    header = headers.get(_HEADER_LENGTH, b"")
    ahead = -int(header) % 8 if header.isdigit() and len(header) < 12 else 0
    return np.empty(length + ahead, np.uint8).data[ahead:]


def drop(number: int, most: int) -> int:
    """Drop up to `most` bytes that have come; how many, 0 where the system cannot do that."""
    return max(0, int(_receive(number, None, most, _FLAGS))) if _FLAGS else 0


def crumbled(chunks: int, size: int) -> bool:
    """True if a body comes in many chunks of hardly any bytes."""
    return chunks > _SMALL_CHUNKS and size < chunks * _CHUNK_BYTES


def too_large(settings: ServerSettings, size: int) -> Response:
    """The answer to a body beyond the limit of bytes, or else of chunks."""
    if size > settings.max_body:
        return refusal(f"a body may have {settings.max_body} bytes", 413)
    return refusal(f"chunks have {_CHUNK_BYTES} bytes and more where there are many", 413)


# It does not wait, so it need not give up the GIL, which takes longer.
_Receive = ctypes.PYFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
)
_receive = _Receive(("recv", system.c_library())) if _FLAGS else _Receive()
