"""HTTP servers that are raced, each started as `python -m bench.servers.NAME FOLDER COUNT PORT`.

Those of a graph of models get the file of its steps instead of a folder and a count; those of a
champion with its shadow the file of both, and whether the shadow is asked.

`SERVERS` says in which environment each runs and how it wants to be asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True)
class ServerKind:
    """A server: its title, its environment, what is sent for a row of a model."""

    title: str
    environment: str
    request: Callable[[int, Sequence[float]], bytes]
    packages: tuple[str, ...] = ()
    settings: str = ""
    """Its settings, for the report."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its process: as its documents advise, and without telemetry."""
    enclosed: bool = False
    """Whether it runs in a network of its own: see bench.enclosed."""


def post(path: str, body: dict[str, object]) -> bytes:
    """A whole request as it goes over the wire."""
    text = json.dumps(body, separators=(",", ":")).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


def open_inference(number: int, row: Sequence[float]) -> bytes:
    """A row as the Open Inference Protocol has it."""
    tensor = {"name": "X", "shape": [1, len(row)], "datatype": "FP64", "data": list(row)}
    return post(f"/v2/models/lin{number}/infer", {"inputs": [tensor]})


def plain(number: int, row: Sequence[float]) -> bytes:
    """A row as a JSON object of our own."""
    return post("/predict", {"model": number, "row": list(row)})


def named(model: str) -> Callable[[int, Sequence[float]], bytes]:
    """A row for the one model that clients call, as the Open Inference Protocol has it."""

    def request(_: int, row: Sequence[float]) -> bytes:
        tensor = {"name": "X", "shape": [1, len(row)], "datatype": "FP64", "data": list(row)}
        return post(f"/v2/models/{model}/infer", {"inputs": [tensor]})

    return request


def bare(_: int, row: Sequence[float]) -> bytes:
    """The same as a JSON object of our own."""
    return post("/predict", {"row": list(row)})


#: A folder in memory that servers have which run in a network of their own.
SCRATCH = Path("/srv")

SERVERS = {
    "pretzel": ServerKind("Pretzel", "main", open_inference, ("uvloop", "httptools", "numpy")),
    "echo": ServerKind(
        "bare echo (asyncio)",
        "main",
        open_inference,
        ("uvloop", "httptools", "msgspec"),
        "asyncio on uvloop; no routes, limits or models",
    ),
    "bentoml": ServerKind(
        "BentoML + scikit-learn",
        "bentoml",
        plain,
        ("bentoml", "uvicorn", "uvloop", "scikit-learn"),
        "one worker on uvicorn without its supervisor; metrics and access log off",
        {"BENTOML_DO_NOT_TRACK": "True"},
    ),
    "litserve": ServerKind(
        "LitServe + scikit-learn",
        "litserve",
        plain,
        ("litserve", "scikit-learn"),
        "one worker, no batching",
    ),
    "rayserve": ServerKind(
        "Ray Serve + scikit-learn",
        "ray",
        plain,
        ("ray", "uvicorn", "scikit-learn"),
        "one replica, no batching, access log off, in a network of its own",
        {"RAY_USAGE_STATS_ENABLED": "0"},
        enclosed=True,
    ),
    "mlserver": ServerKind(
        "MLServer + scikit-learn",
        "mlserver_sklearn",
        open_inference,
        ("mlserver", "scikit-learn"),
        "one process (parallel_workers=0), metrics off",
    ),
}

#: Servers of the risk graph, each in `graph_NAME.py`: see bench.servers.graph_parts.
GRAPHS = {
    "graph_pretzel": replace(SERVERS["pretzel"], request=named("decide")),
    "graph_bentoml": replace(SERVERS["bentoml"], request=bare, title="BentoML"),
    "graph_rayserve": replace(SERVERS["rayserve"], request=bare, title="Ray Serve"),
    "graph_mlserver": replace(SERVERS["mlserver"], request=named("decide"), title="MLServer"),
    "graph_kserve": ServerKind(
        "KServe",
        "kserve_sklearn",
        named("decide"),
        ("kserve", "scikit-learn"),
        "one worker, no gRPC",
    ),
}

#: Servers of a champion with its shadow, each in `shadow_NAME.py`: see bench.servers.shadow_parts.
SHADOWS = {
    "shadow_pretzel": replace(SERVERS["pretzel"], request=named("front")),
    "shadow_bentoml": replace(SERVERS["bentoml"], request=bare, title="BentoML"),
    "shadow_rayserve": replace(SERVERS["rayserve"], request=bare, title="Ray Serve"),
    "shadow_mlserver": replace(SERVERS["mlserver"], request=named("front"), title="MLServer"),
}
