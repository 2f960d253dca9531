"""Large blocks of rows: cut into shards, scored by several replicas, merged in order.

Shards are equal parts, or what a function says of the rows. An ensemble whose members are models of
their own is asked member by member. All rows are answered by one version. Where a switch comes
between the shards, those that were answered by another version than the last one are asked again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runtime.client.rows import Outputs, Rows, columns_of, tensor_outputs, tensors
from runtime.cluster.serving.bodies import ReplicaAnswer
from runtime.errors import ClusterError
from runtime.http.wire.messages import HEADER_LENGTH, PARITY_OF, PLAN_HEADER, VERSION_HEADER

#: For each row of a block what it goes by, or what says it of the rows: those of one number, or
#: word, are asked together.
Sharding = Callable[[Any], ArrayLike] | Sequence[object] | NDArray[Any]
#: The answers of an ensemble, of those of its members.
Combine = Callable[[Sequence[Outputs]], Outputs]

#: A shard has so many rows at least: less is answered sooner by one replica.
LEAST_ROWS = 1000
_ROUNDS = 4


class AskReplica(Protocol):
    """Sends a request to one of the replicas, and to another one where that is lost."""

    def __call__(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], *, spread: bool = ...
    ) -> ReplicaAnswer:
        """The answer; `spread` where other parts are asked for at the same time."""


class Shard(NamedTuple):
    """The outputs for some rows, and who gave them: a version, or several by row.

    `plan` is its digest, if that is one; `parity_of` of a parity model what it was trained for.
    """

    version: str
    plan: str | None
    parity_of: str | None
    outputs: Outputs


def predict_block(
    ask: AskReplica, replicas: int, name: str, rows: Rows, shard: Sharding | None = None
) -> Outputs:
    """The answers to all rows, by output; a shard whose replica is lost is asked elsewhere."""
    columns = columns_of(rows)
    counts = {column.shape[:1] for column in columns.values()}
    if len(counts) != 1 or () in counts:
        raise ClusterError("a block has rows, as many in each column", found=str(sorted(counts)))
    ((count,),) = counts
    if shard is None:
        shards = max(1, min(replicas, count // LEAST_ROWS))
        ends = [count * place // shards for place in range(shards + 1)]
        cuts = [slice(*each) for each in pairwise(ends)]
        parts = [{key: column[cut] for key, column in columns.items()} for cut in cuts]
        return _answered(ask, replicas, name, columns, parts)
    # The rows of each shard, by what the function says of them.
    said = np.asarray(shard(rows) if callable(shard) else shard)
    if said.shape != (count,):
        raise ClusterError(
            "a sharding function says something of each row",
            found=f"shape {said.shape} for {count} rows" if callable(shard) else repr(shard)[:80],
            hint="an array of a number or a text for each row",
        )
    if said.dtype == object:
        said = np.array([repr(each) for each in said])
    _, numbers = np.unique(said, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    places = np.split(order, np.cumsum(np.bincount(numbers))[:-1])
    parts = [{key: column[place] for key, column in columns.items()} for place in places]
    back = np.argsort(np.concatenate(places), kind="stable")
    merged = _answered(ask, replicas, name, columns, parts)
    return {key: output[back] for key, output in merged.items()}


def predict_members(
    ask: AskReplica, replicas: int, names: Sequence[str], rows: Rows, combine: Combine | None = None
) -> Outputs:
    """The answers of an ensemble: each member is asked for all rows, several at once."""
    if isinstance(names, str) or not names:
        raise ClusterError(
            "an ensemble has members", found=repr(names)[:80], hint='("trees-1", "trees-2")'
        )
    each = max(1, replicas // len(names))
    with ThreadPoolExecutor(len(names)) as pool:
        found = list(pool.map(lambda name: predict_block(ask, each, name, rows), names))
    return (combine or mean_of)(found)


def mean_of(members: Sequence[Outputs]) -> Outputs:
    """The mean of each output over the members, which all have the same, of numbers."""
    first = members[0]
    for key, found in first.items():
        if found.dtype.kind != "f" or any(key not in each for each in members):
            raise ClusterError(
                "only outputs of floats that all members have have a mean",
                where=f"output {key!r}",
                found=str(found.dtype),
                hint="predict_members(..., combine=function)",
            )
    return {key: np.mean([each[key] for each in members], axis=0) for key in first}


def _answered(
    ask: AskReplica,
    replicas: int,
    name: str,
    columns: Mapping[str, NDArray[Any]],
    parts: Sequence[Mapping[str, NDArray[Any]]],
) -> Outputs:
    """The answers to all parts, one behind another, by one version."""
    ask = partial(ask, spread=True) if len(parts) > 1 else ask
    with ThreadPoolExecutor(max(1, min(len(parts), 2 * replicas))) as pool:
        found = list(pool.map(lambda part: _asked(ask, name, part), parts))
        for _ in range(_ROUNDS):
            # The version in service now: a small request tells, and it may have changed.
            if any(", " in shard.version for shard in found):
                break
            if len({shard[:2] for shard in found}) == 1:
                return _merged([shard.outputs for shard in found])
            first = {key: column[:1] for key, column in columns.items()}
            newest = _asked(ask, name, first)[:2]
            old = [place for place, shard in enumerate(found) if shard[:2] != newest]
            again = pool.map(lambda place: _asked(ask, name, parts[place]), old)
            for place, shard in zip(old, again, strict=True):
                found[place] = shard
    raise ClusterError(
        "the rows of a block are answered by several versions",
        where=name,
        found=", ".join(sorted({f"{shard.version} ({shard.plan})" for shard in found})),
        hint="where a route chooses by row, ask for NAME@VERSION",
    )


def ask_once(ask: AskReplica, name: str, rows: Rows) -> Shard:
    """The answers to all rows by one request, and who gave them."""
    return _asked(ask, name, columns_of(rows))


def _asked(ask: AskReplica, name: str, part: Mapping[str, NDArray[Any]]) -> Shard:
    asked = tensors(name, part)
    answer = ask("POST", asked.path, asked.body, asked.headers)
    if answer.status != 200:
        answer.value()
    headers = {key.lower(): value for key, value in answer.headers.items()}
    outputs = tensor_outputs(headers, answer.body)
    parity_of, several = headers.get(PARITY_OF.lower()), headers.get(VERSION_HEADER.lower(), "")
    if ", " in several:
        return Shard(several, None, parity_of, outputs)
    said = json.loads(answer.body[: int(headers[HEADER_LENGTH])])
    return Shard(said["model_version"], headers.get(PLAN_HEADER.lower()), parity_of, outputs)


def _merged(parts: Sequence[Outputs]) -> Outputs:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
