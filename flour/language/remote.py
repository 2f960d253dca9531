"""Models of other servers as nodes of graphs, asked with the Open Inference Protocol.

score = flour.call("http://models:8000/v2/models/fraud", inputs={"age": row["age"]},
                   output="score", gives=float, timeout=0.1)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from flour.core.errors import ParameterError
from flour.core.http1 import asked
from flour.core.request_ids import CURRENT, HEADER
from flour.language.flow import Flow
from flour.language.graphs import fetch

_DATATYPES: Mapping[type, str] = {float: "FP64", int: "INT64", str: "BYTES", bool: "BOOL"}
_OK = 200


def call(url: str, *, inputs: Mapping[str, Flow], output: str, gives: Any, **policy: Any) -> Flow:
    """The answer of another server's model for each row; `policy` is that of `fetch`.

    `url` is that of the model, as in `http://host:8000/v2/models/fraud`; `inputs` are its tensors.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not inputs:
        raise ParameterError.here(
            "a call needs the address of a model, and inputs",
            found=repr(url)[:120],
            hint='flour.call("http://host:8000/v2/models/fraud", inputs={"x": flow}, ...)',
        )
    names = tuple(inputs)

    async def ask(*values: object) -> object:
        body = {"inputs": [_tensor(*each) for each in zip(names, values, strict=True)]}
        wanted = json.dumps({**body, "outputs": [{"name": output}]})
        answer = json.loads(await _posted(url, wanted.encode()))
        tensor = answer["outputs"][0]
        data = tensor["data"]
        return data[0] if len(tensor["shape"]) == 1 else data

    # The name of the model: clients read names of nodes, and have no use for addresses.
    policy.setdefault("name", parts.path.rstrip("/").rpartition("/")[2] or "call")
    return fetch(ask, *inputs.values(), gives=gives, **policy)


def _tensor(name: str, value: object) -> dict[str, Any]:
    if isinstance(value, np.ndarray):
        shape, data = [1, len(value)], value.tolist()
        return {"name": name, "shape": shape, "datatype": "FP64", "data": data}
    return {"name": name, "shape": [1], "datatype": _DATATYPES[type(value)], "data": [value]}


async def _posted(url: str, body: bytes) -> bytes:
    """The body of an answer; another status than 200 is an error with what the server said."""
    import asyncio  # it takes 30 ms, and most programs wait for nothing

    parts, request = urlsplit(url), CURRENT.get("")
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure or None)
    headers = {"Host": parts.netloc.rpartition("@")[2], "Content-Type": "application/json"}
    headers |= {"Connection": "close", **({HEADER: request} if request else {})}
    try:
        reply, _ = await asked(reader, writer, "POST", f"{parts.path}/infer", headers, body)
    finally:
        writer.close()
    if reply.status != _OK:
        raise ConnectionError(f"{reply.status}: {reply.body[:160].decode('utf-8', 'replace')}")
    return reply.body
