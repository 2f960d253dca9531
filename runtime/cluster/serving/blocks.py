"""Large blocks of rows: cut into shards, scored by several replicas, merged in order.

All rows are answered by one version. Where a switch comes between the shards, those that were
answered by another version than the last one are asked again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from runtime.cluster.serving.bodies import Answer
from runtime.errors import ClusterError
from runtime.http.codec_binary import Reader, raw_values, values
from runtime.http.messages import HEADER_LENGTH
from runtime.http.tensors import datatype_of

Rows = NDArray[Any] | Mapping[str, NDArray[Any]]
Outputs = dict[str, NDArray[Any]]

#: A shard has so many rows at least: less is answered sooner by one replica.
LEAST_ROWS = 1000
_ROUNDS = 4


class Ask(Protocol):
    """Sends a request to one of the replicas, and to another one where that is lost."""

    def __call__(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], /
    ) -> Answer:
        """The answer."""
        ...


class _Shard(NamedTuple):
    version: str
    outputs: Outputs


def predict_block(ask: Ask, replicas: int, name: str, rows: Rows) -> Outputs:
    """The answers to all rows, by output; a shard whose replica is lost is asked elsewhere."""
    columns = dict(rows) if isinstance(rows, Mapping) else {"input": rows}
    count = {len(column) for column in columns.values()}
    if len(count) != 1 or 0 in count:
        raise ClusterError("a block has rows, as many in each column", found=str(sorted(count)))
    cuts = _cuts(count.pop(), replicas)
    parts = [
        {key: column[start:stop] for key, column in columns.items()}
        for start, stop in pairwise(cuts)
    ]
    with ThreadPoolExecutor(len(parts)) as pool:
        found = list(pool.map(lambda part: _asked(ask, name, part), parts))
        for _ in range(_ROUNDS):
            # The version in service now: a small request tells, and it may have changed.
            if len({shard.version for shard in found}) == 1:
                return _merged([shard.outputs for shard in found])
            first = {key: column[:1] for key, column in columns.items()}
            newest = _asked(ask, name, first).version
            old = [place for place, shard in enumerate(found) if shard.version != newest]
            again = pool.map(lambda place: _asked(ask, name, parts[place]), old)
            for place, shard in zip(old, again, strict=True):
                found[place] = shard
    raise ClusterError(
        "the shards of a block are answered by several versions",
        where=name,
        found=", ".join(sorted({shard.version for shard in found})),
        hint="where a route chooses by row, ask for NAME@VERSION",
    )


def _cuts(rows: int, replicas: int) -> list[int]:
    """Where shards begin and end: as many as replicas, of nearly equal size."""
    shards = max(1, min(replicas, rows // LEAST_ROWS))
    return [rows * place // shards for place in range(shards + 1)]


def _asked(ask: Ask, name: str, part: Mapping[str, NDArray[Any]]) -> _Shard:
    raws, inputs = [], []
    for key, column in part.items():
        datatype = datatype_of(column.dtype)
        raws.append(bytes(raw_values(column, datatype)))
        inputs.append(
            {
                "name": key,
                "datatype": datatype,
                "shape": list(column.shape),
                "parameters": {"binary_data_size": len(raws[-1])},
            }
        )
    asked = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    head = json.dumps(asked).encode()
    model, _, version = name.partition("@")
    at = f"/versions/{quote(version, safe='')}" if version else ""
    path = f"/v2/models/{quote(model, safe='')}{at}/infer"
    headers = {HEADER_LENGTH: str(len(head))}
    answer = ask("POST", path, b"".join([head, *raws]), headers)
    if answer.status != 200:
        answer.value()
    size = next(int(v) for k, v in answer.headers.items() if k.lower() == HEADER_LENGTH)
    said: dict[str, Any] = json.loads(answer.body[:size])
    reader, outputs = Reader(answer.body, size), Outputs()
    for output in said["outputs"]:
        key, raw = output["name"], output["parameters"]["binary_data_size"]
        outputs[key] = values(reader.take(raw, key), output["datatype"], output["shape"], key)
    return _Shard(said["model_version"], outputs)


def _merged(parts: Sequence[Outputs]) -> Outputs:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
